"""The few Kafka frames that a loader needs, prebuilt so that the client costs next to nothing.

Written from the protocol's description with ``struct`` alone; shares no code with the product, so
it also serves the tests as a second opinion about what a server stored.
"""

import socket
import ssl
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from crc32c import crc32c

PRODUCE, FETCH, SASL_HANDSHAKE, INIT_PRODUCER_ID, SASL_AUTHENTICATE = 0, 1, 17, 22, 36
PRODUCE_VERSION, FETCH_VERSION = 7, 11
_CRC_AT, _CRC_FROM, _SEQUENCE_AT = 17, 21, 53
COORDINATOR_LOADING = 14
IDENTITY_TIMEOUT_S = 30.0
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


def batch(
    values: list[bytes],
    *,
    timestamp_ms: int = 1_700_000_000_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """An uncompressed v2 batch of keyless records; ``producer`` is its id, epoch and sequence."""
    records = b"".join(_record(delta, value) for delta, value in enumerate(values))
    last = len(values) - 1
    tail = struct.pack(">hiqq", 0, last, timestamp_ms, timestamp_ms)
    body = tail + struct.pack(">qhii", *producer, len(values)) + records
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


def resequence(frame: bytearray, batch_at: int, sequence: int) -> None:
    """Give the batch that fills ``frame`` from ``batch_at`` on another sequence."""
    struct.pack_into(">i", frame, batch_at + _SEQUENCE_AT, sequence)
    checksum = crc32c(memoryview(frame)[batch_at + _CRC_FROM :])
    struct.pack_into(">I", frame, batch_at + _CRC_AT, checksum)


def connect(address: str, *, ca: str = "", login: str = "") -> socket.socket:
    """A blocking connection to ``host:port``: by TLS if ``ca`` trusts it, as ``user:password``."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if ca:
        context = ssl.create_default_context(cafile=ca)
        connection = context.wrap_socket(connection, server_hostname=host)
    if login:
        log_in(connection, *login.split(":", 1))
    return connection


def log_in(connection: socket.socket, user: str, password: str) -> None:
    """Say who is there by PLAIN."""
    answer = exchange(connection, request(SASL_HANDSHAKE, 1, 1, _string("PLAIN")))
    _check("handshake", answer, 4)
    shown = f"\0{user}\0{password}".encode()
    body = struct.pack(">i", len(shown)) + shown
    _check("login", exchange(connection, request(SASL_AUTHENTICATE, 0, 1, body)), 4)


def producer_identity(connection: socket.socket) -> tuple[int, int]:
    """Id and epoch for a producer that numbers its batches."""
    body = struct.pack(">hi", -1, 60_000)
    deadline_s = time.monotonic() + IDENTITY_TIMEOUT_S
    while True:
        answer = exchange(connection, request(INIT_PRODUCER_ID, 1, 1, body))
        # Apache Kafka says so until it has its first block of ids.
        is_loading = struct.unpack_from(">h", answer, 8) == (COORDINATOR_LOADING,)
        if not is_loading or time.monotonic() > deadline_s:
            break
        time.sleep(0.1)
    _check("producer id", answer, 8)
    producer_id, epoch = struct.unpack_from(">qh", answer, 10)
    return int(producer_id), int(epoch)


def exchange(connection: socket.socket, frame: bytes | bytearray) -> bytes:
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


def _check(what: str, answer: bytes, at: int) -> None:
    [error] = struct.unpack_from(">h", answer, at)
    if error:
        raise Refused(f"{what} answered with error {error}")


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
