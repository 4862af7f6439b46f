"""Damage to any file of a range on one node is made good from the others when it starts."""

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kit.cluster import STREAM, StreamCluster, StreamClusterNode
from tests.kit.waiting import eventually
from tests.unit.streams.test_rewritten_replicas import (
    compact_soon,
    files,
    one_key_over_and_over,
    readable,
)

from mainstem.model.ids import Epoch, Offset
from mainstem.streams.failover.seal_driver import range_end
from mainstem.streams.maintenance.scrub_driver import ScrubDriver
from mainstem.streams.writer.replication import SealPoint
from mainstem.telemetry.metrics import Metrics

Damage = Callable[[Path], None]


def flipped(name: str) -> Damage:
    """A bit in the middle of a file turns over."""

    def damage(folder: Path) -> None:
        (path,) = folder.glob(name)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)

    return damage


def cut(name: str) -> Damage:
    """A file ends in its middle."""

    def damage(folder: Path) -> None:
        (path,) = folder.glob(name)
        os.truncate(path, path.stat().st_size // 2)

    return damage


def gone(name: str) -> Damage:
    """A file is not there."""

    def damage(folder: Path) -> None:
        (path,) = folder.glob(name)
        path.unlink()

    return damage


NAMES = ("*.log", "*.index", "*.timeindex", "range.seal", "range.header")
DAMAGES = {
    f"{how.__name__} {name}": how(name) for name in NAMES for how in (flipped, cut, gone)
} | {"no folder": shutil.rmtree}


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("is_writer", [False, True])
@pytest.mark.parametrize("what", DAMAGES)
async def test_any_damage_is_made_good(
    tmp_path: Path, what: str, *, is_writer: bool, is_compacted: bool
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await one_key_over_and_over(cluster)
        if is_compacted:
            await compact_soon(cluster)
            await eventually(lambda: len(cluster.stream.ranges[0].done) == 3)
        victim = next(
            node for node in cluster.nodes.values() if (node is cluster.writer) == is_writer
        )
        index = cluster.stream.ranges[0].index
        generation = cluster.stream.ranges[0].generation
        await eventually(lambda: "range.seal" in files(victim, index))
        other = next(node for node in cluster.nodes.values() if node is not victim)
        await eventually(lambda: "range.seal" in files(other, index))
        sound = files(other, index)
        (folder,) = victim.folder.glob(f"topics/*/partition-0/range-{index}.g{generation}")
        await victim.crash()
        DAMAGES[what](folder)
        await victim.start()
        scrub = asyncio.create_task(
            ScrubDriver(victim.store, Metrics(), victim.streams.ranges.lost).run(1)
        )
        await eventually(lambda: is_sound(cluster, victim, index, sound) or bool(victim.fatal))
        scrub.cancel()
        assert victim.fatal == []
        expected = [b"19"] if is_compacted else [b"%d" % number for number in range(20)]
        await eventually(lambda: readable(cluster) == expected)
        left = [path for path in folder.parent.iterdir() if path.suffix == ".aside"]
        assert left == []


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("is_writer", [False, True])
async def test_an_unreadable_segment_is_copied_anew_and_the_node_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_writer: bool, is_compacted: bool
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await one_key_over_and_over(cluster)
        if is_compacted:
            await compact_soon(cluster)
            await eventually(lambda: len(cluster.stream.ranges[0].done) == 3)
        victim = next(
            node for node in cluster.nodes.values() if (node is cluster.writer) == is_writer
        )
        range_info = cluster.stream.ranges[0]
        await eventually(
            lambda: all(
                "range.seal" in files(node, range_info.index) for node in cluster.nodes.values()
            )
        )
        sound = files(victim, range_info.index)
        (path,) = victim.folder.glob(
            f"topics/*/partition-0/range-{range_info.index}.g{range_info.generation}/*.log"
        )
        with path.open("rb") as kept:  # open, or its inode number might be used again
            fail_reads_of(os.fstat(kept.fileno()).st_ino, monkeypatch)
            scrub = asyncio.create_task(
                ScrubDriver(victim.store, Metrics(), victim.streams.ranges.lost).run(1)
            )
            await eventually(
                lambda: (
                    bool(victim.fatal)
                    or scrub.done()
                    or (
                        is_sound(cluster, victim, range_info.index, sound)
                        and not path.samefile(f"/proc/self/fd/{kept.fileno()}")
                    )
                )
            )
            assert not scrub.done()
            scrub.cancel()
            assert victim.fatal == []
            expected = [b"19"] if is_compacted else [b"%d" % number for number in range(20)]
            await eventually(lambda: readable(cluster) == expected)


def fail_reads_of(inode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of one file cannot be read; a file that takes its place is sound."""
    real = os.pread

    def pread(fd: int, size: int, position: int) -> bytes:
        if os.fstat(fd).st_ino == inode:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, size, position)

    monkeypatch.setattr(os, "pread", pread)


def is_sound(
    cluster: StreamCluster, node: StreamClusterNode, index: int, sound: dict[str, bytes]
) -> bool:
    try:
        found = files(node, index)
    except (ValueError, FileNotFoundError):
        return False  # it is being made anew
    return found == sound and len(cluster.stream.ranges[0].done) == 3


OPEN_DAMAGES = {
    f"{how.__name__} {name}": how(name)
    for name in ("*.log", "range.header")
    for how in (flipped, cut, gone)
}


@pytest.mark.parametrize("is_writer", [False, True])
@pytest.mark.parametrize("what", OPEN_DAMAGES)
async def test_an_open_range_that_is_damaged_on_one_node_goes_on_without_it(
    tmp_path: Path, what: str, *, is_writer: bool
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        for number in range(20):
            await cluster.write(b"%d" % number)
        victim = next(
            node for node in cluster.nodes.values() if (node is cluster.writer) == is_writer
        )
        (folder,) = victim.folder.glob("topics/*/partition-0/range-0.g0")
        victim.store.write_checkpoint()
        await victim.crash()
        OPEN_DAMAGES[what](folder)
        if is_writer:
            await cluster.fence(victim)
        await victim.start()
        await cluster.write(b"20")
        expected = [b"%d" % number for number in range(21)]
        await eventually(lambda: readable(cluster) == expected)
        cluster.writer.streams.roll(cluster.stream.id)
        await eventually(lambda: len(cluster.stream.ranges[0].done) == 3)
        await eventually(lambda: "range.seal" in files(cluster.writer, 0))
        sound = files(cluster.writer, 0)
        await eventually(lambda: is_sound(cluster, victim, 0, sound))
        assert victim.fatal == []
        assert readable(cluster) == expected


@pytest.mark.parametrize("what", OPEN_DAMAGES)
async def test_what_a_damaged_copy_lost_is_not_forgotten_over_restarts(
    tmp_path: Path, what: str
) -> None:
    """Two nodes acknowledged; one copy is damaged: without the other nothing may be decided."""

    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        writer = cluster.writer
        damaged, behind = [node for node in cluster.nodes.values() if node is not writer]
        cluster.network.isolate(behind.id)
        for number in range(20):
            await cluster.write(b"%d" % number)
        (folder,) = damaged.folder.glob("topics/*/partition-0/range-0.g0")
        damaged.store.write_checkpoint()
        await writer.crash()
        await damaged.crash()
        OPEN_DAMAGES[what](folder)
        for _ in range(2):
            await damaged.start()
            await damaged.crash()
        await damaged.start()
        cluster.network.heal()
        await cluster.fence(writer)
        await asyncio.sleep(0.5)
        assert cluster.stream.ranges[0].end in (None, 20)
        await writer.start()
        await cluster.unfence(writer)
        await cluster.write(b"20")
        expected = [b"%d" % number for number in range(21)]
        await eventually(lambda: readable(cluster) == expected)


@pytest.mark.parametrize("what", OPEN_DAMAGES)
async def test_a_node_with_a_damaged_copy_takes_the_stream_over(tmp_path: Path, what: str) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        for number in range(20):
            await cluster.write(b"%d" % number)
        former = cluster.writer
        successor, other = [node for node in cluster.nodes.values() if node is not former]
        await eventually(lambda: cluster.stored(other, 0) == cluster.stored(former, 0))
        (folder,) = successor.folder.glob("topics/*/partition-0/range-0.g0")
        successor.store.write_checkpoint()
        await successor.crash()
        OPEN_DAMAGES[what](folder)
        await successor.start()
        for node in (other, former):  # nobody else is left to be elected
            await node.crash()
            await cluster.fence(node)
        assert cluster.writer is successor
        for node in (other, former):
            await node.start()
            await cluster.unfence(node)
        await cluster.write(b"20")
        expected = [b"%d" % number for number in range(21)]
        await eventually(lambda: readable(cluster) == expected)
        await eventually(lambda: len(cluster.stream.ranges[0].done) == 3)
        assert successor.fatal == []


async def test_the_end_of_a_range_can_be_told_where_its_copy_is_damaged(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        for number in range(20):
            await cluster.write(b"%d" % number)
        node = cluster.writer
        (folder,) = node.folder.glob("topics/*/partition-0/range-0.g0")
        size = node.streams.partition("t", 0).log.size_bytes
        node.store.write_checkpoint()
        await node.crash()
        cut("*.log")(folder)
        await node.start()
        log = node.store.logs[folder]
        point = SealPoint(Offset(15), ())
        later = cluster.clock.wall_ms() + 1000
        end = range_end(cluster.stream, cluster.stream.last, log, point, (Epoch(1), later))
        assert 0 < end.size_bytes <= size
        assert end.max_timestamp == later


async def test_a_replica_whose_sync_failed_is_in_limbo_after_a_restart_on_the_same_boot(
    tmp_path: Path,
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"a")
        node = next(node for node in cluster.nodes.values() if node is not cluster.writer)
        node.store.files.access.sync_failed()
        await node.crash()
        node.fatal.clear()
        await node.start()
        roles = node.streams._roles
        assert roles is not None
        held = roles.replicas.registry.hold(
            cluster.placement.catalogue.need_topic(STREAM.topic),
            cluster.stream,
            cluster.stream.last,
        )
        assert held.machine.limbo
