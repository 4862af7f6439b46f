"""Opens a range that is on disk: trust what is known to be valid, scan the rest, cut a torn tail.

    stopped cleanly     nothing is scanned; checksummed indexes are trusted
    process crashed     the last segment of an unsealed range is scanned
    machine went down   all segments from the recovery point on are scanned

A scan ends in one of three ways. *Valid*: all bytes check. *Torn tail*: from some byte on nothing
checks and nothing of it had been durable; it is cut. *Damage*: bytes that had been durable do not
check, or valid batches follow them. Damage is never cut: the bytes stay, readers get ``Corrupt``
for the offsets concerned and data for all others, appends go on behind, offsets are not used twice.
After the machine went down, batches that follow a torn one behind the recovery point were never
acknowledged as durable; they are cut as well, but set aside in a file for the operator.
"""

import logging
from pathlib import Path
from typing import NamedTuple

from mainstem.log.checkpoint import FileTrust, RecoveryPoint
from mainstem.log.disk.checked_file import HEADER, read_checked, write_checked
from mainstem.log.disk.file_access import read_fully
from mainstem.log.identity import RANGE_KIND, SNAPSHOT_KIND, RangeSeal, read_seal
from mainstem.log.naming import (
    ASIDE_SUFFIX,
    INDEX_SUFFIX,
    OPENING_SNAPSHOT,
    RANGE_HEADER,
    RANGE_SEAL,
    TIME_INDEX_SUFFIX,
    UNFINISHED_SUFFIX,
    names_in,
    segment_bases,
    segment_path,
)
from mainstem.log.range_log import RangeLog
from mainstem.log.segments import scan
from mainstem.log.segments.index import SegmentIndex, SegmentSummary, read_index, read_summary
from mainstem.log.segments.open_files import OpenFiles
from mainstem.log.segments.segment import Segment
from mainstem.log.verification.damage import Damage
from mainstem.model.clock import Clock
from mainstem.model.errors import Corrupt
from mainstem.model.records.batch import BatchHeader

logger = logging.getLogger(__name__)

_COPY_BYTES = 1 << 20


class RecoveryContext(NamedTuple):
    """What is known before the files are read."""

    trust: FileTrust
    point: RecoveryPoint | None
    sync_failed: bool = False


class _Scanned(NamedTuple):
    summary: SegmentSummary
    entries: SegmentIndex
    holes: list[Damage]
    cut_at: int | None  # where a torn tail starts
    followed: bool  # valid batches stand behind the cut


def recover(log: RangeLog, circumstances: RecoveryContext, clock: Clock, files: OpenFiles) -> None:
    """Fill a log from its directory, whose header must be the right one.

    Raises:
        Corrupt: header or seal are damaged, or a compacted segment lost its index.
    """
    _repair_start(log, circumstances)
    log.identity.check(log.directory)
    seal = read_seal(log.directory)
    is_compacted = log.identity.name.generation > 0
    if is_compacted and seal is None:
        raise Corrupt("a compacted range that was never finished", subject=str(log.directory))
    bases = segment_bases(log.directory)
    _remove_leftovers(log.directory, bases)
    point = circumstances.point or RecoveryPoint(log.start_offset, log.start_offset, 0)
    segments: list[Segment] = []
    for place, base in enumerate(bases):
        is_last = place == len(bases) - 1
        segment = Segment(segment_path(log.directory, base), base, log.identity.epoch, files)
        segment.dense = is_compacted
        segment.index_interval_bytes = 1 if is_compacted else log.settings.index_interval_bytes
        next_base = None if is_last else bases[place + 1]
        segments.append(segment)
        if seal is None and _needs_scan(circumstances.trust, base, point, is_last=is_last):
            if circumstances.sync_failed:
                _write_again(segment, point)
            if _scan_open(segment, point, next_base, circumstances.trust):
                _set_segments_aside(log.directory, bases[place + 1 :])
                break
        else:
            sealed_until = seal.until_offset if seal is not None else point.offset
            _open_believing(segment, sealed_until if next_base is None else next_base)
    if segments and seal is None:
        _reopen_last(segments[-1], clock)
    log.adopt(segments, sealed=seal is not None)
    for segment in segments:
        log.damage.extend(segment.damage)
    _check_end(log, seal, point)
    for damage in log.damage:
        logger.error("damage found on opening: %s", damage)


