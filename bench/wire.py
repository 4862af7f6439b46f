"""The few Kafka frames that a loader needs, prebuilt so that the client costs next to nothing.

Written from the protocol's description with ``struct`` alone; shares no code with the product, so
it also serves the tests as a second opinion about what a server stored.
"""

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from crc32c import crc32c

PRODUCE, FETCH = 0, 1
PRODUCE_VERSION, FETCH_VERSION = 7, 11
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_HEAD = struct.Struct(">hhih")
_BATCH = struct.Struct(">qiibIhiqqqhii")
_FETCHED = struct.Struct(">ihqqqi")


class Refused(RuntimeError):
    """The server answered with an error code."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """What the header of a stored batch says."""

    base_offset: int
    record_count: int
    codec: str
    size_bytes: int


def batch(values: list[bytes], *, timestamp_ms: int = 1_700_000_000_000) -> bytes:
    """An uncompressed v2 batch of keyless records."""
    records = b"".join(_record(delta, value) for delta, value in enumerate(values))
    last = len(values) - 1
    tail = struct.pack(">hiqqqhii", 0, last, timestamp_ms, timestamp_ms, -1, -1, -1, len(values))
    body = tail + records
    return struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c(body)) + body


def request(api: int, version: int, correlation: int, body: bytes) -> bytes:
    """A framed request with an empty client id."""
    head = _HEAD.pack(api, version, correlation, 0)
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce(
    topic: str, partition: int, records: bytes, *, acks: int = 1, correlation: int = 1
) -> bytes:
    """A Produce request for one partition."""
    body = struct.pack(">hhii", -1, acks, 30_000, 1) + _string(topic)
    body += struct.pack(">iii", 1, partition, len(records)) + records
    return request(PRODUCE, PRODUCE_VERSION, correlation, body)


def fetch(topic: str, partition: int, offset: int, *, max_bytes: int, min_bytes: int = 1) -> bytes:
    """A Fetch request for one partition, outside any fetch session."""
    body = struct.pack(">iiiibii", -1, 500, min_bytes, max_bytes, 0, 0, -1)
    body += struct.pack(">i", 1) + _string(topic)
    body += struct.pack(">iiiqqi", 1, partition, -1, offset, -1, max_bytes)
    body += struct.pack(">i", 0) + _string("")
    return request(FETCH, FETCH_VERSION, 1, body)


def connect(address: str) -> socket.socket:
    """A blocking connection to ``host:port``."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def exchange(connection: socket.socket, frame: bytes) -> bytes:
    """Send one request and return the body of its answer."""
    connection.sendall(frame)
    [size] = struct.unpack(">i", exactly(connection, 4))
    return exactly(connection, size)


def exactly(connection: socket.socket, size: int) -> bytes:
    """Read ``size`` bytes or fail."""
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        count = connection.recv_into(view)
        if count == 0:
            raise ConnectionError("the server closed the connection")
        view = view[count:]
    return bytes(buffer)


def produced_offset(answer: bytes) -> int:
    """The base offset that a Produce answer names."""
    at = 4 + 4
    [name] = struct.unpack_from(">h", answer, at)
    at += 2 + name + 4
    _, error, base_offset = struct.unpack_from(">ihq", answer, at)
    if error:
        raise Refused(f"produce answered with error {error}")
    return int(base_offset)


def fetched_records(answer: bytes | memoryview) -> tuple[memoryview, int]:
    """The record bytes of a one-partition Fetch answer, and the high watermark."""
    [error] = struct.unpack_from(">h", answer, 8)
    if error:
        raise Refused(f"fetch answered with error {error}")
    at = 4 + 4 + 2 + 4 + 4
    [name] = struct.unpack_from(">h", answer, at)
    at += 2 + name + 4
    _, error, high_watermark, _, _, aborted = _FETCHED.unpack_from(answer, at)
    if error:
        raise Refused(f"fetch answered with error {error}")
    at += _FETCHED.size + 16 * max(aborted, 0) + 4
    [size] = struct.unpack_from(">i", answer, at)
    return memoryview(answer)[at + 4 : at + 4 + max(size, 0)], high_watermark


def batches_in(records: memoryview) -> Iterator[StoredBatch]:
    """The headers of the batches that a Fetch answer holds whole."""
    at = 0
    while at + _BATCH.size <= len(records):
        base, length, _, _, _, attributes, _, _, _, _, _, _, count = _BATCH.unpack_from(records, at)
        if at + 12 + length > len(records):
            return
        yield StoredBatch(base, count, CODECS[attributes & 7], 12 + length)
        at += 12 + length


def stored_batches(address: str, topic: str, partition: int, offset: int = 0) -> list[StoredBatch]:
    """Every batch of a partition from the one that holds ``offset`` on."""
    found: list[StoredBatch] = []
    with connect(address) as connection:
        while True:
            frame = fetch(topic, partition, offset, max_bytes=1 << 20, min_bytes=0)
            records, high_watermark = fetched_records(exchange(connection, frame))
            whole = list(batches_in(records))
            found += whole
            if not whole or whole[-1].base_offset + whole[-1].record_count >= high_watermark:
                return found
            offset = whole[-1].base_offset + whole[-1].record_count


def _record(delta: int, value: bytes) -> bytes:
    body = b"\x00\x00" + _varint(delta) + _varint(-1) + _varint(len(value)) + value + b"\x00"
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
