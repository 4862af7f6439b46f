"""The AMQP listener of a node."""

import secrets
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

import mainstem
from mainstem.broker.services.node_broker import NodeBroker
from mainstem.model.clock import Clock
from mainstem.node.config.settings import Config
from mainstem.node.listeners.authentication import entrance
from mainstem.protocols.accept_listener import TlsListenerOptions
from mainstem.protocols.amqp.channel_link import AmqpLimits, AmqpService
from mainstem.protocols.amqp.convert import Converter
from mainstem.protocols.amqp.direct_reply import PendingReplies
from mainstem.protocols.amqp.listener import AmqpListener
from mainstem.protocols.amqp.mechanisms import WITHOUT_LOGIN, with_own
from mainstem.protocols.listener import Buffers
from mainstem.protocols.shared_resources import Resources
from mainstem.security.authentication.tls_transport import TlsContexts
from mainstem.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from mainstem.protocols.relay_listener import Relays

NAME_BYTES: Final = 16
TLS_HANDSHAKE_TIMEOUT_S: Final = 15.0


class AmqpListeners:
    """The listener, closed until ``start`` and where AMQP is switched off."""

    def __init__(self, config: Config, broker: NodeBroker) -> None:
        self._config = config
        self._broker = broker
        self._listener: AmqpListener | None = None
        self._port = 0
        # Where several nodes form a cluster: connections that another node serves.
        self.relays: Relays | None = None

    def addresses(self) -> dict[str, object]:
        """Where it listens."""
        if self._listener is None:
            return {}
        host = self._config.amqp.host
        return {"amqp": f"{f'[{host}]' if ':' in host else host}:{self._port}"}

    async def start(
        self, clock: Clock, metrics: Metrics, tls: TlsContexts | None, resources: Resources
    ) -> None:
        """Listen, unless AMQP is switched off."""
        config, broker = self._config, self._broker
        if not config.amqp.enabled:
            return
        service = AmqpService(
            queues=broker.queues,
            security=broker.security,
            clock=clock,
            limits=AmqpLimits(
                channels_max=config.amqp.channels_max,
                frame_bytes_max=config.amqp.frame_bytes_max,
                heartbeat_s=config.amqp.heartbeat_s,
                message_bytes_max=config.amqp.message_bytes_max,
            ),
            new_name=lambda: secrets.token_urlsafe(NAME_BYTES),
            cluster_name=config.node.cluster_id or f"node-{config.node.id}",
            version=mainstem.__version__,
            converter=Converter(),
            replies=PendingReplies(),
            memory=resources.memory,
            has_space=resources.has_space,
        )
        asked = entrance(config, broker, config.amqp)
        self._listener = AmqpListener(
            service,
            replace(asked, mechanisms=with_own(asked.mechanisms), unasked=WITHOUT_LOGIN),
            metrics,
            connections_max=config.amqp.max_connections,
            buffers=Buffers(resources.memory),
        )
        self._listener.relays = self.relays
        self._listener.admission = resources.admission
        tls_options: TlsListenerOptions | None = None
        if config.amqp.tls:
            assert tls is not None, "checked when the configuration was read"
            tls_options = TlsListenerOptions(tls.context, TLS_HANDSHAKE_TIMEOUT_S)
        self._port = await self._listener.start(config.amqp.host, config.amqp.port, tls_options)

    async def stop(self, timeout_s: float) -> None:
        """Accept no more; notify every client that the node stops, then close its connection."""
        if self.relays is not None:
            self.relays.close()
        if self._listener is not None:
            await self._listener.stop()
            await self._listener.drain(timeout_s)
