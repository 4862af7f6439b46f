"""Committed positions: who may commit, how long they are kept, what can be deleted."""

from typing import Any

import pytest
from tests.kit.simulation.coordination.group_simulator import GroupSimulator

from mainstem.coordination.groups.deadline_heap import DeadlineHeap
from mainstem.coordination.groups.requests import (
    NO_OFFSET,
    CommitRequest,
    JoinRequest,
    LeavingMember,
    OffsetToCommit,
    SyncRequest,
)
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.model.errors import ErrorCode, MainstemError

WEEK_MS = 7 * 24 * 3_600_000
READS_T = b"\0\0\0\0\0\1\0\1t"


@pytest.fixture
def sim() -> GroupSimulator:
    return GroupSimulator(
        GroupSettings(initial_rebalance_delay_ms=0, session_timeout_max_ms=2 * WEEK_MS)
    )


def commit(sim: GroupSimulator, *offsets: OffsetToCommit, **changes: Any) -> list[ErrorCode | None]:
    return sim.commit(CommitRequest(**({"group_id": "g", "offsets": offsets} | changes)))


def join(sim: GroupSimulator, *, metadata: bytes = READS_T, kind: str = "consumer") -> str:
    """One member that stays; its id."""
    sim.join(
        JoinRequest(
            group_id="g",
            session_timeout_ms=2 * WEEK_MS,
            rebalance_timeout_ms=60_000,
            protocol_type=kind,
            protocols=(("range", metadata),),
        )
    )
    sim.advance(0)
    group = sim.shard.groups.get("g")
    assert group is not None
    [member_id] = group.members
    return member_id


def settle(sim: GroupSimulator, member_id: str) -> None:
    sim.sync(SyncRequest(group_id="g", generation=1, member_id=member_id))


def expire(sim: GroupSimulator) -> None:
    sim.store(sim.shard.expire(sim.now().wall_ms))


def position(sim: GroupSimulator, topic: str = "t", partition: int = 0) -> int:
    [kept] = sim.shard.offsets.fetch("g", [(topic, partition)])
    return kept.committed.offset


def test_what_was_never_committed_is_told_as_no_offset(sim: GroupSimulator) -> None:
    commit(sim, OffsetToCommit("t", 1, 5))
    assert position(sim) == NO_OFFSET
    assert position(sim, partition=1) == 5


def test_epoch_and_metadata_are_kept_with_the_offset(sim: GroupSimulator) -> None:
    commit(sim, OffsetToCommit("t", 0, 5, 3, "note"))
    sim.restart()
    [kept] = sim.shard.offsets.fetch("g", None)
    assert (kept.committed.leader_epoch, kept.committed.metadata) == (3, "note")


def test_metadata_that_is_too_large_refuses_its_partition_alone(sim: GroupSimulator) -> None:
    outcomes = commit(
        sim, OffsetToCommit("t", 0, 1, metadata="x" * 4_097), OffsetToCommit("t", 1, 2)
    )
    assert outcomes == [ErrorCode.OFFSET_METADATA_TOO_LARGE, None]
    assert (position(sim), position(sim, partition=1)) == (NO_OFFSET, 2)


def test_members_may_not_commit_between_join_and_assignment(sim: GroupSimulator) -> None:
    member_id = join(sim)
    asked = {"generation": 1, "member_id": member_id}
    with pytest.raises(MainstemError) as refused:
        commit(sim, OffsetToCommit("t", 0, 1), **asked)
    assert refused.value.code is ErrorCode.REBALANCE_IN_PROGRESS
    settle(sim, member_id)
    assert commit(sim, OffsetToCommit("t", 0, 1), **asked) == [None]


@pytest.mark.parametrize(
    ("reports", "code"), [(True, ErrorCode.UNKNOWN_GROUP), (False, ErrorCode.ILLEGAL_GENERATION)]
)
def test_a_member_of_no_group_is_told_in_words_it_knows(
    sim: GroupSimulator, reports: bool, code: ErrorCode
) -> None:
    with pytest.raises(MainstemError) as refused:
        commit(sim, OffsetToCommit("t", 0, 1), generation=3, reports_unknown_group=reports)
    assert refused.value.code is code


def test_a_tool_may_move_positions_once_the_group_is_empty(sim: GroupSimulator) -> None:
    member_id = join(sim)
    settle(sim, member_id)
    with pytest.raises(MainstemError) as refused:
        commit(sim, OffsetToCommit("t", 0, 1))
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER
    sim.leave("g", [LeavingMember(member_id)])
    assert commit(sim, OffsetToCommit("t", 0, 1)) == [None]


