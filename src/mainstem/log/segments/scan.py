"""Walking the batches of a log file: by their headers, or checking every byte.

The checksum of a batch does not cover its base offset and epoch, which the writer stamps. They are
checked against their neighbours: within a range every batch has the range's epoch, and it starts
where the batch before it ended or, after compaction, where the dense index has it.
"""

from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from mainstem.log.disk.file_access import read_fully
from mainstem.log.segments.index import RELATIVE_MAX, SegmentIndex
from mainstem.model.errors import Corrupt
from mainstem.model.limits import FRAME_BYTES_MAX
from mainstem.model.records.batch import (
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    check_stored,
    make_header,
)

CHUNK_BYTES = 256 * 1024
FIRST_CHUNK_BYTES = 8 * 1024  # most walks go from an index entry to a batch near by
CRC_START = 21  # what the checksum of a batch covers starts here
_MAGIC_AT = 16


class Rules(NamedTuple):
    """Constraints on the stamps of every batch of a segment."""

    epoch: int
    dense: SegmentIndex | None = None  # set where offsets may have gaps: where batches start


class BadBatch(Exception):
    """The batch at ``position`` is not sound; all before it are."""

    def __init__(self, position: int, offset: int, cause: str) -> None:
        super().__init__(position, offset, cause)
        self.position = position
        self.offset = offset
        self.cause = cause


def check_stamp(header: BatchHeader, position: int, expected: int, rules: Rules) -> str:
    """What is wrong with the part that no checksum covers; empty when nothing is."""
    if header.magic != MAGIC:
        return f"magic {header.magic} where {MAGIC} is expected"
    if not HEADER_BYTES <= header.length + LENGTH_OVERHEAD <= FRAME_BYTES_MAX:
        return f"invalid batch length {header.length}"
    if header.leader_epoch != rules.epoch:
        return f"epoch {header.leader_epoch} in a range of epoch {rules.epoch}"
    base = header.base_offset
    if rules.dense is None:
        is_expected = base == expected
    else:
        is_expected = base >= expected and rules.dense.has(base, position)
    if not is_expected:
        return f"base offset {base} where {expected} is expected"
    if header.last_offset_delta < 0:
        return f"last offset delta {header.last_offset_delta}"
    return ""


def walk_headers(
    fd: int, position: int, until: int, expected: int, rules: Rules
) -> Iterator[tuple[BatchHeader, int]]:
    """Headers and positions from ``position`` on; stamps are checked, bodies are not read.

    Raises:
        BadBatch: a header is not sound or the file ends early.
    """
    chunk = b""
    chunk_start = position
    chunk_bytes = FIRST_CHUNK_BYTES
    while position < until:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk = read_fully(fd, min(chunk_bytes, until - position), position)
            chunk_start, at = position, 0
            chunk_bytes = min(chunk_bytes * 4, CHUNK_BYTES)
            if len(chunk) < HEADER_BYTES:
                raise BadBatch(position, expected, "the file ends inside a batch header")
        header = make_header(HEADER.unpack_from(chunk, at))
        wrong = check_stamp(header, position, expected, rules)
        if not wrong and position + header.size > until:
            wrong = f"batch length {header.length} goes beyond the end"
        if wrong:
            raise BadBatch(position, expected, wrong)
        yield header, position
        position += header.size
        expected = header.until_offset


def check_batches(
    view: memoryview, start: int, expected: int, rules: Rules
) -> Iterator[tuple[BatchHeader, int]]:
    """Check every byte of whole batches held in ``view``, which starts at file position ``start``.

    Raises:
        BadBatch: a batch is not sound or is cut by the end of the view.
    """
    found, checked, bad = _check_run(view, start, expected, rules)
    yield from found
    if bad is not None:
        raise bad
    if checked < len(view):
        last = found[-1][0].until_offset if found else expected
        raise BadBatch(start + checked, last, "the file ends inside a batch")


def check_file(
    fd: int, position: int, until: int, expected: int, rules: Rules
) -> Iterator[tuple[BatchHeader, int]]:
    """Check every byte between two batch boundaries of a file, a bounded piece at a time."""
    piece_bytes = CHUNK_BYTES * 4
    while position < until:
        data = memoryview(read_fully(fd, min(piece_bytes, until - position), position))
        found, checked, bad = _check_run(data, position, expected, rules)
        yield from found
        if found:
            expected = found[-1][0].until_offset
        if bad is not None:
            raise bad
        position += checked
        if checked == 0:
            size = HEADER_BYTES
            if len(data) >= HEADER_BYTES:  # sound so far, but longer than the piece
                size = int.from_bytes(data[8:12], "big") + LENGTH_OVERHEAD
            if size > until - position or len(data) < min(piece_bytes, until - position):
                raise BadBatch(position, expected, "the file ends inside a batch")
            piece_bytes = size
        else:
            piece_bytes = CHUNK_BYTES * 4


def _check_run(
    view: memoryview, start: int, expected: int, rules: Rules
) -> tuple[list[tuple[BatchHeader, int]], int, BadBatch | None]:
    """The sound batches that ``view`` holds whole, their bytes, and the bad one that ended it."""
    # Inlined: a gigabyte of small batches is scanned here after a crash.
    found: list[tuple[BatchHeader, int]] = []
    at = 0
    size = len(view)
    epoch, dense = rules.epoch, rules.dense
    unpack, make = HEADER.unpack_from, make_header
    while at + HEADER_BYTES <= size:
        fields = unpack(view, at)
        end = at + fields[1] + LENGTH_OVERHEAD
        if (
            dense is not None
            or fields[0] != expected
            or fields[2] != epoch
            or fields[3] != MAGIC
            or fields[6] < 0
            or not HEADER_BYTES <= end - at <= FRAME_BYTES_MAX
        ):
            wrong = check_stamp(make(fields), start + at, expected, rules)
            if wrong:
                return found, at, BadBatch(start + at, expected, wrong)
        if end > size:
            break
        if crc32c(view[at + CRC_START : end]) != fields[4]:
            return found, at, BadBatch(start + at, expected, "the checksum does not match")
        found.append((make(fields), start + at))
        expected = fields[0] + fields[6] + 1
        at = end
    return found, at, None


def find_batch(fd: int, first: int, until: int, expected: int, rules: Rules) -> int | None:
    """Where the next valid batch at or after ``first`` starts; None when there is none."""
    mark = rules.epoch.to_bytes(4, "big", signed=True) + bytes([MAGIC])
    mark_at = _MAGIC_AT - 4
    position = first + mark_at
    while position + len(mark) <= until:
        data = read_fully(fd, min(CHUNK_BYTES * 4, until - position), position)
        at = data.find(mark)
        while at >= 0:
            if _is_batch(fd, position + at - mark_at, until, expected, rules):
                return position + at - mark_at
            at = data.find(mark, at + 1)
        if len(data) < len(mark):
            break
        position += len(data) - len(mark) + 1
    return None


def _is_batch(fd: int, start: int, until: int, expected: int, rules: Rules) -> bool:
    raw = read_fully(fd, HEADER_BYTES, start)
    if len(raw) < HEADER_BYTES:
        return False
    header = make_header(HEADER.unpack(raw))
    if not expected <= header.base_offset <= expected + RELATIVE_MAX:
        return False
    if header.size < HEADER_BYTES or start + header.size > until:
        return False
    if check_stamp(header, start, header.base_offset, rules):
        return False
    data = memoryview(read_fully(fd, header.size, start))
    try:
        check_stored(data, 0, header)
    except Corrupt:
        return False
    return True
