"""Shards come and go with the streams that keep them."""

import asyncio
from typing import Any

import pytest
from tests.unit.coordination.test_runtime import (
    House,
    commit_request,
    join_request,
    loaded,
    play,
)

from mainstem.coordination.runtime import GroupsRuntime
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.testing.memory_stream import MemoryStream


def copy_of(stream: MemoryStream) -> MemoryStream:
    """The stream as another node's writer, or this one's under the next epoch, has it."""
    made = MemoryStream()
    made.batches = list(stream.batches)
    made.committed = made.written = stream.committed
    made.epoch = stream.epoch + 1
    return made


async def offset_of(runtime: GroupsRuntime) -> int:
    [fetched] = await runtime.fetch_offsets("g", [("t", 0)])
    return fetched.committed.offset


async def without_its_files(house: House) -> tuple[GroupsRuntime, MemoryStream]:
    """A node that begins while the stream of a group is being copied to it."""
    runtime = house.start()
    await runtime.commit_offsets(commit_request(7))
    stream = house.stream_of(runtime)
    runtime.stop()
    stream.missing = Unavailable(ErrorCode.WRITER_UNAVAILABLE, "range 0 is being copied")
    return house.start(), stream


def is_ready(runtime: GroupsRuntime, partition: int) -> bool:
    try:
        return runtime.shards.in_partition(partition).is_ready
    except Unavailable:
        return False


def test_a_group_is_refused_where_another_node_keeps_it() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        await runtime.commit_offsets(commit_request(7))
        runtime.shards.closed(runtime.coordinator_partition("g"))
        with pytest.raises(Unavailable) as refused:
            await runtime.commit_offsets(commit_request(8))
        assert refused.value.code is ErrorCode.NOT_COORDINATOR

    play(story)


def test_a_shard_that_comes_back_knows_what_was_committed_meanwhile() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        await runtime.commit_offsets(commit_request(7))
        partition = runtime.coordinator_partition("g")
        runtime.shards.closed(partition)
        # Another node keeps it for a while.
        elsewhere = House()
        elsewhere.topics = dict(house.topics)
        elsewhere.streams[partition] = copy_of(house.streams[partition])
        heir = elsewhere.start()
        await loaded(heir)
        assert await offset_of(heir) == 7
        await heir.commit_offsets(commit_request(9))
        house.streams[partition] = copy_of(elsewhere.streams[partition])
        runtime.shards.opened(partition)
        await loaded(runtime)
        assert await offset_of(runtime) == 9

    play(story)


def test_a_shard_waits_for_files_that_are_copied_and_holds_up_no_other() -> None:
    async def story(house: House) -> None:
        again, stream = await without_its_files(house)
        await asyncio.sleep(10)
        with pytest.raises(MainstemError) as refused:
            await offset_of(again)
        assert refused.value.code is ErrorCode.COORDINATOR_LOADING
        others = {at for at, each in enumerate(house.streams) if each is not stream}
        assert others == {at for at in range(len(house.streams)) if is_ready(again, at)}

        stream.missing = None
        await asyncio.sleep(3)

        assert await offset_of(again) == 7

    play(story)


def test_a_shard_that_goes_while_it_waits_is_let_go() -> None:
    async def story(house: House) -> None:
        again, _ = await without_its_files(house)
        await asyncio.sleep(1)
        again.shards.closed(again.coordinator_partition("g"))
        await asyncio.sleep(3)
        with pytest.raises(MainstemError) as refused:
            await offset_of(again)
        assert refused.value.code is ErrorCode.NOT_COORDINATOR

    play(story)


def test_a_stream_that_is_open_already_is_not_loaded_again() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        await runtime.commit_offsets(commit_request(7))
        partition = runtime.coordinator_partition("g")
        before = runtime.shards.in_partition(partition)
        runtime.shards.opened(partition)
        assert runtime.shards.in_partition(partition) is before

    play(story)


def test_who_waits_in_a_shard_that_goes_is_told_to_look_elsewhere() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        await runtime.commit_offsets(commit_request(7))
        waiting = asyncio.ensure_future(runtime.join(join_request()))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        runtime.shards.closed(runtime.coordinator_partition("g"))
        with pytest.raises(MainstemError) as refused:
            await waiting
        assert refused.value.code is ErrorCode.NOT_COORDINATOR

    play(story)


def test_only_partitions_that_are_written_here_have_shards() -> None:
    async def story(house: House) -> None:
        runtime = house.start()
        partition = runtime.coordinator_partition("g")

        class Elsewhere(list[MemoryStream]):
            def __getitem__(self, index: Any) -> Any:
                if index == partition:
                    raise Unavailable(ErrorCode.NOT_WRITER, "another node writes it")
                return super().__getitem__(index)

        house.streams = Elsewhere(house.streams)
        with pytest.raises(Unavailable) as refused:
            await runtime.commit_offsets(commit_request(7))
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
        assert len(runtime.shards.all()) == len(house.streams) - 1

    play(story)
