"""Checks every byte of every file of a range."""

from collections.abc import Callable
from pathlib import Path

from mainstem.log.disk.checked_file import read_checked
from mainstem.log.identity import MARK_KIND, SNAPSHOT_KIND, read_range_header, read_seal
from mainstem.log.naming import (
    COMPACTION_MARK,
    INDEX_SUFFIX,
    OPENING_SNAPSHOT,
    RANGE_HEADER,
    RANGE_SEAL,
)
from mainstem.log.segments.index import SegmentIndex, read_index
from mainstem.log.segments.reader import check_segment
from mainstem.log.segments.segment import Segment
from mainstem.log.verification.damage import Damage, damage_of
from mainstem.model.errors import Corrupt


def verify_range(directory: Path, segments: list[Segment]) -> list[Damage]:
    """All findings in the files of one range."""
    if not segments:
        return []
    found = verify_small_files(directory)
    until = segments[0].base_offset
    for segment in segments:
        if segment.base_offset != until and not segment.dense:
            found.append(Damage(segment.path, 0, f"starts where {until} is expected", until))
        until = segment.until_offset
        found += verify_segment(segment)
    return found


def verify_segment(segment: Segment) -> list[Damage]:
    """Findings in one log file and, once it is finished, in its indexes."""
    found = verify_index(segment) if segment.finished else []
    if found and segment.dense:
        return found  # without the index nothing shows where batches start
    damage = check_segment(segment)
    return [*found, damage] if damage is not None else found


def verify_small_files(directory: Path) -> list[Damage]:
    """Findings in header, snapshot, seal and compaction mark."""
    return [
        *_check(directory / RANGE_HEADER, lambda path: read_range_header(path.parent), needed=True),
        *_check(directory / OPENING_SNAPSHOT, lambda path: read_checked(path, SNAPSHOT_KIND)),
        *_check(directory / RANGE_SEAL, lambda path: read_seal(path.parent)),
        *_check(directory / COMPACTION_MARK, lambda path: read_checked(path, MARK_KIND)),
    ]


def _check(path: Path, read: Callable[[Path], object], *, needed: bool = False) -> list[Damage]:
    try:
        read(path)
    except FileNotFoundError:
        return [Damage(path, 0, "the file is missing")] if needed else []
    except Corrupt as error:
        return [Damage(path, 0, error.cause)]
    except OSError as error:
        return [damage_of(error, path)]
    return []


def verify_index(segment: Segment) -> list[Damage]:
    """Findings in the two index files of a finished segment."""
    path = segment.path.with_suffix(INDEX_SUFFIX)
    try:
        summary, index = read_index(segment.path)
    except FileNotFoundError as error:
        return [Damage(Path(error.filename), 0, "the file is missing")]
    except Corrupt as error:
        return [Damage(Path(error.subject), 0, error.cause)]
    except OSError as error:
        return [damage_of(error, path)]
    if summary != segment.summary:
        return [Damage(path, 0, "the index describes another state of the log")]
    return _verify_entries(path, segment, index)


def _verify_entries(path: Path, segment: Segment, index: SegmentIndex) -> list[Damage]:
    ordered = all(
        list(entries) == sorted(set(entries))
        for entries in (index.offsets, index.positions, index.timestamps, index.time_offsets)
    )
    if not ordered or (index.positions and index.positions[-1] >= segment.size):
        return [Damage(path, 0, "the entries are out of order")]
    return []
