"""Loads a Kafka server through a bare socket with prebuilt frames; prints one JSON line.

The client does as little as Python allows, so that the server is what is measured:

    python -m bench.loaders.raw produce <address> <topic> <count> <record bytes> <depth> <acks>
    python -m bench.loaders.raw fetch   <address> <topic> <count> <bytes per fetch> <depth> 0

After these: ``records=N`` in a batch, ``idempotent=1``, ``login=user:password``, ``ca=FILE`` (TLS).
"""

import json
import socket
import struct
import sys
import time
from collections.abc import Callable

from bench import wire

EMPTY_S_MAX = 60
Options = dict[str, str]
Frames = Callable[[int], bytes | bytearray]


def produce(
    address: str, topic: str, numbers: tuple[int, int, int, int], options: Options | None = None
) -> None:
    """Send ``count`` requests of one batch each and keep ``depth`` of them in flight."""
    count, size, depth, acks = numbers
    options = options or {}
    with _connect(address, options) as connection:
        frames = _frames(connection, topic, size, acks, options)
        answer = wire.exchange(connection, frames(0))
        wire.produced_offset(answer)
        answer_bytes = len(answer) + 4
        # The base offset is the only part of an answer that differs.
        began = time.perf_counter()
        last = _pipeline(connection, frames, count, depth, answer_bytes)
        seconds = time.perf_counter() - began
        wire.produced_offset(last[4:])
    messages = count * int(options.get("records", "1"))
    _say({"messages": messages, "seconds": seconds, "client_cpu_s": time.process_time()})


def _connect(address: str, options: Options) -> socket.socket:
    return wire.connect(address, ca=options.get("ca", ""), login=options.get("login", ""))


def _frames(
    connection: socket.socket, topic: str, size: int, acks: int, options: Options
) -> Frames:
    """The request of a number; always the same one unless batches are numbered."""
    values = [b"x" * size] * int(options.get("records", "1"))
    # A server may delete records by age at any moment, so they are as young as they can be.
    now_ms = time.time_ns() // 1_000_000
    if "idempotent" not in options:
        same = wire.produce(topic, 0, wire.batch(values, timestamp_ms=now_ms), acks=acks)
        return lambda _: same
    producer = (*wire.producer_identity(connection), 0)
    records = wire.batch(values, timestamp_ms=now_ms, producer=producer)
    frame = bytearray(wire.produce(topic, 0, records, acks=acks))

    def numbered(number: int) -> bytearray:
        wire.resequence(frame, len(frame) - len(records), number * len(values))
        return frame

    return numbered


def _pipeline(
    connection: socket.socket, frames: Frames, count: int, depth: int, answer_bytes: int
) -> bytes:
    """Send ``count`` frames; the last answer, after all the others have arrived whole."""
    frame = frames(1)
    bursts = [frame * number for number in range(depth + 1)] if len(frame) < 4096 else []
    connection.settimeout(60)
    buffer = bytearray(max(answer_bytes * depth, 1 << 16))
    sent = answered = held = 0
    while answered < count:
        room = min(depth - (sent - answered), count - sent)
        if room:
            connection.sendall(bursts[room] if bursts else frames(sent + 1))
            sent += room if bursts else 1
            if not bursts and room > 1:
                continue
        got = connection.recv_into(memoryview(buffer)[held:])
        if got == 0:
            raise ConnectionError("the server closed the connection")
        held += got
        whole, held = divmod(held, answer_bytes)
        answered += whole
        if whole:
            last = bytes(buffer[(whole - 1) * answer_bytes : whole * answer_bytes])
            buffer[:held] = buffer[whole * answer_bytes : whole * answer_bytes + held]
    return last


def fetch(
    address: str, topic: str, numbers: tuple[int, int, int, int], options: Options | None = None
) -> None:
    """Fetch ``count`` answers, each from where the last one ended, from offset 0 on.

    An answer without records does not count: whoever writes them may not have begun.
    """
    count, size, depth, _ = numbers
    assert depth == 1, "where the next fetch begins is known when the last one has arrived"
    offset = total = answered = 0
    buffer = bytearray(size + (1 << 20))
    view = memoryview(buffer)
    with _connect(address, options or {}) as connection:
        began = arrived = time.perf_counter()
        while answered < count:
            connection.sendall(wire.fetch(topic, 0, offset, max_bytes=size))
            [length] = struct.unpack(">i", wire.exactly(connection, 4))
            at = 0
            while at < length:
                got = connection.recv_into(view[at:length])
                if got == 0:
                    raise ConnectionError("the server closed the connection")
                at += got
            records, _ = wire.fetched_records(view[:length])
            last = None
            for last in wire.batches_in(records):
                offset = last.base_offset + last.record_count
            if last is not None:
                total += len(records)
                answered += 1
                arrived = time.perf_counter()
            elif time.perf_counter() - arrived > EMPTY_S_MAX:
                raise TimeoutError(f"nothing to read at offset {offset} for {EMPTY_S_MAX} s")
        seconds = time.perf_counter() - began
    _say({"messages": offset, "bytes": total, "requests": count, "seconds": seconds})


def _say(result: dict[str, float]) -> None:
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    mode, at, name, *words = sys.argv[1:]
    count, size, depth, acks = map(int, words[:4])
    given = dict(word.split("=", 1) for word in words[4:])
    {"produce": produce, "fetch": fetch}[mode](at, name, (count, size, depth, acks), given)
