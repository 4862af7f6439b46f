"""A copy of a data folder from which a node can be started, also while the node runs.

    catalogue ──▶ every range that it names ──▶ are all of them there? ── no: once more
                                                                        └─ yes: done

A stopped node's folder is copied as it is. A running node appends, replaces small files as a whole
and removes ranges that it has rewritten or that are past retention. So the catalogue is copied
first, and it decides which ranges belong to the copy. A sealed range never changes. Of an open
range a prefix is copied that holds all that was written when the copy started; an incomplete batch
at its end is cut off at the first start, as after a power loss. A range that disappears before it
was copied has been replaced in the catalogue, so the catalogue is read again.

Guarantees: the source is only read. All that was acknowledged before the copy started is in it.
Checkpoints are left out, so that nothing in the copy counts as durable that is not there.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from mainstem.log.naming import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    RANGE_SEAL,
    TIME_INDEX_SUFFIX,
    TOPICS,
    UNFINISHED_SUFFIX,
    RangeName,
    range_directory,
)
from mainstem.log.store import LOCK
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, Unavailable
from mainstem.node.clustering.membership import FOLDER as RAFT
from mainstem.placement.persistence.journal_storage import JournalStorage
from mainstem.placement.service import replayed
from mainstem.placement.state.catalogue import Catalogue

ATTEMPTS_MAX: Final = 20
CATALOGUE: Final = "catalogue"
LEFT_OUT: Final = frozenset({"log.checkpoint", "producers.checkpoint"})
NOT_COPIED: Final = shutil.ignore_patterns("*.lock", "*.tmp", "*.new", "*.deleted")
# An index is copied before its log, so that it has no entry that the copied log lacks.
_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX)


class BackupSummary(NamedTuple):
    """What a backup holds, and how often the catalogue had to be read."""

    ranges: int
    size_bytes: int
    attempts: int = 1


class _Wanted(NamedTuple):
    directory: Path
    may_be_missing: bool  # a range gets its directory with its first record


def back_up(source: Path, target: Path) -> BackupSummary:
    """Copy the data folder of a node that may be running. Blocking.

    Raises:
        InvalidRequest: the target is not empty, the source is no data folder, or it belongs to a
            running node of a cluster.
        Unavailable: ranges were replaced during every attempt.
    """
    if target.exists() and any(target.iterdir()):
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST, "the folder is not empty", subject=str(target)
        )
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _lock(source) as is_stopped:
        if is_stopped:
            shutil.copytree(source, target, ignore=NOT_COPIED, dirs_exist_ok=True)
            logs = list(target.glob(f"{TOPICS}/*/*/*/*{LOG_SUFFIX}"))
            copied = BackupSummary(len({log.parent for log in logs}), _size(logs))
        elif (source / RAFT).exists():
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                "a running node of a cluster cannot be copied: votes and promises that it makes "
                "afterwards would be missing",
                subject=str(source),
                remedy="stop the node, or all nodes, first; see docs/guides/backup.md",
            )
        else:
            copied = _copy_running(source, target)
    os.sync()
    return copied


@contextmanager
def _lock(source: Path) -> Iterator[bool]:
    """Whether no node runs; if so, none can start meanwhile."""
    path = source / LOCK
    if not path.exists():
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            "no node has ever used this folder",
            subject=str(source),
            remedy="name the folder that node.data_dir names",
        )
    with path.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            is_stopped = False
        else:
            is_stopped = True
        yield is_stopped


def _copy_running(source: Path, target: Path) -> BackupSummary:
    for attempt in range(1, ATTEMPTS_MAX + 1):
        catalogue = _copy_catalogue(source, target)
        wanted = list(_ranges(catalogue))
        missing = [each for each in wanted if not _copy_range(source, target, each)]
        if not missing or _are_empty(source, target, missing):
            _drop_others(target, wanted)
            _copy_rest(source, target)
            size_bytes = _size(list(target.glob(f"{TOPICS}/*/*/*/*{LOG_SUFFIX}")))
            return BackupSummary(len(wanted) - len(missing), size_bytes, attempt)
    raise Unavailable(
        ErrorCode.OVERLOADED,
        f"ranges were replaced while they were copied, {ATTEMPTS_MAX} times",
        subject=str(source),
        remedy="try again when compaction and retention have less to do",
    )


def _copy_catalogue(source: Path, target: Path) -> Catalogue:
    """A journal and the snapshot that belongs to it."""
    folder = target / CATALOGUE
    for attempt in range(1, ATTEMPTS_MAX + 1):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        before = _stamp(source / CATALOGUE / "snapshot")
        for name in ("snapshot", "journal"):
            if (source / CATALOGUE / name).exists():
                _copy(source / CATALOGUE / name, folder / name)
        if _stamp(source / CATALOGUE / "snapshot") != before:
            continue  # the journal may be the one that follows the next snapshot
        journal = JournalStorage(folder)
        try:
            return replayed(journal.open(), str(folder))
        except Corrupt:
            # The mark in the journal's header may have been read while it was written.
            if attempt == ATTEMPTS_MAX:
                raise
        finally:
            journal.close()
    raise Unavailable(
        ErrorCode.OVERLOADED, "the catalogue was rewritten at each attempt", subject=str(source)
    )


def _ranges(catalogue: Catalogue) -> Iterator[_Wanted]:
    """The ranges that a catalogue names, as paths inside the data folder."""
    for topic in catalogue.topics():
        for stream in topic.streams:
            for range_info in stream.ranges:
                name = RangeName(stream.id, topic.name, range_info.index, range_info.generation)
                empty = range_info.end is None or range_info.end == range_info.start
                yield _Wanted(range_directory(Path(), name), empty)


def _copy_range(source: Path, target: Path, wanted: _Wanted) -> bool:
    """Copy a range, unless it is there and sealed; False: it no longer exists."""
    into = target / wanted.directory
    if (into / RANGE_SEAL).exists():
        return True
    shutil.rmtree(into, ignore_errors=True)
    try:
        names = [path.name for path in (source / wanted.directory).iterdir()]
        into.mkdir(parents=True)
        for name in sorted(names, key=_order):
            if not name.endswith(UNFINISHED_SUFFIX):
                _copy(source / wanted.directory / name, into / name)
        for parent in (into.parent, into.parent.parent):
            _copy_files(source / parent.relative_to(target), parent)
    except FileNotFoundError:  # it was renamed, to be deleted
        shutil.rmtree(into, ignore_errors=True)
        return False
    return True


def _order(name: str) -> tuple[int, str, int]:
    """Small files first; segments in order of offset, each index before its log."""
    path = Path(name)
    if path.suffix not in _SUFFIXES:
        return 0, name, 0
    return 1, path.stem, _SUFFIXES.index(path.suffix)


def _are_empty(source: Path, target: Path, missing: list[_Wanted]) -> bool:
    """Whether ranges without a directory had none, instead of having been replaced meanwhile."""
    if not all(each.may_be_missing for each in missing):
        return False
    scratch = target / ".now"
    scratch.mkdir(exist_ok=True)
    try:
        now = set(_ranges(_copy_catalogue(source, scratch)))
    finally:
        shutil.rmtree(scratch)
    return now.issuperset(missing)


def _drop_others(target: Path, wanted: list[_Wanted]) -> None:
    """Remove what an earlier attempt copied and the catalogue no longer names."""
    named = {target / each.directory for each in wanted}
    for directory in target.glob(f"{TOPICS}/*/*/*"):
        if directory.is_dir() and directory not in named:
            shutil.rmtree(directory)


def _copy_rest(source: Path, target: Path) -> None:
    """The node's identity, and the other files next to the catalogue."""
    (target / TOPICS).mkdir(exist_ok=True)
    _copy_files(source, target)


def _copy_files(source: Path, target: Path) -> None:
    for path in source.iterdir():
        skipped = path.name in LEFT_OUT or path.suffix in {".lock", ".tmp", ".new", ".deleted"}
        if path.is_file() and not skipped:
            _copy(path, target / path.name)


def _copy(source: Path, target: Path) -> None:
    """Copy the current content of the file, in the order of its bytes."""
    shutil.copyfile(source, target)
    shutil.copymode(source, target)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _size(paths: list[Path]) -> int:
    return sum(path.stat().st_size for path in paths)
