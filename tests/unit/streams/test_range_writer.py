"""The writer of one open range: sends, counts, goes back, freezes, goes on."""

import pytest

from mainstem.model.errors import Corrupt, ErrorCode, Fenced, Unavailable
from mainstem.model.ids import Epoch, NodeId, Offset, PartitionIndex, RangeIndex, StreamId, TopicId
from mainstem.streams.ack_policy import AckPolicy
from mainstem.streams.writer.replication import (
    OpenRange,
    RangeWriter,
    SealPoint,
    SendAppend,
    WriterEffects,
    WriterLimits,
)

A, B, C = NodeId(1), NodeId(2), NodeId(3)
LIMITS = WriterLimits(
    window_bytes=100,
    gather_bytes=0,
    lag_bytes=500,
    lag_ms=10_000,
    resend_ms=1_000,
    uncommitted_bytes_max=1_000,
)


def opened(index: int = 0, start: int = 0, replicas: tuple[NodeId, ...] = (A, B, C)) -> OpenRange:
    stream = StreamId(TopicId(bytes(16)), PartitionIndex(0))
    return OpenRange(stream, RangeIndex(index), Epoch(4), Offset(start), replicas)


def writer_of(acks: int = 2, limits: WriterLimits = LIMITS) -> RangeWriter:
    return RangeWriter(opened(), AckPolicy(3, acks), limits, 0)


def append(writer: RangeWriter, until: int, *, size: int = 10, now: int = 0) -> WriterEffects:
    return writer.on_append(Offset(until), size, now)


def ack(writer: RangeWriter, node: NodeId, end: int, now: int = 0) -> WriterEffects:
    return writer.on_ack(node, Offset(end), Offset(end), now)


def sends(effects: WriterEffects) -> list[tuple[int, int, int]]:
    return [(send.replica, send.start, send.until) for send in effects.sends]


def test_an_append_goes_to_every_replica() -> None:
    writer = writer_of()
    assert sends(append(writer, 5)) == [(A, 0, 5), (B, 0, 5), (C, 0, 5)]
    assert writer.next_offset == 5


@pytest.mark.parametrize(("acks", "committed"), [(1, 5), (2, 4), (3, 3)])
def test_what_enough_replicas_hold_is_committed(acks: int, committed: int) -> None:
    writer = writer_of(acks)
    append(writer, 5)
    ack(writer, A, 5)
    ack(writer, B, 4)
    ack(writer, C, 3)
    assert writer.committed == committed


def test_committed_is_told_once_and_never_goes_back() -> None:
    writer = writer_of()
    append(writer, 5)
    assert ack(writer, A, 5).committed is None
    assert ack(writer, B, 5).committed == 5
    assert ack(writer, C, 5).committed is None
    assert writer.on_gap(B, Offset(0), 0).committed is None
    assert writer.committed == 5


def test_the_next_append_carries_what_is_committed() -> None:
    writer = writer_of()
    append(writer, 5)
    ack(writer, A, 5)
    ack(writer, B, 5)
    [first, *_] = append(writer, 6).sends
    assert first == SendAppend(A, Offset(5), Offset(6), Offset(5))


def test_a_replica_with_a_full_window_is_sent_more_when_it_acknowledges() -> None:
    writer = writer_of()
    append(writer, 1, size=60)
    assert sends(append(writer, 2, size=60)) == []
    assert sends(append(writer, 3, size=30)) == []
    assert sends(ack(writer, B, 1)) == [(B, 1, 3)]


def test_a_batch_larger_than_the_window_is_sent_alone() -> None:
    writer = writer_of()
    assert sends(append(writer, 1, size=400)) == [(A, 0, 1), (B, 0, 1), (C, 0, 1)]
    assert sends(append(writer, 2, size=400)) == []
    assert sends(ack(writer, A, 1)) == [(A, 1, 2)]


def test_a_gap_sends_again_from_where_the_replica_ends_and_only_once() -> None:
    writer = writer_of()
    append(writer, 1)
    append(writer, 2)
    append(writer, 3)
    assert sends(writer.on_gap(B, Offset(0), 0)) == [(B, 0, 3)]
    assert sends(writer.on_gap(B, Offset(0), 0)) == []
    assert sends(append(writer, 4)) == [(A, 3, 4), (C, 3, 4)]
    assert sends(ack(writer, B, 3)) == [(B, 3, 4)]


