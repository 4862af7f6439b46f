from enum import StrEnum

from tests.chaos.history import Outcome
from tests.chaos.queue_history import (
    Delivered,
    Promise,
    Published,
    QueueHistory,
    QueueKind,
    Settled,
    check_queue,
)

QOS_1 = Promise(marks_redelivery=False)
QOS_2 = Promise(exactly_once=True, marks_redelivery=False)


def sound_history(count: int = 20) -> QueueHistory:
    """One publisher, one consumer, everything confirmed on both sides."""
    history = QueueHistory("q")
    for number in range(count):
        message = Published("p", number, Outcome.OK)
        history.published.append(message)
        history.events += [Delivered(message.value, redelivered=False), Settled(message.value)]
    return history


def found(history: QueueHistory, promise: Promise = Promise()) -> set[StrEnum]:  # noqa: B008
    return {anomaly.kind for anomaly in check_queue(history, promise)}


def test_a_sound_history_has_no_anomaly() -> None:
    assert found(sound_history()) == set()


def test_a_confirmed_message_that_was_never_delivered_is_lost() -> None:
    history = sound_history()
    del history.events[10:12]
    assert found(history) == {QueueKind.LOST}


def test_a_message_of_unknown_outcome_may_be_missing() -> None:
    history = sound_history()
    history.published.append(Published("p", 20))
    assert found(history) == set()


def test_a_delivery_after_a_confirmed_acknowledgement_is_reported() -> None:
    history = sound_history()
    history.events.append(Delivered("p:3", redelivered=True))
    assert found(history) == {QueueKind.AFTER_ACK}


def test_a_second_delivery_must_be_marked() -> None:
    history = sound_history()
    history.events.remove(Settled("p:3"))
    history.events.append(Delivered("p:3", redelivered=False))
    assert found(history) == {QueueKind.UNMARKED}
    assert found(history, Promise(marks_redelivery=False)) == set()


def test_a_second_delivery_breaks_exactly_once() -> None:
    history = sound_history()
    history.events.remove(Settled("p:3"))
    history.events.append(Delivered("p:3", redelivered=True))
    assert found(history) == set()
    assert found(history, Promise(exactly_once=True)) == {QueueKind.DOUBLED}


def test_a_message_that_nobody_published_is_reported() -> None:
    history = sound_history()
    history.events.append(Delivered("x:1", redelivered=False))
    assert found(history) == {QueueKind.PHANTOM}


def test_a_refused_message_that_is_delivered_is_reported() -> None:
    history = sound_history()
    history.published[4].outcome = Outcome.REFUSED
    assert found(history) == {QueueKind.REFUSED}


def test_first_deliveries_out_of_order_are_reported() -> None:
    history = sound_history()
    history.events[4], history.events[8] = history.events[8], history.events[4]
    assert QueueKind.REORDERED in found(history)


def test_a_redelivery_may_come_late() -> None:
    history = sound_history()
    history.events[4] = Delivered("p:2", redelivered=True)
    history.events.append(history.events.pop(4))
    history.events.remove(Settled("p:2"))
    assert found(history) == set()


def test_a_message_that_was_sent_once_is_delivered_once_after_its_release() -> None:
    """QoS 2: every delivery is settled at once, and a later one is an anomaly, marked or not."""
    history = sound_history()
    history.events += [Delivered("p:3", redelivered=True), Settled("p:3")]
    assert found(history, QOS_2) == {QueueKind.AFTER_ACK}


def test_a_message_that_was_sent_twice_may_be_two_messages_and_not_three() -> None:
    history = sound_history()
    history.published[3].sends = 2
    again: list[Delivered | Settled] = [Delivered("p:3", redelivered=False), Settled("p:3")]
    history.events += again
    assert found(history, QOS_2) == set()
    history.events += again
    assert found(history, QOS_2) == {QueueKind.AFTER_ACK}


def test_a_message_that_was_sent_twice_may_be_delivered_twice_before_it_is_settled() -> None:
    history = sound_history()
    history.published[3].sends = 2
    history.events.remove(Settled("p:3"))
    history.events.append(Delivered("p:3", redelivered=False))
    assert found(history, QOS_2) == set()
    history.events.append(Delivered("p:3", redelivered=False))
    assert found(history, QOS_2) == {QueueKind.DOUBLED}


def test_at_qos_1_a_message_may_come_again_until_its_acknowledgement_is_confirmed() -> None:
    history = sound_history()
    at = history.events.index(Settled("p:3"))
    history.events[at:at] = [
        Delivered("p:3", redelivered=False),
        Delivered("p:3", redelivered=True),
    ]
    assert found(history, QOS_1) == set()
    history.events.append(Delivered("p:3", redelivered=True))
    assert found(history, QOS_1) == {QueueKind.AFTER_ACK}


def test_deliveries_beyond_the_first_and_messages_sent_again_are_counted() -> None:
    history = sound_history()
    history.published[3].sends = 2
    history.events.append(Delivered("p:3", redelivered=False))
    assert (history.sent_again, history.delivered_again) == (1, 1)
    assert (history.delivered, history.settled) == (21, 20)


def test_each_of_two_messages_of_one_body_may_come_again_until_it_is_settled() -> None:
    history = sound_history()
    history.published[3].sends = 2
    history.events += [Delivered("p:3", redelivered=False), Delivered("p:3", redelivered=True)]
    assert found(history, QOS_1) == set()
