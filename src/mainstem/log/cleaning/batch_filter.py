"""Removes records from one batch. Offsets, producer and sequence stay; only records go.

A batch that keeps all its records and its times is copied byte for byte. One that holds a tombstone
or a transaction marker gets a *delete horizon* the first time it is cleaned: attribute bit 0x40 is
set and the base timestamp becomes the moment from which on those records may go, as Kafka does
since KIP-534. Record timestamps are differences to the base timestamp: they are rewritten then.
"""

from collections.abc import Callable
from typing import NamedTuple

from mainstem.model.errors import Corrupt
from mainstem.model.limits import DECOMPRESSED_BYTES_MAX
from mainstem.model.records import compression
from mainstem.model.records.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_MASK,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    BatchHeader,
)
from mainstem.model.records.columns import COMPILED
from mainstem.model.records.record import (
    plain_body,
    read_varint,
    record_bounds,
    write_header,
    write_varint,
)


class RawRecord(NamedTuple):
    """One record as it stands in its batch."""

    offset: int
    timestamp_delta: int
    key: bytes | None
    is_tombstone: bool
    start: int  # of the attributes, after the length
    rest: int  # after the timestamp delta
    until: int


class CleanedBatch(NamedTuple):
    """What is left of a batch."""

    data: bytes
    record_count: int
    horizon_ms: int | None  # when tombstones or markers that are left in it may go


def horizon_of(header: BatchHeader) -> int | None:
    """The delete horizon of a batch that has one."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_MASK else None


def raw_records(body: bytes, header: BatchHeader) -> list[RawRecord]:
    """The records of an uncompressed body, parsed as far as cleaning needs it.

    Raises:
        Corrupt: a record does not fit together.
    """
    if COMPILED is None:
        return plain_raw_records(body, header)
    count, base_offset = header.record_count, header.base_offset
    try:
        records: list[RawRecord] = COMPILED.raw_records(RawRecord, body, count, base_offset)
    except ValueError as error:
        raise Corrupt(str(error)) from None
    return records


def plain_raw_records(body: bytes, header: BatchHeader) -> list[RawRecord]:
    """Python version of the compiled function, for machines where it was not built."""
    records = []
    at = 0
    try:
        for _ in range(header.record_count):
            start, until = record_bounds(body, at)
            timestamp_delta, rest = read_varint(body, start + 1)
            offset_delta, place = read_varint(body, rest)
            key_size, place = read_varint(body, place)
            if place + max(key_size, 0) >= until:
                raise Corrupt(f"a key of {key_size} bytes in a record of {until - start}")
            key = body[place : place + key_size] if key_size >= 0 else None
            value_size, _ = read_varint(body, place + max(key_size, 0))
            offset = header.base_offset + offset_delta
            records.append(
                RawRecord(offset, timestamp_delta, key, value_size < 0, start, rest, until)
            )
            at = until
    except IndexError:
        raise Corrupt("a record ends inside a number") from None
    return records


def clean_batch(
    data: memoryview,
    header: BatchHeader,
    keep: Callable[[RawRecord], bool],
    horizon_ms: int,
) -> CleanedBatch:
    """The batch without the records that are not kept; ``horizon_ms`` is set if one is needed."""
    body = plain_body(data, header, limit_bytes=DECOMPRESSED_BYTES_MAX)
    records = raw_records(body, header)
    kept = [record for record in records if keep(record)]
    waits = bool(kept) and (header.is_control or any(record.is_tombstone for record in kept))
    known = horizon_of(header)
    needs_horizon = waits and known is None
    if len(kept) == len(records) and not needs_horizon:
        return CleanedBatch(bytes(data[: header.size]), len(kept), known if waits else None)
    if not kept:
        return CleanedBatch(empty_batch(header), 0, None)
    base_timestamp = horizon_ms if needs_horizon else header.base_timestamp
    shift = header.base_timestamp - base_timestamp
    packed = _pack(body, kept, shift)
    latest = max(record.timestamp_delta for record in kept) + header.base_timestamp
    attributes = header.attributes | (DELETE_HORIZON_MASK if needs_horizon else 0)
    return CleanedBatch(
        _rebuild(
            header._replace(
                attributes=attributes,
                base_timestamp=base_timestamp,
                max_timestamp=header.max_timestamp if header.is_log_append_time else latest,
                record_count=len(kept),
            ),
            packed,
        ),
        len(kept),
        (horizon_ms if needs_horizon else known) if waits else None,
    )


def empty_batch(header: BatchHeader) -> bytes:
    """The header alone: it still has the producer's last sequence and the end of the log."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_MASK)
    return _rebuild(header._replace(attributes=attributes, record_count=0), b"")


def _pack(body: bytes, kept: list[RawRecord], shift: int) -> bytes:
    out = bytearray()
    for record in kept:
        if shift:
            front = bytearray(body[record.start : record.start + 1])
            write_varint(front, record.timestamp_delta + shift)
            front += body[record.rest : record.until]
            write_varint(out, len(front))
            out += front
        else:
            write_varint(out, record.until - record.start)
            out += body[record.start : record.until]
    return bytes(out)


def _rebuild(header: BatchHeader, body: bytes) -> bytes:
    packed = compression.compress(header.compression, body) if body else b""
    batch = bytearray(HEADER_BYTES)
    batch += packed
    write_header(batch, header._replace(length=len(batch) - LENGTH_OVERHEAD))
    return bytes(batch)
