"""Shards come and go with the streams that keep them."""

import asyncio
from typing import Any

import pytest
from tests.kit.groups import GroupNode, loaded
from tests.kit.loop import virtual_time
from tests.kit.simulation.coordination.memory_stream import MemoryStream
from tests.unit.coordination.test_runtime import (
    commit_request,
    join_request,
    new_node,
)

from mainstem.coordination.groups.service import GroupCoordinator
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable

pytestmark = virtual_time


@pytest.fixture
def node() -> GroupNode:
    return new_node()


def copy_of(stream: MemoryStream) -> MemoryStream:
    """The stream as another node's writer, or this one's under the next epoch, has it."""
    made = MemoryStream()
    made.batches = list(stream.batches)
    made.committed = made.written = stream.committed
    made.epoch = stream.epoch + 1
    return made


async def offset_of(coordinator: GroupCoordinator) -> int:
    [fetched] = await coordinator.fetch_offsets("g", [("t", 0)])
    return fetched.committed.offset


async def without_its_files(node: GroupNode) -> tuple[GroupCoordinator, MemoryStream]:
    """A node that begins while the stream of a group is being copied to it."""
    coordinator = node.start()
    await coordinator.commit_offsets(commit_request(7))
    stream = node.stream_of(coordinator)
    coordinator.stop()
    stream.missing = Unavailable(ErrorCode.WRITER_UNAVAILABLE, "range 0 is being copied")
    return node.start(), stream


def is_ready(coordinator: GroupCoordinator, partition: int) -> bool:
    try:
        return coordinator.shards.in_partition(partition).is_ready
    except Unavailable:
        return False


async def test_a_group_is_refused_where_another_node_keeps_it(node: GroupNode) -> None:
    coordinator = node.start()
    await coordinator.commit_offsets(commit_request(7))
    coordinator.shards.closed(coordinator.coordinator_partition("g"))
    with pytest.raises(Unavailable) as refused:
        await coordinator.commit_offsets(commit_request(8))
    assert refused.value.code is ErrorCode.NOT_COORDINATOR


async def test_a_shard_that_comes_back_knows_what_was_committed_meanwhile(node: GroupNode) -> None:
    coordinator = node.start()
    await coordinator.commit_offsets(commit_request(7))
    partition = coordinator.coordinator_partition("g")
    coordinator.shards.closed(partition)
    # Another node keeps it for a while.
    elsewhere = new_node()
    elsewhere.topics.counts = dict(node.topics.counts)
    elsewhere.streams[partition] = copy_of(node.streams[partition])
    successor = elsewhere.start()
    await loaded(successor)
    assert await offset_of(successor) == 7
    await successor.commit_offsets(commit_request(9))
    node.streams[partition] = copy_of(elsewhere.streams[partition])
    coordinator.shards.opened(partition)
    await loaded(coordinator)
    assert await offset_of(coordinator) == 9


async def test_a_shard_waits_for_files_that_are_copied_and_holds_up_no_other(
    node: GroupNode,
) -> None:
    again, stream = await without_its_files(node)
    await asyncio.sleep(10)
    with pytest.raises(MainstemError) as refused:
        await offset_of(again)
    assert refused.value.code is ErrorCode.COORDINATOR_LOADING
    others = {at for at, each in enumerate(node.streams) if each is not stream}
    assert others == {at for at in range(len(node.streams)) if is_ready(again, at)}

    stream.missing = None
    await asyncio.sleep(3)

    assert await offset_of(again) == 7


@pytest.mark.parametrize("code", [ErrorCode.OVERLOADED, ErrorCode.STORAGE_FAILED])
async def test_a_shard_whose_disk_cannot_be_read_is_refused_until_it_can(
    node: GroupNode, code: ErrorCode
) -> None:
    again, stream = await without_its_files(node)
    stream.missing = Unavailable(code, "the disk refuses a read")
    await asyncio.sleep(10)
    with pytest.raises(MainstemError) as refused:
        await offset_of(again)
    assert refused.value.code is ErrorCode.COORDINATOR_UNAVAILABLE

    stream.missing = None
    await asyncio.sleep(3)

    assert await offset_of(again) == 7


async def test_a_shard_that_goes_while_it_waits_is_let_go(node: GroupNode) -> None:
    again, _ = await without_its_files(node)
    await asyncio.sleep(1)
    again.shards.closed(again.coordinator_partition("g"))
    await asyncio.sleep(3)
    with pytest.raises(MainstemError) as refused:
        await offset_of(again)
    assert refused.value.code is ErrorCode.NOT_COORDINATOR


async def test_a_stream_that_is_open_already_is_not_loaded_again(node: GroupNode) -> None:
    coordinator = node.start()
    await coordinator.commit_offsets(commit_request(7))
    partition = coordinator.coordinator_partition("g")
    before = coordinator.shards.in_partition(partition)
    coordinator.shards.opened(partition)
    assert coordinator.shards.in_partition(partition) is before


async def test_who_waits_in_a_shard_that_goes_is_told_to_look_elsewhere(node: GroupNode) -> None:
    coordinator = node.start()
    await coordinator.commit_offsets(commit_request(7))
    waiting = asyncio.ensure_future(coordinator.join(join_request()))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    coordinator.shards.closed(coordinator.coordinator_partition("g"))
    with pytest.raises(MainstemError) as refused:
        await waiting
    assert refused.value.code is ErrorCode.NOT_COORDINATOR


async def test_only_partitions_that_are_written_here_have_shards(node: GroupNode) -> None:
    coordinator = node.start()
    partition = coordinator.coordinator_partition("g")

    class Elsewhere(list[MemoryStream]):
        def __getitem__(self, index: Any) -> Any:
            if index == partition:
                raise Unavailable(ErrorCode.NOT_WRITER, "another node writes it")
            return super().__getitem__(index)

    node.streams = Elsewhere(node.streams)
    with pytest.raises(Unavailable) as refused:
        await coordinator.commit_offsets(commit_request(7))
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    assert len(coordinator.shards.all()) == len(node.streams) - 1
