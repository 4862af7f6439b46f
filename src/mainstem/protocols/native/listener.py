"""Native sessions on real connections: what takes time runs as tasks of the node's loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from mainstem.model.errors import MainstemError
from mainstem.protocols.entrance import Entrance
from mainstem.protocols.listener import Buffers, Connection, Listener
from mainstem.protocols.native.link import NativeService
from mainstem.protocols.native.runner import Done
from mainstem.protocols.native.session import NativeSession

log = logging.getLogger(__name__)

# Heartbeats find dead connections long before this.
IDLE_MS: Final = 24 * 3_600_000
QUIET_CHECK_S: Final = 0.02
QUIET_S_MAX: Final = 5.0


class LoopRunner:
    """Runs what sessions wait for on the event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()
        self._loop = asyncio.get_running_loop()
        self.soon = self._loop.call_soon

    def run(self, work: Awaitable[Any], done: Done) -> None:
        """Carry ``work`` out as a task, then tell ``done``."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

        def finished(task: asyncio.Future[Any]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                return
            error = task.exception()
            if error is not None and not isinstance(error, MainstemError):
                log.error("a native request failed", exc_info=error)
            done(None if error is not None else task.result(), error)

        task.add_done_callback(finished)

    def later(self, delay_ms: int, call: Callable[[], None]) -> object:
        """Call back after a while."""
        return self._loop.call_later(delay_ms / 1000, call)


class NativeListener(Listener):
    """A listener that says goodbye and lets its clients finish before it closes."""

    def __init__(
        self,
        service: NativeService,
        entrance: Entrance,
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
        self._service = service
        self._entrance = entrance
        self._runner = LoopRunner()

    def _session(self, connection: Connection) -> NativeSession:
        entrance = self._entrance
        session = NativeSession(
            connection,
            entrance.arrival(*connection.peer, connection.tls_object),
            entrance,
            self._service,
            self._runner,
            lambda: connection.unsent_bytes,
        )
        self._runner.later(entrance.login_timeout_ms, partial(_check_login, connection, session))
        return session

    async def leave(self, grace_s: float) -> None:
        """Accept no more, tell every client, and wait until nobody is owed an answer."""
        await self.stop()
        sessions = [
            connection.session
            for connection in self.connections
            if isinstance(connection.session, NativeSession)
        ]
        for session in sessions:
            session.say_goodbye(round(grace_s * 1000))
        loop = asyncio.get_running_loop()
        until = loop.time() + min(grace_s, QUIET_S_MAX)
        # A node stops once: sessions need not know how to tell that they are done.
        while loop.time() < until and any(session.is_busy for session in sessions):  # noqa: ASYNC110
            await asyncio.sleep(QUIET_CHECK_S)


def _check_login(connection: Connection, session: NativeSession) -> None:
    """End a connection that took its time."""
    if not session.is_in:
        connection.abort()
