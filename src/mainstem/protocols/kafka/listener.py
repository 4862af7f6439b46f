"""Kafka sessions on real connections: what takes time runs as tasks of the node's loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from random import SystemRandom
from typing import Any

from mainstem.protocols.kafka.call import Peer
from mainstem.protocols.kafka.entrance import Entrance
from mainstem.protocols.kafka.fetch_sessions import FetchSessions
from mainstem.protocols.kafka.handlers.fetch import Fetch
from mainstem.protocols.kafka.session import Done, KafkaService, KafkaSession
from mainstem.protocols.listener import Buffers, Connection, Listener

log = logging.getLogger(__name__)


class LoopRunner:
    """Runs handlers and fetches on the event loop."""

    def __init__(self) -> None:
        chance = SystemRandom()
        self._sessions = FetchSessions(lambda: chance.randrange(1, 2**31))
        self._tasks: set[asyncio.Task[Any]] = set()
        self.soon = asyncio.get_running_loop().call_soon
        self._loop = asyncio.get_running_loop()

    def run(self, work: Awaitable[Any], done: Done) -> Callable[[], None]:
        """Carry ``work`` out as a task, then tell ``done``."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

        def finished(task: asyncio.Future[Any]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                return
            error = task.exception()
            if error is not None:
                log.error("a Kafka request failed", exc_info=error)
            done(None if error is not None else task.result(), error)

        task.add_done_callback(finished)

        def stop() -> None:
            task.cancel()

        return stop

    def later(self, delay_ms: int, call: Callable[[], None]) -> object:
        """Call back after a while."""
        return self._loop.call_later(delay_ms / 1000, call)

    def fetch(self, fetch: Fetch) -> None:
        """Start a fetch, which may park."""
        fetch.start(self._sessions, asyncio.get_running_loop())


def kafka_listener(
    service: KafkaService,
    entrance: Entrance,
    *,
    connections_max: int,
    idle_ms: int,
    buffers: Buffers,
) -> Listener:
    """The listener whose connections speak Kafka."""
    runner = LoopRunner()

    def make_session(connection: Connection) -> KafkaSession:
        peer = Peer(*connection.peer, *connection.local)
        entrance.receive(peer, connection.tls_object)
        session = KafkaSession(connection, peer, service, runner)
        runner.later(entrance.login_timeout_ms, partial(_check_login, connection, session))
        return session

    listener = Listener(
        "kafka",
        make_session,
        connections_max=connections_max,
        idle_ms=idle_ms,
        buffers=buffers,
        metrics=service.metrics,
    )
    listener.refuses = entrance.refuses
    return listener


def _check_login(connection: Connection, session: KafkaSession) -> None:
    """End a connection that took its time."""
    if not session.is_in:
        connection.abort()
