"""One request to seal, pursued until its outcome is known."""

from mainstem.model.ids import Epoch, NodeId, Offset, PartitionIndex, RangeIndex, StreamId, TopicId
from mainstem.model.metadata import Range, Stream
from mainstem.placement.changes.commands import RangeEnd
from mainstem.streams.failover.sealing import (
    RETRY_MS,
    RETRY_MS_MAX,
    SealEffects,
    Sealing,
    SealRequest,
)

STREAM = StreamId(TopicId(bytes(16)), PartitionIndex(0))


def sealing_of(*, new_writer: int | None = None) -> Sealing:
    end = RangeEnd(STREAM, Epoch(4), RangeIndex(7), Offset(50))
    successor = None if new_writer is None else NodeId(new_writer)
    return Sealing(SealRequest("r1", end, (NodeId(1), NodeId(2)), new_writer=successor))


def stream_of(*, epoch: int, index: int) -> Stream:
    last = Range(RangeIndex(index), Offset(50), Epoch(epoch), (NodeId(1),))
    return Stream(STREAM, Epoch(epoch), NodeId(1), Offset(0), (last,))


def test_the_same_request_is_submitted_until_it_is_answered() -> None:
    sealing = sealing_of()
    assert sealing.begin(0).submit is sealing.request
    assert sealing.on_time(RETRY_MS - 1) == SealEffects()
    assert sealing.on_time(RETRY_MS).submit is sealing.request
    assert sealing.on_answer(stream_of(epoch=4, index=8)).opened is not None
    assert sealing.is_settled
    assert sealing.on_time(1_000_000) == SealEffects()


def test_no_answer_is_no_outcome() -> None:
    sealing = sealing_of()
    sealing.begin(0)
    sealing.on_no_answer(10)
    assert not sealing.is_settled
    assert sealing.on_time(10 + RETRY_MS).submit is sealing.request


def test_the_pause_between_repetitions_grows_to_a_bound() -> None:
    sealing = sealing_of()
    sealing.begin(0)
    now = 0
    for _ in range(20):
        now += RETRY_MS_MAX
        assert sealing.on_time(now).submit is not None
    assert sealing.on_time(now + RETRY_MS_MAX - 1).submit is None
    assert sealing.attempts == 21


def test_a_newer_writer_ends_the_pursuit() -> None:
    sealing = sealing_of()
    sealing.begin(0)
    assert sealing.on_deposed(Epoch(5)).deposed_by == 5
    assert sealing.on_deposed(Epoch(6)) == SealEffects()
    assert sealing.on_answer(stream_of(epoch=4, index=8)) == SealEffects()


def test_a_catalogue_that_was_read_tells_the_outcome() -> None:
    unknown, applied, deposed = sealing_of(), sealing_of(), sealing_of()
    assert unknown.on_stream_seen(stream_of(epoch=4, index=7)) == SealEffects()
    assert not unknown.is_settled
    assert applied.on_stream_seen(stream_of(epoch=4, index=8)).opened is not None
    assert deposed.on_stream_seen(stream_of(epoch=5, index=7)).deposed_by == 5


def test_a_stream_that_went_on_under_a_newer_epoch_has_another_writer() -> None:
    sealing = sealing_of()
    assert sealing.on_answer(stream_of(epoch=5, index=9)).deposed_by == 5


def test_a_hand_over_succeeds_under_the_next_epoch() -> None:
    sealing = sealing_of(new_writer=2)
    assert sealing.on_answer(stream_of(epoch=5, index=8)).opened is not None
