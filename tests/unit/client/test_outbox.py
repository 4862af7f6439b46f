"""The outbox of one partition: order, sequence numbers and retries, without a network."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.client.producing.outbox import (
    PartitionOutbox,
    ProducerBatch,
    ProducerIdState,
    record_size_bytes,
)
from mainstem.client.values import TopicPartition
from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.records.batch import SEQUENCE_MODULUS
from mainstem.model.records.record import Record, build_batch

PARTITION = TopicPartition("t", 0)
FAR = 1e9


def outbox_with(count: int, *, batch_bytes: int = 1, in_flight_max: int = 5) -> PartitionOutbox:
    outbox = PartitionOutbox(PARTITION, batch_bytes=batch_bytes, in_flight_max=in_flight_max)
    outbox.identity = ProducerIdState(7, 0)
    for number in range(count):
        outbox.add(Record(0, number, None, b"%d" % number), 1, now=0, deadline=FAR)
    return outbox


def send(outbox: PartitionOutbox, now: float = 1.0) -> ProducerBatch | None:
    return outbox.send_next() if outbox.next_batch(now, 0) is not None else None


def test_an_open_batch_waits_for_its_linger() -> None:
    outbox = outbox_with(1, batch_bytes=100)
    assert outbox.next_batch(0.004, 0.005) is None
    assert outbox.next_batch(0.005, 0.005) is not None


def test_a_full_batch_does_not_wait() -> None:
    outbox = outbox_with(3, batch_bytes=3)
    batch = outbox.next_batch(0, 60)
    assert batch is not None
    assert len(batch.records) == 3


def test_a_record_that_would_overfill_opens_the_next_batch() -> None:
    outbox = PartitionOutbox(PARTITION, batch_bytes=10, in_flight_max=5)
    first = outbox.add(Record(0, 0, None, b""), 6, 0, FAR)
    second = outbox.add(Record(0, 0, None, b""), 6, 0, FAR)
    assert first is not second
    assert outbox.next_batch(0, 60) is first


def test_no_more_batches_are_in_flight_than_allowed() -> None:
    outbox = outbox_with(10, in_flight_max=3)
    assert [send(outbox) is not None for _ in range(4)] == [True, True, True, False]


def test_the_first_batch_of_an_identity_travels_alone() -> None:
    outbox = outbox_with(3)
    outbox.renew_identity(ProducerIdState(8, 0))
    first = send(outbox)
    assert first is not None
    assert send(outbox) is None
    outbox.succeeded(first)
    assert [send(outbox) is not None for _ in range(2)] == [True, True]


def test_after_a_failure_everything_comes_back_before_anything_goes_out() -> None:
    outbox = outbox_with(4)
    first, second = send(outbox), send(outbox)
    assert first is not None
    assert second is not None
    outbox.schedule_retry(first, not_before=2.0)
    assert send(outbox, now=3.0) is None, "the second is still out"
    outbox.schedule_retry(second, not_before=2.0)
    assert send(outbox, now=1.9) is None, "the pause is not over"
    assert send(outbox, now=2.0) is first
    assert send(outbox, now=2.0) is None, "one at a time"
    outbox.succeeded(first)
    assert send(outbox, now=2.0) is second
    assert send(outbox, now=2.0) is None, "also the second may have arrived before"
    outbox.succeeded(second)
    assert [send(outbox, now=2.0), outbox.next_batch(2.0, 0)] != [None, None]


def test_what_succeeds_meanwhile_does_not_clear_the_way_for_a_batch_that_came_back() -> None:
    outbox = outbox_with(4)
    first, second = send(outbox), send(outbox)
    assert first is not None
    assert second is not None
    outbox.schedule_retry(first, not_before=0)
    outbox.succeeded(second)

    assert send(outbox) is first
    assert send(outbox) is None, "newer batches would push it out of the broker's memory"


def test_a_batch_keeps_its_sequence_through_retries() -> None:
    outbox = outbox_with(2)
    first = send(outbox)
    assert first is not None
    stamp = first.stamp
    outbox.schedule_retry(first, not_before=0)
    assert send(outbox) is first
    assert first.stamp == stamp


def test_a_new_identity_renumbers_what_is_not_settled() -> None:
    outbox = outbox_with(3)
    first, second = send(outbox), send(outbox)
    assert first is not None
    assert second is not None
    outbox.schedule_retry(second, not_before=0)
    assert outbox.has_earlier(second)
    outbox.schedule_retry(first, not_before=0)
    assert not outbox.has_earlier(first)
    outbox.needs_identity = True
    assert send(outbox) is None
    outbox.renew_identity(ProducerIdState(8, 0))
    again = send(outbox)
    assert again is first
    assert again.stamp is not None
    assert (again.stamp.producer_id, again.stamp.base_sequence) == (8, 0)


def test_sequence_numbers_wrap_as_the_broker_expects() -> None:
    identity = ProducerIdState(1, 0)
    identity.next_sequence = SEQUENCE_MODULUS - 2
    assert identity.stamp(5).base_sequence == SEQUENCE_MODULUS - 2
    assert identity.stamp(1).base_sequence == 3


def test_batches_whose_time_is_up_are_taken_out() -> None:
    outbox = PartitionOutbox(PARTITION, batch_bytes=1, in_flight_max=5)
    for deadline in (1.0, 5.0):
        outbox.add(Record(0, 0, None, b""), 1, 0, deadline)
    late = outbox.expire(2.0)
    assert [batch.deadline for batch in late] == [1.0]
    assert not outbox.is_empty


def test_dropping_all_leaves_only_what_is_in_flight() -> None:
    outbox = outbox_with(3)
    out = send(outbox)
    assert out is not None
    assert len(outbox.drop_all()) == 2
    outbox.landed(out)
    assert outbox.is_empty


def test_a_batch_says_where_each_record_is() -> None:
    batch = ProducerBatch(PARTITION, (1,), 0, FAR)
    batch.records = [Record(0, 11, None, b""), Record(0, 12, None, b"")]
    heard: list[bool] = []
    batch.on_done(lambda: heard.append(True))
    batch.settle(100, -1)
    batch.on_done(lambda: heard.append(True))
    assert (batch.place(1).offset, batch.place(1).timestamp, heard) == (101, 12, [True, True])


def test_the_brokers_time_replaces_the_records_own() -> None:
    batch = ProducerBatch(PARTITION, (1,), 0, FAR)
    batch.records = [Record(0, 11, None, b"")]
    batch.settle(-1, 99)
    assert (batch.place(0).offset, batch.place(0).timestamp) == (-1, 99)


def test_a_batch_that_is_too_large_goes_out_in_halves_before_what_follows() -> None:
    outbox = outbox_with(8, batch_bytes=4)
    whole, following = send(outbox), send(outbox)
    assert whole is not None
    assert following is not None
    outbox.replace(whole, whole.split())
    outbox.schedule_retry(following, not_before=0)
    sent = []
    while (batch := send(outbox)) is not None:
        sent.append([record.timestamp for record in batch.records])
        assert batch.stamp is not None
        assert batch.stamp.base_sequence == batch.records[0].timestamp
        outbox.succeeded(batch)
        batch.settle(batch.records[0].timestamp + 100, -1)
    assert sent == [[0, 1], [2, 3], [4, 5, 6, 7]]
    assert whole.is_done
    assert [whole.place(index).offset for index in range(4)] == [100, 101, 102, 103]


def test_of_a_split_batch_each_record_has_its_own_fate() -> None:
    outbox = outbox_with(4, batch_bytes=4)
    whole = send(outbox)
    assert whole is not None
    first, second = whole.split()
    first.settle(7, -1)
    half_way = whole.is_done
    second.fail(InvalidRequest(ErrorCode.RECORD_TOO_LARGE))
    assert (half_way, whole.is_done) == (False, True)
    assert whole.place(1).offset == 8
    with pytest.raises(InvalidRequest):
        whole.place(2)


def test_a_batch_cannot_be_settled_twice() -> None:
    batch = ProducerBatch(PARTITION, (1,), 0, FAR)
    batch.fail(Unavailable(ErrorCode.TIMED_OUT))
    with pytest.raises(AssertionError):
        batch.settle(0, 0)


@given(
    key=st.none() | st.binary(max_size=300),
    value=st.none() | st.binary(max_size=300),
    headers=st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=50))),
    timestamp=st.integers(0, 2**41),
)
def test_the_estimate_is_never_below_the_truth(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp: int,
) -> None:
    kept = tuple(headers)
    record = Record(0, timestamp, key, value, kept)
    alone = len(build_batch([record, record], base_timestamp=0)) - 61
    assert alone <= 2 * record_size_bytes(key, value, kept)


@given(st.randoms(use_true_random=False), st.integers(1, 5), st.integers(1, 30))
def test_a_broker_that_wants_sequences_in_order_gets_every_batch_once_in_order(
    chance: random.Random, in_flight_max: int, count: int
) -> None:
    """The rules of the outbox alone keep order, whatever is lost on the way there or back."""
    outbox = outbox_with(count, in_flight_max=in_flight_max)
    stored: list[int] = []
    expected = 0
    now = 0.0
    for _ in range(3000):
        now += 1
        while (batch := send(outbox, now)) is not None:
            pass
        if outbox.is_empty:
            break
        # Requests arrive in the order sent, answers come back in any order.
        answers = []
        for batch in list(outbox.in_flight):
            assert batch.stamp is not None
            sequence = batch.stamp.base_sequence
            arrives, answers_back = chance.random() < 0.8, chance.random() < 0.8
            if arrives and sequence == expected:
                stored.append(sequence)
                expected += len(batch.records)
            answers.append((batch, arrives and sequence < expected and answers_back))
        chance.shuffle(answers)
        for batch, succeeded in answers:
            if succeeded:
                outbox.succeeded(batch)
            else:
                outbox.schedule_retry(batch, now)
    assert outbox.is_empty
    assert stored == list(range(count))
