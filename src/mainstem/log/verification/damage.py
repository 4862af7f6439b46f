"""A finding: bytes that are not what was written."""

from pathlib import Path
from typing import NamedTuple

from mainstem.model.file_errors import is_unreadable


class Damage(NamedTuple):
    """Where the damage starts and what is wrong there."""

    path: Path
    position: int
    cause: str
    offset: int | None = None

    def __str__(self) -> str:
        where = f" (offset {self.offset})" if self.offset is not None else ""
        return f"{self.path} at byte {self.position}{where}: {self.cause}"


def damage_of(error: OSError, path: Path) -> Damage:
    """The finding for a file whose bytes cannot be read.

    Raises:
        OSError: the call failed for another reason, which is no finding.
    """
    if not is_unreadable(error):
        raise error
    # A failed open names its file, a failed read does not.
    return Damage(Path(error.filename or path), 0, f"cannot be read: {error.strerror}")
