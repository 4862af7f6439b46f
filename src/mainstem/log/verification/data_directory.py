"""Checking a whole data directory that no process owns: what ``mainstem log verify`` does.

Read only. Every file of the log is checked; after a crash the last segment of an unsealed range
may end in a torn batch, which is what recovery is for and not damage, as long as it lies behind the
recovery point.
"""

from collections.abc import Iterator
from pathlib import Path

from mainstem.log.checkpoint import CHECKPOINT, Checkpoint, RecoveryPoint, load_checkpoint
from mainstem.log.disk.checked_file import read_checked
from mainstem.log.disk.file_access import FileAccess
from mainstem.log.disk.sync_marker import MARKER
from mainstem.log.identity import (
    RangeHeader,
    RangeSeal,
    read_range_header,
    read_seal,
    read_topic_header,
)
from mainstem.log.naming import (
    TOPIC_HEADER,
    TOPICS,
    parse_partition_directory,
    parse_range_directory,
    parse_topic_directory,
    segment_bases,
    segment_path,
)
from mainstem.log.segments import scan
from mainstem.log.segments.index import SegmentSummary, read_index
from mainstem.log.segments.open_files import OpenFiles
from mainstem.log.segments.segment import Segment
from mainstem.log.store import DIRECTORY_ID, DIRECTORY_KIND
from mainstem.log.verification.damage import Damage
from mainstem.log.verification.range_files import verify_segment, verify_small_files
from mainstem.model.errors import Corrupt


def verify_data_dir(path: Path) -> list[Damage]:
    """All findings, in the order of the files."""
    return list(iterate_findings(path))


def iterate_findings(path: Path) -> Iterator[Damage]:
    """Findings as they turn up, for a progress display."""
    checkpoint: Checkpoint | None = None
    try:
        read_checked(path / DIRECTORY_ID, DIRECTORY_KIND)
    except (Corrupt, FileNotFoundError) as error:
        yield _finding(path / DIRECTORY_ID, error)
    try:
        checkpoint = load_checkpoint(path)
    except Corrupt as error:
        yield _finding(path / CHECKPOINT, error)
    marker = path / MARKER
    for other in sorted([*path.glob("*.checkpoint"), *([marker] if marker.exists() else ())]):
        try:
            read_checked(other)
        except Corrupt as error:
            if other.name != CHECKPOINT:
                yield _finding(other, error)
    files = OpenFiles(FileAccess(), 16)
    topics = path / TOPICS
    for topic_dir in sorted(topics.iterdir() if topics.is_dir() else ()):
        if parse_topic_directory(topic_dir.name) is None:
            continue
        try:
            read_topic_header(topic_dir)
        except (Corrupt, FileNotFoundError) as error:
            yield _finding(topic_dir / TOPIC_HEADER, error)
        for directory in range_directories(topic_dir):
            key = str(directory.relative_to(path))
            point = checkpoint.points.get(key) if checkpoint is not None else None
            is_clean = checkpoint is not None and checkpoint.clean
            yield from _verify_directory(directory, point, files, is_clean=is_clean)


def range_directories(topic_dir: Path) -> Iterator[Path]:
    """The range directories of a topic in order of partition and range."""
    partitions = [
        (parse_partition_directory(entry.name), entry)
        for entry in topic_dir.iterdir()
        if parse_partition_directory(entry.name) is not None
    ]
    for _, partition_dir in sorted(partitions):
        ranges = [
            (parse_range_directory(entry.name), entry)
            for entry in partition_dir.iterdir()
            if parse_range_directory(entry.name) is not None
        ]
        for _, directory in sorted(ranges):
            yield directory


def verify_directory(directory: Path, files: OpenFiles) -> Iterator[Damage]:
    """Findings in a range directory that is finished."""
    yield from _verify_directory(directory, None, files, is_clean=True)


def _verify_directory(
    directory: Path, point: RecoveryPoint | None, files: OpenFiles, *, is_clean: bool
) -> Iterator[Damage]:
    bases = segment_bases(directory)
    if not bases:
        return
    yield from verify_small_files(directory)
    try:
        header = read_range_header(directory)
        seal = read_seal(directory)
    except (Corrupt, FileNotFoundError):
        return  # reported already, and nothing records what the segments should be like
    is_trimmed = bases[0] > header.start_offset
    if seal is not None and not is_trimmed and len(bases) != seal.segment_count:
        cause = f"{len(bases)} segments where {seal.segment_count} were sealed"
        yield Damage(directory, 0, cause)
    for place, base in enumerate(bases):
        next_base = bases[place + 1] if place + 1 < len(bases) else None
        segment = Segment(segment_path(directory, base), base, header.epoch, files)
        segment.dense = header.generation > 0
        if next_base is None and seal is None and not is_clean:
            yield from _verify_open(segment, point)
        else:
            yield from _verify_closed(segment, header, seal, next_base)
        segment.forget()


def _verify_closed(
    segment: Segment, header: RangeHeader, seal: RangeSeal | None, next_base: int | None
) -> Iterator[Damage]:
    size = segment.path.stat().st_size
    segment.finished = True
    until = next_base if next_base is not None else (seal.until_offset if seal else None)
    try:
        summary, _ = read_index(segment.path)
    except (Corrupt, FileNotFoundError):
        summary = SegmentSummary(segment.base_offset, until or segment.base_offset, size)
    segment.adopt(summary, None, checked=False)
    yield from verify_segment(segment)
    is_short = until is not None and summary.until_offset != until
    if is_short and (header.generation == 0 or next_base is None):
        cause = f"ends at {summary.until_offset} where {until} is expected"
        yield Damage(segment.path, size, cause, summary.until_offset)


def _verify_open(segment: Segment, point: RecoveryPoint | None) -> Iterator[Damage]:
    """The segment that was being written to at the crash."""
    size = segment.path.stat().st_size
    durable = point.position if point and point.segment_base == segment.base_offset else 0
    fd = segment.file.fd
    rules = scan.Rules(segment.epoch)
    last = segment.base_offset
    try:
        for header, _ in scan.check_file(fd, 0, size, segment.base_offset, rules):
            last = header.until_offset
    except scan.BadBatch as bad:
        follows = scan.find_batch(fd, bad.position + 1, size, bad.offset, rules) is not None
        if bad.position < durable or follows:
            yield Damage(segment.path, bad.position, bad.cause, bad.offset)
        return
    if size < durable:
        yield Damage(segment.path, size, f"{size} bytes where {durable} were durable", last)


def _finding(path: Path, error: Corrupt | FileNotFoundError) -> Damage:
    return Damage(path, 0, error.cause if isinstance(error, Corrupt) else "the file is missing")
