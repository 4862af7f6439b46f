"""What a replica accepts, promises and tells."""

import pytest

from mainstem.model.ids import Epoch, Offset
from mainstem.streams.replica.state_machine import (
    FenceAnswer,
    RangeReplica,
    Refusal,
    ReplicaAck,
    ReplicaEffects,
    ReplicaState,
    is_in_limbo,
)


def replica_of(
    end: int = 0, *, promised: int = 1, acks_unsynced: bool = False, limbo: bool = False
) -> RangeReplica:
    found = ReplicaState(Offset(0), Offset(end), Epoch(promised), "disk", limbo=limbo)
    return RangeReplica(found, acks_unsynced=acks_unsynced)


def append(
    replica: RangeReplica, start: int, until: int, *, epoch: int = 1, to_disk: bool = False
) -> ReplicaEffects:
    return replica.on_append(Epoch(epoch), Offset(start), Offset(until), Offset(0), to_disk=to_disk)


def test_an_append_is_acknowledged_when_it_is_synced() -> None:
    replica = replica_of()
    assert append(replica, 0, 5) == ReplicaEffects(write=(Offset(0), Offset(5)), sync=True)
    assert replica.on_written(Offset(5)) == ReplicaEffects()
    assert replica.on_synced(Offset(5)).ack == ReplicaAck(Epoch(1), Offset(5), Offset(5))


def test_an_append_is_acknowledged_when_it_is_written_if_the_topic_says_so() -> None:
    replica = replica_of(acks_unsynced=True)
    assert append(replica, 0, 5) == ReplicaEffects(write=(Offset(0), Offset(5)))
    assert replica.on_written(Offset(5)).ack == ReplicaAck(Epoch(1), Offset(5), Offset(0))
    assert replica.on_synced(Offset(5)).ack == ReplicaAck(Epoch(1), Offset(5), Offset(5))


def test_a_gap_is_refused_with_the_end() -> None:
    replica = replica_of(3)
    assert append(replica, 4, 6).refusal == Refusal(gap_at=Offset(3))


def test_appends_follow_each_other_before_the_disk_is_done() -> None:
    replica = replica_of()
    append(replica, 0, 2)
    assert append(replica, 2, 4).write == (2, 4)
    assert replica.on_synced(Offset(2)).ack == ReplicaAck(Epoch(1), Offset(2), Offset(2))


def test_what_is_held_is_acknowledged_and_not_written_again() -> None:
    replica = replica_of(5)
    effects = append(replica, 2, 5)
    assert effects.write is None
    assert effects.ack == ReplicaAck(Epoch(1), Offset(5), Offset(5))


def test_only_the_new_part_of_an_overlap_is_written() -> None:
    assert append(replica_of(3), 1, 6).write == (3, 6)


def test_a_newer_writer_is_acknowledged_only_after_its_promise_is_stored() -> None:
    replica = replica_of(5)
    effects = append(replica, 2, 5, epoch=3)
    assert (effects.promise, effects.ack) == (3, None)
    assert replica.on_promise_stored(Epoch(3)).ack == ReplicaAck(Epoch(3), Offset(5), Offset(5))


def test_an_older_writer_is_refused_from_the_moment_of_the_fence() -> None:
    replica = replica_of()
    replica.on_fence(Epoch(2))
    assert append(replica, 0, 1).refusal == Refusal(fenced_by=Epoch(2))
    assert replica.on_fence(Epoch(1)).refusal == Refusal(fenced_by=Epoch(2))


def test_a_fence_answers_when_promise_and_records_are_on_disk() -> None:
    replica = replica_of()
    append(replica, 0, 4)
    effects = replica.on_fence(Epoch(2))
    assert (effects.promise, effects.sync, effects.answer) == (2, True, None)
    assert replica.on_promise_stored(Epoch(2)).answer is None
    notification = replica.on_synced(Offset(4))
    assert notification.answer == FenceAnswer(Epoch(2), Offset(4), limbo=False, directory="disk")
    assert notification.ack is None, "the old writer is not told of what was synced since"


def test_a_fence_may_be_asked_twice_and_answers_twice() -> None:
    replica = replica_of(4)
    replica.on_fence(Epoch(2))
    assert replica.on_promise_stored(Epoch(2)).answer is not None
    assert replica.on_fence(Epoch(2)).answer == FenceAnswer(
        Epoch(2), Offset(4), limbo=False, directory="disk"
    )


def test_a_newer_fence_takes_the_place_of_one_that_waits() -> None:
    replica = replica_of(4)
    replica.on_fence(Epoch(2))
    replica.on_fence(Epoch(3))
    assert replica.on_promise_stored(Epoch(2)).answer is None
    answer = replica.on_promise_stored(Epoch(3)).answer
    assert answer is not None
    assert answer.epoch == 3


def test_a_replica_in_limbo_says_so() -> None:
    replica = replica_of(4, limbo=True)
    replica.on_fence(Epoch(2))
    answer = replica.on_promise_stored(Epoch(2)).answer
    assert answer is not None
    assert answer.limbo


