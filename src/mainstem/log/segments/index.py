"""The sparse indexes of one segment: offset to position, and time to offset.

An offset entry means "the batch at ``position`` starts at ``offset``". A time entry means "every
record below ``offset`` has a timestamp of at most ``timestamp``". Both are kept in memory while the
segment grows, written once when it is closed, and read back when needed. Big endian:

    magic 8 · base offset 8 · until offset 8 · log bytes 8 · max timestamp 8 · its offset 8
    · entry count 4 · crc32c of the entries 4 · crc32c of all before 4 · entries

``.index`` entries are (relative offset 4, position 4), ``.timeindex`` entries (timestamp 8,
relative offset 4). The header alone contains what a reader needs to know about a segment that it
does not open.
"""

import sys
from array import array
from bisect import bisect_right
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from mainstem.log.disk.checked_file import replace_file
from mainstem.log.naming import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from mainstem.model.errors import Corrupt
from mainstem.model.file_magic import check_magic
from mainstem.model.records.batch import NO_TIMESTAMP

OFFSET_MAGIC = b"MSTMOIX1"
TIME_MAGIC = b"MSTMTIX1"
HEADER = Struct(">8sqqQqqII")
CHECK = Struct(">I")
HEADER_BYTES = HEADER.size + CHECK.size
OFFSET_ENTRY = Struct(">II")
TIME_ENTRY = Struct(">qI")
RELATIVE_MAX = 0xFFFFFFFF
# Entries are packed as arrays of 32-bit words: one at a time would stall the loop at every roll.
_HIGH = 1 if sys.byteorder == "little" else 0  # which word of a timestamp comes first on disk


class SegmentSummary(NamedTuple):
    """Properties of a segment that its index file records."""

    base_offset: int
    until_offset: int
    log_bytes: int
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = -1


class SegmentIndex:
    """Entries of one segment, ascending; the batch at position 0 needs none."""

    __slots__ = ("base_offset", "offsets", "positions", "time_offsets", "timestamps")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.offsets = array("I")
        self.positions = array("I")
        self.timestamps = array("q")
        self.time_offsets = array("I")

    @property
    def size_bytes(self) -> int:
        """Memory that the entries take."""
        return 8 * len(self.offsets) + 12 * len(self.timestamps)

    def add(self, offset: int, position: int, latest: int) -> None:
        """Record a batch; ``latest`` is the largest timestamp before it."""
        relative = offset - self.base_offset
        self.offsets.append(relative)
        self.positions.append(position)
        if latest > (self.timestamps[-1] if self.timestamps else NO_TIMESTAMP):
            self.timestamps.append(latest)
            self.time_offsets.append(relative)

    def at_offset(self, offset: int) -> tuple[int, int]:
        """The last entry at or below an offset, as (offset, position)."""
        place = bisect_right(self.offsets, max(0, offset - self.base_offset)) - 1
        if place < 0:
            return self.base_offset, 0
        return self.base_offset + self.offsets[place], self.positions[place]

    def at_position(self, position: int) -> tuple[int, int]:
        """The last entry at or before a position, as (offset, position)."""
        place = bisect_right(self.positions, position) - 1
        if place < 0:
            return self.base_offset, 0
        return self.base_offset + self.offsets[place], self.positions[place]

    def has(self, offset: int, position: int) -> bool:
        """Whether there is exactly this entry."""
        return self.at_position(position) == (offset, position)

    def before_time(self, timestamp: int) -> int:
        """An offset below which every record is older than ``timestamp``."""
        place = bisect_right(self.timestamps, timestamp - 1) - 1
        return self.base_offset + self.time_offsets[place] if place >= 0 else self.base_offset

    def cut(self, until: int) -> None:
        """Drop the entries at or beyond an offset."""
        relative = until - self.base_offset
        keep = bisect_right(self.offsets, relative - 1) if relative > 0 else 0
        del self.offsets[keep:], self.positions[keep:]
        keep = bisect_right(self.time_offsets, relative - 1) if relative > 0 else 0
        del self.timestamps[keep:], self.time_offsets[keep:]


