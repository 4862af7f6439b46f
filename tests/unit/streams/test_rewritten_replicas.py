"""Sealed ranges on several nodes: compacted, joined, damaged, and whole again."""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.unit.streams.town import STREAM, Town, TownNode, batch_of, eventually

from mainstem.model.errors import Corrupt, MainstemError
from mainstem.model.ids import NodeId, StreamId
from mainstem.placement.fact import Command
from mainstem.placement.records import DeleteTopic
from mainstem.placement.replication_records import CopyRange, DropReplica, ReplicaLost
from mainstem.streams import copy_driver
from mainstem.streams.compaction_driver import CompactionDriver
from mainstem.streams.copy_driver import COPIES_MAX
from mainstem.streams.merge_driver import MergeDriver
from mainstem.streams.scrub_driver import ScrubDriver
from mainstem.streams.worker_driver import FileWorker
from mainstem.telemetry.metrics import Metrics
from mainstem.testing.peer_network import PeerNetwork

COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0",
    "segment_bytes": "1048576",
}


async def compact(town: Town) -> int:
    writer = town.writer
    driver = CompactionDriver(
        writer.streams, town.placement.service, writer.store, town.clock, 1 << 20
    )
    return await driver.run_once()


async def compact_soon(town: Town) -> None:
    """Compact in one of the next rounds: a node tries again what it cannot do at once."""
    for _ in range(100):
        if await compact(town) == 1:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("nothing was compacted")


def files(node: TownNode, index: int) -> dict[str, bytes]:
    """The records and indexes of a range on a node, by file."""
    (folder,) = node.folder.glob(f"topics/*/partition-0/range-{index}.g*[0-9]")
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.suffix in (".log", ".index", ".timeindex", ".seal", ".mark")
    }


async def roll(town: Town) -> None:
    count = town.stream.last.index
    town.writer.streams.roll(town.stream.id)
    await eventually(lambda: town.stream.last.index > count)
    await eventually(lambda: all(len(one.done) == 3 for one in town.stream.ranges[:-1]))


async def one_key_over_and_over(town: Town) -> None:
    """A sealed range of which compaction leaves one record."""
    await town.create(**COMPACTED)
    for number in range(20):
        await town.write(b"%d" % number)
    await roll(town)
    await eventually(lambda: len(town.stream.ranges[0].done) == 3)


async def three_ranges(town: Town) -> None:
    """Sealed ranges of one record each."""
    await town.create(**COMPACTED)
    for number in range(3):
        await town.write(b"%d" % number)
        await roll(town)


def test_a_compacted_range_is_the_same_on_every_node(tmp_path: Path) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await one_key_over_and_over(town)
            await compact_soon(town)
            # The swap waits for as many as acknowledge; the third takes it over a moment later.
            await eventually(lambda: len(town.stream.ranges[0].done) == 3)
            facts = town.stream.ranges[0]
            assert facts.generation == 1
            assert town.values() == [b"19"]
            copies = [files(node, facts.index) for node in town.nodes.values()]
            assert copies[0] == copies[1] == copies[2]

    asyncio.run(story())


def test_a_node_that_was_away_takes_the_compacted_range_over(tmp_path: Path) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await one_key_over_and_over(town)
            away = next(node for node in town.nodes.values() if node is not town.writer)
            await away.crash()
            await compact_soon(town)
            assert len(town.stream.ranges[0].done) == 2
            await away.start()
            await eventually(lambda: len(town.stream.ranges[0].done) == 3)
            index = town.stream.ranges[0].index
            assert files(away, index) == files(town.writer, index)

    asyncio.run(story())


def test_whoever_has_a_range_since_it_was_sealed_takes_the_compacted_one_over(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create(**COMPACTED)
            await town.write(b"1")
            late, gone = [node for node in town.nodes.values() if node is not town.writer]
            await late.crash()
            await town.write(b"2")
            town.writer.streams.roll(town.stream.id)
            await eventually(lambda: len(town.stream.ranges) > 1)
            assert late.id not in town.stream.ranges[0].done
            await late.start()
            await eventually(lambda: len(town.stream.ranges[0].done) == 3)
            await gone.crash()
            await compact_soon(town)
            assert set(town.stream.ranges[0].done) == {town.writer.id, late.id}

    asyncio.run(story())


def test_a_range_is_copied_from_a_node_that_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=copy_driver.__name__)

    async def story() -> None:
        async with Town(tmp_path) as town:
            await one_key_over_and_over(town)
            away = next(node for node in town.nodes.values() if node is not town.writer)
            await away.crash()
            await compact_soon(town)
            dead = town.nodes[town.stream.ranges[0].done[0]]
            await dead.crash()
            await town.fence(dead)
            await away.start()
            await eventually(lambda: away.id in town.stream.ranges[0].done)
            assert "is not whole" not in caplog.text

    asyncio.run(story())


