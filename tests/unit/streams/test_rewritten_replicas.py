"""Sealed ranges on several nodes: compacted, joined, damaged, and whole again."""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.kit.cluster import STREAM, StreamCluster, StreamClusterNode, batch_of
from tests.kit.waiting import eventually

from mainstem.model.errors import Corrupt, MainstemError
from mainstem.model.ids import NodeId, StreamId
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.commands import DeleteTopic
from mainstem.placement.changes.replication_commands import CopyRange, DropReplica, ReplicaLost
from mainstem.streams.maintenance.compaction_driver import CompactionDriver
from mainstem.streams.maintenance.merge_driver import MergeDriver
from mainstem.streams.maintenance.scrub_driver import ScrubDriver
from mainstem.streams.maintenance.worker_process_driver import FileWorkerProcess
from mainstem.streams.replica import copy_driver
from mainstem.streams.replica.copy_driver import COPIES_MAX
from mainstem.telemetry.metrics import Metrics
from mainstem.testing.simulation.peer_network import PeerNetwork

COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0",
    "segment_bytes": "1048576",
}


async def compact(cluster: StreamCluster) -> int:
    writer = cluster.writer
    driver = CompactionDriver(
        writer.streams, cluster.placement.service, writer.store, cluster.clock, 1 << 20
    )
    return await driver.run_once()


async def compact_soon(cluster: StreamCluster) -> None:
    """Compact in one of the next rounds: a node tries again what it cannot do at once."""
    for _ in range(100):
        if await compact(cluster) == 1:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("nothing was compacted")


def files(node: StreamClusterNode, index: int) -> dict[str, bytes]:
    """The records and indexes of a range on a node, by file."""
    (folder,) = node.folder.glob(f"topics/*/partition-0/range-{index}.g*[0-9]")
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.suffix in (".log", ".index", ".timeindex", ".seal", ".mark")
    }


async def roll(cluster: StreamCluster) -> None:
    count = cluster.stream.last.index
    cluster.writer.streams.roll(cluster.stream.id)
    await eventually(lambda: cluster.stream.last.index > count)
    await eventually(lambda: all(len(one.done) == 3 for one in cluster.stream.ranges[:-1]))


async def one_key_over_and_over(cluster: StreamCluster) -> None:
    """A sealed range of which compaction leaves one record."""
    await cluster.create(**COMPACTED)
    for number in range(20):
        await cluster.write(b"%d" % number)
    await roll(cluster)
    await eventually(lambda: len(cluster.stream.ranges[0].done) == 3)


async def three_ranges(cluster: StreamCluster) -> None:
    """Sealed ranges of one record each."""
    await cluster.create(**COMPACTED)
    for number in range(3):
        await cluster.write(b"%d" % number)
        await roll(cluster)


