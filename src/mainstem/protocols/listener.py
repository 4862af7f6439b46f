"""A listening port: its connections and their limits; shared by all TCP protocols."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from mainstem.protocols.accept_listener import Acceptor, ListenerAdmission, TlsListenerOptions
from mainstem.protocols.connection import Connection
from mainstem.protocols.connection_admission import ConnectionAdmission, ConnectionSlot
from mainstem.protocols.receive_buffers import Buffers
from mainstem.protocols.session import Session
from mainstem.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from mainstem.protocols.relay_listener import Relays

log = logging.getLogger(__name__)

TICK_MS = 5_000


class Listener:
    """One listening port: its connections and their limits."""

    def __init__(
        self,
        name: str,
        make_session: Callable[[Connection], Session],
        *,
        connections_max: int,
        buffers: Buffers,
        metrics: Metrics,
        idle_ms: int,
    ) -> None:
        self.name = name
        self.refuses: Callable[[str], bool] | None = None  # whether an address connects too often
        self.login_timeout_ms: int | None = None  # until the login must be complete
        self.admission = ConnectionAdmission()  # of descriptors; all listeners of a node share one
        self.admission_control: ListenerAdmission
        self.relays: Relays | None = None  # for clients that another node serves
        # Sending files bypasses the transport and takes a second descriptor per connection.
        self.sends_files = True
        self.buffers = buffers
        self.metrics = metrics
        self._make_session = make_session
        self._connections: set[Connection] = set()
        self._connections_max = connections_max
        self._server: Acceptor | None = None
        self._empty: asyncio.Event | None = None
        self._idle_ticks_max = max(1, idle_ms // TICK_MS)
        self._ticking: asyncio.TimerHandle | None = None
        self.tick = 0  # a coarse clock that is cheap to read

    async def start(self, host: str, port: int, tls: TlsListenerOptions | None = None) -> int:
        """Listen and return the port; with port 0 the system chooses one."""
        loop = asyncio.get_running_loop()
        self.admission_control = ListenerAdmission(
            self.name,
            self.admission,
            self.metrics,
            connections_max=self._connections_max,
            descriptors=2 if self.sends_files and tls is None else 1,
            refuses=self.refuses,
        )

        def connect(place: ConnectionSlot) -> Connection:
            return Connection(self, self._make_session, place)

        self._ticking = loop.call_later(TICK_MS / 1000, self._ticked)
        self._server = Acceptor(self.admission_control, connect, tls, self.relays)
        return await self._server.listen(host, port)

    def _ticked(self) -> None:
        """Close connections that were idle for too long: half open or abandoned."""
        self.tick += 1
        oldest = self.tick - self._idle_ticks_max
        for connection in [each for each in self._connections if each.active_at < oldest]:
            log.info("%s: connection %s:%d was idle, closed", self.name, *connection.peer)
            connection.abort()
        loop = asyncio.get_running_loop()
        self._ticking = loop.call_later(TICK_MS / 1000, self._ticked)

    def joined(self, connection: Connection) -> None:
        """Register a connection that has a session."""
        self._connections.add(connection)
        if self.login_timeout_ms is not None:
            delay_s = self.login_timeout_ms / 1000
            asyncio.get_running_loop().call_later(delay_s, _abort_unless_logged_in, connection)

    @property
    def connections(self) -> tuple[Connection, ...]:
        """All open connections."""
        return tuple(self._connections)

    def gone(self, connection: Connection) -> bool:
        """Remove a closed connection; whether it had a session."""
        if connection in self._connections:
            self._connections.remove(connection)
            if self._empty is not None and not self._connections:
                self._empty.set()
            return True
        return False

    async def stop(self) -> None:
        """Stop accepting; open connections continue."""
        if self._ticking is not None:
            self._ticking.cancel()
        if self._server is not None:
            self._server.close()

    async def leave(self, grace_s: float) -> None:
        """Stop accepting; a protocol that can announce the stop gives its clients ``grace_s``."""
        await self.stop()

    async def drain(self, timeout_s: float) -> None:
        """Wait until queued responses are sent, then close every connection."""
        if self._connections:
            self._empty = asyncio.Event()
            for connection in list(self._connections):
                connection.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), timeout_s)
        for connection in list(self._connections):
            connection.abort()


def _abort_unless_logged_in(connection: Connection) -> None:
    """Close a connection whose client has not logged in in time."""
    if not connection.session.is_logged_in:
        connection.abort()