def _repair_start(log: RangeLog, circumstances: RecoveryContext) -> None:
    """Rewrite a header that was never on disk, because the machine went down before a sync.

    Nothing of the range was acknowledged then, and the catalogue has its identity. Its
    files are scanned like any torn tail.
    """
    point = circumstances.point
    if circumstances.trust is not FileTrust.OTHER_BOOT or (
        point and point.offset > log.start_offset
    ):
        return
    path = log.directory / RANGE_HEADER
    payload = log.identity.packed()
    if (log.directory / RANGE_SEAL).exists() or _size_of(path) >= HEADER.size + len(payload):
        return
    logger.warning("the machine went down before %s was on disk", path)
    write_checked(path, RANGE_KIND, payload, sync=True)
    try:
        read_checked(log.directory / OPENING_SNAPSHOT, SNAPSHOT_KIND)
    except FileNotFoundError:
        pass
    except Corrupt:  # it is derived from the range before
        (log.directory / OPENING_SNAPSHOT).unlink()


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _remove_leftovers(directory: Path, bases: list[int]) -> None:
    """Indexes whose log was being deleted, and files that were being written, at the crash."""
    logs = {f"{base:020d}" for base in bases}
    for name in names_in(directory):
        is_index = name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX))
        if (is_index and name.partition(".")[0] not in logs) or name.endswith(UNFINISHED_SUFFIX):
            (directory / name).unlink()


def _needs_scan(trust: FileTrust, base: int, point: RecoveryPoint, *, is_last: bool) -> bool:
    if trust is FileTrust.CLEAN:
        return False
    return is_last or (trust is FileTrust.OTHER_BOOT and base >= point.segment_base)


def _open_believing(segment: Segment, until: int) -> None:
    """Open a file that must be complete: its index describes its content."""
    size = segment.path.stat().st_size
    summary = _believed_summary(segment, size)
    if summary is not None:
        segment.adopt(summary, None, checked=False)
        segment.finished = True
        return
    durable = RecoveryPoint(until, segment.base_offset, size)
    scanned = scan_segment(segment, size, durable, FileTrust.SAME_BOOT)
    if scanned.summary.until_offset < until and not segment.dense:
        cause = f"ends at {scanned.summary.until_offset} where {until} is expected"
        scanned.holes.append(Damage(segment.path, size, cause, scanned.summary.until_offset))
        scanned = scanned._replace(summary=scanned.summary._replace(until_offset=until))
    _take_over(segment, scanned)
    segment.finish()


def _scan_open(
    segment: Segment, point: RecoveryPoint, next_base: int | None, trust: FileTrust
) -> bool:
    """Open a file that may end anywhere; True when all segments behind it must go."""
    size = segment.path.stat().st_size
    durable = RecoveryPoint(segment.base_offset, segment.base_offset, 0)
    if segment.base_offset == point.segment_base:
        durable = point
    known = _saved_index(segment, size, size if trust is FileTrust.SAME_BOOT else durable.position)
    if known is None:
        _forget_index(segment)
    scanned = scan_segment(segment, size, durable, trust, known)
    fd = segment.file.fd
    if scanned.cut_at is not None:
        if scanned.followed:
            _copy_aside(fd, segment.path, scanned.cut_at, size)
        logger.info("cut the torn tail of %s at byte %d", segment.path, scanned.cut_at)
    if not scanned.holes:  # also releases what was reserved behind the end
        segment.file_access.cut(fd, scanned.summary.log_bytes)
    _take_over(segment, scanned)
    if known is not None and not scanned.holes:  # what the scan skipped is checked when it is read
        segment.verified.adopt(segment.size, checked=False)
        segment.verified.add(known[0].log_bytes, segment.size)
    if next_base is None:
        return False
    if scanned.summary.until_offset < next_base and not scanned.holes:
        return True
    segment.until_offset = next_base
    segment.finish()
    return False


