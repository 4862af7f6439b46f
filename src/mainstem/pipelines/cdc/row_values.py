"""The values of a row as a database tells them, whatever database it is."""

import enum
from typing import Final


class Unchanged(enum.Enum):
    """A large value that was not sent because it is what it was."""

    UNCHANGED = 0


UNCHANGED: Final = Unchanged.UNCHANGED
Value = bytes | None | Unchanged
Values = list[Value]
