"""What the MQTT load notes of each delivery, told by its callbacks as paho calls them."""

from enum import StrEnum

import pytest
from paho.mqtt.client import MQTTMessage
from tests.chaos.history import Outcome
from tests.chaos.mqtt_load import MqttLoad
from tests.chaos.queue_history import Delivered, Published, QueueKind, Settled, check_queue


class OfflineLoad(MqttLoad):
    """A load that never connects; its subscriptions are numbered."""

    def __init__(self, qos: int) -> None:
        super().__init__(list, "topic", qos=qos)
        self._subscriptions = 0

    def published(self, *, sends: int = 1) -> str:
        """A message that was confirmed after so many attempts."""
        message = Published("mqtt", len(self.history.published))
        self.history.published.append(message)
        self._waiting[7] = message
        for attempt in range(sends):
            duplicate = int(attempt > 0)
            text = f"Sending PUBLISH (d{duplicate}, q{self._qos}, r0, m7), 'topic', ... (6 bytes)"
            self._on_log(None, None, 0, text)
        self._on_confirmed(None, None, 7)
        assert message.outcome is Outcome.OK
        return message.value

    def receive(self, value: str, *, dup: bool = False) -> None:
        """The subscriber is handed a message."""
        message = MQTTMessage()
        message.payload, message.dup = value.encode(), dup
        self._on_message(None, None, message)

    def ask(self) -> None:
        """The subscriber subscribes again."""
        self._ask()

    def answer(self) -> None:
        """SUBACK comes for the first subscription."""
        self._on_subscribed(None, None, 1)

    def _subscribe(self) -> int | None:
        self._subscriptions += 1
        return self._subscriptions

    def reconnect(self) -> None:
        """The connection was lost, and there is another one."""
        self._on_connected(None)

    def found(self) -> set[StrEnum]:
        """The kinds of anomalies."""
        return {anomaly.kind for anomaly in check_queue(self.history, self.promise)}


def test_only_qos_2_promises_exactly_one_delivery() -> None:
    assert OfflineLoad(2).promise.exactly_once
    assert not OfflineLoad(1).promise.exactly_once


def test_a_second_delivery_at_qos_2_is_an_anomaly() -> None:
    load = OfflineLoad(2)
    value = load.published()
    load.receive(value)
    assert load.history.events == [Delivered(value, redelivered=False), Settled(value)]
    assert load.found() == set()
    load.receive(value, dup=True)
    assert load.found() == {QueueKind.AFTER_ACK}


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_its_publisher_sent_twice_may_be_delivered_twice(qos: int) -> None:
    load = OfflineLoad(qos)
    value = load.published(sends=2)
    load.receive(value)
    load.receive(value)
    assert load.history.published[0].sends == 2
    assert load.found() == set()


def test_at_qos_1_a_delivery_is_settled_by_the_answer_to_a_later_subscription() -> None:
    load = OfflineLoad(1)
    value = load.published()
    load.receive(value)
    load.ask()
    load.receive(value, dup=True)
    assert load.found() == set()
    load.answer()
    assert load.history.settled == 1
    load.receive(value, dup=True)
    assert load.found() == {QueueKind.AFTER_ACK}


def test_an_acknowledgement_on_a_lost_connection_settles_nothing() -> None:
    load = OfflineLoad(1)
    value = load.published()
    load.receive(value)
    load.ask()
    load.reconnect()
    load.answer()
    load.receive(value, dup=True)
    assert load.history.settled == 0
    assert load.found() == set()
