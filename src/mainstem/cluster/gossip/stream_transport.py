"""One request and one response over a stream between two nodes, sealed.

Guarantees: both are bounded in size and time; what no node of this cluster sealed gets no response.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from mainstem.cluster.gossip.cipher import GossipCipher
from mainstem.cluster.gossip.member import Address
from mainstem.model.errors import Corrupt

TIMEOUT_S: Final = 10.0
MESSAGE_BYTES_MAX: Final = 8 * 1024 * 1024
SERVED_MAX: Final = 64
FAILURES: Final = (OSError, Corrupt, TimeoutError, asyncio.IncompleteReadError)
_LENGTH_BYTES: Final = 4

_log = logging.getLogger(__name__)


class StreamExchange:
    """Sends requests and serves those of other nodes.

    Args:
        seal: encrypts and authenticates messages.
        answer: returns the response to a request.
        refused: called with the sender and the error for what the cluster did not seal.
    """

    def __init__(
        self,
        seal: GossipCipher,
        answer: Callable[[bytes], bytes],
        refused: Callable[[object, Corrupt], None],
    ) -> None:
        self._seal = seal
        self._answer = answer
        self._refused = refused
        self._server: asyncio.Server | None = None
        self._served = 0

    async def listen(self, host: str, port: int) -> Address:
        """Listen at this address, on any port if the port is 0; the address."""
        self._server = await asyncio.start_server(self._serve, host, port)
        return Address(host, self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def ask(self, address: Address, question: bytes) -> bytes:
        """The response to a request; fails with one of ``FAILURES``."""
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(*address)
            try:
                await self._write(writer, question)
                return await self._read(reader)
            finally:
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._served += 1
        try:
            if self._served <= SERVED_MAX:
                async with asyncio.timeout(TIMEOUT_S):
                    await self._write(writer, self._answer(await self._read(reader)))
        except Corrupt as error:
            self._refused(writer.get_extra_info("peername"), error)
        except FAILURES as error:
            _log.debug("gossip by a stream: %r", error)
        finally:
            self._served -= 1
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        size = int.from_bytes(await reader.readexactly(_LENGTH_BYTES))
        if size > MESSAGE_BYTES_MAX:
            raise Corrupt(f"a gossip message of {size} bytes")
        return self._seal.open(await reader.readexactly(size))

    async def _write(self, writer: asyncio.StreamWriter, message: bytes) -> None:
        sealed = self._seal.seal(message)
        writer.write(len(sealed).to_bytes(_LENGTH_BYTES) + sealed)
        await writer.drain()
