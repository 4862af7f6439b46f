"""The coordinator on an event loop: parked requests, time, storage, loading."""

import asyncio
import contextlib
from typing import Any

import pytest
from tests.kit.groups import GroupNode, loaded
from tests.kit.loop import virtual_time

from mainstem.coordination.groups.requests import (
    NO_OFFSET,
    CommitRequest,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    OffsetToCommit,
    SyncRequest,
)
from mainstem.coordination.groups.service import GroupCoordinator
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.shards.partitioning import OFFSETS_TOPIC
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, Unavailable

pytestmark = virtual_time

PARTITIONS = 4
SETTINGS = GroupSettings(
    initial_rebalance_delay_ms=20, session_timeout_min_ms=10, offsets_partitions=PARTITIONS
)
FULL = Unavailable(ErrorCode.DISK_FULL, "no space left")


def new_node() -> GroupNode:
    return GroupNode({"t": 3}, SETTINGS, partitions=PARTITIONS)


@pytest.fixture
def node() -> GroupNode:
    return new_node()


def join_request(member_id: str = "", **changes: Any) -> JoinRequest:
    given: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": (("range", b"\0\0\0\0\0\1\0\1t"),),
        "member_id": member_id,
        "client_id": "c",
    }
    return JoinRequest(**(given | changes))


def commit_request(offset: int, partition: int = 0, **changes: Any) -> CommitRequest:
    given: dict[str, Any] = {
        "group_id": "g",
        "offsets": (OffsetToCommit("t", partition, offset),),
    }
    return CommitRequest(**(given | changes))


async def become_stable(coordinator: GroupCoordinator, **changes: Any) -> JoinAnswer:
    joined = await coordinator.join(join_request(**changes))
    await coordinator.sync(
        SyncRequest(
            group_id="g",
            generation=joined.generation,
            member_id=joined.member_id,
            assignments=((joined.member_id, b"all"),),
        )
    )
    return joined


async def position(coordinator: GroupCoordinator, partition: int = 0) -> int:
    [kept] = await coordinator.fetch_offsets("g", [("t", partition)])
    return kept.committed.offset


async def test_a_topic_that_others_made_and_that_is_not_known_here_yet_is_waited_for(
    node: GroupNode,
) -> None:
    node.learns_of_creation = False
    coordinator = node.start()
    with pytest.raises(Unavailable) as refused:
        await coordinator.commit_offsets(commit_request(1))
    assert refused.value.code is ErrorCode.COORDINATOR_UNAVAILABLE
    node.topics.counts[OFFSETS_TOPIC] = PARTITIONS
    for partition in range(PARTITIONS):
        coordinator.shards.opened(partition)
    await loaded(coordinator)
    assert await coordinator.commit_offsets(commit_request(1)) == [None]


async def test_two_members_share_a_generation_and_get_their_assignments(node: GroupNode) -> None:
    coordinator = node.start()
    first, second = await asyncio.gather(
        coordinator.join(join_request()), coordinator.join(join_request())
    )
    assert first.generation == second.generation == 1
    leader, follower = (first, second) if first.members else (second, first)
    assert {m.member_id for m in leader.members} == {first.member_id, second.member_id}
    waiting = asyncio.ensure_future(
        coordinator.sync(SyncRequest(group_id="g", generation=1, member_id=follower.member_id))
    )
    await asyncio.sleep(0)
    assert not waiting.done()
    mine = await coordinator.sync(
        SyncRequest(
            group_id="g",
            generation=1,
            member_id=leader.member_id,
            assignments=((leader.member_id, b"l"), (follower.member_id, b"f")),
        )
    )
    assert mine.assignment == b"l"
    assert (await waiting).assignment == b"f"
    assert coordinator.describe("g").state == "Stable"
    coordinator.stop()


async def test_a_client_that_can_is_told_its_id_first(node: GroupNode) -> None:
    coordinator = node.start()
    with pytest.raises(MainstemError) as refusal:
        await coordinator.join(join_request(id_required=True))
    assert refusal.value.code is ErrorCode.MEMBER_ID_REQUIRED
    joined = await coordinator.join(join_request(refusal.value.subject, id_required=True))
    assert joined.member_id == refusal.value.subject
    coordinator.stop()