def write_index(log_path: Path, summary: SegmentSummary, index: SegmentIndex) -> None:
    """Write both files; a caller that needs them durable syncs them."""
    pairs = array("I", bytes(8 * len(index.offsets)))
    pairs[0::2], pairs[1::2] = index.offsets, index.positions
    words = array("I", index.timestamps.tobytes())
    triples = array("I", bytes(12 * len(index.timestamps)))
    triples[0::3], triples[1::3] = words[_HIGH::2], words[1 - _HIGH :: 2]
    triples[2::3] = index.time_offsets
    for path, magic, entries, count in (
        (log_path.with_suffix(INDEX_SUFFIX), OFFSET_MAGIC, pairs, len(index.offsets)),
        (log_path.with_suffix(TIME_INDEX_SUFFIX), TIME_MAGIC, triples, len(index.timestamps)),
    ):
        if sys.byteorder == "little":
            entries.byteswap()
        _write(path, magic, summary, entries.tobytes(), count)


def _write(path: Path, magic: bytes, summary: SegmentSummary, entries: bytes, count: int) -> None:
    header = HEADER.pack(magic, *summary, count, crc32c(entries))
    replace_file(path, header + CHECK.pack(crc32c(header)) + entries, sync=False)


def read_summary(log_path: Path) -> SegmentSummary:
    """What the index records about its segment; reads the header alone.

    Raises:
        FileNotFoundError: there is no index.
        Corrupt: the header is damaged.
        UnknownVersion: this release does not know its version.
    """
    path = log_path.with_suffix(INDEX_SUFFIX)
    with path.open("rb") as file:
        return _check_header(path, OFFSET_MAGIC, file.read(HEADER_BYTES))[0]


def read_index(log_path: Path) -> tuple[SegmentSummary, SegmentIndex]:
    """Both files, checked against their checksums and each other."""
    summary, raw = _read(log_path.with_suffix(INDEX_SUFFIX), OFFSET_MAGIC, OFFSET_ENTRY)
    other, raw_times = _read(log_path.with_suffix(TIME_INDEX_SUFFIX), TIME_MAGIC, TIME_ENTRY)
    if other != summary:
        raise Corrupt("the two indexes contradict each other", subject=str(log_path))
    index = SegmentIndex(summary.base_offset)
    pairs, triples = array("I", raw), array("I", raw_times)
    if sys.byteorder == "little":
        pairs.byteswap()
        triples.byteswap()
    index.offsets, index.positions = pairs[0::2], pairs[1::2]
    words = array("I", bytes(8 * (len(triples) // 3)))
    words[_HIGH::2], words[1 - _HIGH :: 2] = triples[0::3], triples[1::3]
    index.timestamps, index.time_offsets = array("q", words.tobytes()), triples[2::3]
    return summary, index


def _read(path: Path, magic: bytes, entry: Struct) -> tuple[SegmentSummary, bytes]:
    data = path.read_bytes()
    summary, count, crc = _check_header(path, magic, data[:HEADER_BYTES])
    entries = data[HEADER_BYTES:]
    if len(entries) != count * entry.size or crc32c(entries) != crc:
        raise Corrupt("the entries do not match their checksum", subject=str(path))
    return summary, entries


def _check_header(path: Path, magic: bytes, data: bytes) -> tuple[SegmentSummary, int, int]:
    if len(data) < HEADER_BYTES:
        raise Corrupt(
            f"{len(data)} bytes where an index header needs {HEADER_BYTES}", subject=str(path)
        )
    found, *fields, count, entries_crc = HEADER.unpack_from(data)
    is_sound = crc32c(data[: HEADER.size]) == CHECK.unpack_from(data, HEADER.size)[0]
    if is_sound:
        check_magic(found, magic, "an index", str(path))
    if found != magic or not is_sound:
        raise Corrupt("the index header is damaged", subject=str(path))
    return SegmentSummary(*fields), count, entries_crc
