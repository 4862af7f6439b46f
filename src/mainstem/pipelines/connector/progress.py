"""How far a source has come with something that ends, such as a snapshot.

A source writes it into its state folder; the runtime shows it as a bar and in the status. The file
is replaced as a whole, so that whoever reads sees one moment.
"""

import os
from pathlib import Path

import msgspec
from msgspec import Struct

FILE_NAME = "progress.json"


class Progress(Struct, frozen=True, kw_only=True):
    """``done`` of ``total`` units (None: not known), in words: ``snapshot of public.orders``."""

    what: str
    done: int
    total: int | None = None
    unit: str = "rows"

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to do."""
        return self.total is not None and self.done >= self.total


def write_progress(state_dir: Path, progress: Progress) -> None:
    """Replace what was said before."""
    state_dir.mkdir(parents=True, exist_ok=True)
    fresh = state_dir / f".{FILE_NAME}.{os.getpid()}"
    fresh.write_bytes(msgspec.json.encode(progress))
    fresh.replace(state_dir / FILE_NAME)


def read_progress(state_dir: Path) -> Progress | None:
    """What the source said last; None when it says nothing."""
    try:
        return msgspec.json.decode((state_dir / FILE_NAME).read_bytes(), type=Progress)
    except FileNotFoundError:
        return None
