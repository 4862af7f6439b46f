"""Share groups on real files: what is locked for whom, what is stored when, what a crash leaves."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.streams.house import TOPIC_ID, House

from mainstem.broker.share_offsets_service import ShareOffsets
from mainstem.broker.share_partition_service import SharePartitions
from mainstem.broker.share_service import ShareService
from mainstem.coordination.partitions import OFFSETS_TOPIC
from mainstem.coordination.runtime import GroupsRuntime
from mainstem.coordination.settings import GroupSettings
from mainstem.coordination.shards_runtime import InternalTopic
from mainstem.coordination.share_requests import (
    AckRange,
    AckType,
    ShareAcknowledgeWish,
    ShareFetchAnswer,
    ShareFetchWish,
    ShareHeartbeat,
    ShareOffsetToAlter,
)
from mainstem.coordination.share_settings import ShareSettings
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import PartitionIndex, StreamId, TopicId
from mainstem.testing.memory_stream import MemoryStream
from mainstem.testing.topic_list import TopicList

STREAM = StreamId(TOPIC_ID, PartitionIndex(0))
LOCK_MS = 150
SHARING = ShareSettings(lock_duration_ms=LOCK_MS, lock_duration_min_ms=1, locks_max_min=1)
ACCEPT, RELEASE, RENEW = AckType.ACCEPT, AckType.RELEASE, AckType.RENEW


class LoopClock:
    """The loop's own time, so that timers and clock agree."""

    def wall_ms(self) -> int:
        return 1_000_000 + int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class Topics(TopicList):
    """The one topic of the house of streams, and the internal one."""

    def id_of(self, name: str) -> TopicId:
        return TOPIC_ID if name == "t" else super().id_of(name)


