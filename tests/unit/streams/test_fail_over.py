"""A new writer takes over a range: fence, find the end, copy, seal."""

from mainstem.model.ids import Epoch, NodeId, Offset, PartitionIndex, RangeIndex, StreamId, TopicId
from mainstem.streams.ack_policy import AckPolicy
from mainstem.streams.failover.state_machine import (
    FailOver,
    FailOverEffects,
    FailOverSettings,
    Phase,
    ReplicaCopy,
    TakeoverRange,
)
from mainstem.streams.replica.state_machine import FenceAnswer
from mainstem.streams.writer.replication import OpenRange, SealPoint

A, B, C = NodeId(1), NodeId(2), NodeId(3)
SETTINGS = FailOverSettings(linger_ms=50, resend_ms=300, lone_after_ms=2_000, restart_ms=5_000)


def fail_over(
    *, acks: int = 2, node: NodeId = A, settings: FailOverSettings = SETTINGS
) -> FailOver:
    stream = StreamId(TopicId(bytes(16)), PartitionIndex(0))
    opened = OpenRange(stream, RangeIndex(3), Epoch(4), Offset(10), (A, B, C))
    disks = {A: "disk-1", B: "disk-2", C: "disk-3"}
    return FailOver(TakeoverRange(opened, Epoch(6), node, disks), AckPolicy(3, acks), settings, 0)


def answered(
    over: FailOver,
    node: NodeId,
    end: int,
    *,
    now: int = 0,
    limbo: bool = False,
    directory: str | None = None,
) -> FailOverEffects:
    disk = directory or f"disk-{node}"
    return over.on_answer(node, FenceAnswer(Epoch(6), Offset(end), limbo, disk), now)


def copied(over: FailOver, node: NodeId, synced: int) -> FailOverEffects:
    return over.on_copied(node, Offset(synced))


def test_everybody_is_fenced_and_the_silent_are_asked_again() -> None:
    over = fail_over()
    assert over.begin().fences == [A, B, C]
    answered(over, A, 15)
    assert over.on_time(299).fences == []
    assert over.on_time(300).fences == [B, C]
    assert over.missing() == 1


def test_all_answers_give_the_tightest_end_at_once() -> None:
    over = fail_over()
    answered(over, A, 20)
    answered(over, B, 15)
    effects = answered(over, C, 12)
    assert over.end == 15
    assert effects.copies == [ReplicaCopy(C, A, Offset(12), Offset(15))]
    assert effects.seal == SealPoint(Offset(15), (A, B))


def test_enough_answers_wait_a_little_for_more() -> None:
    over = fail_over()
    answered(over, B, 15, now=100)
    answered(over, A, 12, now=110)
    assert over.on_time(159).copies == []
    effects = over.on_time(160)
    assert over.end == 15
    assert effects.copies == [ReplicaCopy(A, B, Offset(12), Offset(15))]
    assert effects.seal is None


def test_the_seal_is_asked_for_once_when_enough_copies_are_on_disk() -> None:
    over = fail_over()
    answered(over, B, 15)
    answered(over, A, 12)
    over.on_time(50)
    assert copied(over, A, 14).seal is None
    assert copied(over, A, 15).seal == SealPoint(Offset(15), (B, A))
    assert over.phase is Phase.SEALING
    assert copied(over, A, 15).seal is None
    assert over.on_time(60_000) == FailOverEffects()


def test_the_new_writer_waits_for_its_own_copy() -> None:
    over = fail_over(node=C)
    answered(over, A, 15)
    answered(over, B, 15)
    effects = answered(over, C, 12)
    assert effects.seal is None
    assert copied(over, C, 15).seal == SealPoint(Offset(15), (A, B, C))


def test_a_range_in_limbo_does_not_count() -> None:
    over = fail_over()
    answered(over, A, 12)
    answered(over, B, 12, limbo=True)
    assert over.on_time(10_000).seal is None
    assert over.phase is Phase.FENCING
    answered(over, C, 15, now=10_000)
    assert over.end == 15
    assert not over.suspect


def test_a_blank_disk_does_not_count_and_is_not_copied_to() -> None:
    over = fail_over()
    answered(over, A, 15)
    answered(over, B, 10, directory="another")
    assert over.missing() == 1
    effects = answered(over, C, 14)
    assert over.end == 15
    assert effects.copies == [ReplicaCopy(C, A, Offset(14), Offset(15))]


