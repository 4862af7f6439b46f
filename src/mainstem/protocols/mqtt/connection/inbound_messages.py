"""Messages that one client publishes: stored, then acknowledged, in order of arrival.

QoS 1   PUBLISH ─▶ committed ─▶ PUBACK
QoS 2   PUBLISH ─▶ committed, packet id stored ─▶ PUBREC · PUBREL ─▶ id removed ─▶ PUBCOMP
"""

from functools import partial
from typing import Final, Protocol

from msgspec.structs import replace

from mainstem.broker.api.broker import Settled
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.protocols.mqtt.connection.acknowledgements import Answers, Slot
from mainstem.protocols.mqtt.connection.outgoing import MqttOutgoing
from mainstem.protocols.mqtt.connection.permissions import MqttPermissions
from mainstem.protocols.mqtt.errors import ack_reason_of
from mainstem.protocols.mqtt.hub_service import MqttHub
from mainstem.protocols.mqtt.sessions.client_session import ClientSession, PendingPublish
from mainstem.wire.mqtt.kinds import V5, Kind
from mainstem.wire.mqtt.packets import Ack, Publish
from mainstem.wire.mqtt.primitives import Violation
from mainstem.wire.mqtt.properties import SUBSCRIPTION_IDS
from mainstem.wire.mqtt.reasons import REFUSED, Reason

# The writer changed, or it is unknown whether the message was stored: neither ack nor refusal.
_UNSURE: Final = frozenset(
    {
        ErrorCode.NOT_WRITER,
        ErrorCode.WRITER_UNAVAILABLE,
        ErrorCode.TIMED_OUT,
        ErrorCode.SHUTTING_DOWN,
    }
)


class InboundConnection(Protocol):
    """The connection that messages arrive on."""

    def pause(self) -> None:
        """Stop reading."""
        ...

    def resume(self) -> None:
        """Resume reading."""
        ...

    def shut(self) -> None:
        """Close the connection without a reason code."""
        ...


