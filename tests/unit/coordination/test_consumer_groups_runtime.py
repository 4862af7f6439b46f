"""Consumer groups on virtual time: what is stored before it is told, who dies when, restarts."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from tests.kit.groups import GroupNode
from tests.kit.loop import virtual_time
from tests.kit.simulation.coordination.consumer_group_script import subscription_bytes

from mainstem.coordination.consumer.requests import (
    ConsumerAnswer,
    ConsumerHeartbeat,
    OffsetReader,
)
from mainstem.coordination.groups.requests import (
    CommitRequest,
    HeartbeatRequest,
    JoinRequest,
    LeavingMember,
    OffsetToCommit,
    SyncRequest,
)
from mainstem.coordination.groups.service import GroupCoordinator
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable

pytestmark = virtual_time

FULL = Unavailable(ErrorCode.DISK_FULL, "no space left")


@pytest.fixture
def node() -> GroupNode:
    return GroupNode({"t": 4})


async def beat(
    coordinator: GroupCoordinator, member_id: str, epoch: int = 0, **said: Any
) -> ConsumerAnswer:
    first: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topics": ("t",), "owned": {}}
    request: dict[str, Any] = {"group_id": "g", "member_id": member_id, "epoch": epoch}
    return await coordinator.consumers.heartbeat(
        ConsumerHeartbeat(**(request | (first if epoch == 0 else {}) | said))
    )


def join_request(member_id: str = "", **said: Any) -> JoinRequest:
    request: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": (("range", subscription_bytes(["t"], {})),),
        "member_id": member_id,
        "client_id": "c",
    }
    return JoinRequest(**(request | said))


async def refused(work: Awaitable[Any]) -> ErrorCode:
    with pytest.raises(MainstemError) as refusal:
        await work
    return refusal.value.code


def sizes(coordinator: GroupCoordinator) -> dict[str, int]:
    members = coordinator.consumers.describe("g").members
    return {m.member_id: sum(map(len, m.assigned.values())) for m in members}


async def test_nobody_is_told_of_an_epoch_before_it_is_safe(node: GroupNode) -> None:
    coordinator = node.start()
    await beat(coordinator, "a")
    node.stream.is_synced = False
    waiting = asyncio.ensure_future(beat(coordinator, "b"))
    await asyncio.sleep(1)
    assert not waiting.done()
    node.stream.commit()
    assert (await waiting).epoch == 2
    coordinator.stop()


async def test_a_full_disk_refuses_and_changes_nothing(node: GroupNode) -> None:
    coordinator = node.start()
    await beat(coordinator, "a")
    node.stream.refusal = FULL
    assert await refused(beat(coordinator, "b")) is ErrorCode.COORDINATOR_UNAVAILABLE
    assert sizes(coordinator) == {"a": 4}
    await asyncio.sleep(50)
    assert sizes(coordinator) == {"a": 4}, "also an end that cannot be stored has not come"
    node.stream.refusal = None
    await asyncio.sleep(2)
    assert sizes(coordinator) == {}
    coordinator.stop()


async def test_silence_for_a_session_ends_a_membership_and_heartbeats_prolong_it(
    node: GroupNode,
) -> None:
    coordinator = node.start()
    await beat(coordinator, "a")
    await beat(coordinator, "b")
    half = {node.topics.id_of("t"): frozenset({0, 1})}
    epoch = 1
    for _ in range(10):
        assert sizes(coordinator).keys() == {"a", "b"} or epoch == 3
        await asyncio.sleep(5)
        epoch = (await beat(coordinator, "a", epoch, owned=half)).epoch
    assert (sizes(coordinator), epoch) == ({"a": 4}, 3)
    coordinator.stop()


async def test_a_restart_keeps_epochs_assignments_and_positions(node: GroupNode) -> None:
    coordinator = node.start()
    await beat(coordinator, "a")
    await beat(coordinator, "b", instance_id="ib", pattern="t")
    half = {node.topics.id_of("t"): frozenset({0, 1})}
    await beat(coordinator, "a", 1, owned=half)
    answer = await beat(coordinator, "b", 2)
    commit = CommitRequest(
        group_id="g",
        offsets=(OffsetToCommit("t", 2, 7),),
        generation=2,
        member_id="b",
        reports_unknown_group=True,
    )
    assert await coordinator.commit_offsets(commit) == [None]
    before = coordinator.consumers.describe("g")
    again = await node.restart(coordinator)
    assert again.consumers.describe("g") == before
    assert (await beat(again, "b", 2, owned=answer.assigned)).epoch == 2
    [kept] = await again.fetch_offsets("g", [("t", 2)], reader=OffsetReader("b", 2))
    assert kept.committed.offset == 7
    stale = again.fetch_offsets("g", [("t", 2)], reader=OffsetReader("b", 1))
    assert await refused(stale) is ErrorCode.STALE_MEMBER_EPOCH
    stored = len(node.stream.batches)
    await beat(again, "a", 2)
    assert len(node.stream.batches) == stored, "nothing new, nothing stored"
    await asyncio.sleep(46)
    assert sizes(again) == {}
    again.stop()


async def test_topics_that_come_grow_and_go_are_followed(node: GroupNode) -> None:
    coordinator = node.start()
    await beat(coordinator, "a", topics=("t", "u"))
    node.topics.counts["u"] = 2
    coordinator.topic_changed("u")
    assert (await beat(coordinator, "a", 1)).epoch == 2
    assert sizes(coordinator) == {"a": 6}
    del node.topics.counts["t"]
    coordinator.topic_deleted("t")
    assert (await beat(coordinator, "a", 2)).assigned == {node.topics.id_of("u"): frozenset({0, 1})}
    coordinator.stop()


async def test_topics_that_changed_while_the_node_was_down_are_noticed(node: GroupNode) -> None:
    coordinator = node.start()
    await beat(coordinator, "a")
    node.topics.counts["t"] = 5
    again = await node.restart(coordinator)
    assert (await beat(again, "a", 1)).epoch == 2
    assert sizes(again) == {"a": 5}
    again.stop()


async def test_classic_members_come_to_a_consumer_group_and_take_it_over(node: GroupNode) -> None:
    coordinator = node.start()
    await beat(coordinator, "a")
    joined = await coordinator.join(join_request())
    half = {node.topics.id_of("t"): frozenset({0, 1})}
    await beat(coordinator, "a", 1, owned=half)
    live = HeartbeatRequest(group_id="g", generation=2, member_id=joined.member_id)
    with pytest.raises(MainstemError) as refusal:
        coordinator.heartbeat(live)
    assert refusal.value.code is ErrorCode.REBALANCE_IN_PROGRESS
    joined = await coordinator.join(join_request(joined.member_id))
    sync = SyncRequest(group_id="g", generation=2, member_id=joined.member_id)
    assert (await coordinator.sync(sync)).assignment
    coordinator.heartbeat(live)
    await beat(coordinator, "a", -1)
    assert coordinator.describe("g").state == "PreparingRebalance"
    again = await node.restart(coordinator)
    assert [m.member_id for m in again.describe("g").members] == [joined.member_id]
    assert (await again.join(join_request(joined.member_id))).generation == 3
    assert await again.leave("g", [LeavingMember(joined.member_id)]) == [None]
    again.stop()


async def test_a_classic_group_is_taken_over_while_a_member_waits(node: GroupNode) -> None:
    coordinator = node.start()
    first = await coordinator.join(join_request())
    waiting = asyncio.ensure_future(coordinator.join(join_request()))
    await asyncio.sleep(0.01)
    await beat(coordinator, "a")
    assert await refused(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    assert await coordinator.leave("g", [LeavingMember(first.member_id)]) == [None]
    assert len(sizes(coordinator)) == 2
    assert [line.type for line in coordinator.list(types=["consumer"])] == ["consumer"]
    again = await node.restart(coordinator)
    assert len(sizes(again)) == 2
    again.stop()


async def test_an_empty_group_is_whatever_its_next_member_makes_it(node: GroupNode) -> None:
    coordinator = node.start()
    await beat(coordinator, "a")
    await beat(coordinator, "a", -1)
    joined = await coordinator.join(join_request())
    assert coordinator.describe("g").members
    await coordinator.leave("g", [LeavingMember(joined.member_id)])
    assert (await beat(coordinator, "b")).epoch == 1
    await beat(coordinator, "b", -1)
    await coordinator.delete("g")
    assert coordinator.list() == []
    again = await node.restart(coordinator)
    assert again.list() == []
    again.stop()


async def test_what_nobody_has_is_refused(node: GroupNode) -> None:
    coordinator = node.start()
    assert await refused(beat(coordinator, "a", 1)) is ErrorCode.UNKNOWN_GROUP
    assert await refused(beat(coordinator, "a", group_id="")) is ErrorCode.INVALID_GROUP
    with pytest.raises(MainstemError):
        coordinator.consumers.describe("g")
    coordinator.stop()
    assert await refused(beat(coordinator, "a")) is ErrorCode.COORDINATOR_UNAVAILABLE