def test_joined_ranges_are_the_same_on_every_node(tmp_path: Path) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            for number in range(33):
                await town.write(b"%d" % number)
                await roll(town)
            writer = town.writer
            door = writer.streams.door("t", 0)
            await eventually(lambda: len(door.ranges) == 34)  # the catalogue knows a little sooner
            merging = MergeDriver(writer.streams, town.placement.service, writer.store)
            assert await merging.run_once() == 1
            assert len(town.stream.ranges) == 24
            assert town.values() == [b"%d" % number for number in range(33)]
            await eventually(lambda: all(len(one.done) == 3 for one in town.stream.ranges[:-1]))
            (joined,) = [one for one in town.stream.ranges if one.generation]
            copies = [files(node, joined.index) for node in town.nodes.values()]
            assert copies[0] == copies[1] == copies[2]
            dead = town.writer
            await dead.crash()
            await town.fence(dead)
            await town.write(b"33")
            assert town.values() == [b"%d" % number for number in range(34)]

    asyncio.run(story())


def test_ranges_of_several_writers_are_joined_where_the_same_nodes_hold_them(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            away = next(node for node in town.nodes.values() if node is not town.writer)
            for number in range(6):
                await town.write(b"%d" % number)
                if number == 2:  # the range that follows is held by two
                    town.writer.streams.roll(town.stream.id, exclude=[away.id])
                else:
                    others = [one for one in town.stream.last.replicas if one != town.writer.id]
                    town.writer.streams.roll(town.stream.id, new_writer=others[0])
                await eventually(lambda: len(town.stream.ranges) == number + 2)  # noqa: B023
                await eventually(lambda: town.stream.id in open_streams(town.writer))
            await eventually(lambda: all(len(one.done) >= 2 for one in town.stream.ranges[:-1]))
            held = [len(one.replicas) for one in town.stream.ranges]
            writer = town.writer
            merging = MergeDriver(
                writer.streams, town.placement.service, writer.store, ranges_max=4, ranges_after=2
            )
            expected = [b"%d" % number for number in range(6)]
            await eventually(lambda: readable(town) == expected)
            assert await merging.run_once() == 1, held
            assert readable(town) == expected
            (joined,) = [one for one in town.stream.ranges if one.generation]
            assert len({one.epoch for one in town.stream.ranges}) > 1
            assert len(town.stream.ranges) < len(held)
            copies = [files(town.nodes[node], joined.index) for node in joined.done]
            assert all(copy == copies[0] for copy in copies)

    asyncio.run(story())


def open_streams(node: TownNode) -> list[StreamId]:
    return [stream.id for stream in node.streams.all() if stream.closed is None]


def test_a_node_that_began_anew_frees_the_space_of_records_that_are_deleted(tmp_path: Path) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            await town.write(b"0")
            await roll(town)
            await town.write(b"1")
            index = town.stream.ranges[0].index
            node = next(one for one in town.nodes.values() if one is not town.writer)
            await node.crash()
            await node.start()
            await town.write(b"2")
            assert files(node, index)
            await town.writer.streams.delete_records("t", 0, 1)
            for one in town.nodes.values():
                held = [log.identity.name.index for log in one.store.logs.values()]
                assert index not in held
                assert not list(one.folder.glob(f"topics/*/partition-0/range-{index}.g0"))

    asyncio.run(story())


def test_a_damaged_range_is_copied_from_another_node(tmp_path: Path) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            for number in range(20):
                await town.write(b"%d" % number)
            await roll(town)
            index = town.stream.ranges[0].index
            broken = next(node for node in town.nodes.values() if node is not town.writer)
            await broken.crash()
            (path,) = broken.folder.glob(f"topics/*/partition-0/range-{index}.g0/*.log")
            sound = path.read_bytes()
            path.write_bytes(sound[:100])
            await broken.start()
            await eventually(lambda: path.exists() and path.read_bytes() == sound)
            await eventually(lambda: len(town.stream.ranges[0].done) == 3)

    asyncio.run(story())


def test_the_writer_reads_again_what_was_copied_anew(tmp_path: Path) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            for number in range(20):
                await town.write(b"%d" % number)
            await roll(town)
            facts = town.stream.ranges[0]
            writer = town.writer
            (path,) = writer.folder.glob(f"topics/*/partition-0/range-{facts.index}.g0/*.log")
            sound = path.read_bytes()
            path.write_bytes(bytes(len(sound)))
            writer.streams.lost(town.stream.id, facts.index)
            await eventually(lambda: path.exists() and path.read_bytes() == sound)
            await eventually(lambda: len(town.stream.ranges[0].done) == 3)
            assert town.values() == [b"%d" % number for number in range(20)]

    asyncio.run(story())


def test_a_scrub_that_finds_damage_has_the_range_copied_anew(tmp_path: Path) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            for number in range(20):
                await town.write(b"%d" % number)
            await roll(town)
            facts = town.stream.ranges[0]
            node = next(one for one in town.nodes.values() if one is not town.writer)
            (path,) = node.folder.glob(f"topics/*/partition-0/range-{facts.index}.g0/*.log")
            sound = path.read_bytes()
            path.write_bytes(bytes(len(sound)))
            scrub = ScrubDriver(node.store, Metrics(), node.streams.lost)
            task = asyncio.create_task(scrub.run(1))
            await eventually(lambda: path.exists() and path.read_bytes() == sound)
            task.cancel()
            await eventually(lambda: len(town.stream.ranges[0].done) == 3)

    asyncio.run(story())


def test_a_reader_that_finds_damage_has_the_range_copied_anew(tmp_path: Path) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            for number in range(20):
                await town.write(b"%d" % number)
            await roll(town)
            for node in town.nodes.values():  # what a process wrote itself it does not check
                await node.crash()
            for node in town.nodes.values():
                await node.start()
            await town.write(b"20")
            reader = town.writer
            index = town.stream.ranges[0].index
            (path,) = reader.folder.glob(f"topics/*/partition-0/range-{index}.g0/*.log")
            sound = path.read_bytes()
            path.write_bytes(sound[:200] + bytes(len(sound) - 200))
            with pytest.raises(Corrupt):
                town.values()
            expected = [b"%d" % number for number in range(21)]
            await eventually(lambda: readable(town) == expected)
            assert path.read_bytes() == sound

    asyncio.run(story())


def test_a_source_whose_disk_fails_does_not_end_the_node_that_copies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=copy_driver.__name__)

    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            await town.write(b"0")
            away = next(node for node in town.nodes.values() if node is not town.writer)
            await away.crash()
            await town.fence(away)
            await town.write(b"1")
            sealed = town.stream.ranges[-1]
            town.writer.streams.roll(town.stream.id)
            await eventually(lambda: len(town.stream.ranges) > 2)
            sources = [town.nodes[node] for node in sealed.replicas if node != away.id]
            assert len(sources) == 2
            for one in sources:
                await eventually(lambda: "range.seal" in files(one, sealed.index))  # noqa: B023
            broken = {node.id: broken_files(node, sealed.index) for node in sources}
            order = CopyRange(STREAM, sealed.index, away.id)
            await away.start()
            await town.placement.service.submit(order)
            await eventually(lambda: "is not whole" in caplog.text or bool(away.fatal))
            assert away.fatal == []
            assert away.id not in town.stream.ranges[1].done
            for fds in broken.values():
                mend(fds)
            await eventually(lambda: away.id in town.stream.ranges[1].done)
            assert files(away, sealed.index) == files(town.writer, sealed.index)

    asyncio.run(story())


