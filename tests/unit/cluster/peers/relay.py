"""A relay between two nodes that forwards their frames and may change them."""

import asyncio
from collections.abc import Callable
from typing import Literal

from mainstem.cluster.peers.frames import HEADER
from mainstem.cluster.peers.service import Address

Way = Literal["to listener", "from listener"]
Meddle = Callable[[Way, bytes], list[bytes]]
# A hello and a proof of each side.
HANDSHAKE_FRAMES = 2


class Relay:
    """Passes frames on; those behind the handshake go through ``meddle``."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.meddle: Meddle | None = None
        self.seen = bytearray()
        self.connections = 0

    async def listen(self, host: str = "127.0.0.1", port: int = 0) -> Address:
        self._server = await asyncio.start_server(self._accepted, host, port)
        host, port = self._server.sockets[0].getsockname()
        return host, port

    async def close(self) -> None:
        assert self._server is not None, "it listened"
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:  # the node has not started yet
            writer.close()
            return
        ways: list[tuple[Way, asyncio.StreamReader, asyncio.StreamWriter]] = [
            ("to listener", reader, back),
            ("from listener", there, writer),
        ]
        for way in ways:
            task = asyncio.get_running_loop().create_task(self._pass_on(*way))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(
        self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        passed = 0
        try:
            while True:
                length = await reader.readexactly(4)
                frame = length + await reader.readexactly(int.from_bytes(length))
                self.seen += frame
                passed += 1
                is_protected = passed > HANDSHAKE_FRAMES and len(frame) > HEADER.size
                if self.meddle is not None and is_protected:
                    writer.write(b"".join(self.meddle(way, frame)))
                else:
                    writer.write(frame)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
