"""The MQTT listeners of a node, opened and closed together."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainstem.broker.services.node_broker import NodeBroker
from mainstem.broker.services.topics_service import TopicsAdmin
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.ids import StreamId
from mainstem.model.topic_name import MQTT_SESSIONS_TOPIC, check_topic_name, is_reserved_name
from mainstem.node.clustering.stream_forwarding import ForwardingStreams
from mainstem.node.config.settings import Config
from mainstem.node.listeners.authentication import listener_policy
from mainstem.node.listeners.mqtt_topics import MqttTopics
from mainstem.placement.service import PlacementService
from mainstem.protocols.accept_listener import TlsListenerOptions
from mainstem.protocols.listener_policy import ListenerPolicy
from mainstem.protocols.mqtt.connection.authentication_service import MqttAuthenticator
from mainstem.protocols.mqtt.connection.listener import mqtt_listener, mqtt_runner
from mainstem.protocols.mqtt.connection.session import MqttService
from mainstem.protocols.mqtt.connection.websocket_transport import websocket_factory
from mainstem.protocols.mqtt.hub_service import MqttHub
from mainstem.protocols.mqtt.settings import MqttSettings, TopicRoute
from mainstem.protocols.receive_buffers import Buffers
from mainstem.protocols.shared_resources import Resources
from mainstem.security.authentication.tls_transport import TlsContexts
from mainstem.streams.writer.stream_driver import StreamWriter
from mainstem.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from mainstem.protocols.listener import Listener
    from mainstem.protocols.relay_listener import Relays

log = logging.getLogger(__name__)

AGAIN_S = 1.0
TLS_HANDSHAKE_TIMEOUT_S = 15.0


class MqttListeners:
    """MQTT with and without TLS, on one hub."""

    def __init__(
        self,
        config: Config,
        broker: NodeBroker,
        clock: Clock,
        metrics: Metrics,
        topics: MqttTopics,
    ) -> None:
        self._config = config
        self._broker = broker
        self._metrics = metrics
        # Where there are other nodes, what they write is read from them.
        streams = broker.streams
        follow = streams.follow if isinstance(streams, ForwardingStreams) else None
        self.hub = MqttHub(broker, topics.settings, clock, topics.ensure, follow)
        self._runner = mqtt_runner()
        self._open: list[tuple[str, Listener, int]] = []
        self._sessions: StreamId | None = None
        self._loading: asyncio.Task[None] | None = None
        # Where several nodes form a cluster: connections that another node serves, by listener.
        self.relays: dict[str, Relays] = {}

    def opened(self, stream: StreamWriter) -> None:
        """This node writes a stream from now on; if it is that of the sessions, load them."""
        if stream.topic == MQTT_SESSIONS_TOPIC:
            self._sessions = stream.id
            self._loading = asyncio.get_running_loop().create_task(self._load())

    def closed(self, stream: StreamId) -> None:
        """This node no longer writes a stream."""
        if stream == self._sessions:
            self._sessions = None
            if self._loading is not None:
                self._loading.cancel()
            self.hub.lost()

    async def _load(self) -> None:
        """Load the sessions before clients connect: their wills and expiry may be due."""
        while True:
            try:
                await self.hub.ready()
            except MainstemError as error:
                log.warning("MQTT sessions cannot be loaded now: %s", error)
                await asyncio.sleep(AGAIN_S)
            else:
                return

    def addresses(self) -> dict[str, object]:
        """Where they listen."""
        host = self._config.mqtt.host
        shown = f"[{host}]" if ":" in host else host
        return {name: f"{shown}:{port}" for name, _, port in self._open}

    def service(self, *, tls: bool) -> MqttService:
        """What the sessions of one listener share."""
        policy = self._policy(tls=tls, host=self._config.mqtt.host)
        return MqttService(self.hub, MqttAuthenticator(policy), self._metrics, self._runner)

    def websocket(self) -> Callable[..., asyncio.Protocol] | None:
        """The WebSocket handler for the HTTP listener, if it is enabled."""
        if not self._config.mqtt.websocket:
            return None
        http = self._config.http
        policy = self._policy(tls=http.tls, host=http.host)
        if http.login:
            policy = replace(policy, login=True, trusted=False)
        authenticator = MqttAuthenticator(policy)
        service = MqttService(self.hub, authenticator, self._metrics, self._runner)
        return websocket_factory(service, self.relays.get("http"))

    def _policy(self, *, tls: bool, host: str) -> ListenerPolicy:
        # Clients may use SASL where no login is required, too.
        return listener_policy(
            self._config,
            self._broker.security,
            host=host,
            tls=tls,
            login=self._config.mqtt.login,
            sasl=True,
        )

    async def start(self, tls: TlsContexts | None, resources: Resources) -> None:
        """Open the listeners."""
        config = self._config
        buffers = Buffers(resources.memory)
        wanted: list[tuple[str, int, TlsListenerOptions | None]] = []
        if config.mqtt.cleartext:
            wanted.append(("mqtt", config.mqtt.port, None))
        if config.mqtt.tls_port is not None:
            assert tls is not None, "checked when the configuration was read"
            options = TlsListenerOptions(tls.context, TLS_HANDSHAKE_TIMEOUT_S)
            wanted.append(("mqtt_tls", config.mqtt.tls_port, options))
        for name, port, tls_options in wanted:
            listener = mqtt_listener(
                self.service(tls=tls_options is not None),
                connections_max=config.mqtt.max_connections,
                buffers=buffers,
            )
            listener.relays = self.relays.get(name)
            listener.admission = resources.admission
            taken = await listener.start(config.mqtt.host, port, tls_options)
            self._open.append((name, listener, taken))

    async def stop(self) -> None:
        """Accept no more connections, and notify every client that the node stops."""
        for relays in self.relays.values():
            relays.close()
        for _, listener, _ in self._open:
            await listener.stop()
        if self._loading is not None:
            self._loading.cancel()
        self.hub.disconnect_all()
        self.hub.close()

    async def drain(self, timeout_s: float) -> None:
        """Finish answers in progress, then close every connection."""
        await asyncio.gather(*(listener.drain(timeout_s) for _, listener, _ in self._open))


def mqtt_topics(config: Config, placement: PlacementService, topics: TopicsAdmin) -> MqttTopics:
    """The topics that MQTT needs by this configuration."""
    return MqttTopics(
        placement,
        topics,
        mqtt_settings(config),
        partitions=config.topics.default_partitions,
        replicas=config.topics.default_replicas,
    )


def mqtt_settings(config: Config) -> MqttSettings:
    """The limits and routes of this configuration.

    Raises:
        InvalidRequest: a topic or a rule is invalid.
    """
    for topic in (config.mqtt.topic, *(rule.rpartition("=")[2] for rule in config.mqtt.routes)):
        check_topic_name(topic)
        if is_reserved_name(topic):
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG, f"{topic} is an internal topic", subject="mqtt.topic"
            )
    return MqttSettings(
        topic=config.mqtt.topic,
        routes=tuple(_route(rule) for rule in config.mqtt.routes),
        packet_bytes_max=config.mqtt.packet_bytes_max,
        receive_max=config.mqtt.receive_max,
        window_max=config.mqtt.window_max,
        topic_aliases_max=config.mqtt.topic_aliases_max,
        session_expiry_max_s=config.mqtt.session_expiry_max_s,
        sessions_max=config.mqtt.sessions_max,
        subscriptions_max=config.mqtt.subscriptions_max,
        retained_max=config.mqtt.retained_max,
        retained_bytes_max=config.mqtt.retained_bytes_max,
        keep_alive_max_s=config.mqtt.keep_alive_max_s,
        connect_timeout_ms=config.security.login_timeout_ms,
    )


def _route(rule: str) -> TopicRoute:
    prefix, equals, topic = rule.rpartition("=")
    if not (prefix and equals):
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"{rule!r} is not a rule",
            subject="mqtt.routes",
            remedy="write prefix=topic",
        )
    return TopicRoute(prefix, topic)
