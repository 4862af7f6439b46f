"""The coordinator on an event loop: parked requests, time, storage, loading."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from mainstem.coordination.partitions import OFFSETS_TOPIC
from mainstem.coordination.requests import (
    NO_OFFSET,
    CommitRequest,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    Leaver,
    OffsetToCommit,
    SyncRequest,
)
from mainstem.coordination.runtime import GroupsRuntime
from mainstem.coordination.settings import GroupSettings
from mainstem.coordination.shards_runtime import InternalTopic
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, Unavailable
from mainstem.testing.memory_stream import MemoryStream
from mainstem.testing.topic_list import TopicList
from mainstem.testing.virtual_loop import VirtualLoop

PARTITIONS = 4
SETTINGS = GroupSettings(
    initial_rebalance_delay_ms=20, session_timeout_min_ms=10, offsets_partitions=PARTITIONS
)
FULL = Unavailable(ErrorCode.DISK_FULL, "no space left")


class LoopClock:
    """The loop's own time, so that timers and clock agree."""

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class House:
    """What a node keeps while its coordinator is started and stopped."""

    def __init__(self) -> None:
        self.topics = {"t": 3}
        self.streams = [MemoryStream() for _ in range(PARTITIONS)]
        self.created = 0
        self.creation: Callable[[], Awaitable[None]] = self._nothing

    async def _nothing(self) -> None:
        await asyncio.sleep(0)

    async def ensure(self) -> None:
        await self.creation()
        self.created += 1
        self.topics[OFFSETS_TOPIC] = PARTITIONS

    def start(self, settings: GroupSettings = SETTINGS) -> GroupsRuntime:
        topic = InternalTopic(
            self.ensure, lambda p: self.streams[p], lambda name: self.topics.get(name, 0)
        )
        runtime = GroupsRuntime(settings, topic, TopicList(), LoopClock())
        runtime.start()
        return runtime

    async def restart(self, runtime: GroupsRuntime) -> GroupsRuntime:
        runtime.stop()
        again = self.start()
        await loaded(again)
        return again

    def stream_of(self, runtime: GroupsRuntime, group_id: str = "g") -> MemoryStream:
        return self.streams[runtime.coordinator_partition(group_id)]


async def loaded(runtime: GroupsRuntime) -> None:
    for _ in range(1_000):
        if runtime.is_loaded():
            return
        await asyncio.sleep(0)
    raise AssertionError("the shards do not load")