def test_when_all_answered_and_too_few_are_clean_the_range_is_suspect() -> None:
    over = fail_over()
    answered(over, A, 12, limbo=True)
    answered(over, B, 14, limbo=True)
    effects = answered(over, C, 13)
    assert (over.end, over.suspect, over.unclean) == (14, True, False)
    assert effects.seal is None
    copied(over, A, 14)
    assert over.phase is Phase.SEALING


def test_a_range_of_which_nothing_is_left_ends_where_it_began() -> None:
    over = fail_over()
    for node in (A, B):
        answered(over, node, 10, directory="another")
    effects = answered(over, C, 10, directory="another")
    assert effects.seal == SealPoint(Offset(10), (), suspect=True)


def test_too_few_answers_keep_the_stream_waiting() -> None:
    over = fail_over()
    answered(over, A, 15)
    effects = over.on_time(3_600_000)
    assert effects.seal is None
    assert over.missing() == 1


def test_an_unclean_election_is_made_when_the_topic_allows_it() -> None:
    over = fail_over(settings=FailOverSettings(unclean_after_ms=1_000))
    answered(over, A, 15)
    over.on_time(999)
    assert over.phase is Phase.FENCING
    effects = over.on_time(1_000)
    assert effects.seal == SealPoint(Offset(15), (A,), unclean=True)


def test_a_blank_disk_is_no_reason_for_an_unclean_election() -> None:
    over = fail_over(settings=FailOverSettings(unclean_after_ms=1_000))
    answered(over, A, 10, directory="another")
    assert over.on_time(60_000).seal is None
    assert over.phase is Phase.FENCING


def test_a_lone_survivor_of_three_goes_on_after_a_while() -> None:
    over = fail_over(acks=3)
    answered(over, A, 15)
    over.on_time(50)
    assert over.on_time(2_049).seal is None
    assert over.on_time(2_050).seal == SealPoint(Offset(15), (A,))


def test_a_lone_survivor_waits_for_ever_if_told_so() -> None:
    over = fail_over(acks=3, settings=FailOverSettings(lone_after_ms=None, restart_ms=5_000))
    answered(over, A, 15)
    over.on_time(50)
    assert over.on_time(4_000).seal is None


def test_a_late_answer_brings_another_place_for_a_copy() -> None:
    over = fail_over(acks=3)
    answered(over, A, 15)
    over.on_time(50)
    assert over.on_time(350).fences == [B, C]
    assert answered(over, B, 15, now=400).seal is None
    assert answered(over, C, 11, now=400).copies == [ReplicaCopy(C, A, Offset(11), Offset(15))]
    assert copied(over, C, 15).seal == SealPoint(Offset(15), (A, B, C))


def test_copies_that_do_not_come_are_asked_for_again() -> None:
    over = fail_over(node=B)
    answered(over, A, 15)
    answered(over, B, 12)
    over.on_time(50)
    assert over.on_time(349).copies == []
    assert over.on_time(350).copies == [ReplicaCopy(B, A, Offset(12), Offset(15))]


def test_a_source_that_is_lost_is_replaced() -> None:
    over = fail_over(node=B)
    answered(over, A, 15)
    answered(over, C, 15)
    [first] = answered(over, B, 12).copies
    [second] = over.on_source_lost(first.source).copies
    assert {first.source, second.source} == {A, C}


def test_without_copies_everything_begins_anew() -> None:
    over = fail_over(node=B)
    answered(over, A, 15)
    answered(over, B, 12)
    over.on_time(50)
    assert over.on_time(5_050).fences == [A, B, C]
    assert over.phase is Phase.FENCING
    answered(over, B, 12, now=5_100)
    answered(over, C, 13, now=5_100)
    over.on_time(5_200)
    assert over.end == 13


def test_a_promise_to_somebody_newer_ends_the_fail_over() -> None:
    over = fail_over()
    assert over.on_fenced(Epoch(6)).deposed_by is None
    assert over.on_fenced(Epoch(7)).deposed_by == 7
    assert over.on_fenced(Epoch(8)).deposed_by is None
    assert answered(over, A, 15).seal is None
    assert over.on_time(60_000) == FailOverEffects()


def test_answers_to_an_older_fence_are_not_counted() -> None:
    over = fail_over()
    stale = FenceAnswer(Epoch(5), Offset(15), limbo=False, directory="disk-1")
    over.on_answer(A, stale, 0)
    assert over.missing() == 2
