"""Build and iterate the single records of v2 batches: for readers, coordinators and compaction.

The produce and fetch paths do not use it; the batch is their unit. A record inside a batch is

    length  attributes  timestamp delta  offset delta  key  value  headers

with every number a zigzag varint and -1 for an absent key or value. Guarantees: for any bytes,
``records_of`` yields valid records or raises ``Corrupt``, within ``limit_bytes`` of memory; gaps
between offsets, which compaction leaves behind, are kept.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mainstem.model.errors import Corrupt, InvalidRequest
from mainstem.model.limits import DECOMPRESSED_BYTES_MAX, HEADERS_PER_RECORD_MAX
from mainstem.model.records import compression
from mainstem.model.records.batch import (
    COMPRESSION_MASK,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    Buffer,
    check_stored,
    read_header,
    reseal,
)

Header = tuple[str, bytes | None]

_RECORD_BYTES_MIN = 7  # seven fields of at least one byte each
_ABSENT = 1  # -1 in zigzag
_NO_FIELD = bytes([_ABSENT])
_SMALL_NUMBERS = 4_096
_SMALL = tuple(
    bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80, number >> 7])
    for number in range(_SMALL_NUMBERS)
)
_SIZES = _SMALL[::2]  # numbers from 0 on, by themselves
_SIZES_KNOWN = len(_SIZES)
_ZIGZAG = tuple((byte >> 1) ^ -(byte & 1) for byte in range(0x80))


class Record(NamedTuple):
    """One record; ``timestamp`` is in milliseconds since 1970."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


# A record as a plain tuple, for code that builds many.
RecordFields = tuple[int, int, bytes | None, bytes | None, tuple[Header, ...]]


class ProducerStamp(NamedTuple):
    """The producer of a batch, for duplicate detection; the defaults mean none."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1
    base_sequence: int = NO_SEQUENCE


NO_PRODUCER = ProducerStamp()


def build_batch(
    records: Sequence[RecordFields],
    *,
    codec: int = compression.NONE,
    level: int | None = None,
    flags: int = 0,
    producer: ProducerStamp = NO_PRODUCER,
    base_timestamp: int | None = None,
) -> bytearray:
    """One batch at base offset 0, ready to be stamped.

    Records are numbered by their index in the list; their ``offset`` is ignored. ``flags``
    are attribute bits beside the codec (transactional, control, append time).
    """
    assert records, "a batch holds at least one record"
    first = records[0][1] if base_timestamp is None else base_timestamp
    body = _encode_all(records, first)
    latest = max(first, *[timestamp for _, timestamp, _, _, _ in records])
    plain = body if codec == compression.NONE else compression.compress(codec, body, level=level)
    batch = bytearray(HEADER_BYTES)
    batch += plain
    header = BatchHeader(
        base_offset=0,
        length=len(batch) - LENGTH_OVERHEAD,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=flags | codec,
        last_offset_delta=len(records) - 1,
        base_timestamp=first,
        max_timestamp=latest,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.base_sequence,
        record_count=len(records),
    )
    write_header(batch, header)
    return batch


def write_header(batch: bytearray, header: BatchHeader) -> None:
    """Pack the header over the first bytes and set the checksum of what follows it."""
    HEADER.pack_into(batch, 0, *header)
    with memoryview(batch) as view:
        reseal(view)


def batches_of(data: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The complete batches in a fetch answer; an incomplete last one is left out, as clients do."""
    view = memoryview(data)
    at = 0
    while len(view) - at >= HEADER_BYTES:
        header = read_header(view, at)
        size = header.size
        if size < HEADER_BYTES:
            raise Corrupt(f"batch length {header.length} is too small")
        if at + size > len(view):
            return
        yield header, view[at : at + size]
        at += size


