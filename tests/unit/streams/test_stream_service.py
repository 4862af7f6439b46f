"""Stories of streams across restarts: epochs, ranges, joining them."""

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.unit.streams.house import TOPIC_ID, House

from mainstem.log.merging import smallest_run
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.ids import NodeId, Offset, RangeIndex
from mainstem.model.metadata import Range
from mainstem.model.record import Record, build_batch
from mainstem.placement.records import DeleteTopic
from mainstem.streams.compaction_driver import CompactionDriver
from mainstem.streams.merge_driver import RANGES_AFTER, RANGES_MAX, MergeDriver
from mainstem.streams.recovery import range_log
from mainstem.testing.faulty_files import FaultyFiles, FileFault


def test_every_restart_bumps_the_epoch_and_keeps_the_records(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            await house.create()
            await house.write(b"a", b"b")
        async with House(tmp_path) as house:
            stream = house.streams.door("t", 0)
            assert stream.epoch == 1
            await house.write(b"c")
        async with House(tmp_path) as house:
            stream = house.streams.door("t", 0)
            assert house.records() == [(0, b"a"), (1, b"b"), (2, b"c")]
            assert stream.end_of_epoch(0) == (0, 2)
            assert stream.end_of_epoch(1) == (1, 3)
            assert stream.end_of_epoch(2) == (2, 3)
            assert stream.end_of_epoch(9) == (-1, -1)
            assert [stream.epoch_of(offset) for offset in (0, 1, 2)] == [0, 0, 1]

    asyncio.run(story())


def test_an_empty_range_is_replaced_by_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        for _ in range(5):
            async with House(tmp_path) as house:
                if house.placement.catalogue.topic("t") is None:
                    await house.create()
        async with House(tmp_path) as house:
            stream = house.streams.door("t", 0)
            assert stream.epoch == 5
            assert len(stream.known.ranges) == 1

    asyncio.run(story())


def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            await house.create()
            for value in (b"a", b"b", b"c"):
                await house.write(value)
            assert await house.streams.delete_records("t", 0, 2) == 2
            with pytest.raises(InvalidRequest) as caught:
                await house.streams.delete_records("t", 0, 4)
            assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        async with House(tmp_path) as house:
            assert house.records() == [(2, b"c")]
            assert await house.streams.delete_records("t", 0, -1) == 3
            assert house.records() == []
            assert await house.write(b"d") == 3

    asyncio.run(story())


def test_a_full_range_rolls_while_writing_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            await house.create(internal_segment_bytes="1024")
            for number in range(200):
                await house.write(b"%03d" % number + b"x" * 300)
            await house.rolls.settled()
            stream = house.streams.door("t", 0)
            assert len(stream.known.ranges) > 3
            written = house.records()
        async with House(tmp_path) as house:
            assert house.records() == written
        assert [value[:3] for _, value in written if value] == [b"%03d" % n for n in range(200)]

    asyncio.run(story())


def test_a_crash_in_the_middle_of_a_roll_loses_nothing_that_was_written(tmp_path: Path) -> None:
    async def story() -> None:
        house = await House(tmp_path).__aenter__()
        topic = await house.create(flush_policy="written")
        await house.write(b"a")
        stream = house.streams.door("t", 0)
        following = Range(RangeIndex(1), Offset(1), stream.known.epoch, (NodeId(1),))
        snapshot = stream.state.snapshot()
        stream.begin_range(
            range_log(house.store, topic, stream.known, following, stream.settings, snapshot)
        )
        stream.append(build_batch([Record(0, 1, b"k", b"b")]))  # written, not yet committed
        await house.crash()

        async with House(tmp_path) as again:
            assert again.records() == [(0, b"a"), (1, b"b")]
            assert await again.write(b"c") == 2
        async with House(tmp_path) as again:
            assert again.records() == [(0, b"a"), (1, b"b"), (2, b"c")]

    asyncio.run(story())


def test_what_a_crash_left_of_a_range_that_fits_nowhere_is_removed(tmp_path: Path) -> None:
    async def story() -> None:
        house = await House(tmp_path).__aenter__()
        topic = await house.create(flush_policy="written")
        await house.write(b"a")
        stream = house.streams.door("t", 0)
        elsewhere = Range(RangeIndex(1), Offset(9), stream.known.epoch, (NodeId(1),))
        log = range_log(house.store, topic, stream.known, elsewhere, stream.settings)
        log.materialise()
        await house.crash()

        async with House(tmp_path) as again:
            assert again.records() == [(0, b"a")]
            assert await again.write(b"b") == 1
        async with House(tmp_path) as again:
            assert again.records() == [(0, b"a"), (1, b"b")]

    asyncio.run(story())


def test_folders_that_the_catalogue_has_let_go_are_removed(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            await house.create()
            await house.write(b"a")
            held = house.streams.door("t", 0).log.directory
        stray = held.with_name("range-7.g3")
        shutil.copytree(held, stray)
        async with House(tmp_path) as house:
            assert not stray.exists()
            assert house.records() == [(0, b"a")]

    asyncio.run(story())


def test_too_many_ranges_are_joined_without_changing_a_record(tmp_path: Path) -> None:
    async def story() -> None:
        for number in range(RANGES_MAX + 6):
            async with House(tmp_path) as house:
                if number == 0:
                    await house.create()
                await house.write(b"%d" % number, b"x" * (number % 3))
        async with House(tmp_path) as house:
            before = house.records()
            ranges = len(house.streams.door("t", 0).ranges)
            assert ranges > RANGES_MAX
            merging = MergeDriver(house.streams, house.placement.service, house.store)
            assert await merging.run_once() == 1
            stream = house.streams.door("t", 0)
            assert len(stream.ranges) == len(stream.known.ranges) == RANGES_AFTER
            assert house.records() == before
            assert await merging.run_once() == 0
            await house.write(b"after")
        async with House(tmp_path) as house:
            assert house.records() == [*before, (len(before), b"after")]
            stream = house.streams.door("t", 0)
            epochs = [each.epoch for each in stream.known.ranges]
            assert epochs == sorted(epochs)
            assert not [damage for held in stream.ranges for damage in held.verify()]

    asyncio.run(story())


def test_ranges_of_a_compacted_stream_are_joined_and_stay_clean(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            await house.create(
                cleanup_policy="compact",
                internal_segment_bytes="1024",
                min_cleanable_dirty_ratio="0.01",
            )
            for number in range(150):
                await house.write(b"%03d" % number + b"x" * 300, key=b"%d" % (number % 5))
                await house.rolls.settled()
            compaction = CompactionDriver(
                house.streams, house.placement.service, house.store, house.clock, 10**6
            )
            assert await compaction.run_once() == 1
            stream = house.streams.door("t", 0)
            kept = house.records()
            assert len(stream.ranges) > RANGES_MAX
            merging = MergeDriver(house.streams, house.placement.service, house.store)
            while await merging.run_once():
                pass
            assert len(stream.ranges) <= RANGES_MAX
            assert house.records() == kept
            assert await compaction.run_once() == 0
        async with House(tmp_path) as house:
            assert house.records() == kept

    asyncio.run(story())


def test_a_stream_that_cannot_be_compacted_now_is_compacted_in_the_next_round(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            await house.create(
                cleanup_policy="compact",
                internal_segment_bytes="1024",
                min_cleanable_dirty_ratio="0.01",
            )
            for number in range(20):
                await house.write(b"%03d" % number + b"x" * 300, key=b"%d" % (number % 5))
                await house.rolls.settled()
            compaction = CompactionDriver(
                house.streams, house.placement.service, house.store, house.clock, 10**6
            )
            with FaultyFiles() as files:
                files.begin(tmp_path, FileFault.NO_DESCRIPTORS)
                assert await compaction.run_once() == 0
            assert await compaction.run_once() == 1

    asyncio.run(story())


def test_a_deleted_topic_leaves_no_files(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            await house.create()
            await house.write(b"a")
            await house.placement.service.submit(DeleteTopic(TOPIC_ID))
            with pytest.raises(InvalidRequest):
                house.streams.door("t", 0)
            while house.store.sweep():
                pass
            assert not list((tmp_path / "topics").iterdir())

    asyncio.run(story())


@pytest.mark.parametrize(
    ("sizes", "count", "expected"), [([5, 1, 1, 9], 2, 1), ([1, 1, 1], 3, 0), ([9, 1, 2, 1], 3, 1)]
)
def test_the_run_that_holds_least_is_joined(sizes: list[int], count: int, expected: int) -> None:
    assert smallest_run(sizes, count) == expected
