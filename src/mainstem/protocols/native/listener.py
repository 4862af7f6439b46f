"""Native sessions on real connections: what takes time runs as tasks of the node's loop."""

import asyncio
from typing import Final

from mainstem.model.errors import MainstemError
from mainstem.protocols.listener import Buffers, Connection, Listener
from mainstem.protocols.listener_policy import ListenerPolicy
from mainstem.protocols.loop_driver import LoopRunner
from mainstem.protocols.native.link import NativeService
from mainstem.protocols.native.session import NativeSession

# Heartbeats find dead connections long before this.
IDLE_MS: Final = 24 * 3_600_000
QUIET_CHECK_S: Final = 0.02
QUIET_S_MAX: Final = 5.0


class NativeListener(Listener):
    """A listener that says goodbye and lets its clients finish before it closes."""

    def __init__(
        self,
        service: NativeService,
        entrance: ListenerPolicy,
        *,
        connections_max: int,
        buffers: Buffers,
    ) -> None:
        super().__init__(
            "native",
            self._session,
            connections_max=connections_max,
            idle_ms=IDLE_MS,
            buffers=buffers,
            metrics=service.metrics,
        )
        self.refuses = entrance.refuses
        self.login_timeout_ms = entrance.login_timeout_ms
        self._service = service
        self._entrance = entrance
        self._runner = LoopRunner("a native request", (MainstemError,))

    def _session(self, connection: Connection) -> NativeSession:
        entrance = self._entrance
        return NativeSession(
            connection,
            entrance.arrival(*connection.peer, connection.tls_object),
            entrance,
            self._service,
            self._runner,
        )

    async def leave(self, grace_s: float) -> None:
        """Accept no more, tell every client, and wait until nobody is owed an answer."""
        await self.stop()
        sessions = [
            connection.session
            for connection in self.connections
            if isinstance(connection.session, NativeSession)
        ]
        for session in sessions:
            session.send_goodbye(round(grace_s * 1000))
        loop = asyncio.get_running_loop()
        until = loop.time() + min(grace_s, QUIET_S_MAX)
        # A node stops once: sessions need not know how to tell that they are done.
        while loop.time() < until and any(session.is_busy for session in sessions):  # noqa: ASYNC110
            await asyncio.sleep(QUIET_CHECK_S)
