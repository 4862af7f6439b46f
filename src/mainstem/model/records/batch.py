"""View over one Kafka v2 record batch: its 61-byte header and the fields that may be changed.

    0       8       12     16     17   21    23          27      35    43   51   53   57     61
    base    length  epoch  magic  crc  attr  last offset  first  max   pid  pep  seq  count  records
    offset                                   delta        time   time

The checksum covers everything from ``attr`` on. Base offset and leader epoch lie outside it, so a
batch is stamped in place and otherwise stored byte for byte as its producer sent it. Nothing here
looks at single records.
"""

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest

Buffer = bytes | bytearray | memoryview

HEADER_BYTES = 61
LENGTH_OVERHEAD = 12  # base offset and length itself are not counted by ``length``
MAGIC = 2

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
SEQUENCE_MODULUS = 2**31

HEADER = Struct(">qiibIhiqqqhii")
PREFIX = Struct(">qi")  # base offset, length: enough to step to the next batch
STAMP = Struct(">q")
STAMP_EPOCH = Struct(">i")
STAMP_CRC = Struct(">I")
_CRC_START = 21


class BatchHeader(NamedTuple):
    """The fixed fields of a batch, in wire order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_OVERHEAD

    @property
    def until_offset(self) -> int:
        """The offset after the last one; compaction leaves it in place."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The codec number."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a transaction marker."""
        return bool(self.attributes & CONTROL_MASK)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_log_append_time(self) -> bool:
        """Whether ``max_timestamp`` is the broker's clock and holds for every record."""
        return bool(self.attributes & TIMESTAMP_TYPE_MASK)


# A header from the unpacked fields: ``BatchHeader._make`` without a call of Python code, and
# without counting the fields, which are as many as the format has.
make_header: Callable[[tuple[int, ...]], BatchHeader] = partial(tuple.__new__, BatchHeader)


def read_header(buf: Buffer, at: int = 0) -> BatchHeader:
    """Unpack the header at ``at``; checks only that there are enough bytes."""
    if len(buf) - at < HEADER_BYTES:
        raise Corrupt(f"a batch header needs {HEADER_BYTES} bytes, {len(buf) - at} are available")
    return make_header(HEADER.unpack_from(buf, at))


def check_stored(buf: memoryview, at: int, header: BatchHeader) -> None:
    """Check bytes from a file: length, magic and checksum; raise ``Corrupt`` otherwise."""
    if header.magic != MAGIC:
        raise Corrupt(f"magic {header.magic}, expected {MAGIC}")
    if header.size < HEADER_BYTES or at + header.size > len(buf):
        raise Corrupt(f"batch length {header.length} does not fit the available bytes")
    found = crc32c(buf[at + _CRC_START : at + header.size])
    if found != header.crc:
        raise Corrupt(f"checksum {found:#010x}, but the header has {header.crc:#010x}")


def check_produced(buf: memoryview, start: int, until: int) -> BatchHeader:
    """Check what a client sent for one partition: exactly one complete, valid data batch.

    Raises:
        InvalidRequest: an old format, a control batch, several batches, impossible counts.
        Corrupt: lengths or checksum do not fit.
    """
    if until - start < HEADER_BYTES:
        raise Corrupt(
            f"a batch needs at least {HEADER_BYTES} bytes, the request has {until - start}"
        )
    header = make_header(HEADER.unpack_from(buf, start))
    if header.magic != MAGIC:
        raise InvalidRequest(
            ErrorCode.UNSUPPORTED_RECORD_FORMAT,
            f"record format {header.magic}",
            remedy="use a client that writes format 2 (Kafka 0.11 or later)",
        )
    size = header.length + LENGTH_OVERHEAD
    if size != until - start:
        if HEADER_BYTES <= size < until - start:
            raise InvalidRequest(
                ErrorCode.INVALID_RECORD, "one request carries several batches for one partition"
            )
        raise Corrupt(f"batch length {header.length} does not fit {until - start} bytes")
    if crc32c(buf[start + _CRC_START : until]) != header.crc:
        raise Corrupt("the batch checksum does not match its bytes")
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRequest(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records with last offset delta {header.last_offset_delta}",
        )
    if header.attributes & CONTROL_MASK:
        raise InvalidRequest(ErrorCode.INVALID_RECORD, "a client may not write control batches")
    return header


def stamp(buf: bytearray | memoryview, at: int, base_offset: int, epoch: int) -> None:
    """Write base offset and leader epoch into the batch at ``at``; the checksum stays valid."""
    STAMP.pack_into(buf, at, base_offset)
    STAMP_EPOCH.pack_into(buf, at + 12, epoch)


def reseal(batch: memoryview) -> None:
    """Recompute the checksum after a field that it covers was changed."""
    STAMP_CRC.pack_into(batch, _CRC_START - 4, crc32c(batch[_CRC_START:]))
