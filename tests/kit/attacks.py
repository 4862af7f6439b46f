"""Clients that try to use up the descriptors or the memory of nodes."""

import contextlib
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kit.waiting import wait_until

from mainstem.testing.local_node import LocalNode

JOIN_GROUP, METADATA = 11, 3
NOT_COORDINATOR = 16
PATIENCE_MS = 1_800_000


def dial(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), 20)


def python_with_few_descriptors(folder: Path, descriptors: int) -> str:
    """An interpreter, made in a folder, whose processes may have so many descriptors."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nulimit -n {descriptors}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


def resident_bytes(node: LocalNode) -> int:
    """The resident memory of a node's process."""
    for line in Path(f"/proc/{node.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the process is gone")


def descriptors(node: LocalNode) -> int:
    """How many descriptors a node's process has open."""
    return len(list(Path(f"/proc/{node.pid}/fd").iterdir()))


class IdleConnections:
    """Connections that send nothing, to these addresses in turn."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._open: list[socket.socket] = []

    def connect(self, attempts: int) -> None:
        for attempt in range(attempts):
            self._open.append(dial(self._addresses[attempt % len(self._addresses)]))
            if attempt % 200 == 199:
                self.drop_refused()

    def drop_refused(self) -> None:
        """Close what the node has closed."""
        poll = select.poll()
        by_number = {each.fileno(): each for each in self._open}
        for number in by_number:
            poll.register(number, select.POLLIN)
        for number, _ in poll.poll(0):
            by_number.pop(number).close()
        self._open = list(by_number.values())

    def __len__(self) -> int:
        self.drop_refused()
        return len(self._open)

    def close(self) -> None:
        for each in self._open:
            each.close()
        self._open = []


def frame(api_key: int, version: int, body: bytes) -> bytes:
    whole = struct.pack(">hhi", api_key, version, 1) + text("client") + body
    return struct.pack(">i", len(whole)) + whole


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def join(group: str) -> bytes:
    """A JoinGroup that waits for the members that the group already has."""
    body = text(group) + struct.pack(">ii", PATIENCE_MS, PATIENCE_MS) + text("") + text("consumer")
    return frame(JOIN_GROUP, 2, body + struct.pack(">i", 1) + text("range") + struct.pack(">i", 0))


class ParkedFrames:
    """Connections with a request that waits, each with large frames sent behind it.

    Args:
        kafka: the address of one node.
        connections: how many.
        body: what each frame holds.
        frames_each: how many frames each connection tries to send.
    """

    def __init__(self, kafka: str, connections: int, body: bytes, frames_each: int) -> None:
        self._kafka = kafka
        self._connections = connections
        self._frame = frame(METADATA, 1, body)
        self._frames_each = frames_each
        self._stack = contextlib.ExitStack()
        self._senders: list[threading.Thread] = []
        self.sent = [0] * connections

    def __enter__(self) -> Self:
        group = self._group_that_waits()
        for number in range(self._connections):
            connection = self._stack.enter_context(dial(self._kafka))
            self._stack.callback(connection.shutdown, socket.SHUT_RDWR)  # ends the thread's send
            connection.sendall(join(group))
            sender = threading.Thread(target=self._send, args=(number, connection), daemon=True)
            sender.start()
            self._senders.append(sender)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        for sender in self._senders:
            sender.join(20)
            assert not sender.is_alive()

    def wait_until_stuck(self) -> None:
        """Wait until no connection can send any more."""
        wait_until(lambda: all(self.sent) and self._is_still(), within_s=120)

    def _is_still(self) -> bool:
        before = sum(self.sent)
        time.sleep(1)
        return sum(self.sent) == before

    def _group_that_waits(self) -> str:
        """A group of which this node is the coordinator, with a member that does not answer."""
        for number in range(100):
            first = self._stack.enter_context(dial(self._kafka))
            first.sendall(join(f"parked-{number}"))
            answer = first.recv(1_000)
            if struct.unpack_from(">h", answer, 12)[0] != NOT_COORDINATOR:
                return f"parked-{number}"
        raise AssertionError("the node coordinates no group")

    def _send(self, number: int, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed at the end of the test
            for _ in range(self._frames_each):
                view = memoryview(self._frame)
                while view:
                    count = connection.send(view)
                    self.sent[number] += count
                    view = view[count:]