def broken_files(node: TownNode, index: int) -> list[tuple[int, int]]:
    """Make a disk refuse to read a range: its descriptors, and copies of them."""
    kept = []
    for log in node.store.logs.values():
        for segment in log.segments if log.identity.name.index == index else ():
            fd = segment.file.fd
            kept.append((fd, os.dup(fd)))
            for_writing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(for_writing, fd)
            os.close(for_writing)
    assert kept
    return kept


def mend(fds: list[tuple[int, int]]) -> None:
    for fd, kept in fds:
        os.dup2(kept, fd)
        os.close(kept)


def readable(town: Town) -> list[bytes | None]:
    try:
        return town.values()
    except MainstemError:
        return []


async def begun(work: Coroutine[None, None, int]) -> asyncio.Task[int]:
    """Work on files that its process is about to read: a process takes a while to start."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0.01)
    return task


async def join(town: Town) -> int:
    writer = town.writer
    driver = MergeDriver(
        writer.streams, town.placement.service, writer.store, ranges_max=1, ranges_after=1
    )
    return await driver.run_once()


def test_ranges_are_joined_where_their_copies_are_now(tmp_path: Path) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await three_ranges(town)
            first = town.stream.ranges[0].index
            other = next(node for node in town.nodes.values() if node is not town.writer)
            await town.placement.service.submit(DropReplica(STREAM, first, other.id))
            assert await join(town) == 1
            assert [one.generation for one in town.stream.ranges] == [0, 1, 0]

    asyncio.run(story())


@pytest.mark.parametrize("rewrite", [compact, join])
def test_a_range_that_is_given_away_while_it_is_rewritten_is_let_go(
    tmp_path: Path, rewrite: Callable[[Town], Coroutine[None, None, int]]
) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await three_ranges(town)
            former = town.writer
            rewriting = await begun(rewrite(town))
            await town.fence(former)
            for facts in town.stream.ranges[:-1]:
                await town.placement.service.submit(DropReplica(STREAM, facts.index, former.id))
            assert not list(former.folder.glob("topics/*/partition-0/range-0.g*[0-9]"))
            assert await rewriting == 0
            await town.write(b"3")
            assert town.values()[-1] == b"3"

    asyncio.run(story())


def test_a_range_that_a_former_writer_rewrites_is_not_taken_over_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        released = asyncio.Event()
        run = FileWorker.run

        async def held_up(worker: FileWorker, *work: Any) -> Any:
            if former.store.rewriting and not released.is_set() and not others_turn.is_set():
                others_turn.set()
                await released.wait()
            return await run(worker, *work)

        others_turn = asyncio.Event()
        monkeypatch.setattr(FileWorker, "run", held_up)
        async with Town(tmp_path) as town:
            await one_key_over_and_over(town)
            former = town.writer
            rewriting = asyncio.create_task(compact(town))
            await others_turn.wait()
            await town.fence(former)
            await town.write(b"20")
            await compact_soon(town)
            first = next(one for one in town.stream.ranges if one.generation == 1)
            assert former.id not in first.done
            assert not list(former.folder.glob("topics/*/partition-0/range-*.g1*"))
            released.set()
            await rewriting
            await town.unfence(former)
            await eventually(lambda: len(town.stream.ranges[first.index].done) == 3)
            copies = [files(node, first.index) for node in town.nodes.values()]
            assert copies[0] == copies[1] == copies[2]
            assert town.values() == [b"19", b"20"]

    asyncio.run(story())


@pytest.mark.parametrize("rewrite", [compact, join])
def test_a_topic_that_is_deleted_while_it_is_rewritten_is_gone(
    tmp_path: Path, rewrite: Callable[[Town], Coroutine[None, None, int]]
) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await three_ranges(town)
            former = town.writer
            rewriting = await begun(rewrite(town))
            await town.placement.service.submit(DeleteTopic(STREAM.topic))
            assert await rewriting == 0
            left = [path.name for path in former.folder.glob("topics/*")]
            assert all(name.endswith(".deleted") for name in left), left

    asyncio.run(story())


@pytest.mark.parametrize("rewrite", [compact, join])
def test_a_range_with_a_missing_file_is_left_as_it_is(
    tmp_path: Path, rewrite: Callable[[Town], Coroutine[None, None, int]]
) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await three_ranges(town)
            (path,) = town.writer.folder.glob("topics/*/partition-0/range-0.g0/*.index")
            path.unlink()
            assert await rewrite(town) == 0
            assert [facts.generation for facts in town.stream.ranges] == [0] * 4
            assert town.values() == [b"0", b"1", b"2"]

    asyncio.run(story())


class LateAnswers(PeerNetwork):
    """Some answers that a node is sent are held back until they are let go: the first, or later."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(delay_s)
        self.slow: NodeId | None = None
        self.held_back_from = 0
        self._answers = 0
        self.late: list[Callable[[], None]] = []

    def carry(self, source: NodeId, target: NodeId, deliver: Callable[[], None]) -> None:
        is_answer = "_answer" in deliver.__qualname__
        is_late = is_answer and target == self.slow and len(self.late) < COPIES_MAX
        self._answers += is_late
        if is_late and self._answers > self.held_back_from:
            self.late.append(deliver)
        else:
            super().carry(source, target, deliver)


