"""Connections that are passed on to another node."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from mainstem.protocols.relay_listener import Address, Relays

each_loop = pytest.mark.usefixtures("each_loop")


class Session(asyncio.BufferedProtocol):
    """Answers with its name and what it was told."""

    def __init__(self, name: bytes) -> None:
        self._name = name
        self._buffer = bytearray(7)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._transport.write(self._name + bytes(self._buffer[:nbytes]))


@asynccontextmanager
async def serve(make: Callable[[], asyncio.BaseProtocol]) -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    yield int(server.sockets[0].getsockname()[1])
    server.close()
    await asyncio.sleep(0.05)


async def answer_of(port: int, said: bytes, size: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    async with asyncio.timeout(5):
        found = await reader.readexactly(size)
        writer.close()
        await writer.wait_closed()
    return found


def relays_to(address: Address | None) -> Relays:
    async def locate() -> Address | None:
        await asyncio.sleep(0.01)
        return address

    return Relays(lambda: True, locate)


@each_loop
async def test_the_node_that_serves_gets_every_byte_and_answers() -> None:
    async with serve(lambda: Session(b"far:")) as far:
        relays = relays_to(("127.0.0.1", far))
        async with serve(lambda: relays.make(lambda: Session(b"own:"))) as here:
            assert await answer_of(here, b"hello", 9) == b"far:hello"
            relays.close()


@each_loop
async def test_where_nobody_serves_a_session_of_this_node_says_so() -> None:
    relays = relays_to(None)
    async with serve(lambda: relays.make(lambda: Session(b"own:"))) as here:
        assert await answer_of(here, b"hello world", 19) == b"own:hello wown:orld"


@each_loop
async def test_a_node_that_cannot_be_reached_counts_as_nobody() -> None:
    relays = relays_to(("127.0.0.1", 1))
    async with serve(lambda: relays.make(lambda: Session(b"own:"))) as here:
        assert await answer_of(here, b"hello", 9) == b"own:hello"


async def test_the_far_side_goes_with_the_client() -> None:
    gone = asyncio.Event()

    class Far(Session):
        def connection_lost(self, exc: Exception | None) -> None:
            gone.set()

    async with serve(lambda: Far(b"far:")) as far:
        relays = relays_to(("127.0.0.1", far))
        async with serve(lambda: relays.make(lambda: Session(b"own:"))) as here:
            await answer_of(here, b"hello", 9)
            async with asyncio.timeout(5):
                await gone.wait()