def records_of(batch: Buffer, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The records of one batch, checked against its checksum first.

    Raises:
        Corrupt: the batch, its compressed part or a record does not fit together.
    """
    view = memoryview(batch)
    header = read_header(view)
    check_stored(view, 0, header)
    body = plain_body(view, header, limit_bytes=limit_bytes)
    base_timestamp = header.base_timestamp
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    last_offset = header.base_offset - 1
    until_offset = header.until_offset
    at = 0
    try:
        for _ in range(header.record_count):
            record, at = _decode_record(body, at, header.base_offset, base_timestamp)
            if not last_offset < record.offset < until_offset:
                raise Corrupt(f"record at offset {record.offset} after {last_offset}")
            last_offset = record.offset
            yield record if fixed_timestamp is None else record._replace(timestamp=fixed_timestamp)
    except IndexError:
        raise Corrupt("a record ends inside a number") from None
    if at != len(body):
        raise Corrupt(f"{len(body) - at} bytes after the last record")


def plain_body(view: memoryview, header: BatchHeader, *, limit_bytes: int) -> bytes:
    """The records part of a batch, uncompressed and large enough for the count it claims."""
    codec = header.attributes & COMPRESSION_MASK
    try:
        body = compression.decompress(
            codec, view[HEADER_BYTES : header.size], limit_bytes=limit_bytes
        )
    except InvalidRequest as error:
        raise Corrupt(error.cause) from None
    if not 0 <= header.record_count <= len(body) // _RECORD_BYTES_MIN:
        raise Corrupt(f"{header.record_count} records do not fit {len(body)} bytes")
    return body


def record_bounds(body: bytes, at: int) -> tuple[int, int]:
    """Where the record at ``at`` has its first byte after the length, and where it ends."""
    try:
        size, at = read_varint(body, at)
    except IndexError:
        raise Corrupt("the batch ends inside a record length") from None
    if size < _RECORD_BYTES_MIN - 1 or at + size > len(body):
        raise Corrupt(f"record of {size} bytes, but {len(body) - at} are left")
    return at, at + size


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number and the place after it; ``IndexError`` when the bytes end inside it."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    value = byte & 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise Corrupt("a number has more than ten bytes")
    if value >> 64:
        raise Corrupt("a number has more than 64 bits")
    return (value >> 1) ^ -(value & 1), at


def write_varint(out: bytearray, value: int) -> None:
    """Append a zigzag number."""
    number = (value << 1) ^ (value >> 63)
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def encode_record(out: bytearray, offset_delta: int, timestamp_delta: int, record: Record) -> None:
    """Append one record, its length in front."""
    # Pieces joined once: a growing buffer would be written to a dozen times.
    key, value, headers = record.key, record.value, record.headers
    pieces = [
        b"\0",  # attributes: none are defined
        _varint(timestamp_delta),
        _SIZES[offset_delta] if offset_delta < _SIZES_KNOWN else _varint(offset_delta),
    ]
    if key is None:
        pieces.append(_NO_FIELD)
    else:
        size = len(key)
        pieces += (_SIZES[size] if size < _SIZES_KNOWN else _varint(size), key)
    if value is None:
        pieces.append(_NO_FIELD)
    else:
        size = len(value)
        pieces += (_SIZES[size] if size < _SIZES_KNOWN else _varint(size), value)
    pieces.append(_encoded_headers(headers))
    body = b"".join(pieces)
    out += _varint(len(body))
    out += body


def _encode_all(records: Sequence[RecordFields], first_timestamp: int) -> bytes:
    """All records of a batch, as ``encode_record`` writes them.

    Parts equal to those of the previous record are not encoded again.
    """
    pieces: list[Buffer] = []
    known_time, known_key, known_size = first_timestamp, None, -1
    known_headers: tuple[Header, ...] = ()
    front, middle, tail = b"\0\0", _NO_FIELD + _NO_FIELD, b"\0"
    fixed = len(front) + len(middle) + len(tail)
    for delta, (_, timestamp, key, value, headers) in enumerate(records):
        size = -1 if value is None else len(value)
        if (
            headers is not known_headers
            or size != known_size
            or timestamp != known_time
            or key != known_key
        ):
            front = b"\0" + _varint(timestamp - first_timestamp)
            middle = _varint(size)
            middle = _NO_FIELD + middle if key is None else _varint(len(key)) + key + middle
            tail = tail if headers is known_headers else _encoded_headers(headers)
            fixed = len(front) + len(middle) + len(tail)
            known_time, known_key, known_size, known_headers = timestamp, key, size, headers
        place = _SIZES[delta] if delta < _SIZES_KNOWN else _varint(delta)
        if value is None:
            pieces += (_varint(fixed + len(place)), front, place, middle, tail)
            continue
        size += fixed + len(place)
        length = _SIZES[size] if size < _SIZES_KNOWN else _varint(size)
        pieces += (length, front, place, middle, value, tail)
    return b"".join(pieces)


def _encoded_headers(headers: tuple[Header, ...]) -> bytes:
    if not headers:
        return b"\0"
    pieces = [_varint(len(headers))]
    for name, content in headers:
        text = name.encode()
        pieces += (_varint(len(text)), text)
        if content is None:
            pieces.append(_NO_FIELD)
        else:
            size = len(content)
            pieces += (_SIZES[size] if size < _SIZES_KNOWN else _varint(size), content)
    return b"".join(pieces)


def _varint(value: int) -> bytes:
    """A zigzag number as bytes; small ones, which nearly all are, from a table."""
    number = (value << 1) ^ (value >> 63)
    if number < _SMALL_NUMBERS:
        return _SMALL[number]
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def _decode_record(
    body: bytes, at: int, base_offset: int, base_timestamp: int
) -> tuple[Record, int]:
    # Numbers of one byte are read in place: a call for each of them would double the cost.
    at, until = record_bounds(body, at)
    number = body[at + 1]
    at += 2
    if number < 0x80:
        timestamp = base_timestamp + _ZIGZAG[number]
    else:
        number, at = read_varint(body, at - 1)
        timestamp = base_timestamp + number
    number = body[at]
    at += 1
    if number < 0x80:
        offset = base_offset + _ZIGZAG[number]
    else:
        number, at = read_varint(body, at - 1)
        offset = base_offset + number
    if body[at] == _ABSENT:
        key = None
        at += 1
    else:
        key, at = _read_field(body, at, until)
    value, at = _read_field(body, at, until)
    headers: tuple[Header, ...] = ()
    if body[at]:
        headers, at = _read_headers(body, at, until)
    else:
        at += 1
    if at != until:
        raise Corrupt(f"a record is {until - at} bytes longer than its fields")
    return Record(offset, timestamp, key, value, headers), until


def _read_field(body: bytes, at: int, until: int) -> tuple[bytes | None, int]:
    size = body[at]
    if size < 0x80:
        size = _ZIGZAG[size]
        at += 1
    else:
        size, at = read_varint(body, at)
    if size < 0:
        if size != -1:
            raise Corrupt(f"a field of {size} bytes")
        return None, at
    end = at + size
    if end > until:
        raise Corrupt(f"a field of {size} bytes, but {until - at} are left")
    return body[at:end], end


def _read_headers(body: bytes, at: int, until: int) -> tuple[tuple[Header, ...], int]:
    count, at = read_varint(body, at)
    if not 0 <= count <= HEADERS_PER_RECORD_MAX:
        raise Corrupt(f"{count} headers in one record")
    headers: list[Header] = []
    for _ in range(count):
        name, at = _read_field(body, at, until)
        if name is None:
            raise Corrupt("a header without a name")
        value, at = _read_field(body, at, until)
        # Header names are text by convention only; clients decode other bytes in the same way.
        headers.append((name.decode(errors="replace"), value))
    return tuple(headers), at
