"""Share groups on real files: what is locked for whom, what is stored when, what a crash leaves."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.kit.simulation.coordination.memory_stream import MemoryStream
from tests.kit.simulation.coordination.topic_list import TopicList
from tests.kit.streams import TOPIC_ID, StreamNode

from mainstem.broker.services.share_offsets_service import ShareOffsets
from mainstem.broker.services.share_partition_service import SharePartitions
from mainstem.broker.services.share_service import ShareService
from mainstem.coordination.groups.service import GroupCoordinator
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.shards.partitioning import OFFSETS_TOPIC
from mainstem.coordination.shards.registry_driver import InternalTopic
from mainstem.coordination.share.requests import (
    AckRange,
    AckType,
    ShareAcknowledgeCall,
    ShareFetchAnswer,
    ShareFetchCall,
    ShareHeartbeat,
    ShareOffsetToAlter,
)
from mainstem.coordination.share.settings import ShareSettings
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import PartitionIndex, StreamId, TopicId
from mainstem.testing.simulation.raft.group import LoopClock

STREAM = StreamId(TOPIC_ID, PartitionIndex(0))
SHORT_LOCK_MS = 300
# Locks last half a minute, except where a test is about their end: a slow machine outlasts no lock.
SHARING = ShareSettings(lock_duration_min_ms=1, locks_max_min=1)
ACCEPT, RELEASE, RENEW = AckType.ACCEPT, AckType.RELEASE, AckType.RENEW


class Topics(TopicList):
    """The one topic of the stream_node of streams, and the internal one."""

    def id_of(self, name: str) -> TopicId:
        return TOPIC_ID if name == "t" else super().id_of(name)


class ShareNode:
    """Records in files, groups in a list, and whoever shares the first by the second."""

    def __init__(self, stream_node: StreamNode) -> None:
        self.stream_node = stream_node
        self.topics = Topics({"t": 1})
        self.topics.of_groups["g"] = {"share.auto.offset.reset": "earliest"}
        self.kept = MemoryStream()
        self.epochs: dict[str, int] = {}
        self.groups: GroupCoordinator
        self.shares: ShareService

    async def open(self) -> None:
        async def ensure() -> None:
            self.topics.counts[OFFSETS_TOPIC] = 1

        topic = InternalTopic(
            ensure, lambda _: self.kept, lambda name: self.topics.counts.get(name, 0)
        )
        clock = LoopClock()
        self.groups = GroupCoordinator(GroupSettings(), topic, self.topics, clock, sharing=SHARING)
        self.groups.start()
        members, streams = self.groups.share_groups, self.stream_node.streams
        partitions = SharePartitions(streams, members, members.configs, clock)
        offsets = ShareOffsets(members, self.topics, streams)
        self.shares = ShareService(streams, members, partitions, offsets)
        self.epochs.clear()
        for _ in range(20):
            await asyncio.sleep(0)

    async def begin(self, *values: bytes) -> None:
        await self.stream_node.create()
        await self.open()
        await self.join("a")
        if values:
            await self.stream_node.write(*values)

    async def crash(self) -> None:
        """All that is only in memory is gone."""
        self.groups.stop()
        await self.open()

    async def join(self, member: str, epoch: int = 0) -> None:
        topics = ("t",) if epoch == 0 else None
        await self.shares.heartbeat(
            ShareHeartbeat(group_id="g", member_id=member, epoch=epoch, topics=topics)
        )

    async def fetch(self, member: str, *acks: AckRange, **more: Any) -> ShareFetchAnswer:
        epoch = more.pop("epoch", self.epochs.get(member, 0))
        self.epochs[member] = epoch + 1
        wish: dict[str, Any] = {
            "group_id": "g",
            "member_id": member,
            "session_epoch": epoch,
            "named": (STREAM,) if epoch == 0 else (),
            "acknowledgements": {STREAM: acks} if acks else {},
            "max_records": 100,
            "connection": member,
        }
        return await self.shares.fetch(ShareFetchCall(**(wish | more)))

    async def take(self, member: str, *acks: AckRange, **more: Any) -> list[tuple[int, int, int]]:
        """(start, until, delivery count) of what a member is given."""
        answer = await self.fetch(member, *acks, **more)
        assert all(each.error is None for each in answer.partitions), answer.partitions
        return [
            (one.start, one.until, one.delivery_count)
            for each in answer.partitions
            for one in each.acquired
        ]

    async def acknowledge(
        self, member: str, start: int, until: int, *types: int, epoch: int | None = None
    ) -> MainstemError | None:
        if epoch is None:
            epoch = self.epochs[member]
            self.epochs[member] = epoch + 1
        answer = await self.shares.acknowledge(
            ShareAcknowledgeCall(
                group_id="g",
                member_id=member,
                session_epoch=epoch,
                acknowledgements={STREAM: [AckRange(start, until, types)]},
                connection=member,
            )
        )
        [(stream, refusal)] = answer.partitions
        assert stream == STREAM
        return refusal


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ShareNode]:
    async with StreamNode(tmp_path) as stream_node:
        node = ShareNode(stream_node)
        yield node
        await node.shares.stop()
        node.groups.stop()


async def test_a_fetch_waits_for_records_that_are_written_meanwhile(node: ShareNode) -> None:
    await node.begin()
    assert await node.take("a", max_wait_ms=1) == []
    waiting = asyncio.ensure_future(node.take("a", max_wait_ms=5_000))
    await asyncio.sleep(0.01)
    await node.stream_node.write(b"x", b"y")
    assert await waiting == [(0, 2, 1)]


async def test_the_batches_that_hold_the_records_are_given_out(node: ShareNode) -> None:
    await node.begin(b"x")
    await node.stream_node.write(b"y")
    [found] = (await node.fetch("a", max_records=1)).partitions
    stored = node.stream_node.streams.partition("t", 0).read(
        0, max_bytes=1, committed_only=False, min_one=True
    )
    assert stored is not None
    assert found.records == stored.read()
    assert await node.take("a") == [(1, 2, 1)]


async def test_an_acknowledgement_is_answered_once_it_is_stored(node: ShareNode) -> None:
    await node.begin(b"x")
    await node.take("a")
    node.kept.is_synced = False
    waiting = asyncio.ensure_future(node.acknowledge("a", 0, 1, ACCEPT))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    node.kept.is_synced = True
    node.kept.commit()
    assert await waiting is None


async def test_many_acknowledgements_share_a_write(node: ShareNode) -> None:
    await node.begin(*(b"x",) * 50)
    members = [f"m{n}" for n in range(50)]
    for member in members:
        await node.take(member, max_records=1, strict=True)
    before = len(node.kept.batches)
    answers = await asyncio.gather(
        *(node.acknowledge(member, at, at + 1, ACCEPT) for at, member in enumerate(members))
    )
    assert answers == [None] * 50
    assert len(node.kept.batches) - before <= 2


async def test_a_crash_brings_back_exactly_what_was_not_acknowledged(node: ShareNode) -> None:
    await node.begin(*(b"x",) * 6)
    assert await node.take("a") == [(0, 6, 1)]
    assert await node.acknowledge("a", 1, 3, ACCEPT) is None
    assert await node.acknowledge("a", 4, 5, AckType.REJECT) is None
    await node.crash()
    with pytest.raises(MainstemError) as refusal:
        await node.acknowledge("a", 0, 1, ACCEPT, epoch=9)
    assert refusal.value.code is ErrorCode.UNKNOWN_SHARE_SESSION
    assert await node.take("b") == [(0, 1, 2), (3, 4, 2), (5, 6, 2)]


async def test_what_is_not_settled_in_time_goes_to_who_waits(node: ShareNode) -> None:
    configs = node.topics.of_groups["g"]
    configs["share.record.lock.duration.ms"] = str(SHORT_LOCK_MS)
    await node.begin(b"x", b"y")
    await node.take("a")
    del configs["share.record.lock.duration.ms"]
    [_] = (await node.fetch("a", AckRange(1, 2, (RENEW,)), renews=True)).partitions
    assert await node.take("b", max_wait_ms=5_000) == [(0, 1, 2)]
    refusal = await node.acknowledge("a", 0, 1, ACCEPT)
    assert refusal is not None
    assert refusal.code is ErrorCode.INVALID_RECORD_STATE
    assert await node.acknowledge("a", 1, 2, ACCEPT) is None


async def test_what_a_lost_connection_held_goes_to_who_waits(node: ShareNode) -> None:
    await node.begin(b"x")
    await node.take("a")
    waiting = asyncio.ensure_future(node.take("b", max_wait_ms=5_000))
    await asyncio.sleep(0.01)
    node.shares.disconnected("a")
    assert await waiting == [(0, 1, 2)]


async def test_the_last_request_of_a_session_acknowledges_and_gives_the_rest_back(
    node: ShareNode,
) -> None:
    await node.begin(b"x", b"y")
    await node.take("a")
    assert await node.acknowledge("a", 0, 1, ACCEPT, epoch=-1) is None
    assert await node.take("b") == [(1, 2, 2)]
    answer = await node.fetch("b", AckRange(1, 2, (ACCEPT,)), epoch=-1)
    assert [each.acknowledge_error for each in answer.partitions] == [None]
    assert await node.take("c") == []


async def test_what_left_a_session_can_still_be_acknowledged(node: ShareNode) -> None:
    await node.begin(b"x", b"y")
    await node.take("a")
    assert await node.take("a", forgotten=(STREAM,)) == []
    assert await node.acknowledge("a", 0, 1, ACCEPT) is None
    node.shares.disconnected("a")
    assert await node.take("b") == [(1, 2, 2)]


async def test_while_its_state_cannot_be_loaded_a_partition_has_nothing(node: ShareNode) -> None:
    await node.begin(b"x")
    node.kept.refusal = Unavailable(ErrorCode.DISK_FULL, "no space left")
    assert await node.take("a", max_wait_ms=1) == []
    waiting = asyncio.ensure_future(node.take("a", max_wait_ms=5_000))
    await asyncio.sleep(0.01)
    node.kept.refusal = None
    assert await waiting == [(0, 1, 1)]


async def test_a_group_that_nobody_joined_reads_nothing(node: ShareNode) -> None:
    await node.begin(b"x")
    with pytest.raises(MainstemError) as refusal:
        await node.fetch("a", group_id="other")
    assert refusal.value.code is ErrorCode.UNKNOWN_GROUP


async def test_nobody_waits_for_a_node_that_stops(node: ShareNode) -> None:
    await node.begin()
    waiting = asyncio.ensure_future(node.take("a", max_wait_ms=60_000))
    await asyncio.sleep(0.01)
    await node.shares.stop()
    assert await waiting == []


async def test_what_cannot_be_stored_is_given_out_again(node: ShareNode) -> None:
    await node.begin(b"x", b"y")
    await node.take("a")
    node.kept.refusal = Unavailable(ErrorCode.DISK_FULL, "no space left")
    refusal = await node.acknowledge("a", 0, 2, ACCEPT)
    assert refusal is not None
    assert refusal.retriable
    node.kept.refusal = None
    assert await node.take("b") == [(0, 2, 1)]


@pytest.mark.parametrize(
    ("reset", "first"), [("earliest", 0), ("latest", 2), ("by_duration:PT0.9S", 1)]
)
async def test_a_group_begins_where_its_settings_say(
    node: ShareNode, reset: str, first: int
) -> None:
    node.topics.of_groups["g"] = {"share.auto.offset.reset": reset}
    await node.begin()
    now_ms = LoopClock().wall_ms()
    for node.stream_node.clock.now_ms in (now_ms - 1_800, now_ms):
        await node.stream_node.write(b"x")
    await node.fetch("a", epoch=0, max_records=0)
    opened = await node.take("a", max_records=1, strict=True)
    await node.stream_node.write(b"y")
    rest = await node.take("b")
    assert (opened + rest)[0][0] == first
    await node.crash()
    assert (await node.take("c"))[0][0] == first


async def test_a_trimmed_log_moves_the_group_on(node: ShareNode) -> None:
    await node.begin(b"x", b"y")
    await node.stream_node.write(b"z")
    await node.take("a", max_records=1)
    await node.stream_node.streams.delete_records("t", 0, 2)
    assert await node.take("b") == [(2, 3, 1)]
    assert await node.acknowledge("a", 0, 2, RELEASE) is None
    assert await node.acknowledge("b", 2, 3, ACCEPT) is None
    [offset] = await node.shares.offsets("g", None)
    assert (offset.start_offset, offset.lag) == (3, 0)


async def test_an_administrator_lets_a_group_stand_elsewhere(node: ShareNode) -> None:
    await node.begin(*(b"x",) * 4)
    await node.take("a", max_records=2, strict=True)
    await node.acknowledge("a", 0, 2, ACCEPT)
    [offset] = await node.shares.offsets("g", [("t", [0])])
    assert (offset.start_offset, offset.lag, offset.error) == (2, 2, None)
    wanted = [ShareOffsetToAlter("t", 0, 1), ShareOffsetToAlter("u", 0, 1)]
    with pytest.raises(MainstemError) as refusal:
        await node.shares.alter_offsets("g", wanted)
    assert refusal.value.code is ErrorCode.GROUP_NOT_EMPTY
    await node.join("a", -1)
    outcomes = await node.shares.alter_offsets("g", wanted)
    assert [each.error is None for each in outcomes] == [True, False]
    assert await node.take("a") == [(1, 4, 1)]
    deleted = await node.shares.delete_offsets("g", ["t", "u"])
    assert [each.error is None for each in deleted] == [True, False]
    assert await node.shares.offsets("g", None) == []


async def test_partitions_that_cannot_be_read_say_why(node: ShareNode) -> None:
    await node.begin(b"x")
    unknown = StreamId(TopicId(b"?" * 16), PartitionIndex(0))
    beyond = StreamId(TOPIC_ID, PartitionIndex(7))
    answer = await node.fetch("a", named=(unknown, beyond, STREAM), max_wait_ms=1)
    errors = {each.stream: each.error and each.error.code for each in answer.partitions}
    assert errors.pop(STREAM) is None
    assert set(errors) == {unknown, beyond}
    assert all(errors.values())
    hidden = await node.fetch("b", may_read=lambda _: False)
    assert [each.error and each.error.code for each in hidden.partitions] == [
        ErrorCode.NOT_AUTHORIZED
    ]


@pytest.mark.parametrize("names", [("", "m"), ("g", ""), ("g" * 1_001, "m")])
async def test_who_asks_says_who_it_is(node: ShareNode, names: Sequence[str]) -> None:
    await node.begin()
    wish = ShareFetchCall(group_id=names[0], member_id=names[1], session_epoch=0)
    with pytest.raises(MainstemError):
        await node.shares.fetch(wish)
