"""A listener disconnects clients that are not logged in by its login timeout, and no others."""

import asyncio
import contextlib

from mainstem.protocols.connection import Connection
from mainstem.protocols.frame_memory import FrameMemory
from mainstem.protocols.listener import Listener
from mainstem.protocols.receive_buffers import Buffers
from mainstem.telemetry.metrics import Metrics


class LoginSession:
    """A session whose client is in once it has sent anything."""

    def __init__(self, connection: Connection) -> None:
        self.is_logged_in = False

    def receive(self, buf: bytearray, view: memoryview, start: int, until: int) -> tuple[int, int]:
        self.is_logged_in = True
        return until, 1

    def closed(self) -> None: ...


async def connected_after_the_timeout() -> tuple[bool, bool]:
    """Whether a silent client and one that logged in are still connected."""
    listener = Listener(
        "test",
        LoginSession,
        connections_max=10,
        buffers=Buffers(FrameMemory(2**20)),
        metrics=Metrics(),
        idle_ms=60_000,
    )
    listener.login_timeout_ms = 200
    port = await listener.start("127.0.0.1", 0)
    silent, silent_writer = await asyncio.open_connection("127.0.0.1", port)
    known, known_writer = await asyncio.open_connection("127.0.0.1", port)
    known_writer.write(b"hello")
    with contextlib.suppress(ConnectionResetError):  # an abort may be seen as a reset
        assert await asyncio.wait_for(silent.read(), 10) == b""
    # The timer of the second connection is at most a moment behind that of the first.
    await asyncio.sleep(0.1)
    found = silent.at_eof() or silent.exception() is not None, known.at_eof()
    for writer in (silent_writer, known_writer):
        writer.close()
    await listener.stop()
    await listener.drain(1)
    return not found[0], not found[1]


def test_only_clients_that_did_not_log_in_in_time_are_disconnected() -> None:
    assert asyncio.run(connected_after_the_timeout()) == (False, True)
