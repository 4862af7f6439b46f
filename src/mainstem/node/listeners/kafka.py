"""The Kafka listeners of a node, opened and closed together."""

import asyncio
import socket
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainstem.broker.services.security.security_service import SecurityService
from mainstem.model.clock import Clock
from mainstem.node.config.listener_spec import ListenerSpec, kafka_listeners
from mainstem.node.config.settings import Config
from mainstem.node.listeners.authentication import listener_policy
from mainstem.protocols.accept_listener import TlsListenerOptions
from mainstem.protocols.kafka.endpoint import KafkaEndpoint
from mainstem.protocols.kafka.listener import kafka_listener
from mainstem.protocols.kafka.session import KafkaService
from mainstem.protocols.receive_buffers import Buffers
from mainstem.protocols.shared_resources import Resources
from mainstem.security.authentication.tls_transport import TlsContexts

if TYPE_CHECKING:
    from mainstem.protocols.listener import Listener

UNSPECIFIED = ("0.0.0.0", "::")  # noqa: S104 - asked about, not listened on
TLS_HANDSHAKE_TIMEOUT_S = 15.0


class KafkaListeners:
    """Every Kafka listener with the port it got."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._open: list[tuple[ListenerSpec, Listener, int]] = []
        self._specs = list(kafka_listeners(config))
        self._reserved: list[socket.socket] = []

    def reserve(self) -> tuple[tuple[str, str, int], ...]:
        """Reserve the ports before anything is served; returns the advertised addresses.

        Other nodes get a node's addresses before it listens there.
        """
        for at, spec in enumerate(self._specs):
            if spec.port == 0:
                held = _bound(spec.host)
                self._reserved.append(held)
                self._specs[at] = replace(spec, port=int(held.getsockname()[1]))
        return self._advertised()

    def _advertised(self) -> tuple[tuple[str, str, int], ...]:
        """Kind, host and port of each, as other machines connect to it."""
        kafka = self._config.kafka
        found = []
        for at, spec in enumerate(self._specs):
            host, port = spec.advertised or (spec.host, spec.port)
            if at == 0:
                host, port = kafka.advertised_host or host, kafka.advertised_port or port
            host = socket.gethostname() if host in UNSPECIFIED else host
            found.append((spec.kind, host, port))
        return tuple(found)

    def names(self) -> dict[str, str]:
        """The listeners under the names that Kafka's tools read; call it once they listen."""
        kinds = dict.fromkeys(spec.kind for spec in self._specs)
        open_at = [f"{spec.kind}://{_bracketed(spec.host)}:{port}" for spec, _, port in self._open]
        advertised = [
            f"{kind}://{_bracketed(host)}:{port}" for kind, host, port in self._advertised()
        ]
        return {
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(f"{kind}:{kind}" for kind in kinds),
            "listeners": ",".join(open_at),
        }

    @property
    def port(self) -> int:
        """The port of the first one; 0 before it listens."""
        return self._open[0][2] if self._open else 0

    @property
    def host(self) -> str:
        """The address of the first one."""
        return self._specs[0].host

    def addresses(self) -> dict[str, object]:
        """Where they listen: the first under its own name, all of them if there are several."""
        shown = [f"{_bracketed(spec.host)}:{port}" for spec, _, port in self._open]
        found: dict[str, object] = {"kafka": shown[0]}
        if self._config.kafka.listeners:
            kinds = [spec.kind for spec, _, _ in self._open]
            found["kafka_listeners"] = [f"{k}://{a}" for k, a in zip(kinds, shown, strict=True)]
        return found

    async def start(
        self,
        service: KafkaService,
        security: SecurityService,
        clock: Clock,
        tls: TlsContexts | None,
        resources: Resources,
    ) -> None:
        """Open all listeners."""
        config = self._config
        buffers = Buffers(resources.memory)
        for held in self._reserved:
            held.close()
        for spec in self._specs:
            listener = kafka_listener(
                service,
                kafka_endpoint(config, spec, security, clock),
                connections_max=config.kafka.max_connections,
                idle_ms=config.kafka.connection_idle_ms,
                buffers=buffers,
            )
            listener.admission = resources.admission
            tls_options: TlsListenerOptions | None = None
            if spec.tls:
                assert tls is not None, "checked when the configuration was read"
                tls_options = TlsListenerOptions(tls.context, TLS_HANDSHAKE_TIMEOUT_S)
            port = await listener.start(spec.host, spec.port, tls_options)
            self._open.append((spec, listener, port))

    async def stop(self) -> None:
        """Accept no more connections."""
        for _, listener, _ in self._open:
            await listener.stop()

    async def drain(self, timeout_s: float) -> None:
        """Finish answers in progress, then close every connection."""
        await asyncio.gather(*(listener.drain(timeout_s) for _, listener, _ in self._open))


def kafka_endpoint(
    config: Config, spec: ListenerSpec, security: SecurityService, clock: Clock
) -> KafkaEndpoint:
    """How one Kafka listener sets up its connections."""
    return KafkaEndpoint(
        policy=listener_policy(
            config, security, host=spec.host, tls=spec.tls, login=spec.sasl, sasl=spec.sasl
        ),
        clock=clock,
        needs_certificate=spec.tls and config.tls.client_certificates == "required",
        reauthenticate_ms=config.security.reauthenticate_ms,
        advertised=spec.advertised,
        kind=spec.kind,
    )


def _bound(host: str) -> socket.socket:
    """A socket that keeps a free port from others."""
    family, kind, proto, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    held = socket.socket(family, kind, proto)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(address)
    return held


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