def test_a_replica_that_lost_records_no_longer_counts_for_them() -> None:
    writer = writer_of()
    append(writer, 5)
    ack(writer, B, 5)
    append(writer, 6)
    writer.on_gap(B, Offset(2), 0)
    assert writer.described(0)[1].end == 2
    assert ack(writer, A, 5).committed == 2
    assert ack(writer, B, 6).committed == 5


def test_what_got_no_answer_is_sent_again() -> None:
    writer = writer_of()
    append(writer, 5)
    ack(writer, A, 5, now=500)
    ack(writer, B, 5, now=500)
    assert sends(writer.on_time(999)) == []
    assert sends(writer.on_time(1_000)) == [(C, 0, 5)]
    assert sends(writer.on_time(1_500)) == []
    assert sends(writer.on_time(2_000)) == [(C, 0, 5)]


def test_a_new_connection_sends_again_what_was_not_acknowledged() -> None:
    writer = writer_of()
    append(writer, 3)
    ack(writer, B, 2)
    assert sends(writer.on_reconnected(B, 0)) == [(B, 2, 3)]


def test_a_new_connection_to_a_replica_that_has_everything_holds_nothing_back() -> None:
    writer = writer_of()
    append(writer, 3)
    ack(writer, B, 3)
    assert sends(writer.on_reconnected(B, 0)) == []
    assert sends(append(writer, 4)) == [(A, 3, 4), (B, 3, 4), (C, 3, 4)]
    assert sends(append(writer, 5)) == [(A, 4, 5), (B, 4, 5), (C, 4, 5)]


GATHERING = WriterLimits(window_bytes=1_000, gather_bytes=30, gather_ms=50)


def test_what_comes_while_a_replica_has_something_to_acknowledge_is_sent_together() -> None:
    writer = writer_of(limits=GATHERING)
    assert sends(append(writer, 1)) == [(A, 0, 1), (B, 0, 1), (C, 0, 1)]
    assert sends(append(writer, 2)) == []
    assert sends(append(writer, 3)) == []
    assert sends(ack(writer, B, 1)) == [(B, 1, 3)]


def test_much_of_it_does_not_wait() -> None:
    writer = writer_of(limits=GATHERING)
    append(writer, 1)
    append(writer, 2)
    append(writer, 3)
    assert sends(append(writer, 4)) == [(A, 1, 4), (B, 1, 4), (C, 1, 4)]


def test_it_does_not_wait_for_long() -> None:
    writer = writer_of(limits=GATHERING)
    append(writer, 1)
    assert sends(append(writer, 2, now=49)) == []
    assert sends(writer.on_time(49)) == []
    assert sends(writer.on_time(50)) == [(A, 1, 2), (B, 1, 2), (C, 1, 2)]
    assert sends(append(writer, 3, now=99)) == []
    assert sends(append(writer, 4, now=100)) == [(A, 2, 4), (B, 2, 4), (C, 2, 4)]


def test_the_rest_of_a_range_that_ends_does_not_wait() -> None:
    writer = writer_of(limits=GATHERING)
    append(writer, 1)
    append(writer, 2)
    assert sends(writer.send_gathered(0)) == [(A, 1, 2), (B, 1, 2), (C, 1, 2)]
    writer.freeze()
    assert sends(writer.send_gathered(0)) == []


def test_a_replica_that_does_not_move_is_named_once() -> None:
    writer = writer_of()
    append(writer, 5)
    ack(writer, A, 5)
    ack(writer, B, 5)
    assert writer.on_time(9_999).laggards == ()
    assert writer.on_time(10_000).laggards == (C,)
    assert writer.on_time(20_000).laggards == ()
    assert sends(append(writer, 6, now=20_000)) == [(A, 5, 6), (B, 5, 6)]


def test_the_time_of_an_idle_replica_begins_with_the_next_append() -> None:
    writer = writer_of()
    append(writer, 1)
    for node in (A, B, C):
        ack(writer, node, 1)
    append(writer, 2, now=50_000)
    assert writer.on_time(50_100).laggards == ()


def test_a_replica_far_behind_what_is_committed_is_named() -> None:
    writer = writer_of()
    for until in range(1, 7):
        append(writer, until, size=100)
        ack(writer, A, until)
        effects = ack(writer, B, until)
    assert effects.laggards == (C,)