def test_a_range_that_is_rewritten_while_others_are_copied_is_sealed_no_more(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        town = Town(tmp_path)
        town.network = network = LateAnswers(delay_s=0.001)
        async with town:
            await town.create(**COMPACTED)
            for _ in range(COPIES_MAX + 1):
                for number in range(20):
                    await town.write(b"%d" % number)
                await roll(town)
            away = next(node for node in town.nodes.values() if node is not town.writer)
            *lost, killed_in = town.stream.ranges[:-1]
            await away.crash()
            for facts in lost:
                (folder,) = away.folder.glob(f"topics/*/partition-0/range-{facts.index}.g0")
                shutil.rmtree(folder)
                await town.placement.service.submit(ReplicaLost(STREAM, facts.index, away.id))
            # It was killed when it had told that the range is whole, and before it had noted so.
            (folder,) = away.folder.glob(f"topics/*/partition-0/range-{killed_in.index}.g0")
            (folder / "range.seal").unlink(missing_ok=True)
            network.slow = away.id
            await away.start()
            await eventually(lambda: len(network.late) == COPIES_MAX)
            assert await compact(town) > 0
            for deliver in network.late:
                deliver()
            await asyncio.sleep(0.05)
            assert away.fatal == []
            await eventually(lambda: all(len(one.done) == 3 for one in town.stream.ranges[:-1]))
            assert away.fatal == []
            for facts in town.stream.ranges[:-1]:
                assert files(away, facts.index) == files(town.writer, facts.index)

    asyncio.run(story())


def test_a_topic_that_is_deleted_while_a_rewritten_range_is_copied_is_gone(tmp_path: Path) -> None:
    async def story() -> None:
        town = Town(tmp_path)
        town.network = network = LateAnswers(delay_s=0.001)
        async with town:
            await one_key_over_and_over(town)
            away = next(node for node in town.nodes.values() if node is not town.writer)
            await away.crash()
            await compact_soon(town)
            network.held_back_from = 2  # what is copied is begun
            network.slow = away.id
            await away.start()
            await eventually(lambda: len(network.late) > 0)
            await town.placement.service.submit(DeleteTopic(STREAM.topic))
            network.slow = None
            for deliver in network.late:
                deliver()
            await asyncio.sleep(0.1)
            assert away.fatal == []
            left = [path.name for path in away.folder.glob("topics/*")]
            assert all(name.endswith(".deleted") for name in left), left

    asyncio.run(story())


@pytest.mark.parametrize("left", [10, 20])
def test_a_copy_that_lost_its_end_before_the_range_was_sealed_is_made_anew(
    tmp_path: Path, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            for number in range(20):
                await town.write(b"%02d" % number)
            former = town.writer
            town.network.isolate(former.id)
            lost = [
                asyncio.create_task(former.streams.append("t", 0, batch_of(b"%02d" % number)))
                for number in range(20, 25)
            ]
            log = next(iter(former.store.logs.values()))
            await eventually(lambda: log.synced_end == 25)
            former.store.write_checkpoint()
            await former.crash()
            await asyncio.gather(*lost, return_exceptions=True)
            await town.fence(former)
            await town.write(b"the range was sealed at 20")
            [records] = former.folder.glob("topics/*/partition-0/range-0.g0/*.log")
            os.truncate(records, records.stat().st_size // 25 * left)
            town.network.heal()
            told: list[object] = []
            submit = town.placement.service.submit

            async def overheard(command: Command[Any]) -> Any:
                told.append(command)
                return await submit(command)

            monkeypatch.setattr(town.placement.service, "submit", overheard)
            await former.start()
            await eventually(lambda: len(town.stream.ranges[0].done) == 3)
            assert files(former, 0) == files(town.writer, 0)
            assert former.fatal == []
            # It never says of a damaged copy that it is whole.
            assert not [one for one in told if isinstance(one, ReplicaLost)]

    asyncio.run(story())
