"""A finding: bytes that are not what was written."""

from pathlib import Path
from typing import NamedTuple


class Damage(NamedTuple):
    """Where the damage begins and what is wrong there."""

    path: Path
    position: int
    cause: str
    offset: int | None = None

    def __str__(self) -> str:
        where = f" (offset {self.offset})" if self.offset is not None else ""
        return f"{self.path} at byte {self.position}{where}: {self.cause}"
