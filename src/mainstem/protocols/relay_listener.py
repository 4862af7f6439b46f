"""Relays the connections of clients that another node serves, byte by byte.

    client ──▶ this node ──▶ the serving node ──▶ …
                  │ there is none, or it cannot be reached
                  └─▶ a session of this node, which reports the error in the client's protocol

Reading is paused from a side that sends faster than the other side reads. TLS is not terminated
here: the handshake is between the client and the serving node, whose certificate must have the name
that the client uses; without a serving node the connection is closed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, cast

from mainstem.model.limits import CONNECTIONS_MAX
from mainstem.protocols.connection_admission import ConnectionAdmission

Address = tuple[str, int]
Locate = Callable[[], Awaitable[Address | None]]
Own = Callable[[], asyncio.BaseProtocol]

CONNECT_TIMEOUT_S: Final = 5.0

log = logging.getLogger(__name__)


class Relays:
    """The connections that this node relays.

    Args:
        is_on_other_node: whether another node serves the clients.
        locate: returns the address of that node; called for every connection.
    """

    def __init__(self, is_on_other_node: Callable[[], bool], locate: Locate) -> None:
        self.is_on_other_node = is_on_other_node
        self.locate = locate
        self._all: set[Relay] = set()
        self.admission = ConnectionAdmission()  # of descriptors for connections to other nodes

    def make(self, own: Own | None) -> "Relay":
        """The protocol of a new connection; ``own`` creates a session of this node, if possible."""
        return Relay(self, own)

    def add(self, relay: "Relay") -> bool:
        """Register a connection to relay; False if there are too many."""
        if len(self._all) >= CONNECTIONS_MAX or not self.admission.take("relay"):
            return False
        self._all.add(relay)
        return True

    def discard(self, relay: "Relay") -> None:
        """Remove a closed relay."""
        if relay in self._all:
            self._all.remove(relay)
            self.admission.give_back("relay")

    def close(self) -> None:
        """Close all relayed connections."""
        for relay in list(self._all):
            relay.end()


class _Side(asyncio.Protocol):
    """One of two connections: received bytes are written to the other."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Transports of other event loops do not derive from asyncio's classes.
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        other = self.other
        if other is not None and other.transport is not None:
            other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        other, self.other = self.other, None
        self.transport = None
        if other is not None and other.transport is not None:
            other.transport.close()


class Relay(_Side):
    """The client's side."""

    def __init__(self, relays: Relays, own: Own | None) -> None:
        super().__init__()
        self._relays = relays
        self._own = own
        self._work: asyncio.Task[None] | None = None
        # An event loop may read once more after ``pause_reading``.
        self._early = bytearray()

    def data_received(self, data: bytes) -> None:
        """Relay bytes, or keep them until the far side is connected."""
        if self.other is None:
            self._early += data
        else:
            super().data_received(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to connect to the far side; nothing is read until then."""
        super().connection_made(transport)
        assert self.transport is not None, "set by the super call"
        if not self._relays.add(self):
            self.transport.abort()
            return
        self._work = asyncio.get_running_loop().create_task(self._begin())

    def connection_lost(self, error: Exception | None) -> None:
        """Close the far side: the client has disconnected."""
        super().connection_lost(error)
        self._relays.discard(self)
        if self._work is not None:
            self._work.cancel()

    def end(self) -> None:
        """Close both sides."""
        if self.transport is not None:
            self.transport.close()

    async def _begin(self) -> None:
        if self.transport is not None:
            self.transport.pause_reading()
        far = await self._far_side()
        transport = self.transport
        if transport is None:
            if far is not None and far.transport is not None:
                far.transport.close()
            return
        if far is None and self._own is None:
            transport.abort()
            return
        if far is None:
            # A session of this node reports the error in the client's protocol.
            self._relays.discard(self)
            self.transport = None
            assert self._own is not None, "checked above"
            own = self._own()
            transport.set_protocol(own)
            own.connection_made(transport)
            _feed(own, self._early)
        else:
            self.other, far.other = far, self
            self.data_received(bytes(self._early))
        transport.resume_reading()

    async def _far_side(self) -> _Side | None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                address = await self._relays.locate()
                if address is None:
                    return None
                loop = asyncio.get_running_loop()
                _, side = await loop.create_connection(_Side, *address)
        except (OSError, TimeoutError) as error:
            log.warning("a connection cannot be relayed: %s", error)
            return None
        return side


def _feed(own: asyncio.BaseProtocol, data: bytearray) -> None:
    """Pass bytes to a session that were received before it was created."""
    if isinstance(own, asyncio.Protocol):
        own.data_received(bytes(data))
        return
    assert isinstance(own, asyncio.BufferedProtocol), "listeners make no other protocols"
    while data:
        buffer = memoryview(own.get_buffer(len(data)))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        del data[:size]
        own.buffer_updated(size)
