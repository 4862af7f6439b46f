"""Loads a Kafka server with the same batches, to one partition after another; prints one JSON line.

    python -m bench.loaders.streams <address> <topic> <requests> <records> <depth> <partitions>

Every request holds one batch of ``records`` messages of 100 B, for the next partition in turn, with
``depth`` of them in flight and ``acks=1``. Latency is from the sending of a request to its answer.
Every partition gets one request first; then ``ready`` is printed and a line is waited for, so that
whoever measures the server can begin there.
"""

import json
import socket
import struct
import sys
import time
from collections import deque

from bench import wire

RECORD = b"x" * 100
TIMEOUT_S = 60.0


def main(address: str, topic: str, numbers: tuple[int, int, int, int]) -> dict[str, float]:
    """Send everything; how long it took, and what answers waited for."""
    requests, records, depth, partitions = numbers
    batch = wire.batch([RECORD] * records, timestamp_ms=time.time_ns() // 1_000_000)
    frame = bytearray(wire.produce(topic, 0, batch))
    with wire.connect(address) as connection:
        connection.settimeout(TIMEOUT_S)
        partition_at = len(frame) - len(batch) - 8
        _send(connection, frame, partition_at, (partitions, depth, partitions))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        began_s = time.perf_counter()
        waits_us = _send(connection, frame, partition_at, (requests, depth, partitions))
        seconds = time.perf_counter() - began_s
    waits_us.sort()
    return {
        "messages": requests * records,
        "seconds": seconds,
        "p50_us": waits_us[len(waits_us) // 2],
        "p99_us": waits_us[len(waits_us) * 99 // 100],
    }


def _send(
    connection: socket.socket, frame: bytearray, partition_at: int, numbers: tuple[int, int, int]
) -> list[float]:
    """What each answer waited for, in microseconds."""
    requests, depth, partitions = numbers
    waits_us: list[float] = []
    sent_s: deque[float] = deque()
    number = 0
    while len(waits_us) < requests:
        if number < requests and len(sent_s) < depth:
            struct.pack_into(">i", frame, partition_at, number % partitions)
            sent_s.append(time.perf_counter())
            connection.sendall(frame)
            number += 1
            continue
        [size] = struct.unpack(">i", wire.exactly(connection, 4))
        wire.produced_offset(wire.exactly(connection, size))
        waits_us.append((time.perf_counter() - sent_s.popleft()) * 1e6)
    return waits_us


if __name__ == "__main__":
    where, name, *words = sys.argv[1:]
    count, batched, in_flight, spread = map(int, words)
    sys.stdout.write(json.dumps(main(where, name, (count, batched, in_flight, spread))) + "\n")
