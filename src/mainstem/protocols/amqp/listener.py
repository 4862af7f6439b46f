"""AMQP sessions on sockets: asynchronous work runs as tasks of the node's event loop."""

from typing import Final

from mainstem.model.errors import MainstemError
from mainstem.protocols.amqp.channel_link import AmqpService
from mainstem.protocols.amqp.errors import AmqpError
from mainstem.protocols.amqp.session import AmqpSession
from mainstem.protocols.connection import Connection
from mainstem.protocols.listener import Listener
from mainstem.protocols.listener_policy import ListenerPolicy
from mainstem.protocols.loop_driver import LoopRunner
from mainstem.protocols.receive_buffers import Buffers
from mainstem.telemetry.metrics import Metrics

# Heartbeats detect dead connections; without them a connection may stay silent indefinitely.
IDLE_MS: Final = 365 * 24 * 3_600_000
# Time for clients to read the reason for a shutdown; many do not read idle connections at all.
STOP_DRAIN_MS: Final = 500


class AmqpListener(Listener):
    """A listener that sends clients the reason before it closes their connections."""

    def __init__(
        self,
        service: AmqpService,
        policy: ListenerPolicy,
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
        self.refuses = policy.refuses
        self.login_timeout_ms = policy.login_timeout_ms
        self._service = service
        self._policy = policy
        self._runner = LoopRunner("an AMQP method", (AmqpError, MainstemError))

    def _session(self, connection: Connection) -> AmqpSession:
        policy = self._policy
        return AmqpSession(
            connection,
            policy.incoming(*connection.peer, connection.tls_object),
            policy,
            self._service,
            self._runner,
        )

    async def drain(self, timeout_s: float) -> None:
        """Send every client a ``connection.close`` for the shutdown, then close its connection."""
        for connection in self.connections:
            if isinstance(connection.session, AmqpSession):
                connection.session.shut_down()
                connection.close(drain_ms=STOP_DRAIN_MS)
        await super().drain(timeout_s)
