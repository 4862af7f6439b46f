"""Stories of what a stream remembers of its producers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest
from mainstem.streams.producers import sequences
from mainstem.streams.producers.sequences import ProducerStates


def stored(states: ProducerStates, first: int, count: int, offset: int, epoch: int = 0) -> None:
    assert states.check(7, epoch, first, count) is None
    states.record(7, epoch, first, count, offset, timestamp=1)


def test_a_batch_that_arrives_again_is_answered_with_its_first_offset() -> None:
    states = ProducerStates()
    stored(states, 0, 3, offset=100)
    stored(states, 3, 2, offset=103)

    assert states.check(7, 0, 0, 3) == 100
    assert states.check(7, 0, 3, 2) == 103


def test_only_the_last_five_batches_are_remembered() -> None:
    states = ProducerStates()
    for number in range(6):
        stored(states, number, 1, offset=number)

    assert states.check(7, 0, 1, 1) == 1
    with pytest.raises(InvalidRequest) as caught:
        states.check(7, 0, 0, 1)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE


def test_a_gap_in_the_sequence_is_refused() -> None:
    states = ProducerStates()
    stored(states, 0, 3, offset=0)

    with pytest.raises(InvalidRequest) as caught:
        states.check(7, 0, 4, 1)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE


def test_a_repetition_of_another_length_is_no_repetition() -> None:
    states = ProducerStates()
    stored(states, 0, 3, offset=0)

    with pytest.raises(InvalidRequest):
        states.check(7, 0, 0, 2)


def test_an_older_epoch_is_fenced() -> None:
    states = ProducerStates()
    stored(states, 0, 1, offset=0, epoch=2)

    with pytest.raises(Fenced) as caught:
        states.check(7, 1, 1, 1)
    assert caught.value.code is ErrorCode.FENCED_PRODUCER


def test_a_newer_epoch_starts_at_sequence_zero() -> None:
    states = ProducerStates()
    stored(states, 0, 5, offset=0)

    with pytest.raises(InvalidRequest):
        states.check(7, 1, 5, 1)
    assert states.check(7, 1, 0, 1) is None


def test_an_unknown_producer_may_start_anywhere() -> None:
    """Its state may have expired; Kafka's clients count on this."""
    assert ProducerStates().check(7, 3, 41, 1) is None


def test_sequences_wrap_around() -> None:
    states = ProducerStates()
    stored(states, 2**31 - 2, 3, offset=0)

    assert states.check(7, 0, 1, 1) is None
    assert states.check(7, 0, 2**31 - 2, 3) == 0


def test_what_could_not_be_written_is_taken_back() -> None:
    states = ProducerStates()
    stored(states, 0, 3, offset=0)
    stored(states, 3, 2, offset=3)

    states.forget_from(3)

    assert states.check(7, 0, 3, 2) is None
    states.forget_from(0)
    assert len(states) == 0


def test_producers_expire_by_the_clock_of_the_node_that_looks() -> None:
    states = ProducerStates()
    states.record(1, 0, 0, 1, 0, timestamp=10)
    states.record(2, 0, 0, 1, 1, timestamp=20)

    assert states.expire(1_000, idle_ms=100) == 0, "both were used since the last look"
    states.record(2, 0, 1, 1, 2, timestamp=5)
    assert states.expire(1_100, idle_ms=100) == 0
    assert states.expire(1_101, idle_ms=100) == 1
    assert [key for key, _ in states.active()] == [2]


def test_a_producer_of_old_records_is_not_forgotten_at_once() -> None:
    day_ms = 24 * 3600 * 1000
    states = ProducerStates()
    states.record(9, 0, 0, 1, 0, timestamp=1_700_000_000_000 - 2 * day_ms)

    states.expire(1_700_000_000_000, idle_ms=day_ms)
    assert states.check(9, 0, 0, 1) == 0, "a repetition is still known"


def test_a_restored_producer_has_a_whole_period_from_then_on() -> None:
    states = ProducerStates()
    states.record(1, 0, 0, 1, 0, timestamp=10)
    states.expire(1_000, idle_ms=100)

    restored = ProducerStates.restore(states.snapshot())
    assert restored.expire(5_000, idle_ms=100) == 0
    assert restored.expire(5_101, idle_ms=100) == 1


def test_the_producer_that_was_used_longest_ago_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "PRODUCERS_PER_STREAM_MAX", 3)
    states = ProducerStates()
    for offset, producer in enumerate((1, 2, 3)):
        states.record(producer, 0, 0, 1, offset, timestamp=0)
    states.record(1, 0, 1, 1, 3, timestamp=0)
    assert states.check(2, 0, 0, 1) == 1, "a repetition is a use too"
    states.record(4, 0, 0, 1, 4, timestamp=0)

    assert [key for key, _ in states.active()] == [1, 2, 4]
    assert states.check(1, 0, 1, 1) == 3
    states.seen(5, 0, timestamp=0)
    assert len(states) == 3


def test_the_order_of_use_is_kept_over_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "PRODUCERS_PER_STREAM_MAX", 2)
    states = ProducerStates()
    states.record(1, 0, 0, 1, 0, timestamp=0)
    states.record(2, 0, 0, 1, 1, timestamp=0)
    states.record(1, 0, 1, 1, 2, timestamp=0)

    restored = ProducerStates.restore(states.snapshot())
    restored.record(3, 0, 0, 1, 3, timestamp=0)
    assert [key for key, _ in restored.active()] == [1, 3]


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 40), st.integers(0, 99)),
        max_size=40,
    )
)
def test_a_restored_state_judges_as_the_one_written_down(
    batches: list[tuple[int, int, int, int]],
) -> None:
    states = ProducerStates()
    offset = 0
    next_sequence: dict[tuple[int, int], int] = {}
    newest: dict[int, int] = {}
    for producer, epoch, count, time in batches:
        if epoch < newest.get(producer, 0):
            continue
        newest[producer] = epoch
        first = next_sequence.get((producer, epoch), 0)
        states.record(producer, epoch, first, count, offset, time)
        next_sequence[producer, epoch] = first + count
        offset += count

    restored = ProducerStates.restore(states.snapshot())

    assert restored.snapshot() == states.snapshot()
    for producer, epoch in newest.items():
        following = next_sequence[producer, epoch]
        assert restored.check(producer, epoch, following, 1) is None


def test_a_batch_of_a_producer_without_a_sequence_is_refused() -> None:
    producers = ProducerStates()

    with pytest.raises(InvalidRequest) as refusal:
        producers.check(7, 0, -1, 1)

    assert refusal.value.code is ErrorCode.INVALID_RECORD