async def test_a_compacted_range_is_the_same_on_every_node(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await one_key_over_and_over(cluster)
        await compact_soon(cluster)
        # The swap waits for as many as acknowledge; the third takes it over a moment later.
        await eventually(lambda: len(cluster.stream.ranges[0].done) == 3)
        range_info = cluster.stream.ranges[0]
        assert range_info.generation == 1
        assert cluster.values() == [b"19"]
        copies = [files(node, range_info.index) for node in cluster.nodes.values()]
        assert copies[0] == copies[1] == copies[2]


async def test_a_node_that_was_away_takes_the_compacted_range_over(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await one_key_over_and_over(cluster)
        away = next(node for node in cluster.nodes.values() if node is not cluster.writer)
        await away.crash()
        await compact_soon(cluster)
        assert len(cluster.stream.ranges[0].done) == 2
        await away.start()
        await eventually(lambda: len(cluster.stream.ranges[0].done) == 3)
        index = cluster.stream.ranges[0].index
        assert files(away, index) == files(cluster.writer, index)


async def test_whoever_has_a_range_since_it_was_sealed_takes_the_compacted_one_over(
    tmp_path: Path,
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create(**COMPACTED)
        await cluster.write(b"1")
        late, gone = [node for node in cluster.nodes.values() if node is not cluster.writer]
        await late.crash()
        await cluster.write(b"2")
        cluster.writer.streams.roll(cluster.stream.id)
        await eventually(lambda: len(cluster.stream.ranges) > 1)
        assert late.id not in cluster.stream.ranges[0].done
        await late.start()
        await eventually(lambda: len(cluster.stream.ranges[0].done) == 3)
        await gone.crash()
        await compact_soon(cluster)
        assert set(cluster.stream.ranges[0].done) == {cluster.writer.id, late.id}


async def test_a_range_is_copied_from_a_node_that_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=copy_driver.__name__)

    async with StreamCluster(tmp_path) as cluster:
        await one_key_over_and_over(cluster)
        away = next(node for node in cluster.nodes.values() if node is not cluster.writer)
        await away.crash()
        await compact_soon(cluster)
        dead = cluster.nodes[cluster.stream.ranges[0].done[0]]
        await dead.crash()
        await cluster.fence(dead)
        await away.start()
        await eventually(lambda: away.id in cluster.stream.ranges[0].done)
        assert "is incomplete" not in caplog.text


async def test_joined_ranges_are_the_same_on_every_node(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        for number in range(33):
            await cluster.write(b"%d" % number)
            await roll(cluster)
        writer = cluster.writer
        partition = writer.streams.partition("t", 0)
        await eventually(lambda: len(partition.ranges) == 34)  # the catalogue knows a little sooner
        merging = MergeDriver(writer.streams, cluster.placement.service, writer.store)
        assert await merging.run_once() == 1
        assert len(cluster.stream.ranges) == 24
        assert cluster.values() == [b"%d" % number for number in range(33)]
        await eventually(lambda: all(len(one.done) == 3 for one in cluster.stream.ranges[:-1]))
        (joined,) = [one for one in cluster.stream.ranges if one.generation]
        copies = [files(node, joined.index) for node in cluster.nodes.values()]
        assert copies[0] == copies[1] == copies[2]
        dead = cluster.writer
        await dead.crash()
        await cluster.fence(dead)
        await cluster.write(b"33")
        assert cluster.values() == [b"%d" % number for number in range(34)]


async def test_ranges_of_several_writers_are_joined_where_the_same_nodes_hold_them(
    tmp_path: Path,
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        away = next(node for node in cluster.nodes.values() if node is not cluster.writer)
        for number in range(6):
            await cluster.write(b"%d" % number)
            if number == 2:  # the range that follows is held by two
                cluster.writer.streams.roll(cluster.stream.id, exclude=[away.id])
            else:
                others = [one for one in cluster.stream.last.replicas if one != cluster.writer.id]
                cluster.writer.streams.roll(cluster.stream.id, new_writer=others[0])
            await eventually(lambda: len(cluster.stream.ranges) == number + 2)  # noqa: B023
            await eventually(lambda: cluster.stream.id in open_streams(cluster.writer))
        await eventually(lambda: all(len(one.done) >= 2 for one in cluster.stream.ranges[:-1]))
        held = [len(one.replicas) for one in cluster.stream.ranges]
        writer = cluster.writer
        merging = MergeDriver(
            writer.streams, cluster.placement.service, writer.store, ranges_max=4, ranges_after=2
        )
        expected = [b"%d" % number for number in range(6)]
        await eventually(lambda: readable(cluster) == expected)
        assert await merging.run_once() == 1, held
        assert readable(cluster) == expected
        (joined,) = [one for one in cluster.stream.ranges if one.generation]
        assert len({one.epoch for one in cluster.stream.ranges}) > 1
        assert len(cluster.stream.ranges) < len(held)
        copies = [files(cluster.nodes[node], joined.index) for node in joined.done]
        assert all(copy == copies[0] for copy in copies)


def open_streams(node: StreamClusterNode) -> list[StreamId]:
    return [stream.id for stream in node.streams.table.all() if stream.closed is None]


async def test_a_node_that_began_anew_frees_the_space_of_records_that_are_deleted(
    tmp_path: Path,
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        await roll(cluster)
        await cluster.write(b"1")
        index = cluster.stream.ranges[0].index
        node = next(one for one in cluster.nodes.values() if one is not cluster.writer)
        await node.crash()
        await node.start()
        await cluster.write(b"2")
        assert files(node, index)
        await cluster.writer.streams.delete_records("t", 0, 1)
        for one in cluster.nodes.values():
            held = [log.identity.name.index for log in one.store.logs.values()]
            assert index not in held
            assert not list(one.folder.glob(f"topics/*/partition-0/range-{index}.g0"))


async def test_a_damaged_range_is_copied_from_another_node(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        for number in range(20):
            await cluster.write(b"%d" % number)
        await roll(cluster)
        index = cluster.stream.ranges[0].index
        broken = next(node for node in cluster.nodes.values() if node is not cluster.writer)
        await broken.crash()
        (path,) = broken.folder.glob(f"topics/*/partition-0/range-{index}.g0/*.log")
        sound = path.read_bytes()
        path.write_bytes(sound[:100])
        await broken.start()
        await eventually(lambda: path.exists() and path.read_bytes() == sound)
        await eventually(lambda: len(cluster.stream.ranges[0].done) == 3)


async def test_the_writer_reads_again_what_was_copied_anew(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        for number in range(20):
            await cluster.write(b"%d" % number)
        await roll(cluster)
        range_info = cluster.stream.ranges[0]
        writer = cluster.writer
        (path,) = writer.folder.glob(f"topics/*/partition-0/range-{range_info.index}.g0/*.log")
        sound = path.read_bytes()
        path.write_bytes(bytes(len(sound)))
        writer.streams.ranges.lost(cluster.stream.id, range_info.index)
        await eventually(lambda: path.exists() and path.read_bytes() == sound)
        await eventually(lambda: len(cluster.stream.ranges[0].done) == 3)
        assert cluster.values() == [b"%d" % number for number in range(20)]


async def test_a_scrub_that_finds_damage_has_the_range_copied_anew(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        for number in range(20):
            await cluster.write(b"%d" % number)
        await roll(cluster)
        range_info = cluster.stream.ranges[0]
        node = next(one for one in cluster.nodes.values() if one is not cluster.writer)
        (path,) = node.folder.glob(f"topics/*/partition-0/range-{range_info.index}.g0/*.log")
        sound = path.read_bytes()
        path.write_bytes(bytes(len(sound)))
        scrub = ScrubDriver(node.store, Metrics(), node.streams.ranges.lost)
        task = asyncio.create_task(scrub.run(1))
        await eventually(lambda: path.exists() and path.read_bytes() == sound)
        task.cancel()
        await eventually(lambda: len(cluster.stream.ranges[0].done) == 3)


async def test_a_reader_that_finds_damage_has_the_range_copied_anew(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        for number in range(20):
            await cluster.write(b"%d" % number)
        await roll(cluster)
        for node in cluster.nodes.values():  # what a process wrote itself it does not check
            await node.crash()
        for node in cluster.nodes.values():
            await node.start()
        await cluster.write(b"20")
        reader = cluster.writer
        index = cluster.stream.ranges[0].index
        (path,) = reader.folder.glob(f"topics/*/partition-0/range-{index}.g0/*.log")
        sound = path.read_bytes()
        path.write_bytes(sound[:200] + bytes(len(sound) - 200))
        with pytest.raises(Corrupt):
            cluster.values()
        expected = [b"%d" % number for number in range(21)]
        await eventually(lambda: readable(cluster) == expected)
        assert path.read_bytes() == sound


async def test_a_source_whose_disk_fails_does_not_end_the_node_that_copies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=copy_driver.__name__)

    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        away = next(node for node in cluster.nodes.values() if node is not cluster.writer)
        await away.crash()
        await cluster.fence(away)
        await cluster.write(b"1")
        sealed = cluster.stream.ranges[-1]
        cluster.writer.streams.roll(cluster.stream.id)
        await eventually(lambda: len(cluster.stream.ranges) > 2)
        sources = [cluster.nodes[node] for node in sealed.replicas if node != away.id]
        assert len(sources) == 2
        for one in sources:
            await eventually(lambda: "range.seal" in files(one, sealed.index))  # noqa: B023
        broken = {node.id: broken_files(node, sealed.index) for node in sources}
        order = CopyRange(STREAM, sealed.index, away.id)
        await away.start()
        await cluster.placement.service.submit(order)
        await eventually(lambda: "is incomplete" in caplog.text or bool(away.fatal))
        assert away.fatal == []
        assert away.id not in cluster.stream.ranges[1].done
        for fds in broken.values():
            mend(fds)
        await eventually(lambda: away.id in cluster.stream.ranges[1].done)
        assert files(away, sealed.index) == files(cluster.writer, sealed.index)


def broken_files(node: StreamClusterNode, index: int) -> list[tuple[int, int]]:
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


def readable(cluster: StreamCluster) -> list[bytes | None]:
    try:
        return cluster.values()
    except MainstemError:
        return []


async def begun(work: Coroutine[None, None, int]) -> asyncio.Task[int]:
    """Work on files that its process is about to read: a process takes a while to start."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0.01)
    return task


async def join(cluster: StreamCluster) -> int:
    writer = cluster.writer
    driver = MergeDriver(
        writer.streams, cluster.placement.service, writer.store, ranges_max=1, ranges_after=1
    )
    return await driver.run_once()


async def test_ranges_are_joined_where_their_copies_are_now(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await three_ranges(cluster)
        first = cluster.stream.ranges[0].index
        other = next(node for node in cluster.nodes.values() if node is not cluster.writer)
        await cluster.placement.service.submit(DropReplica(STREAM, first, other.id))
        assert await join(cluster) == 1
        assert [one.generation for one in cluster.stream.ranges] == [0, 1, 0]


@pytest.mark.parametrize("rewrite", [compact, join])
async def test_a_range_that_is_given_away_while_it_is_rewritten_is_let_go(
    tmp_path: Path, rewrite: Callable[[StreamCluster], Coroutine[None, None, int]]
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await three_ranges(cluster)
        former = cluster.writer
        rewriting = await begun(rewrite(cluster))
        await cluster.fence(former)
        for range_info in cluster.stream.ranges[:-1]:
            await cluster.placement.service.submit(DropReplica(STREAM, range_info.index, former.id))
        assert not list(former.folder.glob("topics/*/partition-0/range-0.g*[0-9]"))
        assert await rewriting == 0
        await cluster.write(b"3")
        assert cluster.values()[-1] == b"3"


async def test_a_range_that_a_former_writer_rewrites_is_not_taken_over_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = asyncio.Event()
    run = FileWorkerProcess.run

    async def held_up(worker: FileWorkerProcess, *work: Any) -> Any:
        if former.store.rewriting and not released.is_set() and not others_turn.is_set():
            others_turn.set()
            await released.wait()
        return await run(worker, *work)

    others_turn = asyncio.Event()
    monkeypatch.setattr(FileWorkerProcess, "run", held_up)
    async with StreamCluster(tmp_path) as cluster:
        await one_key_over_and_over(cluster)
        former = cluster.writer
        rewriting = asyncio.create_task(compact(cluster))
        await others_turn.wait()
        await cluster.fence(former)
        await cluster.write(b"20")
        await compact_soon(cluster)
        first = next(one for one in cluster.stream.ranges if one.generation == 1)
        assert former.id not in first.done
        assert not list(former.folder.glob("topics/*/partition-0/range-*.g1*"))
        released.set()
        await rewriting
        await cluster.unfence(former)
        await eventually(lambda: len(cluster.stream.ranges[first.index].done) == 3)
        copies = [files(node, first.index) for node in cluster.nodes.values()]
        assert copies[0] == copies[1] == copies[2]
        assert cluster.values() == [b"19", b"20"]


@pytest.mark.parametrize("rewrite", [compact, join])
async def test_a_topic_that_is_deleted_while_it_is_rewritten_is_gone(
    tmp_path: Path, rewrite: Callable[[StreamCluster], Coroutine[None, None, int]]
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await three_ranges(cluster)
        former = cluster.writer
        rewriting = await begun(rewrite(cluster))
        await cluster.placement.service.submit(DeleteTopic(STREAM.topic))
        assert await rewriting == 0
        left = [path.name for path in former.folder.glob("topics/*")]
        assert all(name.endswith(".deleted") for name in left), left


@pytest.mark.parametrize("rewrite", [compact, join])
async def test_a_range_with_a_missing_file_is_left_as_it_is(
    tmp_path: Path, rewrite: Callable[[StreamCluster], Coroutine[None, None, int]]
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await three_ranges(cluster)
        (path,) = cluster.writer.folder.glob("topics/*/partition-0/range-0.g0/*.index")
        path.unlink()
        assert await rewrite(cluster) == 0
        assert [range_info.generation for range_info in cluster.stream.ranges] == [0] * 4
        assert cluster.values() == [b"0", b"1", b"2"]


class LateAnswers(PeerNetwork):
    """Some answers that a node is sent are held back until they are let go: the first, or later."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(delay_s)
        self.slow: NodeId | None = None
        self.held_back_from = 0
        self._answers = 0
        self.late: list[Callable[[], None]] = []

    def carry(
        self, source: NodeId, target: NodeId, deliver: Callable[..., None], *args: object
    ) -> None:
        is_answer = "_answer" in deliver.__qualname__
        is_late = is_answer and target == self.slow and len(self.late) < COPIES_MAX
        self._answers += is_late
        if is_late and self._answers > self.held_back_from:
            self.late.append(partial(deliver, *args))
        else:
            super().carry(source, target, deliver, *args)


async def test_a_range_that_is_rewritten_while_others_are_copied_is_sealed_no_more(
    tmp_path: Path,
) -> None:
    cluster = StreamCluster(tmp_path)
    cluster.network = network = LateAnswers(delay_s=0.001)
    async with cluster:
        await cluster.create(**COMPACTED)
        for _ in range(COPIES_MAX + 1):
            for number in range(20):
                await cluster.write(b"%d" % number)
            await roll(cluster)
        away = next(node for node in cluster.nodes.values() if node is not cluster.writer)
        *lost, killed_in = cluster.stream.ranges[:-1]
        await away.crash()
        for range_info in lost:
            (folder,) = away.folder.glob(f"topics/*/partition-0/range-{range_info.index}.g0")
            shutil.rmtree(folder)
            await cluster.placement.service.submit(ReplicaLost(STREAM, range_info.index, away.id))
        # It was killed when it had told that the range is whole, and before it had noted so.
        (folder,) = away.folder.glob(f"topics/*/partition-0/range-{killed_in.index}.g0")
        (folder / "range.seal").unlink(missing_ok=True)
        network.slow = away.id
        await away.start()
        await eventually(lambda: len(network.late) == COPIES_MAX)
        assert await compact(cluster) > 0
        for deliver in network.late:
            deliver()
        await asyncio.sleep(0.05)
        assert away.fatal == []
        await eventually(lambda: all(len(one.done) == 3 for one in cluster.stream.ranges[:-1]))
        assert away.fatal == []
        for range_info in cluster.stream.ranges[:-1]:
            assert files(away, range_info.index) == files(cluster.writer, range_info.index)


async def test_a_topic_that_is_deleted_while_a_rewritten_range_is_copied_is_gone(
    tmp_path: Path,
) -> None:
    cluster = StreamCluster(tmp_path)
    cluster.network = network = LateAnswers(delay_s=0.001)
    async with cluster:
        await one_key_over_and_over(cluster)
        away = next(node for node in cluster.nodes.values() if node is not cluster.writer)
        await away.crash()
        await compact_soon(cluster)
        network.held_back_from = 2  # what is copied is begun
        network.slow = away.id
        await away.start()
        await eventually(lambda: len(network.late) > 0)
        await cluster.placement.service.submit(DeleteTopic(STREAM.topic))
        network.slow = None
        for deliver in network.late:
            deliver()
        await asyncio.sleep(0.1)
        assert away.fatal == []
        left = [path.name for path in away.folder.glob("topics/*")]
        assert all(name.endswith(".deleted") for name in left), left


@pytest.mark.parametrize("left", [10, 20])
async def test_a_copy_that_lost_its_end_before_the_range_was_sealed_is_made_anew(
    tmp_path: Path, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        for number in range(20):
            await cluster.write(b"%02d" % number)
        former = cluster.writer
        cluster.network.isolate(former.id)
        lost = [
            asyncio.create_task(former.streams.append("t", 0, batch_of(b"%02d" % number)))
            for number in range(20, 25)
        ]
        log = next(iter(former.store.logs.values()))
        await eventually(lambda: log.synced_end == 25)
        former.store.write_checkpoint()
        await former.crash()
        await asyncio.gather(*lost, return_exceptions=True)
        await cluster.fence(former)
        await cluster.write(b"the range was sealed at 20")
        [records] = former.folder.glob("topics/*/partition-0/range-0.g0/*.log")
        os.truncate(records, records.stat().st_size // 25 * left)
        cluster.network.heal()
        notification: list[object] = []
        submit = cluster.placement.service.submit

        async def overheard(command: Command[Any]) -> Any:
            notification.append(command)
            return await submit(command)

        monkeypatch.setattr(cluster.placement.service, "submit", overheard)
        await former.start()
        await eventually(lambda: len(cluster.stream.ranges[0].done) == 3)
        assert files(former, 0) == files(cluster.writer, 0)
        assert former.fatal == []
        # It never says of a damaged copy that it is whole.
        assert not [one for one in notification if isinstance(one, ReplicaLost)]
