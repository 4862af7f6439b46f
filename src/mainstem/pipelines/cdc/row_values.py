"""The values of a row, independent of the database."""

import enum
from typing import Final


class Unchanged(enum.Enum):
    """A large value that was not sent because it is unchanged."""

    UNCHANGED = 0


UNCHANGED: Final = Unchanged.UNCHANGED
Value = bytes | None | Unchanged
Values = list[Value]
