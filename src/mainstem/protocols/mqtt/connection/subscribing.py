"""SUBSCRIBE and UNSUBSCRIBE: each filter is checked by itself; the answer has a code for each."""

from collections.abc import Callable

from mainstem.protocols.mqtt.connection.outgoing import MqttOutgoing
from mainstem.protocols.mqtt.connection.permissions import MqttPermissions
from mainstem.protocols.mqtt.hub_service import MqttHub
from mainstem.protocols.mqtt.sessions.client_session import ClientSession
from mainstem.wire.mqtt.packets import Suback, Subscribe, Subscription, Unsuback, Unsubscribe
from mainstem.wire.mqtt.primitives import Violation
from mainstem.wire.mqtt.properties import SUBSCRIPTION_IDS
from mainstem.wire.mqtt.reasons import REFUSED, Reason
from mainstem.wire.mqtt.topics import SHARE, is_subscribable


class Subscribing:
    """Changes the subscriptions of one session; answers once they are durable."""

    def __init__(
        self, hub: MqttHub, session: ClientSession, permissions: MqttPermissions, out: MqttOutgoing
    ) -> None:
        self._hub = hub
        self._session = session
        self._permissions = permissions
        self._out = out

    def serve(self, packet: Subscribe | Unsubscribe) -> None:
        """Handle SUBSCRIBE or UNSUBSCRIBE."""
        if isinstance(packet, Subscribe):
            self._subscribe(packet)
        else:
            self._unsubscribe(packet)

    def _subscribe(self, packet: Subscribe) -> None:
        identifier = packet.properties.get(SUBSCRIPTION_IDS, (0,))[0]
        reasons: list[int] = []
        added: list[tuple[Subscription, bool]] = []
        for subscription in packet.subscriptions:
            if subscription.no_local and subscription.filter.startswith(SHARE):
                raise Violation("no-local is not allowed for a shared subscription")
            reason = self._judge(subscription)
            reasons.append(reason)
            if reason < REFUSED:
                added.append(
                    (subscription, self._hub.subscribe(self._session, subscription, identifier))
                )

        def answer() -> None:
            self._out.put(Suback(packet.packet_id, tuple(reasons)))
            for subscription, is_new in added:
                self._hub.send_retained(self._session, subscription, is_new=is_new)
            for lender in list(self._session.lenders):
                lender.drain()

        self._when_safe(answer)

    def _judge(self, subscription: Subscription) -> int:
        session = self._session
        if not is_subscribable(subscription.filter):
            return Reason.TOPIC_FILTER_INVALID
        if not self._permissions.may_subscribe(subscription.filter):
            return Reason.NOT_AUTHORIZED
        most = self._hub.settings.subscriptions_max
        if len(session.subscriptions) >= most and subscription.filter not in session.subscriptions:
            return Reason.QUOTA_EXCEEDED
        return subscription.qos

    def _unsubscribe(self, packet: Unsubscribe) -> None:
        reasons: list[int] = []
        for text in packet.filters:
            was_there = self._hub.unsubscribe(self._session, text)
            reasons.append(Reason.SUCCESS if was_there else Reason.NO_SUBSCRIPTION_EXISTED)

        def answer() -> None:
            self._out.put(Unsuback(packet.packet_id, tuple(reasons)))

        self._when_safe(answer)

    def _when_safe(self, answer: Callable[[], None]) -> None:
        if self._session.is_durable:
            self._hub.save(self._session, answer)
        else:
            answer()
