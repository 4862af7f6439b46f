"""Frames behind a request that waits stay in their sockets, not in the node's memory."""

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.bad_input.wire import Witness
from tests.kit.waiting import wait_until

from mainstem.model.limits import MIB
from mainstem.testing.local_node import LocalNode

CONNECTIONS = 20
FRAME_BYTES = 8 * MIB
FRAMES_EACH = 5
# Twenty connections with a megabyte or two each, and what else a node's memory varies by. Without
# a bound it would be 800 MiB.
GROWTH_BYTES_MAX = 100 * MIB
JOIN_GROUP, METADATA = 11, 3
PATIENCE_MS = 1_800_000


@pytest.fixture
def node() -> Iterator[LocalNode]:
    with LocalNode() as made:
        yield made
        assert "Traceback" not in made.log_text(), made.log_tail()
        assert made.stop() == 0


def resident_bytes(node: LocalNode) -> int:
    for line in Path(f"/proc/{node.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the process is gone")


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def frame(api_key: int, version: int, body: bytes) -> bytes:
    whole = struct.pack(">hhi", api_key, version, 1) + text("client") + body
    return struct.pack(">i", len(whole)) + whole


def join(group: str) -> bytes:
    """A JoinGroup that waits for the members who are there already."""
    body = text(group) + struct.pack(">ii", PATIENCE_MS, PATIENCE_MS) + text("") + text("consumer")
    return frame(JOIN_GROUP, 2, body + struct.pack(">i", 1) + text("range") + struct.pack(">i", 0))


def dial(node: LocalNode) -> socket.socket:
    host, _, port = node.kafka.rpartition(":")
    return socket.create_connection((host, int(port)), 20)


def is_still(sent: list[int]) -> bool:
    """Whether nobody gets anything sent any more."""
    before = sum(sent)
    time.sleep(1)
    return sum(sent) == before


def test_frames_behind_requests_that_wait_do_not_fill_the_memory(node: LocalNode) -> None:
    large = frame(METADATA, 1, os.urandom(FRAME_BYTES))
    with contextlib.ExitStack() as stack:
        witness = stack.enter_context(contextlib.closing(Witness(node)))
        first = stack.enter_context(dial(node))
        first.sendall(join("g"))
        assert first.recv(4)  # the first member is in; those who come now wait for it
        before = resident_bytes(node)
        writers = []
        sent = [0] * CONNECTIONS
        for number in range(CONNECTIONS):
            connection = stack.enter_context(dial(node))
            stack.callback(connection.shutdown, socket.SHUT_RDWR)  # wakes the thread that sends
            connection.sendall(join("g"))

            def write(number: int = number, connection: socket.socket = connection) -> None:
                with contextlib.suppress(OSError):  # closed at the end of the test
                    for _ in range(FRAMES_EACH):
                        view = memoryview(large)
                        while view:
                            count = connection.send(view)
                            sent[number] += count
                            view = view[count:]

            writer = threading.Thread(target=write, daemon=True)
            writer.start()
            writers.append(writer)
        wait_until(lambda: all(sent) and is_still(sent), within_s=60)
        witness.check()
        assert resident_bytes(node) - before < GROWTH_BYTES_MAX
        assert max(sent) < FRAME_BYTES  # the rest never left the clients
        stack.close()
        for writer in writers:
            writer.join(20)
            assert not writer.is_alive()
