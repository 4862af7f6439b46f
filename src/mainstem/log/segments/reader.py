"""Reading from one segment: where a slice starts and ends, and whether its bytes are valid.

Two cases are common and cheap: a reader at the tail (positions of the latest batches are known) and
one that goes on where its last slice ended (remembered as well). Everything else starts at an index
entry. Bytes that this process did not write are checked the first time they are read: checksum,
order and epoch. Damage is ``Corrupt`` with file and position, never data; what stands before it in
the slice is still returned. A disk that cannot be read is ``Unavailable``; only ``check_segment``,
which verifies a file as a whole, reports it as damage.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager

from mainstem.log.disk.file_access import read_fully, storage_error
from mainstem.log.segments import scan
from mainstem.log.segments.file_slice import FileSlice
from mainstem.log.segments.segment import Segment
from mainstem.log.verification.damage import Damage
from mainstem.model.file_errors import FileErrorKind, classify
from mainstem.model.records.batch import BatchHeader

CURSORS_MAX = 64


def read_slice(
    segment: Segment, offset: int, max_bytes: int, until: int, *, min_one: bool
) -> FileSlice | None:
    """Whole batches from the one that holds ``offset``; None when nothing fits."""
    try:
        return _slice(segment, offset, max_bytes, until, min_one=min_one)
    except OSError as error:
        raise storage_error(error, segment.path) from error


def bytes_between(segment: Segment, offset: int, until: int) -> int:
    """Size of the batches from the one that holds ``offset`` up to the one that holds ``until``."""
    with _reading(segment):
        return _position(segment, until) - _position(segment, offset)


def headers_from(segment: Segment, offset: int) -> Iterator[tuple[BatchHeader, int]]:
    """Headers from the batch that holds ``offset`` on, bodies unread; ``Corrupt`` at damage."""
    with _reading(segment):
        base, position = _locate(segment, offset)
        file = segment.file  # held, or the descriptor might be closed between two headers
        try:
            yield from scan.walk_headers(file.fd, position, segment.size, base, segment.rules())
        except scan.BadBatch as bad:
            raise segment.corrupt(bad) from None


def checked_headers_from(
    segment: Segment, offset: int, *, skip_damage: bool
) -> Iterator[tuple[BatchHeader, int]]:
    """The same with every byte checked; damage is ``Corrupt``, or is skipped."""
    with _reading(segment):
        yield from _checked_headers(segment, offset, skip_damage=skip_damage)


def batch_start(segment: Segment, offset: int) -> tuple[int, int]:
    """Base offset and position of the batch that holds an offset; the end for one beyond."""
    if offset >= segment.until_offset:
        return segment.until_offset, segment.size
    with _reading(segment):
        return _locate(segment, offset)


def check_segment(segment: Segment) -> Damage | None:
    """Check every byte of the log file; the first damage found."""
    last = segment.base_offset
    try:
        size = segment.path.stat().st_size
        for header, _ in scan.check_file(
            segment.file.fd, 0, min(size, segment.size), last, segment.rules()
        ):
            last = header.until_offset
    except scan.BadBatch as bad:
        return Damage(segment.path, bad.position, bad.cause, bad.offset)
    except OSError as error:
        if classify(error) is FileErrorKind.TRANSIENT:
            raise storage_error(error, segment.path) from error
        return Damage(segment.path, 0, f"cannot be read: {error.strerror}")
    if size < segment.size:
        return Damage(segment.path, size, f"{size} bytes where {segment.size} were written", last)
    if size > segment.size and segment.finished:
        return Damage(segment.path, segment.size, f"{size - segment.size} bytes too many", last)
    if last != segment.until_offset and not segment.dense:
        return Damage(segment.path, size, f"ends at {last}, not at {segment.until_offset}", last)
    return None


@contextmanager
def _reading(segment: Segment) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(error, segment.path) from error


def _slice(
    segment: Segment, offset: int, max_bytes: int, until: int, *, min_one: bool
) -> FileSlice | None:
    tail = segment.tail_offsets
    if tail and offset >= tail[0]:
        place = bisect_right(tail, offset) - 1
        base, position = tail[place], segment.tail_positions[place]
        if segment.size - position <= max_bytes and until >= segment.until_offset:
            end, end_offset = segment.size, segment.until_offset
        else:
            end, end_offset = _tail_end(segment, place, max_bytes, until, min_one=min_one)
    else:
        base, position = _locate(segment, offset)
        end, end_offset = _end(segment, (base, position), max_bytes, until, min_one=min_one)
    if end <= position:
        return None
    if position < segment.verified.own_start and not segment.verified.covers(position, end):
        end, end_offset = _verify(segment, base, position, (end, end_offset))
    cursors = segment.cursors
    if len(cursors) >= CURSORS_MAX:
        cursors.clear()
    cursors[end_offset] = end
    return FileSlice(segment.file, position, end - position, base, end_offset)


def _checked_headers(
    segment: Segment, offset: int, *, skip_damage: bool
) -> Iterator[tuple[BatchHeader, int]]:
    base, position = segment.index.at_offset(offset)
    file = segment.file
    rules = segment.rules()
    size = segment.size
    while position < size:
        try:
            for header, place in scan.check_file(file.fd, position, size, base, rules):
                if header.until_offset > offset:
                    yield header, place
            position = size
        except scan.BadBatch as bad:
            if not skip_damage:
                raise segment.corrupt(bad) from None
            sound = scan.find_batch(file.fd, bad.position + 1, size, bad.offset, rules)
            if sound is None:
                return
            position = sound
            base = int.from_bytes(read_fully(file.fd, 8, sound), "big")


def _position(segment: Segment, offset: int) -> int:
    """Where the batch stands that holds an offset; headers are read only far from the tail."""
    if offset >= segment.until_offset:
        return segment.size
    tail = segment.tail_offsets
    if tail and offset >= tail[0]:
        return segment.tail_positions[bisect_right(tail, offset) - 1]
    return _locate(segment, offset)[1]


def _tail_end(
    segment: Segment, place: int, max_bytes: int, until: int, *, min_one: bool
) -> tuple[int, int]:
    """Where a slice from a remembered batch ends: position and offset, both exact."""
    offsets, positions = segment.tail_offsets, segment.tail_positions
    count = len(offsets)
    by_until = count if until >= segment.until_offset else bisect_right(offsets, until) - 1
    limit = positions[place] + max_bytes
    by_size = count if segment.size <= limit else bisect_right(positions, limit) - 1
    if min_one:
        by_size = max(by_size, place + 1)
    stop = min(by_until, by_size)
    if stop >= count:
        return segment.size, segment.until_offset
    return positions[stop], offsets[stop]


def _locate(segment: Segment, offset: int) -> tuple[int, int]:
    """Base offset and position of the batch that holds an offset, or of the next one."""
    position = segment.cursors.get(offset)
    if position is not None:
        return offset, position
    entry_offset, position = segment.index.at_offset(offset)
    try:
        for header, place in scan.walk_headers(
            segment.file.fd, position, segment.size, entry_offset, segment.rules()
        ):
            if header.until_offset > offset:
                return header.base_offset, place
    except scan.BadBatch as bad:
        raise segment.corrupt(bad) from None
    return segment.until_offset, segment.size


def _end(
    segment: Segment, start: tuple[int, int], max_bytes: int, until: int, *, min_one: bool
) -> tuple[int, int]:
    """Where a slice ends: at an index entry where one serves, else found by walking headers."""
    base, position = start
    limit = position + max_bytes
    if segment.size <= limit and until >= segment.until_offset:
        return segment.size, segment.until_offset
    end_offset, end = segment.index.at_position(limit)
    if end_offset > until:
        end_offset, end = segment.index.at_offset(until)
    if end > position:
        return end, end_offset
    end, end_offset = position, base
    try:
        for header, place in scan.walk_headers(
            segment.file.fd, position, segment.size, base, segment.rules()
        ):
            stop = place + header.size
            fits = stop <= limit or (min_one and place == position)
            if header.until_offset > until or not fits:
                if fits and place == position:
                    # No sound batch both holds a committed offset and reaches beyond the end.
                    _verify(segment, base, position, (stop, header.until_offset))
                break
            end, end_offset = stop, header.until_offset
    except scan.BadBatch as bad:
        if end == position:
            raise segment.corrupt(bad) from None
    return end, end_offset


def _verify(segment: Segment, base: int, start: int, end: tuple[int, int]) -> tuple[int, int]:
    """Check what was not checked since the file was opened; returns the valid part of the slice."""
    end_position, end_offset = end
    data = memoryview(read_fully(segment.file.fd, end_position - start, start))
    try:
        for header, place in scan.check_batches(data, start, base, segment.rules()):
            sound, sound_offset = place + header.size, header.until_offset
    except scan.BadBatch as bad:
        if bad.position == start:
            raise segment.corrupt(bad) from None
        end_position, end_offset = bad.position, bad.offset
    else:
        if len(data) < end_position - start:
            if not data:
                raise segment.corrupt(scan.BadBatch(start, base, "the file is truncated"))
            end_position, end_offset = sound, sound_offset
    segment.verified.add(start, end_position)
    return end_position, end_offset
