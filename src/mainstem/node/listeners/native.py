"""The native listener of a node."""

import secrets
from typing import TYPE_CHECKING, Final

import mainstem
from mainstem.broker.services.node_broker import NodeBroker
from mainstem.model.clock import Clock
from mainstem.node.config.settings import Config
from mainstem.node.listeners.authentication import entrance
from mainstem.protocols.accept_listener import TlsListenerOptions
from mainstem.protocols.listener import Buffers
from mainstem.protocols.native.link import NativeLimits, NativeService
from mainstem.protocols.native.listener import NativeListener
from mainstem.protocols.shared_resources import Resources
from mainstem.security.authentication.tls_transport import TlsContexts
from mainstem.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from mainstem.protocols.relay_listener import Relays

NAME_BYTES: Final = 16
TLS_HANDSHAKE_TIMEOUT_S: Final = 15.0


class NativeListeners:
    """The listener, closed until ``start`` and where it is switched off."""

    def __init__(self, config: Config, broker: NodeBroker) -> None:
        self._config = config
        self._broker = broker
        self._listener: NativeListener | None = None
        # Where several nodes form a cluster: connections that another node serves.
        self.relays: Relays | None = None
        self._port = 0

    def addresses(self) -> dict[str, object]:
        """Where it listens."""
        if self._listener is None:
            return {}
        host = self._config.native.host
        return {"native": f"{f'[{host}]' if ':' in host else host}:{self._port}"}

    async def start(
        self, clock: Clock, metrics: Metrics, tls: TlsContexts | None, resources: Resources
    ) -> None:
        """Listen, unless it is switched off."""
        config = self._config
        if not config.native.enabled:
            return
        service = NativeService(
            broker=self._broker,
            clock=clock,
            metrics=metrics,
            limits=NativeLimits(
                frame_bytes_max=config.native.frame_bytes_max,
                heartbeat_ms=config.native.heartbeat_ms,
            ),
            new_name=lambda: secrets.token_urlsafe(NAME_BYTES),
            cluster_name=self._broker.topics.cluster_id(),
            version=mainstem.__version__,
        )
        self._listener = NativeListener(
            service,
            entrance(config, self._broker, config.native),
            connections_max=config.native.max_connections,
            buffers=Buffers(resources.memory),
        )
        tls_options: TlsListenerOptions | None = None
        if config.native.tls:
            assert tls is not None, "checked when the configuration was read"
            tls_options = TlsListenerOptions(tls.context, TLS_HANDSHAKE_TIMEOUT_S)
        self._listener.relays = self.relays
        self._listener.admission = resources.admission
        self._port = await self._listener.start(config.native.host, config.native.port, tls_options)

    async def stop(self, timeout_s: float) -> None:
        """Accept no more, announce the stop to clients, finish their answers, close."""
        if self.relays is not None:
            self.relays.close()
        if self._listener is not None:
            await self._listener.leave(timeout_s)
            await self._listener.drain(timeout_s)
