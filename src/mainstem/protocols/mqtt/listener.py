"""MQTT sessions on real connections: what takes time runs as tasks of the node's loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from mainstem.model.errors import MainstemError
from mainstem.protocols.listener import Buffers, Connection, Listener
from mainstem.protocols.mqtt.session import Done, MqttPeer, MqttService, MqttSession
from mainstem.wire.mqtt.primitives import Malformed

log = logging.getLogger(__name__)

# A client's silence is its own affair: keep-alive is agreed upon, or there is none.
IDLE_MS: Final = 10 * 365 * 24 * 3600 * 1000


class LoopRunner:
    """Runs logins on the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Future[Any]] = set()
        self.soon = self._loop.call_soon

    def run(self, work: Awaitable[Any], done: Done) -> Callable[[], None]:
        """Carry ``work`` out as a task, then tell ``done``."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

        def finished(task: asyncio.Future[Any]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                return
            error = task.exception()
            if error is not None and not isinstance(error, MainstemError | Malformed):
                log.error("an MQTT login failed", exc_info=error)
            done(None if error is not None else task.result(), error)

        task.add_done_callback(finished)

        def stop() -> None:
            task.cancel()

        return stop

    def later(self, delay_ms: int, call: Callable[[], None]) -> object:
        """Call back after a while."""
        return self._loop.call_later(delay_ms / 1000, call)


def mqtt_listener(
    service: MqttService,
    *,
    connections_max: int,
    buffers: Buffers,
) -> Listener:
    """The listener whose connections speak MQTT."""

    def make_session(connection: Connection) -> MqttSession:
        peer = MqttPeer(connection.peer[0], connection.tls_object)
        session = MqttSession(connection, peer, service)
        timeout_ms = service.hub.settings.connect_timeout_ms
        service.runner.later(timeout_ms, partial(_check_in, connection, session))
        return session

    listener = Listener(
        "mqtt",
        make_session,
        connections_max=connections_max,
        idle_ms=IDLE_MS,
        buffers=buffers,
        metrics=service.metrics,
    )
    listener.sends_files = False
    listener.refuses = service.entrance.refuses
    return listener


def _check_in(connection: Connection, session: MqttSession) -> None:
    """End a connection that took its time to introduce itself."""
    if not session.is_in:
        connection.abort()
