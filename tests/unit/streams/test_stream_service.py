"""Stories of streams across restarts: epochs, ranges, joining them."""

import shutil
from pathlib import Path

import pytest
from tests.kit.streams import TOPIC_ID, StreamNode

from mainstem.log.cleaning.merging import smallest_run
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.ids import NodeId, Offset, RangeIndex
from mainstem.model.metadata import Range
from mainstem.model.records.record import Record, build_batch
from mainstem.placement.changes.commands import DeleteTopic
from mainstem.streams.failover.state_recovery import range_log
from mainstem.streams.maintenance.compaction_driver import CompactionDriver
from mainstem.streams.maintenance.merge_driver import RANGES_AFTER, RANGES_MAX, MergeDriver
from mainstem.testing.simulation.faulty_files import FaultyFiles, FileFault


async def test_every_restart_bumps_the_epoch_and_keeps_the_records(tmp_path: Path) -> None:
    async with StreamNode(tmp_path) as node:
        await node.create()
        await node.write(b"a", b"b")
    async with StreamNode(tmp_path) as node:
        stream = node.streams.partition("t", 0)
        assert stream.epoch == 1
        await node.write(b"c")
    async with StreamNode(tmp_path) as node:
        stream = node.streams.partition("t", 0)
        assert node.records() == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert stream.end_of_epoch(0) == (0, 2)
        assert stream.end_of_epoch(1) == (1, 3)
        assert stream.end_of_epoch(2) == (2, 3)
        assert stream.end_of_epoch(9) == (-1, -1)
        assert [stream.epoch_of(offset) for offset in (0, 1, 2)] == [0, 0, 1]


async def test_an_empty_range_is_replaced_by_a_restart(tmp_path: Path) -> None:
    for _ in range(5):
        async with StreamNode(tmp_path) as node:
            if node.placement.catalogue.topic("t") is None:
                await node.create()
    async with StreamNode(tmp_path) as node:
        stream = node.streams.partition("t", 0)
        assert stream.epoch == 5
        assert len(stream.known.ranges) == 1


async def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    async with StreamNode(tmp_path) as node:
        await node.create()
        for value in (b"a", b"b", b"c"):
            await node.write(value)
        assert await node.streams.delete_records("t", 0, 2) == 2
        with pytest.raises(InvalidRequest) as caught:
            await node.streams.delete_records("t", 0, 4)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    async with StreamNode(tmp_path) as node:
        assert node.records() == [(2, b"c")]
        assert await node.streams.delete_records("t", 0, -1) == 3
        assert node.records() == []
        assert await node.write(b"d") == 3


async def test_a_full_range_rolls_while_writing_goes_on(tmp_path: Path) -> None:
    async with StreamNode(tmp_path) as node:
        await node.create(internal_segment_bytes="1024")
        for number in range(200):
            await node.write(b"%03d" % number + b"x" * 300)
        await node.rolls.settled()
        stream = node.streams.partition("t", 0)
        assert len(stream.known.ranges) > 3
        written = node.records()
    async with StreamNode(tmp_path) as node:
        assert node.records() == written
    assert [value[:3] for _, value in written if value] == [b"%03d" % n for n in range(200)]


async def test_a_crash_in_the_middle_of_a_roll_loses_nothing_that_was_written(
    tmp_path: Path,
) -> None:
    node = await StreamNode(tmp_path).__aenter__()
    topic = await node.create(flush_policy="written")
    await node.write(b"a")
    stream = node.streams.partition("t", 0)
    following = Range(RangeIndex(1), Offset(1), stream.known.epoch, (NodeId(1),))
    snapshot = stream.state.snapshot()
    stream.begin_range(
        range_log(node.store, topic, stream.known, following, stream.settings, snapshot)
    )
    stream.append(build_batch([Record(0, 1, b"k", b"b")]))  # written, not yet committed
    await node.crash()

    async with StreamNode(tmp_path) as again:
        assert again.records() == [(0, b"a"), (1, b"b")]
        assert await again.write(b"c") == 2
    async with StreamNode(tmp_path) as again:
        assert again.records() == [(0, b"a"), (1, b"b"), (2, b"c")]


async def test_what_a_crash_left_of_a_range_that_fits_nowhere_is_removed(tmp_path: Path) -> None:
    node = await StreamNode(tmp_path).__aenter__()
    topic = await node.create(flush_policy="written")
    await node.write(b"a")
    stream = node.streams.partition("t", 0)
    elsewhere = Range(RangeIndex(1), Offset(9), stream.known.epoch, (NodeId(1),))
    log = range_log(node.store, topic, stream.known, elsewhere, stream.settings)
    log.materialise()
    await node.crash()

    async with StreamNode(tmp_path) as again:
        assert again.records() == [(0, b"a")]
        assert await again.write(b"b") == 1
    async with StreamNode(tmp_path) as again:
        assert again.records() == [(0, b"a"), (1, b"b")]