def test_copies_of_a_recovery_are_synced_whatever_the_policy() -> None:
    replica = replica_of(acks_unsynced=True)
    assert append(replica, 0, 5, epoch=2, to_disk=True).sync
    replica.on_promise_stored(Epoch(2))
    replica.on_written(Offset(5))
    assert append(replica, 0, 5, epoch=2, to_disk=True).sync
    assert replica.on_synced(Offset(5)).ack == ReplicaAck(Epoch(2), Offset(5), Offset(5))


def test_a_write_that_failed_is_asked_for_again() -> None:
    replica = replica_of()
    append(replica, 0, 2)
    replica.on_written(Offset(2))
    append(replica, 2, 4)
    replica.on_write_failed(Offset(2))
    assert append(replica, 4, 6).refusal == Refusal(gap_at=Offset(2))


def test_what_is_in_the_files_but_not_yet_reported_is_kept_when_a_write_fails() -> None:
    replica = replica_of(acks_unsynced=True)
    append(replica, 0, 2)
    append(replica, 2, 4)
    replica.on_write_failed(Offset(2))
    assert append(replica, 4, 6).refusal == Refusal(gap_at=Offset(2))


def test_what_is_in_the_files_is_not_asked_for_again_after_a_write_that_failed() -> None:
    replica = replica_of(acks_unsynced=True)
    append(replica, 0, 2)  # written into a folder that is not on disk yet: not reported
    append(replica, 2, 4)
    replica.on_write_failed(Offset(2))
    assert append(replica, 4, 6).refusal == Refusal(gap_at=Offset(2))
    assert append(replica, 2, 4).write == (2, 4)


def test_a_fence_does_not_wait_for_a_write_that_failed() -> None:
    replica = replica_of(2)
    append(replica, 2, 4)
    replica.on_fence(Epoch(2))
    replica.on_promise_stored(Epoch(2))
    answer = replica.on_write_failed(Offset(2)).answer
    assert answer is not None
    assert answer.end == 2


def test_readers_see_what_the_writer_told_to_be_committed_and_is_written() -> None:
    replica = replica_of(4)
    replica.on_append(Epoch(1), Offset(4), Offset(6), Offset(9))
    assert replica.known_committed == 4
    replica.on_append(Epoch(1), Offset(4), Offset(6), Offset(2))
    assert replica.known_committed == 4


def test_a_sealed_range_refuses_everybody() -> None:
    replica = replica_of(5)
    assert replica.on_sealed(Offset(5)).done
    assert append(replica, 5, 6).refusal == Refusal(sealed_at=Offset(5))
    assert replica.on_fence(Epoch(9)).refusal == Refusal(sealed_at=Offset(5))


def test_what_lies_beyond_the_seal_is_cut() -> None:
    replica = replica_of(8)
    effects = replica.on_sealed(Offset(5))
    assert (effects.cut, effects.done) == (5, True)
    assert replica.written_end == replica.known_committed == 5


def test_a_sealed_range_is_done_when_it_is_synced() -> None:
    replica = replica_of(acks_unsynced=True, limbo=True)
    append(replica, 0, 5)
    replica.on_written(Offset(5))
    effects = replica.on_sealed(Offset(5))
    assert (effects.sync, effects.done) == (True, False)
    assert replica.on_synced(Offset(5)).done
    assert not replica.limbo


def test_an_incomplete_replica_catches_up_with_its_peers() -> None:
    replica = replica_of(2)
    assert replica.on_sealed(Offset(5)).catch_up == (2, 5)
    assert replica.on_copied(Offset(4)).catch_up == (4, 5)
    effects = replica.on_copied(Offset(5))
    assert (effects.sync, effects.done) == (True, False)
    assert replica.on_synced(Offset(5)).done


def test_a_range_is_not_sealed_in_two_ways() -> None:
    replica = replica_of(5)
    replica.on_sealed(Offset(4))
    with pytest.raises(AssertionError, match="sealed once"):
        replica.on_sealed(Offset(5))


@pytest.mark.parametrize(
    ("acks_unsynced", "unclean", "sync_failed", "done", "limbo"),
    [
        (True, True, False, False, True),
        (True, True, False, True, False),
        (True, False, False, False, False),
        (False, True, False, False, False),
        (False, False, True, False, True),
        (True, True, True, True, False),
    ],
)
def test_limbo_is_doubt_about_what_was_acknowledged(
    acks_unsynced: bool, unclean: bool, sync_failed: bool, done: bool, limbo: bool
) -> None:
    found = is_in_limbo(
        acks_unsynced=acks_unsynced, unclean=unclean, sync_failed=sync_failed, done=done
    )
    assert found is limbo


def test_what_was_told_to_be_committed_is_known_once_it_is_here() -> None:
    replica = RangeReplica(ReplicaState(Offset(0), Offset(0), Epoch(1), "disk"), acks_unsynced=True)
    replica.on_append(Epoch(1), Offset(0), Offset(10), Offset(7))
    assert replica.known_committed == 0
    replica.on_written(Offset(5))
    assert replica.known_committed == 5
    replica.on_written(Offset(10))
    assert replica.known_committed == 7
