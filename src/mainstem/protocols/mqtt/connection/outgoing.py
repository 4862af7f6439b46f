"""Outgoing packets of one MQTT connection.

Messages are encoded within the client's limits: topic aliases, maximum packet size. A message of
QoS 0 is encoded once for all receivers whose bytes are the same.
"""

from collections.abc import Callable
from typing import Final

from mainstem.model.limits import KIB, MIB
from mainstem.protocols.mqtt.sessions.client_session import OutgoingMessage
from mainstem.protocols.send_batch import SendBatch
from mainstem.wire.mqtt.encoder import encode
from mainstem.wire.mqtt.kinds import V3_1_1, V5
from mainstem.wire.mqtt.packets import Packet, Publish
from mainstem.wire.mqtt.properties import SUBSCRIPTION_IDS

UNSENT_BYTES_HIGH: Final = 1 * MIB
GATHERED_BYTES_MAX: Final = 256 * KIB


class MqttOutgoing:
    """Writes packets into the batch that is sent at the end of the turn."""

    def __init__(self, batch: SendBatch) -> None:
        self._batch = batch
        self.flush = batch.flush
        self.unsent_bytes = batch.unsent_bytes
        self._aliases: dict[str, int] = {}
        self.version = V3_1_1
        self.packet_bytes_max: int | None = None
        self.aliases_max = 0

    def put(self, packet: Packet) -> None:
        """Send a packet at the end of this turn."""
        self._batch.write(encode(packet, self.version))

    def put_message(self, sending: OutgoingMessage, now_ms: Callable[[], int]) -> bool:
        """Send a message; False if it is larger than the client accepts."""
        incoming = sending.incoming
        # All receivers of QoS 0 without individual properties get the same bytes.
        is_plain = not (sending.qos or sending.identifiers or self.aliases_max)
        key = (self.version >= V5, sending.retain)
        data = incoming.wire.get(key) if is_plain else None
        if data is None:
            data = self._encoded(sending, now_ms)
            if is_plain and incoming.expires_ms is None:
                incoming.wire[key] = data
        size = len(data)
        if self.packet_bytes_max is not None and size > self.packet_bytes_max:
            return False
        batch = self._batch
        if batch.waiting_bytes + size > GATHERED_BYTES_MAX:
            # The socket may accept this much now; and a large message that many receivers share is
            # not copied into one buffer with others.
            batch.flush()
        batch.write(data)
        return True

    def _encoded(self, sending: OutgoingMessage, now_ms: Callable[[], int]) -> bytes:
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
        # An alias in a packet that is too large to be sent would never reach the client.
        if len(self._aliases) >= self.aliases_max or self.packet_bytes_max is not None:
            return topic, properties
        alias = self._aliases[topic] = len(self._aliases) + 1
        return topic, {**properties, "topic_alias": alias}
