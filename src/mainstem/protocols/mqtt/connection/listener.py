"""MQTT sessions on sockets: asynchronous work runs as tasks of the node's event loop."""

from typing import Final

from mainstem.model.errors import MainstemError
from mainstem.protocols.connection import Connection
from mainstem.protocols.listener import Listener
from mainstem.protocols.loop_driver import LoopRunner
from mainstem.protocols.mqtt.connection.session import MqttPeer, MqttService, MqttSession
from mainstem.protocols.receive_buffers import Buffers
from mainstem.wire.mqtt.primitives import Malformed

# The listener does not limit silence: the session enforces the keep-alive time, if there is one.
IDLE_MS: Final = 10 * 365 * 24 * 3600 * 1000


def mqtt_runner() -> LoopRunner:
    """Create the runner that all MQTT sessions of a node share."""
    return LoopRunner("an MQTT login", (MainstemError, Malformed))


def mqtt_listener(
    service: MqttService,
    *,
    connections_max: int,
    buffers: Buffers,
) -> Listener:
    """Create the listener for MQTT connections."""

    def make_session(connection: Connection) -> MqttSession:
        peer = MqttPeer(connection.peer[0], connection.tls_object)
        return MqttSession(connection, peer, service)

    listener = Listener(
        "mqtt",
        make_session,
        connections_max=connections_max,
        idle_ms=IDLE_MS,
        buffers=buffers,
        metrics=service.metrics,
    )
    listener.sends_files = False
    listener.refuses = service.authenticator.policy.refuses
    listener.login_timeout_ms = service.hub.settings.connect_timeout_ms
    return listener