class Shop:
    """Records in files, groups in a list, and whoever shares the first by the second."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.topics = Topics({"t": 1})
        self.topics.of_groups["g"] = {"share.auto.offset.reset": "earliest"}
        self.kept = MemoryStream()
        self.epochs: dict[str, int] = {}
        self.groups: GroupsRuntime
        self.shares: ShareService

    async def open(self) -> None:
        async def ensure() -> None:
            self.topics.counts[OFFSETS_TOPIC] = 1

        topic = InternalTopic(
            ensure, lambda _: self.kept, lambda name: self.topics.counts.get(name, 0)
        )
        clock = LoopClock()
        self.groups = GroupsRuntime(GroupSettings(), topic, self.topics, clock, sharing=SHARING)
        self.groups.start()
        members, streams = self.groups.sharers, self.house.streams
        partitions = SharePartitions(streams, members, members.configs, clock)
        offsets = ShareOffsets(members, self.topics, streams)
        self.shares = ShareService(streams, members, partitions, offsets)
        self.epochs.clear()
        for _ in range(20):
            await asyncio.sleep(0)

    async def begin(self, *values: bytes) -> None:
        await self.house.create()
        await self.open()
        await self.join("a")
        if values:
            await self.house.write(*values)

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
        return await self.shares.fetch(ShareFetchWish(**(wish | more)))

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
            ShareAcknowledgeWish(
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


def play(folder: Path, story: Callable[[Shop], Awaitable[None]]) -> None:
    async def run() -> None:
        async with House(folder) as house:
            shop = Shop(house)
            await story(shop)
            await shop.shares.stop()
            shop.groups.stop()

    asyncio.run(run())


def test_a_fetch_waits_for_records_that_are_written_meanwhile(tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        await shop.begin()
        assert await shop.take("a", max_wait_ms=1) == []
        waiting = asyncio.ensure_future(shop.take("a", max_wait_ms=5_000))
        await asyncio.sleep(0.01)
        await shop.house.write(b"x", b"y")
        assert await waiting == [(0, 2, 1)]

    play(tmp_path, story)


def test_the_batches_that_hold_the_records_are_given_out(tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        await shop.begin(b"x")
        await shop.house.write(b"y")
        [found] = (await shop.fetch("a", max_records=1)).partitions
        stored = shop.house.streams.door("t", 0).read(
            0, max_bytes=1, committed_only=False, min_one=True
        )
        assert stored is not None
        assert found.records == stored.read()
        assert await shop.take("a") == [(1, 2, 1)]

    play(tmp_path, story)


def test_an_acknowledgement_is_answered_once_it_is_stored(tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        await shop.begin(b"x")
        await shop.take("a")
        shop.kept.is_synced = False
        waiting = asyncio.ensure_future(shop.acknowledge("a", 0, 1, ACCEPT))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        shop.kept.is_synced = True
        shop.kept.commit()
        assert await waiting is None

    play(tmp_path, story)


def test_many_acknowledgements_share_a_write(tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        await shop.begin(*(b"x",) * 50)
        members = [f"m{n}" for n in range(50)]
        for member in members:
            await shop.take(member, max_records=1, strict=True)
        before = len(shop.kept.batches)
        answers = await asyncio.gather(
            *(shop.acknowledge(member, at, at + 1, ACCEPT) for at, member in enumerate(members))
        )
        assert answers == [None] * 50
        assert len(shop.kept.batches) - before <= 2

    play(tmp_path, story)


def test_a_crash_brings_back_exactly_what_was_not_acknowledged(tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        await shop.begin(*(b"x",) * 6)
        assert await shop.take("a") == [(0, 6, 1)]
        assert await shop.acknowledge("a", 1, 3, ACCEPT) is None
        assert await shop.acknowledge("a", 4, 5, AckType.REJECT) is None
        await shop.crash()
        with pytest.raises(MainstemError) as refusal:
            await shop.acknowledge("a", 0, 1, ACCEPT, epoch=9)
        assert refusal.value.code is ErrorCode.UNKNOWN_SHARE_SESSION
        assert await shop.take("b") == [(0, 1, 2), (3, 4, 2), (5, 6, 2)]

    play(tmp_path, story)


def test_what_is_not_settled_in_time_goes_to_who_waits(tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        await shop.begin(b"x", b"y")
        await shop.take("a")
        await asyncio.sleep(LOCK_MS / 2000)
        [_] = (await shop.fetch("a", AckRange(1, 2, (RENEW,)), renews=True)).partitions
        assert await shop.take("b", max_wait_ms=5_000) == [(0, 1, 2)]
        refusal = await shop.acknowledge("a", 0, 1, ACCEPT)
        assert refusal is not None
        assert refusal.code is ErrorCode.INVALID_RECORD_STATE
        assert await shop.acknowledge("a", 1, 2, ACCEPT) is None

    play(tmp_path, story)


def test_what_a_lost_connection_held_goes_to_who_waits(tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        await shop.begin(b"x")
        await shop.take("a")
        waiting = asyncio.ensure_future(shop.take("b", max_wait_ms=5_000))
        await asyncio.sleep(0.01)
        shop.shares.disconnected("a")
        assert await waiting == [(0, 1, 2)]

    play(tmp_path, story)


def test_the_last_request_of_a_session_acknowledges_and_gives_the_rest_back(tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        await shop.begin(b"x", b"y")
        await shop.take("a")
        assert await shop.acknowledge("a", 0, 1, ACCEPT, epoch=-1) is None
        assert await shop.take("b") == [(1, 2, 2)]
        answer = await shop.fetch("b", AckRange(1, 2, (ACCEPT,)), epoch=-1)
        assert [each.acknowledge_error for each in answer.partitions] == [None]
        assert await shop.take("c") == []

    play(tmp_path, story)


def test_what_left_a_session_can_still_be_acknowledged(tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        await shop.begin(b"x", b"y")
        await shop.take("a")
        assert await shop.take("a", forgotten=(STREAM,)) == []
        assert await shop.acknowledge("a", 0, 1, ACCEPT) is None
        shop.shares.disconnected("a")
        assert await shop.take("b") == [(1, 2, 2)]

    play(tmp_path, story)


def test_while_its_state_cannot_be_loaded_a_partition_has_nothing(tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        await shop.begin(b"x")
        shop.kept.refusal = Unavailable(ErrorCode.DISK_FULL, "no space left")
        assert await shop.take("a", max_wait_ms=1) == []
        waiting = asyncio.ensure_future(shop.take("a", max_wait_ms=5_000))
        await asyncio.sleep(0.01)
        shop.kept.refusal = None
        assert await waiting == [(0, 1, 1)]

    play(tmp_path, story)


def test_a_group_that_nobody_joined_reads_nothing(tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        await shop.begin(b"x")
        with pytest.raises(MainstemError) as refusal:
            await shop.fetch("a", group_id="other")
        assert refusal.value.code is ErrorCode.UNKNOWN_GROUP

    play(tmp_path, story)


def test_nobody_waits_for_a_node_that_stops(tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        await shop.begin()
        waiting = asyncio.ensure_future(shop.take("a", max_wait_ms=60_000))
        await asyncio.sleep(0.01)
        await shop.shares.stop()
        assert await waiting == []

    play(tmp_path, story)


def test_what_cannot_be_stored_is_given_out_again(tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        await shop.begin(b"x", b"y")
        await shop.take("a")
        shop.kept.refusal = Unavailable(ErrorCode.DISK_FULL, "no space left")
        refusal = await shop.acknowledge("a", 0, 2, ACCEPT)
        assert refusal is not None
        assert refusal.retriable
        shop.kept.refusal = None
        assert await shop.take("b") == [(0, 2, 1)]

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("reset", "first"), [("earliest", 0), ("latest", 2), ("by_duration:PT0.9S", 1)]
)
def test_a_group_begins_where_its_settings_say(tmp_path: Path, reset: str, first: int) -> None:
    async def story(shop: Shop) -> None:
        shop.topics.of_groups["g"] = {"share.auto.offset.reset": reset}
        await shop.begin()
        now_ms = LoopClock().wall_ms()
        for shop.house.clock.now_ms in (now_ms - 1_800, now_ms):
            await shop.house.write(b"x")
        await shop.fetch("a", epoch=0, max_records=0)
        opened = await shop.take("a", max_records=1, strict=True)
        await shop.house.write(b"y")
        rest = await shop.take("b")
        assert (opened + rest)[0][0] == first
        await shop.crash()
        assert (await shop.take("c"))[0][0] == first

    play(tmp_path, story)


def test_a_trimmed_log_moves_the_group_on(tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        await shop.begin(b"x", b"y")
        await shop.house.write(b"z")
        await shop.take("a", max_records=1)
        await shop.house.streams.delete_records("t", 0, 2)
        assert await shop.take("b") == [(2, 3, 1)]
        assert await shop.acknowledge("a", 0, 2, RELEASE) is None
        assert await shop.acknowledge("b", 2, 3, ACCEPT) is None
        [offset] = await shop.shares.offsets("g", None)
        assert (offset.start_offset, offset.lag) == (3, 0)

    play(tmp_path, story)


def test_an_administrator_lets_a_group_stand_elsewhere(tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        await shop.begin(*(b"x",) * 4)
        await shop.take("a", max_records=2, strict=True)
        await shop.acknowledge("a", 0, 2, ACCEPT)
        [offset] = await shop.shares.offsets("g", [("t", [0])])
        assert (offset.start_offset, offset.lag, offset.error) == (2, 2, None)
        wanted = [ShareOffsetToAlter("t", 0, 1), ShareOffsetToAlter("u", 0, 1)]
        with pytest.raises(MainstemError) as refusal:
            await shop.shares.alter_offsets("g", wanted)
        assert refusal.value.code is ErrorCode.GROUP_NOT_EMPTY
        await shop.join("a", -1)
        outcomes = await shop.shares.alter_offsets("g", wanted)
        assert [each.error is None for each in outcomes] == [True, False]
        assert await shop.take("a") == [(1, 4, 1)]
        deleted = await shop.shares.delete_offsets("g", ["t", "u"])
        assert [each.error is None for each in deleted] == [True, False]
        assert await shop.shares.offsets("g", None) == []

    play(tmp_path, story)


def test_partitions_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    async def story(shop: Shop) -> None:
        await shop.begin(b"x")
        unknown = StreamId(TopicId(b"?" * 16), PartitionIndex(0))
        beyond = StreamId(TOPIC_ID, PartitionIndex(7))
        answer = await shop.fetch("a", named=(unknown, beyond, STREAM), max_wait_ms=1)
        errors = {each.stream: each.error and each.error.code for each in answer.partitions}
        assert errors.pop(STREAM) is None
        assert set(errors) == {unknown, beyond}
        assert all(errors.values())
        hidden = await shop.fetch("b", may_read=lambda _: False)
        assert [each.error and each.error.code for each in hidden.partitions] == [
            ErrorCode.NOT_AUTHORIZED
        ]

    play(tmp_path, story)


@pytest.mark.parametrize("names", [("", "m"), ("g", ""), ("g" * 1_001, "m")])
def test_who_asks_says_who_it_is(tmp_path: Path, names: Sequence[str]) -> None:
    async def story(shop: Shop) -> None:
        await shop.begin()
        wish = ShareFetchWish(group_id=names[0], member_id=names[1], session_epoch=0)
        with pytest.raises(MainstemError):
            await shop.shares.fetch(wish)

    play(tmp_path, story)
