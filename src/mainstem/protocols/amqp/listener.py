"""AMQP sessions on real connections: what takes time runs as tasks of the node's loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from mainstem.model.errors import MainstemError
from mainstem.protocols.amqp.link import AmqpService, Done
from mainstem.protocols.amqp.refusal import Refusal
from mainstem.protocols.amqp.session import AmqpSession
from mainstem.protocols.entrance import Entrance
from mainstem.protocols.listener import Buffers, Connection, Listener
from mainstem.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

# Heartbeats find dead connections; without them a connection may be silent for as long as it likes.
IDLE_MS: Final = 365 * 24 * 3_600_000
# How long clients of a node that stops have to read why; many never look at an idle connection.
STOP_DRAIN_MS: Final = 500


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
            if error is not None and not isinstance(error, Refusal | MainstemError):
                log.error("an AMQP method failed", exc_info=error)
            done(None if error is not None else task.result(), error)

        task.add_done_callback(finished)

    def later(self, delay_ms: int, call: Callable[[], None]) -> object:
        """Call back after a while."""
        return self._loop.call_later(delay_ms / 1000, call)


class AmqpListener(Listener):
    """A listener that tells its clients why, before it closes their connections."""

    def __init__(
        self,
        service: AmqpService,
        entrance: Entrance,
        metrics: Metrics,
        *,
        connections_max: int,
        buffers: Buffers,
    ) -> None:
        super().__init__(
            "amqp",
            self._session,
            connections_max=connections_max,
            idle_ms=IDLE_MS,
            buffers=buffers,
            metrics=metrics,
        )
        self.refuses = entrance.refuses
        self._service = service
        self._entrance = entrance
        self._runner = LoopRunner()

    def _session(self, connection: Connection) -> AmqpSession:
        entrance = self._entrance
        arrival = entrance.arrival(*connection.peer, connection.tls_object)
        session = AmqpSession(
            connection,
            arrival,
            entrance,
            self._service,
            self._runner,
            lambda: connection.unsent_bytes,
        )
        self._runner.later(entrance.login_timeout_ms, partial(_check_login, connection, session))
        return session

    async def drain(self, timeout_s: float) -> None:
        """Tell every client that the node stops, then close its connection."""
        for connection in self.connections:
            if isinstance(connection.session, AmqpSession):
                connection.session.shut_down()
                connection.close(drain_ms=STOP_DRAIN_MS)
        await super().drain(timeout_s)


def _check_login(connection: Connection, session: AmqpSession) -> None:
    """End a connection that took its time."""
    if not session.is_in:
        connection.abort()