async def test_a_cancelled_join_leaves_no_waiter_and_its_member_dies_of_silence(
    node: GroupNode,
) -> None:
    coordinator = node.start()
    waiting = asyncio.ensure_future(coordinator.join(join_request(session_timeout_ms=50)))
    await asyncio.sleep(0.005)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    assert coordinator.describe("g").members
    await asyncio.sleep(0.2)
    assert coordinator.describe("g").state == "Empty"
    coordinator.stop()


async def test_the_session_of_a_silent_member_ends(node: GroupNode) -> None:
    coordinator = node.start()
    joined = await become_stable(coordinator, session_timeout_ms=80)
    beat = HeartbeatRequest(group_id="g", generation=1, member_id=joined.member_id)
    for _ in range(4):
        await asyncio.sleep(0.04)
        coordinator.heartbeat(beat)
    await asyncio.sleep(0.2)
    with pytest.raises(MainstemError) as refusal:
        coordinator.heartbeat(beat)
    assert refusal.value.code is ErrorCode.UNKNOWN_MEMBER
    assert coordinator.describe("g").state == "Empty"
    coordinator.stop()


async def test_a_commit_is_answered_when_it_is_safe_and_not_before(node: GroupNode) -> None:
    coordinator = node.start()
    await coordinator.commit_offsets(commit_request(1))
    stream = node.stream_of(coordinator)
    stream.is_synced = False
    commit = asyncio.ensure_future(coordinator.commit_offsets(commit_request(2)))
    fetch = asyncio.ensure_future(position(coordinator))
    await asyncio.sleep(0.01)
    assert not commit.done()
    assert not fetch.done(), "a position that might be lost was told"
    stream.commit()
    assert await commit == [None]
    assert await fetch == 2
    coordinator.stop()


async def test_an_assignment_is_told_when_it_is_safe_and_not_before(node: GroupNode) -> None:
    coordinator = node.start()
    joined = await coordinator.join(join_request())
    stream = node.stream_of(coordinator)
    stream.is_synced = False
    request = SyncRequest(
        group_id="g",
        generation=1,
        member_id=joined.member_id,
        assignments=((joined.member_id, b"all"),),
    )
    first = asyncio.ensure_future(coordinator.sync(request))
    again = asyncio.ensure_future(coordinator.sync(request))
    await asyncio.sleep(0.01)
    assert not first.done()
    assert not again.done()
    stream.commit()
    assert (await first).assignment == (await again).assignment == b"all"
    coordinator.stop()


async def test_a_full_disk_refuses_a_commit_and_changes_nothing(node: GroupNode) -> None:
    coordinator = node.start()
    await coordinator.commit_offsets(commit_request(1))
    node.stream_of(coordinator).refusal = FULL
    with pytest.raises(MainstemError) as refusal:
        await coordinator.commit_offsets(commit_request(2))
    assert refusal.value.code is ErrorCode.COORDINATOR_UNAVAILABLE
    assert await position(coordinator) == 1
    node.stream_of(coordinator).refusal = None
    await coordinator.commit_offsets(commit_request(3))
    assert await position(coordinator) == 3
    coordinator.stop()


async def test_a_commit_that_storage_loses_is_not_acknowledged(node: GroupNode) -> None:
    coordinator = node.start()
    await coordinator.commit_offsets(commit_request(1))
    stream = node.stream_of(coordinator)
    stream.is_synced = False
    commit = asyncio.ensure_future(coordinator.commit_offsets(commit_request(2)))
    await asyncio.sleep(0.01)
    stream.commit(Unavailable(ErrorCode.STORAGE_FAILED, "fsync"))
    with pytest.raises(MainstemError):
        await commit
    coordinator.stop()


async def test_a_commit_is_refused_when_too_many_wait_for_the_disk(node: GroupNode) -> None:
    coordinator = node.start()
    await coordinator.commit_offsets(commit_request(1))
    stream = node.stream_of(coordinator)
    stream.is_synced, stream.waiting_max = False, 1
    first = asyncio.ensure_future(coordinator.commit_offsets(commit_request(2)))
    await asyncio.sleep(0)
    with pytest.raises(MainstemError) as refusal:
        await coordinator.commit_offsets(commit_request(3))
    assert refusal.value.code is ErrorCode.COORDINATOR_UNAVAILABLE
    stream.commit()
    assert await first == [None]
    coordinator.stop()


