"""Packets of one connection on their way out, gathered so that a burst is one write.

    put(packet) … put(packet) ──(end of turn)──▶ sender.send([...])

Messages are written with what the client allows: aliases for topics, a largest size. The bytes of
a message of QoS 0 are the same for many receivers and are made once.
"""

from collections.abc import Callable
from typing import Final, Protocol

from mainstem.model.limits import KIB, MIB
from mainstem.protocols.mqtt.client_session import Sending
from mainstem.protocols.session import Sender
from mainstem.wire.mqtt.encoder import encode
from mainstem.wire.mqtt.kinds import V3_1_1, V5
from mainstem.wire.mqtt.packets import Packet, Publish
from mainstem.wire.mqtt.properties import SUBSCRIPTION_IDS

UNSENT_BYTES_HIGH: Final = 1 * MIB
GATHERED_BYTES_MAX: Final = 256 * KIB


class MqttSender(Sender, Protocol):
    """A connection that says how much it still has to send."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the peer has not taken."""
        ...


class Outgoing:
    """See the module's text."""

    def __init__(self, sender: MqttSender, soon: Callable[[Callable[[], None]], object]) -> None:
        self._sender = sender
        self._soon = soon
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._aliases: dict[str, int] = {}
        self.version = V3_1_1
        self.packet_bytes_max: int | None = None
        self.aliases_max = 0

    @property
    def is_full(self) -> bool:
        """Whether the peer does not take what it is sent."""
        return self._sender.unsent_bytes + self._gathered_bytes > UNSENT_BYTES_HIGH

    def put(self, packet: Packet) -> None:
        """Send a packet at the end of this turn."""
        self._put_bytes(encode(packet, self.version))

    def put_message(self, sending: Sending, now_ms: Callable[[], int]) -> bool:
        """Send a message; False where it is larger than the client takes."""
        incoming = sending.incoming
        # A receiver of QoS 0 without anything of its own gets what every such receiver gets.
        is_plain = not (sending.qos or sending.identifiers or self.aliases_max)
        key = (self.version >= V5, sending.retain)
        data = incoming.wire.get(key) if is_plain else None
        if data is None:
            data = self._encoded(sending, now_ms)
            if is_plain and incoming.expires_ms is None:
                incoming.wire[key] = data
        if self.packet_bytes_max is not None and len(data) > self.packet_bytes_max:
            return False
        self._put_bytes(data)
        return True

    def flush(self) -> None:
        """Send what was gathered."""
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self._gathered_bytes = 0
            self._sender.send(gathered)

    def _encoded(self, sending: Sending, now_ms: Callable[[], int]) -> bytes:
        incoming = sending.incoming
        topic, properties = incoming.topic, incoming.properties
        if self.version >= V5:
            if incoming.expires_ms is not None:
                properties = incoming.properties_at(now_ms())
            if sending.identifiers:
                properties = {**properties, SUBSCRIPTION_IDS: sending.identifiers}
            if self.aliases_max and not sending.dup:
                topic, properties = self._aliased(topic, properties)
        return encode(
            Publish(
                topic,
                incoming.payload,
                sending.qos,
                sending.retain,
                sending.dup,
                sending.packet_id,
                properties,
            ),
            self.version,
        )

    def _aliased(self, topic: str, properties: dict[str, object]) -> tuple[str, dict[str, object]]:
        alias = self._aliases.get(topic)
        if alias is not None:
            return "", {**properties, "topic_alias": alias}
        # An alias that goes with a packet too large to be sent would never reach the client.
        if len(self._aliases) >= self.aliases_max or self.packet_bytes_max is not None:
            return topic, properties
        alias = self._aliases[topic] = len(self._aliases) + 1
        return topic, {**properties, "topic_alias": alias}

    def _put_bytes(self, data: bytes) -> None:
        if not self._gathered:
            self._soon(self.flush)
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        if self._gathered_bytes > GATHERED_BYTES_MAX:
            self.flush()
