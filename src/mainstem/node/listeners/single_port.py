"""A protocol that a node serves on one port: opened, announced and closed."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from mainstem.model.clock import Clock
from mainstem.protocols.accept_listener import TlsListenerOptions
from mainstem.protocols.listener import Listener
from mainstem.protocols.receive_buffers import Buffers
from mainstem.protocols.shared_resources import Resources
from mainstem.security.authentication.tls_transport import TlsContexts
from mainstem.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from mainstem.protocols.relay_listener import Relays

TLS_HANDSHAKE_TIMEOUT_S: Final = 15.0


class PortSettings(Struct, frozen=True, kw_only=True):
    """Where a protocol is served; with port 0 the system chooses one."""

    enabled: bool
    host: str
    port: int
    tls: bool


class PortContext(Struct, frozen=True):
    """What a listener gets from its node when it is opened."""

    clock: Clock
    metrics: Metrics
    resources: Resources
    buffers: Buffers


class SinglePortListener:
    """The listener of one protocol, closed until ``start`` and where it is switched off.

    Args:
        name: the name of the protocol.
        settings: where it listens.
        make: creates the protocol's listener.
    """

    def __init__(
        self, name: str, settings: PortSettings, make: Callable[[PortContext], Listener]
    ) -> None:
        self._name = name
        self._settings = settings
        self._make = make
        self._listener: Listener | None = None
        self._port = 0
        # Where several nodes form a cluster: connections that another node serves.
        self.relays: Relays | None = None

    def addresses(self) -> dict[str, object]:
        """Where it listens."""
        if self._listener is None:
            return {}
        host = self._settings.host
        return {self._name: f"{f'[{host}]' if ':' in host else host}:{self._port}"}

    async def start(
        self, clock: Clock, metrics: Metrics, tls: TlsContexts | None, resources: Resources
    ) -> None:
        """Listen, unless the protocol is switched off."""
        settings = self._settings
        if not settings.enabled:
            return
        listener = self._make(PortContext(clock, metrics, resources, Buffers(resources.memory)))
        listener.relays = self.relays
        listener.admission = resources.admission
        tls_options: TlsListenerOptions | None = None
        if settings.tls:
            assert tls is not None, "checked when the configuration was read"
            tls_options = TlsListenerOptions(tls.context, TLS_HANDSHAKE_TIMEOUT_S)
        self._listener = listener
        self._port = await listener.start(settings.host, settings.port, tls_options)

    async def stop(self, timeout_s: float) -> None:
        """Accept no more, announce the stop to clients, finish their answers, close."""
        if self.relays is not None:
            self.relays.close()
        if self._listener is not None:
            await self._listener.leave(timeout_s)
            await self._listener.drain(timeout_s)