def test_slow_replicas_are_not_named_while_nobody_is_faster() -> None:
    writer = writer_of()
    for until in range(1, 9):
        effects = append(writer, until, size=100)
        effects.laggards += ack(writer, A, until).laggards
        assert effects.laggards == ()


def test_a_replica_taken_for_dead_is_named_at_once() -> None:
    writer = writer_of()
    assert writer.on_unreachable(C).laggards == (C,)
    assert writer.on_unreachable(C).laggards == ()


def test_too_much_that_waits_is_refused_and_taken_later() -> None:
    writer = writer_of()
    append(writer, 1, size=900)
    with pytest.raises(Unavailable) as refused:
        append(writer, 2, size=200)
    assert refused.value.code is ErrorCode.OVERLOADED
    ack(writer, A, 1)
    ack(writer, B, 1)
    append(writer, 2, size=5_000)
    assert writer.next_offset == 2


def test_a_frozen_writer_commits_nothing_whatever_is_acknowledged() -> None:
    writer = writer_of()
    append(writer, 5)
    ack(writer, A, 3)
    ack(writer, B, 3)
    assert writer.freeze() == SealPoint(Offset(3), (A, B))
    assert ack(writer, A, 5).committed is None
    assert ack(writer, B, 5).committed is None
    assert writer.committed == 3


def test_only_synced_replicas_are_done_at_a_seal() -> None:
    writer = writer_of()
    append(writer, 5)
    writer.on_ack(A, Offset(5), Offset(5), 0)
    writer.on_ack(B, Offset(5), Offset(4), 0)
    assert writer.freeze() == SealPoint(Offset(5), (A,))


def test_a_frozen_writer_takes_appends_and_sends_them_in_the_next_range() -> None:
    writer = writer_of()
    append(writer, 5)
    ack(writer, A, 5)
    ack(writer, B, 5)
    append(writer, 7)
    writer.freeze()
    assert sends(append(writer, 9)) == []
    assert sends(writer.on_time(60_000)) == []
    following, effects = writer.successor(
        opened(index=1, start=5, replicas=(A, B)), AckPolicy(2, 2), 60_000
    )
    assert sends(effects) == [(A, 5, 9), (B, 5, 9)]
    assert (following.next_offset, following.committed) == (9, 5)
    ack(following, A, 9)
    assert ack(following, B, 7).committed == 7


def test_a_range_that_begins_elsewhere_is_not_the_next() -> None:
    writer = writer_of()
    append(writer, 5)
    writer.freeze()
    with pytest.raises(AssertionError, match="starts where"):
        writer.successor(opened(index=1, start=5), AckPolicy(3, 2), 0)


def test_a_promise_to_somebody_newer_deposes_the_writer() -> None:
    writer = writer_of()
    append(writer, 5)
    assert writer.on_fenced(Epoch(4)).deposed_by is None
    assert writer.on_fenced(Epoch(6)).deposed_by == 6
    assert writer.on_fenced(Epoch(7)).deposed_by is None
    ack(writer, A, 5)
    assert ack(writer, B, 5).committed is None
    with pytest.raises(Fenced) as refused:
        append(writer, 6)
    assert refused.value.code is ErrorCode.FENCED_EPOCH


def test_a_replica_is_in_sync_while_it_moves_or_has_what_is_committed() -> None:
    writer = writer_of()
    append(writer, 5)
    ack(writer, A, 5)
    ack(writer, B, 5)
    assert [one.is_in_sync for one in writer.described(9_999)] == [True, True, True]
    assert [one.is_in_sync for one in writer.described(10_000)] == [True, True, False]
    ack(writer, C, 1, now=10_000)
    assert [one.is_in_sync for one in writer.described(10_001)] == [True, True, True]
    writer.on_unreachable(A)
    assert [one.is_in_sync for one in writer.described(10_001)] == [False, True, True]


def test_an_acknowledgement_of_what_was_never_sent_is_corrupt() -> None:
    writer = writer_of()
    append(writer, 5)
    with pytest.raises(Corrupt):
        ack(writer, A, 6)


def test_the_window_stays_small_over_a_long_range() -> None:
    writer = writer_of()
    for until in range(1, 10_001):
        append(writer, until)
        for node in (A, B, C):
            ack(writer, node, until)
    assert len(writer._untils) < 2_100
    [again] = writer.on_gap(C, Offset(50), 0).sends
    assert (again.replica, again.start) == (C, 50)
