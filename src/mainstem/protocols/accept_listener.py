"""Accepts connections: admission first, then the transport, then the TLS handshake.

An event loop's own server makes a transport, and with TLS a handshake, for every connection before
the application can refuse it: connections beyond a limit would still cost a handshake, and those
that never finish it would not be counted. So connections are accepted here, admitted or closed, and
only then given to the event loop; or they are relayed to the node that serves them, which then does
the handshake.

A connection counts for as long as its descriptor is open, whatever the state of its protocol.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from mainstem.protocols.connection_admission import (
    ConnectionAdmission,
    ConnectionRejection,
    ConnectionSlot,
    PendingLogins,
)
from mainstem.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from mainstem.protocols.relay_listener import Relays

ACCEPTED_AT_ONCE_MAX: Final = 100
BACKLOG: Final = 1_024
REPORT_S: Final = 10.0  # between two log lines about refused connections
PAUSE_S: Final = 1.0  # before the next attempt when the system has no descriptor or no memory

log = logging.getLogger(__name__)

Make = Callable[[ConnectionSlot], asyncio.BaseProtocol]


class TlsListenerOptions(Struct, frozen=True):
    """TLS context and handshake timeout of a listener."""

    context: ssl.SSLContext
    handshake_timeout_s: float


class ListenerAdmission:
    """Admits or refuses the connections of one listener.

    Args:
        protocol: the name of the protocol.
        admission: the descriptors that all listeners share.
        connections_max: how many connections this listener serves at once.
        descriptors: how many each connection takes.
        metrics: counts the connections.
        refuses: whether an address connects too often.
    """

    def __init__(
        self,
        protocol: str,
        admission: ConnectionAdmission,
        metrics: Metrics,
        *,
        connections_max: int,
        descriptors: int = 1,
        refuses: Callable[[str], bool] | None = None,
    ) -> None:
        self.protocol = protocol
        self.connections_max = connections_max
        self.descriptors = descriptors
        self._admission = admission
        self._metrics = metrics
        self._refuses = refuses
        self._pending_logins = PendingLogins(admission.before_login_max)
        self._count = 0
        self._unreported: Counter[ConnectionRejection] = Counter()
        self._is_reporting = False
        metrics.connections.setdefault(protocol, 0)

    def admit(self, address: str) -> ConnectionSlot | ConnectionRejection:
        """The slot of a new connection, or why it is refused."""
        reason = self._reason_against(address)
        if reason is not None:
            self.refused(reason)
            return reason
        self._count += 1
        self._metrics.connections_accepted += 1
        self._metrics.connections_active += 1
        self._metrics.connections[self.protocol] += 1
        place = ConnectionSlot(address, self._left)
        self._pending_logins.add(place)
        return place

    def _reason_against(self, address: str) -> ConnectionRejection | None:
        if self._count >= self.connections_max:
            return ConnectionRejection.LISTENER
        if self._pending_logins.is_crowded(address):
            return ConnectionRejection.ADDRESS
        if self._refuses is not None and self._refuses(address):
            return ConnectionRejection.RATE
        if not self._admission.take(self.protocol, self.descriptors):
            return ConnectionRejection.DESCRIPTORS
        return None

    def _left(self, place: ConnectionSlot) -> None:
        self._count -= 1
        self._metrics.connections_active -= 1
        self._metrics.connections[self.protocol] -= 1
        self._admission.give_back(self.protocol, self.descriptors)
        self._pending_logins.discard(place)

    def refused(self, reason: ConnectionRejection) -> None:
        """Count a refused connection; log the first one, then totals."""
        self._metrics.connections_rejected += 1
        self._metrics.connections_refused[self.protocol, reason.value] += 1
        self._unreported[reason] += 1
        if not self._is_reporting:
            self._report()

    def _report(self) -> None:
        self._is_reporting = bool(self._unreported)
        for reason, count in self._unreported.items():
            log.warning("%s: %d connections refused (%s)", self.protocol, count, reason.value)
        self._unreported.clear()
        if self._is_reporting:
            asyncio.get_running_loop().call_later(REPORT_S, self._report)


class _CountedSocket(socket.socket):
    """A socket that holds a slot until it is closed.

    An event loop takes the descriptor over by ``detach`` and closes it at once, or calls ``close``.
    """

    place: ConnectionSlot

    def close(self) -> None:
        super().close()
        self.place.leave()

    def detach(self) -> int:
        descriptor = super().detach()
        self.place.leave()
        return descriptor


class Acceptor:
    """The listening sockets of one listener, and the connections that are being made.

    Args:
        admission_control: admits or refuses.
        make: creates the protocol of an admitted connection.
        tls: TLS options; None: no encryption.
        relays: relays clients that another node serves.
        refusal: bytes sent to a refused client before its connection is closed; not over TLS.
    """

    def __init__(
        self,
        admission_control: ListenerAdmission,
        make: Make,
        tls: TlsListenerOptions | None = None,
        relays: "Relays | None" = None,
        refusal: Callable[[ConnectionRejection], bytes] | None = None,
    ) -> None:
        self._admission_control = admission_control
        self._make = make
        self._tls = tls
        self._relays = relays
        self._refusal = refusal
        self._sockets: list[socket.socket] = []
        self._making: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int, *, shared: bool = False) -> int:
        """Accept connections and return the port; with port 0 the system chooses one.

        Args:
            host: the address to listen on.
            port: the port to listen on.
            shared: other processes listen there as well.

        Raises:
            OSError: the address cannot be bound.
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
        """Stop accepting; handshakes in progress are aborted."""
        for listening in self._sockets:
            if listening.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(listening.fileno())
            listening.close()
        self._sockets.clear()
        for task in self._making:
            task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                caller, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(listening, error)
                return
            caller.setblocking(False)  # noqa: FBT003 - the standard library's own signature
            place = self._admission_control.admit(str(address[0]))
            if isinstance(place, ConnectionRejection):
                self._refuse(caller, place)
                continue
            counted = _CountedSocket(fileno=caller.detach())
            counted.place = place
            task = asyncio.get_running_loop().create_task(self._connect(counted))
            self._making.add(task)
            task.add_done_callback(self._making.discard)

    def _refuse(self, caller: socket.socket, reason: ConnectionRejection) -> None:
        if self._refusal is not None and self._tls is None:
            with contextlib.suppress(OSError):  # the client may have disconnected
                caller.send(self._refusal(reason))
        caller.close()

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Stop accepting for a while: without descriptors or memory, retries keep the loop busy."""
        self._admission_control.refused(ConnectionRejection.ACCEPT)
        log.warning("connections cannot be accepted: %s; next attempt in %.0f s", error, PAUSE_S)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening.fileno())

        def again() -> None:
            if listening in self._sockets:
                loop.add_reader(listening.fileno(), self._accept, listening)

        loop.call_later(PAUSE_S, again)

    async def _connect(self, caller: _CountedSocket) -> None:
        with contextlib.suppress(OSError):
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop, relays, place = asyncio.get_running_loop(), self._relays, caller.place
        tls = self._tls
        try:
            # From here on only the event loop closes the socket: after a second close, the
            # descriptor number could already belong to another connection.
            if relays is not None and relays.is_on_other_node():
                own = None if tls is not None else lambda: self._make(place)
                await loop.connect_accepted_socket(lambda: relays.make(own), caller)
            elif tls is None:
                await loop.connect_accepted_socket(lambda: self._make(place), caller)
            else:
                await loop.connect_accepted_socket(
                    lambda: self._make(place),
                    caller,
                    ssl=tls.context,
                    ssl_handshake_timeout=tls.handshake_timeout_s,
                )
        except OSError as error:
            log.debug("no connection with %s: %s", place.address, error)