def play(story: Callable[[House], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story(House()))


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


async def become_stable(runtime: GroupsRuntime, **changes: Any) -> JoinAnswer:
    joined = await runtime.join(join_request(**changes))
    await runtime.sync(
        SyncRequest(
            group_id="g",
            generation=joined.generation,
            member_id=joined.member_id,
            assignments=((joined.member_id, b"all"),),
        )
    )
    return joined


async def position(runtime: GroupsRuntime, partition: int = 0) -> int:
    [kept] = await runtime.fetch_offsets("g", [("t", partition)])
    return kept.committed.offset


def test_a_topic_that_others_made_and_that_is_not_known_here_yet_is_waited_for() -> None:
    async def story(house: House) -> None:
        house.ensure = house._nothing  # type: ignore[method-assign]
        runtime = house.start()
        with pytest.raises(Unavailable) as refused:
            await runtime.commit_offsets(commit_request(1))
        assert refused.value.code is ErrorCode.COORDINATOR_UNAVAILABLE
        house.topics[OFFSETS_TOPIC] = PARTITIONS
        for partition in range(PARTITIONS):
            runtime.shards.opened(partition)
        await loaded(runtime)
        assert await runtime.commit_offsets(commit_request(1)) == [None]

    play(story)


def test_two_members_share_a_generation_and_get_their_assignments() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        first, second = await asyncio.gather(
            runtime.join(join_request()), runtime.join(join_request())
        )
        assert first.generation == second.generation == 1
        leader, follower = (first, second) if first.members else (second, first)
        assert {m.member_id for m in leader.members} == {first.member_id, second.member_id}
        waiting = asyncio.ensure_future(
            runtime.sync(SyncRequest(group_id="g", generation=1, member_id=follower.member_id))
        )
        await asyncio.sleep(0)
        assert not waiting.done()
        mine = await runtime.sync(
            SyncRequest(
                group_id="g",
                generation=1,
                member_id=leader.member_id,
                assignments=((leader.member_id, b"l"), (follower.member_id, b"f")),
            )
        )
        assert mine.assignment == b"l"
        assert (await waiting).assignment == b"f"
        assert runtime.describe("g").state == "Stable"
        runtime.stop()

    play(story)


def test_a_client_that_can_is_told_its_id_first() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        with pytest.raises(MainstemError) as refusal:
            await runtime.join(join_request(id_required=True))
        assert refusal.value.code is ErrorCode.MEMBER_ID_REQUIRED
        joined = await runtime.join(join_request(refusal.value.subject, id_required=True))
        assert joined.member_id == refusal.value.subject
        runtime.stop()

    play(story)


def test_a_cancelled_join_leaves_no_waiter_and_its_member_dies_of_silence() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        waiting = asyncio.ensure_future(runtime.join(join_request(session_timeout_ms=50)))
        await asyncio.sleep(0.005)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        assert runtime.describe("g").members
        await asyncio.sleep(0.2)
        assert runtime.describe("g").state == "Empty"
        runtime.stop()

    play(story)


def test_the_session_of_a_silent_member_ends() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        joined = await become_stable(runtime, session_timeout_ms=80)
        beat = HeartbeatRequest(group_id="g", generation=1, member_id=joined.member_id)
        for _ in range(4):
            await asyncio.sleep(0.04)
            runtime.heartbeat(beat)
        await asyncio.sleep(0.2)
        with pytest.raises(MainstemError) as refusal:
            runtime.heartbeat(beat)
        assert refusal.value.code is ErrorCode.UNKNOWN_MEMBER
        assert runtime.describe("g").state == "Empty"
        runtime.stop()

    play(story)


def test_a_commit_is_answered_when_it_is_safe_and_not_before() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        await runtime.commit_offsets(commit_request(1))
        stream = house.stream_of(runtime)
        stream.is_synced = False
        commit = asyncio.ensure_future(runtime.commit_offsets(commit_request(2)))
        fetch = asyncio.ensure_future(position(runtime))
        await asyncio.sleep(0.01)
        assert not commit.done()
        assert not fetch.done(), "a position that might be lost was told"
        stream.commit()
        assert await commit == [None]
        assert await fetch == 2
        runtime.stop()

    play(story)


def test_an_assignment_is_told_when_it_is_safe_and_not_before() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        joined = await runtime.join(join_request())
        stream = house.stream_of(runtime)
        stream.is_synced = False
        request = SyncRequest(
            group_id="g",
            generation=1,
            member_id=joined.member_id,
            assignments=((joined.member_id, b"all"),),
        )
        first = asyncio.ensure_future(runtime.sync(request))
        again = asyncio.ensure_future(runtime.sync(request))
        await asyncio.sleep(0.01)
        assert not first.done()
        assert not again.done()
        stream.commit()
        assert (await first).assignment == (await again).assignment == b"all"
        runtime.stop()

    play(story)


def test_a_full_disk_refuses_a_commit_and_changes_nothing() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        await runtime.commit_offsets(commit_request(1))
        house.stream_of(runtime).refusal = FULL
        with pytest.raises(MainstemError) as refusal:
            await runtime.commit_offsets(commit_request(2))
        assert refusal.value.code is ErrorCode.COORDINATOR_UNAVAILABLE
        assert await position(runtime) == 1
        house.stream_of(runtime).refusal = None
        await runtime.commit_offsets(commit_request(3))
        assert await position(runtime) == 3
        runtime.stop()

    play(story)


def test_a_commit_that_storage_loses_is_not_acknowledged() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        await runtime.commit_offsets(commit_request(1))
        stream = house.stream_of(runtime)
        stream.is_synced = False
        commit = asyncio.ensure_future(runtime.commit_offsets(commit_request(2)))
        await asyncio.sleep(0.01)
        stream.commit(Unavailable(ErrorCode.STORAGE_FAILED, "fsync"))
        with pytest.raises(MainstemError):
            await commit
        runtime.stop()

    play(story)


def test_a_commit_is_refused_when_too_many_wait_for_the_disk() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        await runtime.commit_offsets(commit_request(1))
        stream = house.stream_of(runtime)
        stream.is_synced, stream.waiting_max = False, 1
        first = asyncio.ensure_future(runtime.commit_offsets(commit_request(2)))
        await asyncio.sleep(0)
        with pytest.raises(MainstemError) as refusal:
            await runtime.commit_offsets(commit_request(3))
        assert refusal.value.code is ErrorCode.COORDINATOR_UNAVAILABLE
        stream.commit()
        assert await first == [None]
        runtime.stop()

    play(story)


def test_groups_and_positions_are_there_after_a_restart() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        joined = await become_stable(runtime)
        for offset in range(100):
            await runtime.commit_offsets(
                commit_request(offset, offset % 3, generation=1, member_id=joined.member_id)
            )
        again = await house.restart(runtime)
        assert [await position(again, p) for p in range(3)] == [99, 97, 98]
        again.heartbeat(HeartbeatRequest(group_id="g", generation=1, member_id=joined.member_id))
        [member] = again.describe("g").members
        assert member.assignment == b"all"
        again.stop()

    play(story)


def test_requests_are_refused_while_their_shard_loads() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        await runtime.commit_offsets(commit_request(1))
        runtime.stop()
        again = house.start()
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

    play(story)


def test_a_damaged_shard_is_unavailable_and_never_half_loaded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        await runtime.commit_offsets(commit_request(1))
        await runtime.commit_offsets(commit_request(2))
        stream = house.stream_of(runtime)
        runtime.stop()
        damaged = bytearray(stream.batches[1])
        damaged[-1] ^= 1
        stream.batches[1] = bytes(damaged)
        again = await house.restart(runtime)
        with pytest.raises(MainstemError) as refusal:
            await position(again)
        assert refusal.value.code is ErrorCode.COORDINATOR_UNAVAILABLE
        again.stop()

    play(story)
    assert "cannot be loaded" in caplog.text


def test_a_shard_whose_damaged_bytes_were_copied_anew_is_served_again() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        await runtime.commit_offsets(commit_request(1))
        stream = house.stream_of(runtime)
        runtime.stop()
        stream.missing = Corrupt("the checksum does not match")
        again = await house.restart(runtime)
        with pytest.raises(MainstemError) as refusal:
            await position(again)
        assert refusal.value.code is ErrorCode.COORDINATOR_UNAVAILABLE
        stream.missing = None
        await asyncio.sleep(60)
        assert await position(again) == 1
        again.stop()

    play(story)


def test_the_internal_topic_is_made_once_by_the_first_who_stores() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        assert list(runtime.list()) == []
        assert await position(runtime) == NO_OFFSET
        with pytest.raises(MainstemError) as refusal:
            runtime.describe("g")
        assert refusal.value.code is ErrorCode.UNKNOWN_GROUP
        assert house.created == 0
        await asyncio.gather(*(runtime.commit_offsets(commit_request(n)) for n in range(5)))
        assert house.created == 1
        runtime.stop()

    play(story)


def test_a_topic_that_cannot_be_made_is_tried_again_later() -> None:
    async def fail() -> None:
        raise FULL

    async def story(house: House) -> None:
        runtime = house.start()
        fine, house.creation = house.creation, fail
        with pytest.raises(MainstemError) as refusal:
            await runtime.commit_offsets(commit_request(1))
        assert refusal.value.code is ErrorCode.COORDINATOR_UNAVAILABLE
        house.creation = fine
        await runtime.commit_offsets(commit_request(1))
        assert await position(runtime) == 1
        runtime.stop()

    play(story)


def test_positions_in_a_deleted_topic_are_forgotten_for_good() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        await runtime.commit_offsets(commit_request(5))
        del house.topics["t"]
        runtime.topic_deleted("t")
        assert await position(runtime) == NO_OFFSET
        house.topics["t"] = 3
        again = await house.restart(runtime)
        assert await position(again) == NO_OFFSET
        again.stop()

    play(story)


def test_positions_in_a_topic_that_vanished_while_the_node_was_down_are_forgotten() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        await runtime.commit_offsets(commit_request(5))
        del house.topics["t"]
        again = await house.restart(runtime)
        house.topics["t"] = 3
        assert await position(again) == NO_OFFSET
        again.stop()

    play(story)


def test_expired_positions_are_swept() -> None:
    async def story(house: House) -> None:
        runtime = house.start(
            GroupSettings(
                offsets_partitions=PARTITIONS,
                offsets_retention_ms=40,
                offsets_retention_check_ms=20,
            )
        )
        await runtime.commit_offsets(commit_request(5))
        assert await position(runtime) == 5
        await asyncio.sleep(0.15)
        assert await position(runtime) == NO_OFFSET
        assert list(runtime.list()) == []
        runtime.stop()

    play(story)


def test_a_large_commit_is_stored_in_pieces_and_loaded_whole() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        note = "n" * 4_000
        offsets = tuple(OffsetToCommit("t", p, p, metadata=note) for p in range(400))
        house.topics["t"] = 400
        assert (
            await runtime.commit_offsets(CommitRequest(group_id="g", offsets=offsets))
            == [None] * 400
        )
        stream = house.stream_of(runtime)
        assert len(stream.batches) > 1
        assert max(map(len, stream.batches)) < 1_000_000
        again = await house.restart(runtime)
        assert len(await again.fetch_offsets("g", None)) == 400
        again.stop()

    play(story)


def test_a_stopping_node_sends_everybody_away() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        waiting = asyncio.ensure_future(runtime.join(join_request()))
        await asyncio.sleep(0.005)
        runtime.stop()
        with pytest.raises(MainstemError) as refusal:
            await waiting
        assert refusal.value.code is ErrorCode.COORDINATOR_UNAVAILABLE
        with pytest.raises(MainstemError):
            await runtime.join(join_request())

    play(story)


def test_a_member_that_leaves_makes_room_and_an_empty_group_can_be_deleted() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        joined = await become_stable(runtime)
        with pytest.raises(MainstemError) as refusal:
            await runtime.delete("g")
        assert refusal.value.code is ErrorCode.GROUP_NOT_EMPTY
        assert await runtime.leave("g", [Leaver(joined.member_id), Leaver("nobody")]) == [
            None,
            ErrorCode.UNKNOWN_MEMBER,
        ]
        await runtime.delete("g")
        assert list(runtime.list()) == []
        runtime.stop()

    play(story)


def test_lists_are_filtered_by_state_and_type_in_any_case() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        await become_stable(runtime)
        await runtime.commit_offsets(commit_request(1, group_id="simple"))

        def named(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> set[str]:
            return {line.group_id for line in runtime.list(states, types)}

        assert named() == {"g", "simple"}
        assert named(("stable",)) == {"g"}
        assert named(("Empty", "Dead")) == {"simple"}
        assert named((), ("CLASSIC",)) == {"g", "simple"}
        assert named((), ("consumer",)) == set()
        runtime.stop()

    play(story)


@pytest.mark.parametrize("group_id", ["", "g" * 1_001])
def test_a_group_needs_a_name_of_sensible_length(group_id: str) -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        with pytest.raises(MainstemError) as refusal:
            await runtime.join(join_request(group_id=group_id))
        assert refusal.value.code is ErrorCode.INVALID_GROUP
        runtime.stop()

    play(story)
