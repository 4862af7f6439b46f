"""Spool files of a connector's folder: rows of a snapshot to be read by Spark, and its progress.

Rows are on disk before Spark gets their offset, so that a batch that is repeated reads the same
file; a file is removed when the batch that contains it is committed. Only the owner may read the
files.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from mainstem.model.versioned_json import FIRST
from mainstem.pipelines.cdc.snapshot_stamps import Stamp, encode

STATE_NAME: Final = "snapshot.json"
SPOOL_NAME: Final = "spool"


class SpoolState(Struct, kw_only=True):
    """The progress of a snapshot; survives restarts.

    ``tables`` are to be read, ``done`` were, ``after`` is the last key of the current one; files up
    to ``shown_until`` may be delivered, and ``number`` counts snapshots. ``stamps`` are those of
    sessions that resumed it.
    """

    tables: list[str]
    done: list[str] = []
    after: list[str] | None = None
    next_file: int = 0
    shown_until: int = 0
    rows: int = 0
    is_complete: bool = False
    number: int = 0
    stamps: list[Stamp] = []
    version: int = FIRST

    @property
    def coded_stamps(self) -> str:
        """The stamps as stored in offsets."""
        return encode(self.stamps) if self.stamps else ""

    def file_written(self, rows: int, *, is_shown: bool) -> None:
        """Count one more file, which may be delivered at once if its table is read in key order."""
        self.next_file += 1
        self.rows += rows
        if is_shown:
            self.shown_until = self.next_file

    def table_written(self, name: str) -> None:
        """Mark a table as complete: all its files are written."""
        self.done.append(name)
        self.after = None
        self.shown_until = self.next_file


def spooled_until(
    state: SpoolState,
    start: int,
    rows_max: int,
    *,
    rows_of: Callable[[int], int],
    more: Callable[[], None],
) -> int:
    """The end of the files of the next batch; calls ``more`` to write files as needed."""
    rows, until = 0, start
    while True:
        while until < state.shown_until:
            count = rows_of(until)
            if until > start and rows + count > rows_max:
                return until
            rows += count
            until += 1
        if rows >= rows_max or state.is_complete:
            return until
        more()


def forget_spool(folder: Path, until: int) -> None:
    """Remove the files below a number, which are no longer needed."""
    spool = folder / SPOOL_NAME
    if spool.is_dir():
        for path in spool.iterdir():
            if path.stem.isdigit() and int(path.stem) < until:
                path.unlink(missing_ok=True)


def private(path: str, flags: int) -> int:
    """An opener of files that only their owner may read."""
    return os.open(path, flags, 0o600)


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a new file and flush it to disk."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(path, "wb", opener=private) as out:
        write(out)
        out.flush()
        os.fsync(out.fileno())


def write_safely(path: Path, data: bytes) -> None:
    """Replace a file atomically and flush it to disk."""
    fresh = path.with_name(f".{path.name}.new")
    write_file(fresh, lambda out: out.write(data))
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def save_state(folder: Path, state: SpoolState) -> None:
    """Store the progress of a snapshot durably."""
    write_safely(folder / STATE_NAME, msgspec.json.encode(state))


def first_mark(*, is_first: bool, begins_all: bool) -> str:
    """The value of ``snapshot`` for the first row of a file."""
    return "first" if begins_all else "first_in_data_collection" if is_first else "true"


def last_mark(*, is_last: bool, ends_all: bool) -> str:
    """The value of ``snapshot`` for the last row of a file."""
    return ("last" if ends_all else "last_in_data_collection") if is_last else "true"