async def test_folders_that_the_catalogue_has_let_go_are_removed(tmp_path: Path) -> None:
    async with StreamNode(tmp_path) as node:
        await node.create()
        await node.write(b"a")
        held = node.streams.partition("t", 0).log.directory
    stray = held.with_name("range-7.g3")
    shutil.copytree(held, stray)
    async with StreamNode(tmp_path) as node:
        assert not stray.exists()
        assert node.records() == [(0, b"a")]


async def test_too_many_ranges_are_joined_without_changing_a_record(tmp_path: Path) -> None:
    for number in range(RANGES_MAX + 6):
        async with StreamNode(tmp_path) as node:
            if number == 0:
                await node.create()
            await node.write(b"%d" % number, b"x" * (number % 3))
    async with StreamNode(tmp_path) as node:
        before = node.records()
        ranges = len(node.streams.partition("t", 0).ranges)
        assert ranges > RANGES_MAX
        merging = MergeDriver(node.streams, node.placement.service, node.store)
        assert await merging.run_once() == 1
        stream = node.streams.partition("t", 0)
        assert len(stream.ranges) == len(stream.known.ranges) == RANGES_AFTER
        assert node.records() == before
        assert await merging.run_once() == 0
        await node.write(b"after")
    async with StreamNode(tmp_path) as node:
        assert node.records() == [*before, (len(before), b"after")]
        stream = node.streams.partition("t", 0)
        epochs = [each.epoch for each in stream.known.ranges]
        assert epochs == sorted(epochs)
        assert not [damage for held in stream.ranges for damage in held.verify()]


async def test_ranges_of_a_compacted_stream_are_joined_and_stay_clean(tmp_path: Path) -> None:
    async with StreamNode(tmp_path) as node:
        await node.create(
            cleanup_policy="compact",
            internal_segment_bytes="1024",
            min_cleanable_dirty_ratio="0.01",
        )
        for number in range(150):
            await node.write(b"%03d" % number + b"x" * 300, key=b"%d" % (number % 5))
            await node.rolls.settled()
        compaction = CompactionDriver(
            node.streams, node.placement.service, node.store, node.clock, 10**6
        )
        assert await compaction.run_once() == 1
        stream = node.streams.partition("t", 0)
        kept = node.records()
        assert len(stream.ranges) > RANGES_MAX
        merging = MergeDriver(node.streams, node.placement.service, node.store)
        while await merging.run_once():
            pass
        assert len(stream.ranges) <= RANGES_MAX
        assert node.records() == kept
        assert await compaction.run_once() == 0
    async with StreamNode(tmp_path) as node:
        assert node.records() == kept


async def test_a_stream_that_cannot_be_compacted_now_is_compacted_in_the_next_round(
    tmp_path: Path,
) -> None:
    async with StreamNode(tmp_path) as node:
        await node.create(
            cleanup_policy="compact",
            internal_segment_bytes="1024",
            min_cleanable_dirty_ratio="0.01",
        )
        for number in range(20):
            await node.write(b"%03d" % number + b"x" * 300, key=b"%d" % (number % 5))
            await node.rolls.settled()
        compaction = CompactionDriver(
            node.streams, node.placement.service, node.store, node.clock, 10**6
        )
        with FaultyFiles() as files:
            files.begin(tmp_path, FileFault.NO_DESCRIPTORS)
            assert await compaction.run_once() == 0
        assert await compaction.run_once() == 1


async def test_a_deleted_topic_leaves_no_files(tmp_path: Path) -> None:
    async with StreamNode(tmp_path) as node:
        await node.create()
        await node.write(b"a")
        await node.placement.service.submit(DeleteTopic(TOPIC_ID))
        with pytest.raises(InvalidRequest):
            node.streams.partition("t", 0)
        while node.store.sweep():
            pass
        assert not list((tmp_path / "topics").iterdir())


@pytest.mark.parametrize(
    ("sizes", "count", "expected"), [([5, 1, 1, 9], 2, 1), ([1, 1, 1], 3, 0), ([9, 1, 2, 1], 3, 1)]
)
def test_the_run_that_holds_least_is_joined(sizes: list[int], count: int, expected: int) -> None:
    assert smallest_run(sizes, count) == expected