def _write_again(segment: Segment, point: RecoveryPoint) -> None:
    """Rewrite what was not known to be durable in place, so that the next sync writes it.

    After a failed sync the kernel marks it as clean: it can be read and is not on disk.
    """
    position = point.position if segment.base_offset == point.segment_base else 0
    size = segment.path.stat().st_size
    fd = segment.file.fd
    while position < size:
        data = read_fully(fd, min(_COPY_BYTES, size - position), position)
        if not data:
            break
        position += segment.file_access.pwritev(fd, [data], position)


def _saved_index(
    segment: Segment, size: int, trusted_bytes: int
) -> tuple[SegmentSummary, SegmentIndex] | None:
    """An index that was saved while the segment grew, if what it covers is there for sure."""
    try:
        summary, index = read_index(segment.path)
    except (FileNotFoundError, Corrupt):
        return None
    if summary.base_offset != segment.base_offset or segment.dense:
        return None
    return (summary, index) if summary.log_bytes <= min(size, trusted_bytes) else None


def _forget_index(segment: Segment) -> None:
    """Remove an index that may list batches which are gone, before others take their place."""
    paths = [segment.path.with_suffix(suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
    if any(path.exists() for path in paths):
        for path in paths:
            path.unlink(missing_ok=True)
        segment.file_access.sync_path(segment.path.parent)


def _take_over(segment: Segment, scanned: _Scanned) -> None:
    # What was written but not durable becomes durable now: readers will see it.
    try:
        segment.file_access.sync_data(segment.file.fd)
    except OSError:
        segment.file_access.sync_failed()
        raise
    segment.damage.extend(scanned.holes)
    segment.adopt(scanned.summary, scanned.entries, checked=not scanned.holes)


def _believed_summary(segment: Segment, size: int) -> SegmentSummary | None:
    index_path = segment.path.with_suffix(INDEX_SUFFIX)
    try:
        summary = read_summary(segment.path)
    except (FileNotFoundError, Corrupt) as error:
        cause = error.cause if isinstance(error, Corrupt) else "the index is missing"
        segment.damage.append(Damage(index_path, 0, cause))
        if segment.dense:
            raise Corrupt(
                f"the index of a compacted segment is needed: {cause}", subject=str(index_path)
            ) from None
        return None
    if summary.base_offset != segment.base_offset:
        raise Corrupt("the index belongs to another segment", subject=str(index_path))
    if summary.log_bytes != size:
        cause = f"{size} bytes where the index has {summary.log_bytes}"
        segment.damage.append(Damage(segment.path, min(size, summary.log_bytes), cause))
    return summary


def scan_segment(
    segment: Segment,
    size: int,
    durable: RecoveryPoint,
    trust: FileTrust,
    known: tuple[SegmentSummary, SegmentIndex] | None = None,
) -> _Scanned:
    """Check every byte behind what an index is known to cover, and complete the index."""
    summary, index = known or (
        SegmentSummary(segment.base_offset, segment.base_offset, 0),
        SegmentIndex(segment.base_offset),
    )
    builder = _IndexBuilder(index, segment.index_interval_bytes, summary)
    holes: list[Damage] = []
    fd = segment.file.fd
    rules = scan.Rules(segment.epoch)
    position, expected = summary.log_bytes, summary.until_offset
    while True:
        try:
            for header, place in scan.check_file(fd, position, size, expected, rules):
                builder.take(header, place)
                position, expected = place + header.size, header.until_offset
            if size < durable.position:
                cause = f"{size} bytes where {durable.position} were durable"
                holes.append(Damage(segment.path, size, cause, expected))
                expected = max(expected, durable.offset)
            return _Scanned(builder.summary(expected, size), index, holes, None, followed=False)
        except scan.BadBatch as bad:
            sound = scan.find_batch(fd, bad.position + 1, size, bad.offset, rules)
            was_durable = bad.position < durable.position
            if not was_durable and (sound is None or trust is FileTrust.OTHER_BOOT):
                summary = builder.summary(bad.offset, bad.position)
                return _Scanned(summary, index, holes, bad.position, followed=sound is not None)
            holes.append(Damage(segment.path, bad.position, bad.cause, bad.offset))
            if sound is None:
                until = max(bad.offset, durable.offset)
                return _Scanned(builder.summary(until, size), index, holes, None, followed=False)
            position = sound
            expected = int.from_bytes(read_fully(fd, 8, sound), "big")
            builder.index_next()


class _IndexBuilder:
    """Index and largest timestamp of the batches seen so far."""

    def __init__(self, index: SegmentIndex, interval_bytes: int, known: SegmentSummary) -> None:
        self._index = index
        self._interval_bytes = interval_bytes
        self._index_at = known.log_bytes or interval_bytes
        self._latest = known.max_timestamp
        self._latest_offset = known.offset_of_max_timestamp

    def take(self, header: BatchHeader, position: int) -> None:
        if position >= self._index_at:
            self._index.add(header.base_offset, position, self._latest)
            self._index_at = position + self._interval_bytes
        if header.max_timestamp > self._latest:
            self._latest = header.max_timestamp
            self._latest_offset = header.until_offset - 1

    def index_next(self) -> None:
        self._index_at = 0

    def summary(self, until: int, size: int) -> SegmentSummary:
        return SegmentSummary(
            self._index.base_offset, until, size, self._latest, self._latest_offset
        )


def _reopen_last(segment: Segment, clock: Clock) -> None:
    """The last segment of an unsealed range keeps growing, unless damage reaches its end."""
    segment.finished = False
    if any(damage.path == segment.path for damage in segment.damage):
        segment.finish()
    segment.created_ms = clock.wall_ms()
    if segment.size:
        first = read_fully(segment.file.fd, 43, 0)[35:43]
        timestamp = int.from_bytes(first, "big", signed=True)
        if 0 <= timestamp < segment.created_ms:
            segment.created_ms = timestamp


def _check_end(log: RangeLog, seal: RangeSeal | None, point: RecoveryPoint) -> None:
    """Offsets that were assigned must exist in the log; they are not assigned again."""
    until = point.offset if seal is None else seal.until_offset
    if log.written_end < until:
        cause = f"ends at {log.written_end} where {until} had been reached"
        log.damage.append(Damage(log.directory, 0, cause, log.written_end))
        log.written_end = log.synced_end = until
        if log.segments and seal is None:
            log.roll()
    elif seal is not None and log.written_end > until:
        cause = f"ends at {log.written_end} where it was sealed at {until}"
        log.damage.append(Damage(log.directory, 0, cause, until))
        log.written_end = log.synced_end = until
    whole = log.first_offset == log.start_offset
    if seal is not None and whole and len(log.segments) != seal.segment_count:
        cause = f"{len(log.segments)} segments where {seal.segment_count} were sealed"
        log.damage.append(Damage(log.directory, 0, cause))


def _copy_aside(fd: int, path: Path, position: int, until: int) -> None:
    aside = path.with_name(f"{path.name}.at-{position}{ASIDE_SUFFIX}")
    logger.warning("batches behind a torn one are set aside in %s", aside)
    with aside.open("wb") as file:
        while position < until:
            data = read_fully(fd, min(_COPY_BYTES, until - position), position)
            if not data:
                break
            file.write(data)
            position += len(data)


def _set_segments_aside(directory: Path, bases: list[int]) -> None:
    for base in bases:
        path = segment_path(directory, base)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            path.with_suffix(suffix).unlink(missing_ok=True)
        if not path.stat().st_size:
            path.unlink()
            continue
        aside = path.with_name(path.name + ASIDE_SUFFIX)
        logger.warning("a segment behind a torn one is set aside as %s", aside)
        path.replace(aside)
