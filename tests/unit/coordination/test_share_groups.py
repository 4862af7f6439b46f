"""Share groups where they are coordinated: members, who reads what, states, restarts."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from tests.kit.groups import GroupNode
from tests.kit.loop import virtual_time

from mainstem.coordination.consumer.requests import ConsumerHeartbeat
from mainstem.coordination.groups.facts import Fact, decode, encode
from mainstem.coordination.groups.requests import CommitRequest, JoinRequest, OffsetToCommit
from mainstem.coordination.groups.service import GroupCoordinator
from mainstem.coordination.share.assignor import assign
from mainstem.coordination.share.facts import (
    ShareEpochMoved,
    ShareFactRemoved,
    ShareKind,
    ShareMemberSaved,
    ShareState,
    ShareStateRemoved,
    ShareStateSaved,
)
from mainstem.coordination.share.partition import SavedRecordRun, SavedSharePartition
from mainstem.coordination.share.requests import ShareAnswer, ShareHeartbeat
from mainstem.coordination.share.settings import ShareSettings
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError
from mainstem.model.ids import TopicId

pytestmark = virtual_time

TOPIC = TopicId(bytes(range(16)))
STATE = ShareState(
    SavedSharePartition(7, (SavedRecordRun(2, 0, 1), SavedRecordRun(300, 2, 0))), 3, 4
)
FACTS: list[Fact] = [
    ShareMemberSaved("g", "m", "r", "c", "/h", ("t", "u")),
    ShareMemberSaved("g", "m"),
    ShareEpochMoved("g", 5, -(2**40)),
    ShareEpochMoved("g", 1),
    ShareStateSaved("g", TOPIC, 2, STATE),
    ShareFactRemoved(ShareKind.MEMBER, "g", "m"),
    ShareFactRemoved(ShareKind.EPOCH, "g"),
    ShareStateRemoved("g", TOPIC, 2),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_every_fact_survives_the_round_trip(fact: Fact) -> None:
    assert decode(*encode(fact)) == fact


def test_members_and_epochs_are_written_as_kafka_writes_them() -> None:
    key, value = encode(FACTS[0])
    assert key.hex() == "000a" + "000167" + "00016d"
    assert value is not None
    assert value.hex() == "0000" + "0272" + "0263" + "032f68" + "03" + "0274" + "0275" + "00"
    key, value = encode(FACTS[3])
    assert (key.hex(), (value or b"").hex()) == ("000b" + "000167", "0000" + "00000001" + "00")


def test_a_damaged_state_is_corrupt() -> None:
    key, value = encode(FACTS[4])
    with pytest.raises(Corrupt):
        decode(key, (value or b"")[:-1])


def test_every_partition_has_a_reader_and_every_member_something_to_read() -> None:
    both, other = TopicId(b"1" * 16), TopicId(b"2" * 16)
    for members in range(1, 9):
        wishes = {f"m{n}": frozenset({both, other}) for n in range(members)}
        given = assign(wishes, {both: 3, other: 2})
        read = [(t, p) for places in given.values() for t, ps in places.items() for p in ps]
        assert len(set(read)) == 5
        assert all(given[member] for member in wishes)
        assert len(read) == max(5, members)


def test_nobody_is_given_a_topic_that_it_does_not_want() -> None:
    one, other = TopicId(b"1" * 16), TopicId(b"2" * 16)
    given = assign({"a": frozenset({one}), "b": frozenset({one, other})}, {one: 2, other: 1})
    assert given["a"].keys() == {one}
    assert given["b"].keys() == {one, other}


@pytest.fixture
def node() -> GroupNode:
    return GroupNode({"t": 4}, sharing=ShareSettings(members_max=3))


async def beat(
    coordinator: GroupCoordinator,
    member_id: str,
    epoch: int = 0,
    topics: tuple[str, ...] | None = None,
) -> ShareAnswer:
    if epoch == 0 and topics is None:
        topics = ("t",)
    return await coordinator.share_groups.heartbeat(
        ShareHeartbeat(group_id="g", member_id=member_id, epoch=epoch, topics=topics)
    )


async def refused(work: Awaitable[Any]) -> ErrorCode:
    with pytest.raises(MainstemError) as refusal:
        await work
    return refusal.value.code


async def test_members_share_what_they_read_and_hear_of_changes(node: GroupNode) -> None:
    coordinator = node.start()
    a = await beat(coordinator, "a")
    assert a.assigned == {node.topics.id_of("t"): frozenset(range(4))}
    b = await beat(coordinator, "b")
    assert (a.epoch, b.epoch) == (1, 2)
    told = await beat(coordinator, "a", a.epoch)
    assert told.epoch == 2
    assert sum(map(len, (told.assigned or {}).values())) == 2
    assert (await beat(coordinator, "a", 2)).assigned is None
    node.topics.counts["t"] = 6
    coordinator.topic_changed("t")
    grown = await beat(coordinator, "a", 2)
    assert (grown.epoch, sum(map(len, (grown.assigned or {}).values()))) == (3, 3)


async def test_a_member_leaves_or_is_silent_for_too_long(node: GroupNode) -> None:
    coordinator = node.start()
    await beat(coordinator, "a")
    await beat(coordinator, "b")
    assert (await beat(coordinator, "b", -1)).epoch == -1
    assert [m.member_id for m in coordinator.share_groups.describe("g").members] == ["a"]
    await asyncio.sleep(46)
    assert coordinator.share_groups.describe("g").state == "Empty"
    assert await refused(beat(coordinator, "a", 1)) is ErrorCode.UNKNOWN_MEMBER


async def test_members_and_states_outlive_a_restart(node: GroupNode) -> None:
    coordinator = node.start()
    a = await beat(coordinator, "a")
    await coordinator.share_groups.write("g", node.place, STATE)
    coordinator = await node.restart(coordinator)
    state = await coordinator.share_groups.read("g", node.place, 4)
    assert state is not None
    assert state.share == STATE.share
    again = await beat(coordinator, "a", a.epoch)
    assert (again.epoch, again.assigned) == (a.epoch, a.assigned)


async def test_a_member_of_a_later_epoch_has_to_join_again(node: GroupNode) -> None:
    coordinator = node.start()
    await beat(coordinator, "a")
    assert await refused(beat(coordinator, "a", 9)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert await refused(beat(coordinator, "a", -2)) is ErrorCode.INVALID_REQUEST
    assert await refused(beat(coordinator, "", 0)) is ErrorCode.INVALID_REQUEST
    assert await refused(beat(coordinator, "b", 0, ())) is ErrorCode.INVALID_REQUEST


async def test_a_full_group_takes_nobody_else(node: GroupNode) -> None:
    coordinator = node.start()
    for member in "abc":
        await beat(coordinator, member)
    assert await refused(beat(coordinator, "d")) is ErrorCode.GROUP_FULL
    await beat(coordinator, "a")


async def test_a_state_is_stored_before_it_is_answered(node: GroupNode) -> None:
    coordinator = node.start()
    await beat(coordinator, "a")
    node.stream.is_synced = False
    waiting = asyncio.ensure_future(coordinator.share_groups.write("g", node.place, STATE))
    await asyncio.sleep(1)
    assert not waiting.done()
    node.stream.commit()
    await waiting


async def test_a_former_writer_of_a_partition_is_refused(node: GroupNode) -> None:
    coordinator = node.start()
    await beat(coordinator, "a")
    old = ShareState(SavedSharePartition(1), 0, leader_epoch=4)
    await coordinator.share_groups.write("g", node.place, old)
    taken = await coordinator.share_groups.read("g", node.place, 5)
    assert taken is not None
    assert (taken.share, taken.leader_epoch) == (SavedSharePartition(1), 5)
    for work in (
        coordinator.share_groups.write("g", node.place, old),
        coordinator.share_groups.read("g", node.place, 4),
    ):
        assert await refused(work) is ErrorCode.FENCED_EPOCH


async def test_a_state_that_was_overtaken_on_its_way_is_refused(node: GroupNode) -> None:
    coordinator = node.start()
    await beat(coordinator, "a")
    first, second = (ShareState(SavedSharePartition(n), 0, 0, version=n) for n in (1, 2))
    await coordinator.share_groups.write("g", node.place, second)
    await coordinator.share_groups.write("g", node.place, second)  # tried again: no harm
    late = coordinator.share_groups.write("g", node.place, first)
    assert await refused(late) is ErrorCode.FENCED_EPOCH
    await coordinator.share_groups.read("g", node.place, 0)
    late = coordinator.share_groups.write("g", node.place, second)
    assert await refused(late) is ErrorCode.FENCED_EPOCH


async def test_where_a_group_stands_is_moved_and_forgotten_only_without_members(
    node: GroupNode,
) -> None:
    coordinator = node.start()
    await beat(coordinator, "a")
    before = ShareState(SavedSharePartition(5), 0, 0)
    await coordinator.share_groups.write("g", node.place, before)
    move = [(node.place, 1)]
    assert await refused(coordinator.share_groups.move("g", move)) is ErrorCode.GROUP_NOT_EMPTY
    await beat(coordinator, "a", -1)
    await coordinator.share_groups.move("g", move)
    assert coordinator.share_groups.states("g")[node.place].share.start == 1
    late = coordinator.share_groups.write("g", node.place, before)
    assert await refused(late) is ErrorCode.FENCED_EPOCH
    await coordinator.share_groups.forget("g", [node.place[0]])
    assert coordinator.share_groups.states("g") == {}


async def test_a_group_that_is_moved_before_anybody_joined_is_made(node: GroupNode) -> None:
    coordinator = node.start()
    await coordinator.share_groups.move("g", [(node.place, 3)])
    assert coordinator.share_groups.describe("g").state == "Empty"
    again = await node.restart(coordinator)
    assert again.share_groups.states("g")[node.place].share.start == 3
    answer = await beat(again, "a")
    assert answer.epoch == 1


async def test_a_group_of_another_kind_is_not_moved_as_a_share_group(node: GroupNode) -> None:
    coordinator = node.start()
    commit = CommitRequest(group_id="g", offsets=(OffsetToCommit("t", 0, 1),))
    await coordinator.commit_offsets(commit)
    move = coordinator.share_groups.move("g", [(node.place, 3)])
    assert await refused(move) is ErrorCode.UNKNOWN_GROUP


async def test_a_topic_that_is_gone_takes_its_states_along(node: GroupNode) -> None:
    coordinator = node.start()
    await beat(coordinator, "a")
    await coordinator.share_groups.write("g", node.place, STATE)
    node.topics.recreate("t", 2)
    coordinator.topic_deleted("t")
    assert coordinator.share_groups.states("g") == {}
    told = await beat(coordinator, "a", 1)
    assert told.assigned == {node.topics.id_of("t"): frozenset({0, 1})}


async def test_share_groups_are_listed_and_deleted_like_all_others(node: GroupNode) -> None:
    coordinator = node.start()
    await beat(coordinator, "a")
    [line] = coordinator.list(types=["Share"])
    assert (line.group_id, line.state, line.type) == ("g", "Stable", "share")
    assert await refused(coordinator.delete("g")) is ErrorCode.GROUP_NOT_EMPTY
    await beat(coordinator, "a", -1)
    await coordinator.share_groups.write("g", node.place, STATE)
    await coordinator.delete("g")
    coordinator = await node.restart(coordinator)
    assert coordinator.list() == []
    late = coordinator.share_groups.write("g", node.place, STATE)
    assert await refused(late) is ErrorCode.UNKNOWN_GROUP


async def test_a_group_is_of_one_kind(node: GroupNode) -> None:
    coordinator = node.start()
    await beat(coordinator, "a")
    join = JoinRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
    )
    assert await refused(coordinator.join(join)) is ErrorCode.INCONSISTENT_PROTOCOL
    heartbeat = ConsumerHeartbeat(
        group_id="g",
        member_id="b",
        epoch=0,
        topics=("t",),
        owned={},
        rebalance_timeout_ms=1_000,
        makes_id=True,
    )
    refusal = await refused(coordinator.consumers.heartbeat(heartbeat))
    assert refusal is ErrorCode.UNKNOWN_GROUP
    commit = CommitRequest(group_id="g", offsets=())
    assert await refused(coordinator.commit_offsets(commit)) is ErrorCode.UNKNOWN_GROUP
    with pytest.raises(MainstemError):
        coordinator.describe("g")
    other = CommitRequest(group_id="classic", offsets=())
    await coordinator.commit_offsets(other)


async def test_a_group_sets_its_own_times_within_what_the_node_allows(node: GroupNode) -> None:
    coordinator = node.start()
    node.topics.of_groups["g"] = {
        "share.heartbeat.interval.ms": "7000",
        "share.record.lock.duration.ms": "999999",
        "share.delivery.count.limit": "3",
        "share.renew.acknowledge.enable": "false",
        "share.isolation.level": "read_committed",
        "share.auto.offset.reset": "by_duration:PT1M",
    }
    assert (await beat(coordinator, "a")).heartbeat_interval_ms == 7_000
    configs = coordinator.share_groups.configs
    rules = configs.rules("g")
    assert (rules.lock_duration_ms, rules.delivery_limit, rules.renews) == (60_000, 3, False)
    assert configs.committed_only("g")
    assert configs.reset("g") == 60_000
    assert (configs.reset("other"), configs.rules("other").renews) == ("latest", True)