async def test_groups_and_positions_are_there_after_a_restart(node: GroupNode) -> None:
    coordinator = node.start()
    joined = await become_stable(coordinator)
    for offset in range(100):
        await coordinator.commit_offsets(
            commit_request(offset, offset % 3, generation=1, member_id=joined.member_id)
        )
    again = await node.restart(coordinator)
    assert [await position(again, p) for p in range(3)] == [99, 97, 98]
    again.heartbeat(HeartbeatRequest(group_id="g", generation=1, member_id=joined.member_id))
    [member] = again.describe("g").members
    assert member.assignment == b"all"
    again.stop()


async def test_requests_are_refused_while_their_shard_loads(node: GroupNode) -> None:
    coordinator = node.start()
    await coordinator.commit_offsets(commit_request(1))
    coordinator.stop()
    again = node.start()
    for ask in (lambda: again.describe("g"), again.list):
        with pytest.raises(MainstemError) as refusal:
            ask()
        assert refusal.value.code is ErrorCode.COORDINATOR_LOADING
    with pytest.raises(MainstemError) as refusal:
        await again.join(join_request())
    assert refusal.value.code is ErrorCode.COORDINATOR_LOADING
    await loaded(again)
    assert await position(again) == 1
    again.stop()


async def test_a_damaged_shard_is_unavailable_and_never_half_loaded(
    node: GroupNode, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = node.start()
    await coordinator.commit_offsets(commit_request(1))
    await coordinator.commit_offsets(commit_request(2))
    stream = node.stream_of(coordinator)
    coordinator.stop()
    damaged = bytearray(stream.batches[1])
    damaged[-1] ^= 1
    stream.batches[1] = bytes(damaged)
    again = await node.restart(coordinator)
    with pytest.raises(MainstemError) as refusal:
        await position(again)
    assert refusal.value.code is ErrorCode.COORDINATOR_UNAVAILABLE
    again.stop()
    assert "cannot be loaded" in caplog.text


async def test_a_shard_whose_damaged_bytes_were_copied_anew_is_served_again(
    node: GroupNode,
) -> None:
    coordinator = node.start()
    await coordinator.commit_offsets(commit_request(1))
    stream = node.stream_of(coordinator)
    coordinator.stop()
    stream.missing = Corrupt("the checksum does not match")
    again = await node.restart(coordinator)
    with pytest.raises(MainstemError) as refusal:
        await position(again)
    assert refusal.value.code is ErrorCode.COORDINATOR_UNAVAILABLE
    stream.missing = None
    await asyncio.sleep(60)
    assert await position(again) == 1
    again.stop()


async def test_the_internal_topic_is_made_once_by_the_first_who_stores(node: GroupNode) -> None:
    coordinator = node.start()
    assert list(coordinator.list()) == []
    assert await position(coordinator) == NO_OFFSET
    with pytest.raises(MainstemError) as refusal:
        coordinator.describe("g")
    assert refusal.value.code is ErrorCode.UNKNOWN_GROUP
    assert node.created == 0
    await asyncio.gather(*(coordinator.commit_offsets(commit_request(n)) for n in range(5)))
    assert node.created == 1
    coordinator.stop()


async def test_a_topic_that_cannot_be_made_is_tried_again_later(node: GroupNode) -> None:
    async def fail() -> None:
        raise FULL

    coordinator = node.start()
    node.before_creation = fail
    with pytest.raises(MainstemError) as refusal:
        await coordinator.commit_offsets(commit_request(1))
    assert refusal.value.code is ErrorCode.COORDINATOR_UNAVAILABLE
    node.before_creation = None
    await coordinator.commit_offsets(commit_request(1))
    assert await position(coordinator) == 1
    coordinator.stop()


async def test_positions_in_a_deleted_topic_are_forgotten_for_good(node: GroupNode) -> None:
    coordinator = node.start()
    await coordinator.commit_offsets(commit_request(5))
    del node.topics.counts["t"]
    coordinator.topic_deleted("t")
    assert await position(coordinator) == NO_OFFSET
    node.topics.counts["t"] = 3
    again = await node.restart(coordinator)
    assert await position(again) == NO_OFFSET
    again.stop()


async def test_positions_in_a_topic_that_vanished_while_the_node_was_down_are_forgotten(
    node: GroupNode,
) -> None:
    coordinator = node.start()
    await coordinator.commit_offsets(commit_request(5))
    del node.topics.counts["t"]
    again = await node.restart(coordinator)
    node.topics.counts["t"] = 3
    assert await position(again) == NO_OFFSET
    again.stop()


async def test_expired_positions_are_swept(node: GroupNode) -> None:
    coordinator = node.start(
        GroupSettings(
            offsets_partitions=PARTITIONS,
            offsets_retention_ms=40,
            offsets_retention_check_ms=20,
        )
    )
    await coordinator.commit_offsets(commit_request(5))
    assert await position(coordinator) == 5
    await asyncio.sleep(0.15)
    assert await position(coordinator) == NO_OFFSET
    assert list(coordinator.list()) == []
    coordinator.stop()


async def test_a_large_commit_is_stored_in_pieces_and_loaded_whole(node: GroupNode) -> None:
    coordinator = node.start()
    note = "n" * 4_000
    offsets = tuple(OffsetToCommit("t", p, p, metadata=note) for p in range(400))
    node.topics.counts["t"] = 400
    assert (
        await coordinator.commit_offsets(CommitRequest(group_id="g", offsets=offsets))
        == [None] * 400
    )
    stream = node.stream_of(coordinator)
    assert len(stream.batches) > 1
    assert max(map(len, stream.batches)) < 1_000_000
    again = await node.restart(coordinator)
    assert len(await again.fetch_offsets("g", None)) == 400
    again.stop()


async def test_a_stopping_node_sends_everybody_away(node: GroupNode) -> None:
    coordinator = node.start()
    waiting = asyncio.ensure_future(coordinator.join(join_request()))
    await asyncio.sleep(0.005)
    coordinator.stop()
    with pytest.raises(MainstemError) as refusal:
        await waiting
    assert refusal.value.code is ErrorCode.COORDINATOR_UNAVAILABLE
    with pytest.raises(MainstemError):
        await coordinator.join(join_request())


async def test_a_member_that_leaves_makes_room_and_an_empty_group_can_be_deleted(
    node: GroupNode,
) -> None:
    coordinator = node.start()
    joined = await become_stable(coordinator)
    with pytest.raises(MainstemError) as refusal:
        await coordinator.delete("g")
    assert refusal.value.code is ErrorCode.GROUP_NOT_EMPTY
    assert await coordinator.leave(
        "g", [LeavingMember(joined.member_id), LeavingMember("nobody")]
    ) == [
        None,
        ErrorCode.UNKNOWN_MEMBER,
    ]
    await coordinator.delete("g")
    assert list(coordinator.list()) == []
    coordinator.stop()


async def test_lists_are_filtered_by_state_and_type_in_any_case(node: GroupNode) -> None:
    coordinator = node.start()
    await become_stable(coordinator)
    await coordinator.commit_offsets(commit_request(1, group_id="simple"))

    def named(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> set[str]:
        return {line.group_id for line in coordinator.list(states, types)}

    assert named() == {"g", "simple"}
    assert named(("stable",)) == {"g"}
    assert named(("Empty", "Dead")) == {"simple"}
    assert named((), ("CLASSIC",)) == {"g", "simple"}
    assert named((), ("consumer",)) == set()
    coordinator.stop()


@pytest.mark.parametrize("group_id", ["", "g" * 1_001])
async def test_a_group_needs_a_name_of_sensible_length(node: GroupNode, group_id: str) -> None:
    coordinator = node.start()
    with pytest.raises(MainstemError) as refusal:
        await coordinator.join(join_request(group_id=group_id))
    assert refusal.value.code is ErrorCode.INVALID_GROUP
    coordinator.stop()
