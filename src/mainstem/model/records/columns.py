"""Records of batches as columns, and columns as batches: for Arrow, Spark and compaction.

    batches -> decode_columns -> offsets | timestamps | keys | values | headers
    columns -> encode_columns -> bodies -> seal_body -> batches

Columns are laid out as Arrow lays them out (validity bits, 32-bit offsets, data; numbers in the
machine's byte order), so that Arrow takes them without a copy, but nothing here needs Arrow. The
work is done by the compiled ``_native`` where it was built, else by ``plain_columns``; both give
the same bytes. Guarantee: for any bytes, the result is valid or ``Corrupt`` is raised.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

from mainstem.model.errors import Corrupt
from mainstem.model.limits import DECOMPRESSED_BYTES_MAX
from mainstem.model.records import compression, plain_columns
from mainstem.model.records.batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    check_stored,
)
from mainstem.model.records.record import NO_PRODUCER, ProducerStamp, plain_body, write_header

try:
    from mainstem.model import _native
except ImportError:  # not compiled on this machine
    COMPILED: ModuleType | None = None
else:
    COMPILED = _native

_ENGINE: ModuleType = plain_columns if COMPILED is None else COMPILED

Buffer = Any  # any buffer: bytes, memoryview, an Arrow buffer, a numpy array


class PlainBatch(NamedTuple):
    """One checked and uncompressed batch; ``fixed_timestamp`` holds for all its records."""

    body: bytes
    record_count: int
    base_offset: int
    base_timestamp: int
    fixed_timestamp: int | None
    until_offset: int


class BinaryColumn(NamedTuple):
    """Byte strings; ``validity`` is None where every row has one."""

    validity: bytes | None
    offsets: bytes
    data: bytes


class HeaderColumns(NamedTuple):
    """Lists of headers; a row without any is not valid."""

    validity: bytes | None
    offsets: bytes
    names: BinaryColumn
    values: BinaryColumn


class RecordColumns(NamedTuple):
    """The records of some batches, one entry per record in every column."""

    row_count: int
    offsets: bytes  # 64 bits
    timestamps_us: bytes  # 64 bits, microseconds since 1970
    timestamp_types: bytes  # 32 bits: 0 set by the producer, 1 by the broker
    keys: BinaryColumn
    values: BinaryColumn
    headers: HeaderColumns | None


class InputColumn(NamedTuple):
    """A column to be encoded: ``row_count`` rows from ``first`` on of some Arrow buffers."""

    validity: Buffer | None
    offsets: Buffer
    data: Buffer | None
    first: int
    row_count: int


class InputHeaders(NamedTuple):
    """Lists of headers to be encoded; ``lists`` has no data of its own."""

    lists: InputColumn
    names: InputColumn
    values: InputColumn


class InputRecords(NamedTuple):
    """Columns to be encoded; a column that is None has no value in any row."""

    keys: InputColumn | None
    values: InputColumn | None
    timestamps_ms: Buffer  # 64 bits each, one per row
    headers: InputHeaders | None = None


class EncodedRecords(NamedTuple):
    """The records part of one batch, not compressed."""

    body: bytes
    record_count: int
    base_timestamp: int
    max_timestamp: int


def plain_batch(
    header: BatchHeader, data: memoryview, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX
) -> PlainBatch:
    """A batch that is ready to be decoded, its checksum verified.

    Raises:
        Corrupt: the batch does not fit its checksum or cannot be uncompressed.
    """
    check_stored(data, 0, header)
    return PlainBatch(
        plain_body(data, header, limit_bytes=limit_bytes),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
        header.until_offset,
    )


def decode_columns(
    batches: Sequence[PlainBatch], start: int, until: int, *, with_headers: bool = False
) -> RecordColumns:
    """The records of batches whose offsets lie in [start, until), in their order.

    Raises:
        Corrupt: a record does not fit together.
    """
    try:
        rows, offsets, timestamps, types, keys, values, headers = _ENGINE.decode(
            batches, start, until, with_headers
        )
    except ValueError as error:
        raise Corrupt(str(error)) from None
    found = None
    if headers is not None:
        validity, places, names, contents = headers
        found = HeaderColumns(validity, places, BinaryColumn(*names), BinaryColumn(*contents))
    return RecordColumns(
        rows, offsets, timestamps, types, BinaryColumn(*keys), BinaryColumn(*values), found
    )


def encode_columns(records: InputRecords, rows: Buffer, batch_bytes: int) -> list[EncodedRecords]:
    """Some rows (64-bit numbers) as bodies of at most ``batch_bytes``, larger for single records.

    Raises:
        ValueError: a row lies outside its column.
    """
    bodies = _ENGINE.encode(
        rows, records.keys, records.values, records.timestamps_ms, records.headers, batch_bytes
    )
    return [EncodedRecords(*each) for each in bodies]


def partitions_of_keys(keys: InputColumn, partition_count: int) -> bytes:
    """Where Kafka's default partitioner sends each key, as 32-bit numbers; -1: there is no key."""
    found: bytes = _ENGINE.partitions(keys, keys.row_count, partition_count)
    return found


def seal_body(
    records: EncodedRecords,
    *,
    codec: int = compression.NONE,
    level: int | None = None,
    flags: int = 0,
    producer: ProducerStamp = NO_PRODUCER,
) -> bytearray:
    """One batch at base offset 0 around encoded records; see ``record.build_batch``."""
    plain = codec == compression.NONE
    batch = bytearray(HEADER_BYTES)
    batch += records.body if plain else compression.compress(codec, records.body, level=level)
    header = BatchHeader(
        base_offset=0,
        length=len(batch) - LENGTH_OVERHEAD,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=flags | codec,
        last_offset_delta=records.record_count - 1,
        base_timestamp=records.base_timestamp,
        max_timestamp=records.max_timestamp,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=producer.base_sequence,
        record_count=records.record_count,
    )
    write_header(batch, header)
    return batch
