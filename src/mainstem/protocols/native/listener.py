"""The native listener: sessions on real connections, with work run as event loop tasks."""

import asyncio
from typing import Final

from mainstem.model.errors import MainstemError
from mainstem.protocols.connection import Connection
from mainstem.protocols.listener import Listener
from mainstem.protocols.listener_policy import ListenerPolicy
from mainstem.protocols.loop_driver import LoopRunner
from mainstem.protocols.native.link import NativeService
from mainstem.protocols.native.session import NativeSession
from mainstem.protocols.receive_buffers import Buffers

# Heartbeats find dead connections long before this.
IDLE_MS: Final = 24 * 3_600_000
QUIET_CHECK_S: Final = 0.02
QUIET_S_MAX: Final = 5.0


class NativeListener(Listener):
    """A listener that sends ``goodbye`` and lets clients finish before it closes."""

    def __init__(
        self,
        service: NativeService,
        policy: ListenerPolicy,
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
        self.refuses = policy.refuses
        self.login_timeout_ms = policy.login_timeout_ms
        self._service = service
        self._policy = policy
        self._runner = LoopRunner("a native request", (MainstemError,))

    def _session(self, connection: Connection) -> NativeSession:
        policy = self._policy
        return NativeSession(
            connection,
            policy.incoming(*connection.peer, connection.tls_object),
            policy,
            self._service,
            self._runner,
        )

    async def leave(self, grace_s: float) -> None:
        """Stop accepting, notify every client, and wait until no response is pending."""
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
        # Polled, since this runs once: sessions need no callback for it.
        while loop.time() < until and any(session.is_busy for session in sessions):  # noqa: ASYNC110
            await asyncio.sleep(QUIET_CHECK_S)