class InboundMessages:
    """Stores and acknowledges what one client publishes, in order."""

    def __init__(
        self,
        hub: MqttHub,
        session: ClientSession,
        permissions: MqttPermissions,
        out: MqttOutgoing,
        connection: InboundConnection,
    ) -> None:
        self._hub = hub
        self._session = session
        self._permissions = permissions
        self._out = out
        self._connection = connection
        self._is_new = out.version >= V5
        self._answers = Answers(out.put)
        self._pending = 0  # of QoS 1; those of QoS 2 are counted by their packet ids
        self._topics_by_alias: dict[int, str] = {}
        self._is_over = False

    def close(self) -> None:
        """Discard pending acknowledgements: the connection is closed."""
        self._is_over = True
        self._answers.clear()

    def publish(self, packet: Publish) -> None:
        """Handle PUBLISH.

        Raises:
            Violation: the packet violates the protocol.
        """
        if "topic_alias" in packet.properties:
            packet = self._without_alias(packet)
        if SUBSCRIPTION_IDS in packet.properties:
            raise Violation("a client may not send subscription identifiers")
        may = self._permissions.may_write(packet.topic)
        if packet.qos:
            self._publish_acknowledged(packet, may=may)
        elif may:
            self._hub.publish(packet, self._session.client_id, None)
        elif self._is_new:
            raise Violation(f"not allowed to publish to {packet.topic!r}", Reason.NOT_AUTHORIZED)

    def _publish_acknowledged(self, packet: Publish, *, may: bool) -> None:
        session = self._session
        # Messages of QoS 2 count until they are released. For a client that releases them before
        # the answer, the same limit applies to unstored messages.
        exchanges = max(
            len(session.received) + len(session.unstored), len(session.pending_publishes)
        )
        unanswered = self._pending + exchanges
        if unanswered >= self._hub.settings.receive_max:
            self._slow_down(packet)
        ack = Ack(Kind.PUBACK if packet.qos == 1 else Kind.PUBREC, packet.packet_id)
        slot = self._answers.reserve()
        settled = partial(self._stored, slot, ack)
        if packet.qos == 2 and packet.packet_id in session.pending_publishes:
            self._publish_again(packet.packet_id, settled)
        elif packet.qos == 2 and packet.packet_id in session.received:
            self._answers.fill(slot, ack)
        elif not may:
            self._refuse(slot, replace(ack, reason=Reason.NOT_AUTHORIZED))
        elif packet.qos == 2:
            self._publish_once(packet, settled)
        else:
            self._pending += 1
            self._hub.publish(packet, session.client_id, settled)

    def _publish_once(self, packet: Publish, settled: Settled) -> None:
        """Store a message of QoS 2 together with its packet id.

        A single node writes both in one turn, the message first. In a cluster two nodes may write
        them: the id is stored after the message, so that the message is never lost.
        """
        session, number = self._session, packet.packet_id
        pending = session.pending_publishes[number] = PendingPublish([settled])
        is_one_turn = session.is_durable and self._hub.is_alone

        def stored(error: MainstemError | None) -> None:
            session.unstored.discard(number)
            if error is not None:
                session.received.discard(number)
                self._settle(number, pending, error)
                return
            session.received.add(number)
            pending.is_stored = True
            if session.is_durable and not is_one_turn:
                self._remember(number, pending)
                return
            pending.is_remembered |= not session.is_durable
            self._settle_if_there(number, pending)

        if is_one_turn:
            session.received.add(number)
        else:
            session.unstored.add(number)
        self._hub.publish(packet, session.client_id, stored)
        if is_one_turn:
            self._remember(number, pending)

    def _publish_again(self, number: int, settled: Settled) -> None:
        """Handle a message that is sent again on another connection, before it was stored."""
        pending = self._session.pending_publishes[number]
        pending.waiting.append(settled)
        if number in self._session.received and not pending.is_remembered:
            # A failed write of the session, as on a full disk, is not reported: repeat it now.
            self._remember(number, pending)

    def _remember(self, number: int, pending: PendingPublish) -> None:
        def remembered() -> None:
            pending.is_remembered = True
            self._settle_if_there(number, pending)

        self._hub.save(self._session, remembered)

    def _settle_if_there(self, number: int, pending: PendingPublish) -> None:
        if pending.is_stored and pending.is_remembered:
            self._settle(number, pending, None)

    def _settle(self, number: int, pending: PendingPublish, error: MainstemError | None) -> None:
        if self._session.pending_publishes.get(number) is pending:
            del self._session.pending_publishes[number]
            for each in pending.waiting:
                each(error)

    def _without_alias(self, packet: Publish) -> Publish:
        """The message with its topic instead of the alias."""
        properties = dict(packet.properties)
        alias = properties.pop("topic_alias")
        if not 1 <= alias <= self._hub.settings.topic_aliases_max:
            raise Violation(f"topic alias {alias} is not allowed", Reason.TOPIC_ALIAS_INVALID)
        if packet.topic:
            self._topics_by_alias[alias] = packet.topic
        elif alias not in self._topics_by_alias:
            raise Violation(f"topic alias {alias} is not defined", Reason.TOPIC_ALIAS_INVALID)
        return replace(packet, topic=self._topics_by_alias[alias], properties=properties)

    def _slow_down(self, packet: Publish) -> None:
        """Enforce receive-maximum; 3.1.1 has none, so reading is paused instead."""
        number = packet.packet_id
        if number in self._session.received or number in self._session.pending_publishes:
            return
        if self._is_new:
            raise Violation("receive-maximum exceeded", Reason.RECEIVE_MAXIMUM_EXCEEDED)
        self._connection.pause()

    def _stored(self, slot: Slot, ack: Ack, error: MainstemError | None) -> None:
        """Acknowledge a committed message, or refuse it."""
        self._pending -= ack.kind is Kind.PUBACK
        if self._is_over:
            return
        if error is not None and error.code in _UNSURE:
            # The client reconnects and sends the message again.
            self._connection.shut()
            return
        if error is not None:
            self._refuse(slot, replace(ack, reason=ack_reason_of(error)))
            return
        self._answers.fill(slot, ack)
        if self._pending <= self._hub.settings.receive_max // 2:
            self._connection.resume()

    def _refuse(self, slot: Slot, ack: Ack) -> None:
        if self._is_new:
            self._answers.fill(slot, ack)
        else:
            # 3.1.1 has no negative acknowledgement, and a positive one would be wrong.
            self._connection.shut()

    def acknowledge(self, packet: Ack) -> None:
        """Handle PUBACK, PUBREC, PUBREL and PUBCOMP."""
        number, session = packet.packet_id, self._session
        if packet.kind is Kind.PUBREL:
            self._release(number)
        elif packet.kind is Kind.PUBCOMP:
            session.completed(number)
        elif packet.kind is Kind.PUBACK or packet.reason >= REFUSED:
            session.acknowledged(number)
        elif not session.received_by_peer(number):
            self._out.put(Ack(Kind.PUBREL, number, Reason.PACKET_ID_NOT_FOUND))

    def _release(self, number: int) -> None:
        """Handle PUBREL, the end of the exchange of a QoS 2 message."""
        session = self._session
        if number not in session.received:
            self._out.put(Ack(Kind.PUBCOMP, number, Reason.PACKET_ID_NOT_FOUND))
            return
        session.received.discard(number)
        answer = partial(self._out.put, Ack(Kind.PUBCOMP, number))
        if session.is_durable:
            # The client may reuse the id after PUBCOMP, so its removal must be durable first.
            self._hub.save(session, answer)
        else:
            answer()
