"""A full disk refuses writes and ends nothing; everything goes on when there is space again."""

import asyncio
import gc
import os
from pathlib import Path

import pytest
from tests.kit.streams import StreamNode
from tests.unit.streams.full_disk import FullDisk

from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.ids import TopicId
from mainstem.model.records.record import Record, build_batch
from mainstem.model.topic_name import GROUP_OFFSETS_TOPIC
from mainstem.placement.changes.commands import CreateTopic, DeleteTopic
from mainstem.streams import storage_retry_driver
from mainstem.streams.failover import roles_service
from mainstem.streams.maintenance.retention_driver import RetentionDriver
from mainstem.streams.replica import driver
from mainstem.streams.writer import roll_driver

PATIENCE_S = 30
WRITES = 24


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    for module in (driver, roles_service, roll_driver, storage_retry_driver):
        monkeypatch.setattr(module, "RETRY_S", 0.01)
    return FullDisk(monkeypatch, tmp_path)


async def attempted(node: StreamNode, number: int) -> int | None:
    """Write one record; its number once it is acknowledged, None if it was refused."""
    try:
        await node.write(b"%06d" % number + b"x" * 400)
    except MainstemError as error:
        if error.code not in {ErrorCode.DISK_FULL, ErrorCode.OVERLOADED}:
            raise
        return None
    return number


async def written(node: StreamNode, first: int) -> list[asyncio.Task[int | None]]:
    """Begin as many writes as make several segments and ranges."""
    begun = []
    for number in range(first, first + WRITES):
        node.flusher.space.measured(1 << 60)  # what is full has not been noticed yet, or no longer
        begun.append(asyncio.create_task(attempted(node, number)))
        await asyncio.sleep(0.001)
    return begun


async def acknowledged(begun: list[asyncio.Task[int | None]]) -> set[int]:
    async with asyncio.timeout(PATIENCE_S):
        return {number for number in await asyncio.gather(*begun) if number is not None}


def deleted_but_open(folder: Path) -> list[str]:
    """Segments below a folder that take space although they were deleted."""
    links = (os.readlink(entry.path) for entry in os.scandir("/proc/self/fd"))  # noqa: PTH115
    return [
        link for link in links if link.startswith(str(folder)) and link.endswith(".log (deleted)")
    ]


def numbers(node: StreamNode) -> list[int]:
    return [int(value[:6]) for _, value in node.records() if value is not None]


@pytest.mark.parametrize("room", range(28))
async def test_wherever_the_space_ends_the_node_goes_on_and_starts_again(
    tmp_path: Path, disk: FullDisk, room: int
) -> None:
    async with StreamNode(tmp_path / "data") as node:
        retention = RetentionDriver(node.streams, node.store, node.flusher, node.clock)
        await node.create(internal_segment_bytes="1024")
        known = await acknowledged(await written(node, 0))
        assert len(known) == WRITES
        disk.room = room
        begun = await written(node, 100)
        await retention.run_once()
        assert node.fatal == []
        assert set(numbers(node)) >= known
        disk.room = None
        known |= await acknowledged(begun)
        known |= await acknowledged(await written(node, 200))
        assert len(known) >= 2 * WRITES
        assert set(numbers(node)) >= known
    async with StreamNode(tmp_path / "data") as node:
        assert set(numbers(node)) >= known
        again = await acknowledged(await written(node, 300))
        assert len(again) == WRITES


async def test_a_node_that_stops_on_a_full_disk_starts_again(
    tmp_path: Path, disk: FullDisk
) -> None:
    async with StreamNode(tmp_path / "data") as node:
        await node.create()
        known = await acknowledged(await written(node, 0))
        disk.room = 0
    disk.room = None
    async with StreamNode(tmp_path / "data") as node:
        assert set(numbers(node)) >= known


async def test_a_clean_stop_is_not_believed_twice_on_a_full_disk(
    tmp_path: Path, disk: FullDisk
) -> None:
    data = tmp_path / "data"
    async with StreamNode(data) as node:
        await node.create()
        await acknowledged(await written(node, 0))
    disk.room = 0
    node = StreamNode(data)
    with pytest.raises(MainstemError) as refused:  # no room for the new epoch of the stream
        await node.__aenter__()
    assert refused.value.code is ErrorCode.DISK_FULL
    assert b'"clean":false' in (data / "log.checkpoint").read_bytes()


async def test_a_deleted_topic_gives_its_open_segment_back_after_a_refusal(
    tmp_path: Path, disk: FullDisk
) -> None:
    gc.disable()  # who keeps a traceback is not to be saved by the collector
    try:
        async with StreamNode(tmp_path / "data") as node:
            topic = await node.create()
            await acknowledged(await written(node, 0))
            disk.room = 0
            assert await attempted(node, 100) is None
            stream = node.streams.partition("t", 0)  # somebody may still know of the stream
            disk.room = None
            await node.placement.service.submit(DeleteTopic(topic.id))
            while node.store.sweep():
                pass
            assert stream.closed is not None
            assert not deleted_but_open(tmp_path)
    finally:
        gc.enable()


async def test_records_are_refused_at_the_reserve_and_metadata_is_not(tmp_path: Path) -> None:
    async with StreamNode(tmp_path / "data") as node:
        await node.create()
        known = await acknowledged(await written(node, 0))
        node.flusher.space.reserve_bytes = 1_000
        node.flusher.space.measured(999)
        assert await attempted(node, 100) is None
        assert set(numbers(node)) == known
        await node.placement.service.submit(
            CreateTopic(TopicId(b"offsets of groups"[:16]), GROUP_OFFSETS_TOPIC, 1, 1, {})
        )
        batch = build_batch([Record(0, 0, b"k", b"v")])
        assert await node.streams.append(GROUP_OFFSETS_TOPIC, 0, batch) == 0
        node.flusher.space.measured(1_100)  # not yet: it would come and go
        assert await attempted(node, 100) is None
        node.flusher.space.measured(1_250)
        assert await attempted(node, 100) == 100