def test_a_simple_consumer_loses_a_position_a_week_after_its_commit(sim: GroupSimulator) -> None:
    commit(sim, OffsetToCommit("t", 0, 1))
    sim.advance(WEEK_MS // 2)
    commit(sim, OffsetToCommit("u", 0, 1))
    sim.advance(WEEK_MS // 2)
    expire(sim)
    assert (position(sim), position(sim, "u")) == (NO_OFFSET, 1)
    sim.advance(WEEK_MS // 2)
    expire(sim)
    assert sim.shard.groups.get("g") is None


def test_an_old_client_may_set_its_own_date(sim: GroupSimulator) -> None:
    commit(sim, OffsetToCommit("t", 0, 1), retention_ms=1_000)
    sim.advance(999)
    expire(sim)
    assert position(sim) == 1
    sim.advance(1)
    expire(sim)
    assert position(sim) == NO_OFFSET


def test_positions_of_topics_that_are_read_do_not_expire(sim: GroupSimulator) -> None:
    member_id = join(sim)
    settle(sim, member_id)
    asked = {"generation": 1, "member_id": member_id}
    commit(sim, OffsetToCommit("t", 0, 1), OffsetToCommit("old", 0, 1), **asked)
    sim.advance(WEEK_MS)
    expire(sim)
    assert (position(sim), position(sim, "old")) == (1, NO_OFFSET)


@pytest.mark.parametrize(("kind", "metadata"), [("connect", b""), ("consumer", b"?")])
def test_groups_whose_topics_are_not_known_keep_everything(
    sim: GroupSimulator, kind: str, metadata: bytes
) -> None:
    member_id = join(sim, kind=kind, metadata=metadata)
    settle(sim, member_id)
    commit(sim, OffsetToCommit("t", 0, 1), generation=1, member_id=member_id)
    sim.advance(WEEK_MS)
    expire(sim)
    assert position(sim) == 1


def test_the_week_begins_when_the_group_becomes_empty(sim: GroupSimulator) -> None:
    member_id = join(sim)
    settle(sim, member_id)
    commit(sim, OffsetToCommit("t", 0, 1), generation=1, member_id=member_id)
    sim.advance(WEEK_MS - 1)
    sim.leave("g", [LeavingMember(member_id)])
    sim.restart()
    sim.advance(WEEK_MS - 1)
    expire(sim)
    assert position(sim) == 1
    sim.advance(1)
    expire(sim)
    assert position(sim) == NO_OFFSET
    assert sim.rebuilt().groups.get("g") is None


def test_positions_are_deleted_unless_their_topic_is_read(sim: GroupSimulator) -> None:
    member_id = join(sim)
    settle(sim, member_id)
    asked = {"generation": 1, "member_id": member_id}
    commit(sim, OffsetToCommit("t", 0, 1), OffsetToCommit("old", 0, 1), **asked)
    outcomes, facts = sim.shard.delete_offsets("g", [("t", 0), ("old", 0), ("never", 0)])
    sim.store(facts)
    assert outcomes == [ErrorCode.GROUP_SUBSCRIBED, None, None]
    assert (position(sim), position(sim, "old")) == (1, NO_OFFSET)


def test_positions_of_other_kinds_of_groups_are_deleted_only_when_empty(
    sim: GroupSimulator,
) -> None:
    member_id = join(sim, kind="connect", metadata=b"")
    settle(sim, member_id)
    with pytest.raises(MainstemError) as refused:
        sim.shard.delete_offsets("g", [("t", 0)])
    assert refused.value.code is ErrorCode.GROUP_NOT_EMPTY
    with pytest.raises(MainstemError) as refused:
        sim.shard.delete_offsets("nobody", [("t", 0)])
    assert refused.value.code is ErrorCode.UNKNOWN_GROUP


def test_a_group_that_was_never_stored_is_forgotten_without_a_trace(sim: GroupSimulator) -> None:
    request = JoinRequest(
        group_id="g",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        id_required=True,
    )
    sim.join(request)
    expire(sim)
    assert sim.shard.groups.get("g") is not None, "somebody was given an id"
    sim.advance(6_000)
    expire(sim)
    assert sim.shard.groups.get("g") is None
    assert not sim.stored


def test_alarms_ring_in_order_and_once() -> None:
    alarms = DeadlineHeap()
    alarms.set("a", 30)
    alarms.set("b", 20)
    alarms.set("a", 10)
    alarms.set("a", 40)
    assert alarms.next_ms() == 10
    assert alarms.due(9) == []
    assert alarms.due(25) == ["a", "b"]
    assert alarms.next_ms() is None


def test_alarms_that_are_moved_for_ever_do_not_grow_for_ever() -> None:
    alarms = DeadlineHeap()
    for at_ms in range(100_000, 0, -1):
        alarms.set("a", at_ms)
    assert len(alarms._heap) < 5_000
    assert alarms.due(1) == ["a"]
