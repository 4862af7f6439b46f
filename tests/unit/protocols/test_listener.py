"""Connections are bounded: in number, in what they hold, and in how long they may be silent."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.kit.log import no_free_descriptors
from tests.kit.waiting import eventually

from mainstem.model.errors import Corrupt
from mainstem.protocols import closing_listener
from mainstem.protocols import listener as module
from mainstem.protocols.connection import BEFORE_LOGIN_BUFFER_BYTES, Connection
from mainstem.protocols.frame_memory import FrameMemory
from mainstem.protocols.listener import Listener
from mainstem.protocols.receive_buffers import FIRST_OWN_BUFFER_BYTES, Buffers
from mainstem.protocols.session import ProtocolViolation
from mainstem.telemetry.metrics import Metrics

BROKEN: dict[bytes, Exception] = {
    b"disk\n": OSError(errno.EIO, "Input/output error"),
    b"cut\n": Corrupt("7 bytes where 8 were written"),
}


class BrokenSlice:
    """A slice of a file that the disk does not give back."""

    fd = 3
    position = 0
    verified = True

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __len__(self) -> int:
        return 8

    def read(self) -> bytes:
        raise self._error


class Echo:
    """A session of lines: each is sent back; a line of ``!`` breaks the protocol."""

    drain_ms = 10_000

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_logged_in = False

    def receive(self, buf: bytearray, view: memoryview, start: int, until: int) -> tuple[int, int]:
        while (end := buf.find(b"\n", start, until)) >= 0:
            line = bytes(view[start : end + 1])
            if line == b"!\n":
                raise ProtocolViolation("shouted")
            if line == b"bye\n":
                self.connection.send([line])
                self.connection.close(drain_ms=self.drain_ms)
                return until, 1
            if line in BROKEN:
                self.connection.send([b"the beginning ", BrokenSlice(BROKEN[line]), b" the end"])
                self.connection.send([b"more"])
                start = end + 1
                continue
            self.connection.send([line])
            self.is_logged_in = True
            start = end + 1
        return start, until - start + 1

    def closed(self) -> None: ...


async def ending(reader: asyncio.StreamReader) -> bytes:
    """What still arrives before the connection ends, cleanly or by a reset."""
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""


@asynccontextmanager
async def listening(
    *, most: int = 10, idle_ms: int = 60_000, metrics: Metrics | None = None
) -> AsyncIterator[tuple[Listener, int]]:
    listener = Listener(
        "echo",
        Echo,
        connections_max=most,
        buffers=Buffers(FrameMemory(2**22)),
        metrics=metrics or Metrics(),
        idle_ms=idle_ms,
    )
    port = await listener.start("127.0.0.1", 0)
    try:
        yield listener, port
    finally:
        await listener.stop()
        await listener.drain(1)


async def test_frames_in_pieces_and_in_bulk_are_put_together() -> None:
    async with listening() as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        sent = b"".join(b"%d" % n * (n % 700) + b"\n" for n in range(2_000))

        async def write() -> None:
            for at in range(0, len(sent), 60_001):
                writer.write(sent[at : at + 60_001])
                await writer.drain()
                await asyncio.sleep(0)

        writing = asyncio.ensure_future(write())
        assert await asyncio.wait_for(reader.readexactly(len(sent)), 20) == sent
        await writing
        writer.close()


async def test_more_connections_than_allowed_are_closed_at_once() -> None:
    metrics = Metrics()

    async with listening(most=1, metrics=metrics) as (_, port):
        first = await asyncio.open_connection("127.0.0.1", port)
        first[1].write(b"hello\n")
        assert await first[0].readline() == b"hello\n"

        second = await asyncio.open_connection("127.0.0.1", port)
        second[1].write(b"hello\n")
        assert await second[0].read() == b""

        first[1].write(b"still here\n")
        assert await first[0].readline() == b"still here\n"
        for _, writer in (first, second):
            writer.close()

    assert (metrics.connections_accepted, metrics.connections_rejected) == (1, 1)
    assert metrics.connections_active == 0


async def test_a_peer_that_is_still_sending_reads_its_last_answer_and_the_end() -> None:
    async with listening() as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"bye\n")
        for _ in range(200):
            writer.write(b"x" * 10_000)
            await writer.drain()
        assert await asyncio.wait_for(reader.read(), 10) == b"bye\n"
        assert len(listener.connections) == 1
        writer.close()
        await eventually(lambda: not listener.connections)


@pytest.mark.parametrize("limit", ["time", "bytes"])
async def test_a_peer_that_never_ends_is_cut_off(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limit == "time":
        monkeypatch.setattr(Echo, "drain_ms", 50)
    else:
        monkeypatch.setattr(closing_listener, "CLOSE_DRAIN_BYTES_MAX", 100_000)

    async with listening() as (listener, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"bye\n" + b"x" * 500_000)
        assert await ending(reader) in (b"bye\n", b"")
        await eventually(lambda: not listener.connections)
        writer.close()


async def test_a_broken_protocol_closes_that_connection_only() -> None:
    metrics = Metrics()

    async with listening(metrics=metrics) as (_, port):
        good = await asyncio.open_connection("127.0.0.1", port)
        bad = await asyncio.open_connection("127.0.0.1", port)
        bad[1].write(b"!\n")
        assert await ending(bad[0]) == b""
        good[1].write(b"fine\n")
        assert await good[0].readline() == b"fine\n"
        for _, writer in (good, bad):
            writer.close()
    assert metrics.malformed_frames == 1


@pytest.mark.parametrize("line", sorted(BROKEN))
async def test_a_failing_disk_closes_the_connection_and_nothing_else(
    line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    unexpected: list[dict[str, Any]] = []

    async with listening() as (_, port):
        asyncio.get_running_loop().set_exception_handler(lambda _, what: unexpected.append(what))
        good = await asyncio.open_connection("127.0.0.1", port)
        hit = await asyncio.open_connection("127.0.0.1", port)
        hit[1].write(line)
        assert await ending(hit[0]) == b""
        good[1].write(b"fine\n")
        assert await good[0].readline() == b"fine\n"
        for _, writer in (good, hit):
            writer.close()

    assert unexpected == []
    assert [str(BROKEN[line]) in record.getMessage() for record in caplog.records] == [True]


async def test_a_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_MS", 50)

    async with listening(idle_ms=200) as (_, port):
        silent = await asyncio.open_connection("127.0.0.1", port)
        chatty = await asyncio.open_connection("127.0.0.1", port)

        async def chat() -> None:
            while True:
                chatty[1].write(b"x\n")
                await chatty[0].readline()
                await asyncio.sleep(0.02)

        chatting = asyncio.ensure_future(chat())
        assert await ending(silent[0]) == b""
        assert not chatting.done()
        chatting.cancel()
        for _, writer in (silent, chatty):
            writer.close()


async def test_before_a_login_an_unfinished_frame_takes_little_memory() -> None:
    memory = FrameMemory(2**22)

    async with asyncio.timeout(30):
        listener = Listener(
            "echo",
            Echo,
            connections_max=10,
            buffers=Buffers(memory),
            metrics=Metrics(),
            idle_ms=60_000,
        )
        port = await listener.start("127.0.0.1", 0)
        found = []
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"unfinished")
        while not memory.used_bytes:  # noqa: ASYNC110 - nobody tells when bytes have arrived
            await asyncio.sleep(0.01)
        found.append(memory.used_bytes)
        writer.write(b" no more\n")
        assert await reader.readline() == b"unfinished no more\n"
        writer.write(b"unfinished")
        while not memory.used_bytes:  # noqa: ASYNC110 - nobody tells when bytes have arrived
            await asyncio.sleep(0.01)
        found.append(memory.used_bytes)
        writer.close()
        await listener.stop()
        await listener.drain(5)
        before, after = found
    assert before <= BEFORE_LOGIN_BUFFER_BYTES
    assert after == FIRST_OWN_BUFFER_BYTES
    assert memory.used_bytes == 0


async def test_a_listener_without_a_free_descriptor_accepts_again_later() -> None:
    metrics = Metrics()

    async with listening(metrics=metrics) as (listener, port):
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setblocking(False)
            with no_free_descriptors():
                await loop.sock_connect(client, ("127.0.0.1", port))
                refusals = listener.metrics.connections_refused
                async with asyncio.timeout(10):
                    while not refusals["echo", "accept_failed"]:  # noqa: ASYNC110 - a counter
                        await asyncio.sleep(0.01)
            await loop.sock_sendall(client, b"hello\n")
            assert await asyncio.wait_for(loop.sock_recv(client, 100), 10) == b"hello\n"
    assert metrics.connections == {"echo": 0}
