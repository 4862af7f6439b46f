"""The progress of a source with a task that ends, such as a snapshot.

A source writes it into its state folder; the runtime shows it as a progress bar and in the status.
"""

from pathlib import Path

from msgspec import Struct

from mainstem.model.versioned_json import FIRST
from mainstem.pipelines.connector.state_file import read_json, replace_json

FILE_NAME = "progress.json"


class SourceProgress(Struct, frozen=True, kw_only=True):
    """``done`` of ``total`` units (None: unknown) of a task, such as a snapshot."""

    what: str
    done: int
    total: int | None = None
    unit: str = "rows"
    version: int = FIRST

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to do."""
        return self.total is not None and self.done >= self.total


def write_progress(state_dir: Path, progress: SourceProgress) -> None:
    """Replace the progress."""
    state_dir.mkdir(parents=True, exist_ok=True)
    replace_json(state_dir / FILE_NAME, progress)


def read_progress(state_dir: Path) -> SourceProgress | None:
    """The source's current progress; None when it has none."""
    return read_json(state_dir / FILE_NAME, SourceProgress, "the progress of a source")
