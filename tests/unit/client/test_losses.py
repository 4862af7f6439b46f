"""Which failures a producer still has to tell somebody about."""

import pytest

from mainstem.client.producing.delivery_failures import DeliveryFailures
from mainstem.client.producing.outbox import ProducerBatch
from mainstem.client.values import TopicPartition
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable

LATE = Unavailable(ErrorCode.TIMED_OUT, "late")
FULL = Unavailable(ErrorCode.DISK_FULL, "full")


def failed(error: MainstemError, *, is_observed: bool = False) -> ProducerBatch:
    batch = ProducerBatch(TopicPartition("t", 0), (1,), 0.0, 1.0)
    batch.is_observed = is_observed
    batch.fail(error)
    return batch


def test_the_first_failure_that_nobody_awaited_is_reported_once() -> None:
    losses = DeliveryFailures()
    losses.note(failed(LATE), LATE)
    losses.note(failed(FULL), FULL)

    with pytest.raises(Unavailable) as report:
        losses.report()

    assert report.value is LATE
    losses.report()


def test_what_was_awaited_is_not_reported_but_remembered() -> None:
    losses = DeliveryFailures()
    losses.note(failed(LATE, is_observed=True), LATE)

    losses.report()

    assert losses.first is LATE


def test_what_was_given_up_as_a_whole_is_forgiven() -> None:
    losses = DeliveryFailures()
    losses.note(failed(LATE), LATE)

    losses.reset()

    losses.report()
    assert losses.first is None
