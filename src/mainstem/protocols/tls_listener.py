"""TLS only with callers who may come in.

An event loop that is given a TLS context shakes hands with everybody before anyone is asked: who
comes too often, or in too great numbers, would still cost a handshake each, and who never finishes
one would be counted nowhere. So callers are accepted here, looked at, and then shake hands; or
they are passed on to the node that serves them, and shake hands with that one.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from mainstem.protocols.relay_listener import Relays

ACCEPTED_AT_ONCE_MAX: Final = 100
BACKLOG: Final = 1_024
BREATH_S: Final = 1.0  # before callers are accepted again when the system has no room for them

log = logging.getLogger(__name__)


class TlsDoor(Struct, frozen=True):
    """How a listener shakes hands."""

    context: ssl.SSLContext
    handshake_timeout_s: float


class Hall(Protocol):
    """Who decides about callers, and keeps count of those who shake hands."""

    def greet(self, address: str) -> bool:
        """Whether a caller may come in; if so he counts until ``greeted``."""
        ...

    def greeted(self) -> None:
        """A handshake is over, well or badly."""
        ...


class TlsServer:
    """The sockets of one TLS listener, and the handshakes that are under way."""

    def __init__(
        self,
        hall: Hall,
        door: TlsDoor,
        make: Callable[[], asyncio.BaseProtocol],
        relays: "Relays | None" = None,
    ) -> None:
        self._hall = hall
        self._relays = relays
        self._door = door
        self._make = make
        self._sockets: list[socket.socket] = []
        self._shaking: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int, *, shared: bool = False) -> int:
        """Accept callers; the port, which the system chooses where 0 was asked for.

        Args:
            host: where.
            port: where.
            shared: other processes listen there as well.

        Raises:
            OSError: the address cannot be had.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                listening = socket.create_server(
                    address, family=family, backlog=BACKLOG, reuse_port=shared
                )
                listening.setblocking(False)  # noqa: FBT003 - the standard library's own signature
                self._sockets.append(listening)
        except OSError:
            self.close()
            raise
        for listening in self._sockets:
            loop.add_reader(listening.fileno(), self._accept, listening)
        return int(self._sockets[0].getsockname()[1])

    def close(self) -> None:
        """Accept no more; handshakes under way are broken off."""
        for listening in self._sockets:
            if listening.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(listening.fileno())
            listening.close()
        self._sockets.clear()
        for task in self._shaking:
            task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                caller, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(listening, error)
                return
            if not self._hall.greet(str(address[0])):
                caller.close()
                continue
            caller.setblocking(False)  # noqa: FBT003 - the standard library's own signature
            task = asyncio.get_running_loop().create_task(self._shake(caller, str(address[0])))
            self._shaking.add(task)
            task.add_done_callback(self._shaking.discard)

    def _rest(self, listening: socket.socket, error: OSError) -> None:
        """No more files, or no memory for sockets: trying on would only keep the loop busy."""
        log.warning("callers cannot be accepted: %s", error)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening.fileno())

        def again() -> None:
            if listening in self._sockets:
                loop.add_reader(listening.fileno(), self._accept, listening)

        loop.call_later(BREATH_S, again)

    async def _shake(self, caller: socket.socket, address: str) -> None:
        with contextlib.suppress(OSError):
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop, relays = asyncio.get_running_loop(), self._relays
        try:
            # From here on the socket is the loop's, to be closed by it alone: closed twice, its
            # number may by then be that of another connection.
            if relays is not None and relays.is_elsewhere():
                await loop.connect_accepted_socket(lambda: relays.make(None), caller)
                return
            await loop.connect_accepted_socket(
                self._make,
                caller,
                ssl=self._door.context,
                ssl_handshake_timeout=self._door.handshake_timeout_s,
            )
        except OSError as error:
            log.debug("no TLS with %s: %s", address, error)
        finally:
            self._hall.greeted()
