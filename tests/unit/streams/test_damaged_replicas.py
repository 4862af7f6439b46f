"""Damage to any file of a range on one node is made good from the others when it starts."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.streams.test_rewritten_replicas import (
    compact_soon,
    files,
    one_key_over_and_over,
    readable,
)
from tests.unit.streams.town import STREAM, Town, TownNode, eventually

from mainstem.model.ids import Epoch, Offset
from mainstem.streams.range_writer import SealPoint
from mainstem.streams.scrub_driver import ScrubDriver
from mainstem.streams.seal_driver import range_end
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
def test_any_damage_is_made_good(
    tmp_path: Path, what: str, *, is_writer: bool, is_compacted: bool
) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await one_key_over_and_over(town)
            if is_compacted:
                await compact_soon(town)
                await eventually(lambda: len(town.stream.ranges[0].done) == 3)
            victim = next(
                node for node in town.nodes.values() if (node is town.writer) == is_writer
            )
            index = town.stream.ranges[0].index
            generation = town.stream.ranges[0].generation
            await eventually(lambda: "range.seal" in files(victim, index))
            other = next(node for node in town.nodes.values() if node is not victim)
            await eventually(lambda: "range.seal" in files(other, index))
            sound = files(other, index)
            (folder,) = victim.folder.glob(f"topics/*/partition-0/range-{index}.g{generation}")
            await victim.crash()
            DAMAGES[what](folder)
            await victim.start()
            scrub = asyncio.create_task(
                ScrubDriver(victim.store, Metrics(), victim.streams.lost).run(1)
            )
            await eventually(lambda: is_sound(town, victim, index, sound) or bool(victim.fatal))
            scrub.cancel()
            assert victim.fatal == []
            expected = [b"19"] if is_compacted else [b"%d" % number for number in range(20)]
            await eventually(lambda: readable(town) == expected)
            left = [path for path in folder.parent.iterdir() if path.suffix == ".aside"]
            assert left == []

    asyncio.run(story())


def is_sound(town: Town, node: TownNode, index: int, sound: dict[str, bytes]) -> bool:
    try:
        found = files(node, index)
    except (ValueError, FileNotFoundError):
        return False  # it is being made anew
    return found == sound and len(town.stream.ranges[0].done) == 3


OPEN_DAMAGES = {
    f"{how.__name__} {name}": how(name)
    for name in ("*.log", "range.header")
    for how in (flipped, cut, gone)
}


@pytest.mark.parametrize("is_writer", [False, True])
@pytest.mark.parametrize("what", OPEN_DAMAGES)
def test_an_open_range_that_is_damaged_on_one_node_goes_on_without_it(
    tmp_path: Path, what: str, *, is_writer: bool
) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            for number in range(20):
                await town.write(b"%d" % number)
            victim = next(
                node for node in town.nodes.values() if (node is town.writer) == is_writer
            )
            (folder,) = victim.folder.glob("topics/*/partition-0/range-0.g0")
            victim.store.write_checkpoint()
            await victim.crash()
            OPEN_DAMAGES[what](folder)
            if is_writer:
                await town.fence(victim)
            await victim.start()
            await town.write(b"20")
            expected = [b"%d" % number for number in range(21)]
            await eventually(lambda: readable(town) == expected)
            town.writer.streams.roll(town.stream.id)
            await eventually(lambda: len(town.stream.ranges[0].done) == 3)
            await eventually(lambda: "range.seal" in files(town.writer, 0))
            await eventually(lambda: files(victim, 0) == files(town.writer, 0))
            assert victim.fatal == []
            assert readable(town) == expected

    asyncio.run(story())


@pytest.mark.parametrize("what", OPEN_DAMAGES)
def test_what_a_damaged_copy_lost_is_not_forgotten_over_restarts(tmp_path: Path, what: str) -> None:
    """Two nodes acknowledged; one copy is damaged: without the other nothing may be decided."""

    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            writer = town.writer
            damaged, behind = [node for node in town.nodes.values() if node is not writer]
            town.network.isolate(behind.id)
            for number in range(20):
                await town.write(b"%d" % number)
            (folder,) = damaged.folder.glob("topics/*/partition-0/range-0.g0")
            damaged.store.write_checkpoint()
            await writer.crash()
            await damaged.crash()
            OPEN_DAMAGES[what](folder)
            for _ in range(2):
                await damaged.start()
                await damaged.crash()
            await damaged.start()
            town.network.heal()
            await town.fence(writer)
            await asyncio.sleep(0.5)
            assert town.stream.ranges[0].end in (None, 20)
            await writer.start()
            await town.unfence(writer)
            await town.write(b"20")
            expected = [b"%d" % number for number in range(21)]
            await eventually(lambda: readable(town) == expected)

    asyncio.run(story())


@pytest.mark.parametrize("what", OPEN_DAMAGES)
def test_a_node_with_a_damaged_copy_takes_the_stream_over(tmp_path: Path, what: str) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            for number in range(20):
                await town.write(b"%d" % number)
            former = town.writer
            heir, other = [node for node in town.nodes.values() if node is not former]
            await eventually(lambda: town.stored(other, 0) == town.stored(former, 0))
            (folder,) = heir.folder.glob("topics/*/partition-0/range-0.g0")
            heir.store.write_checkpoint()
            await heir.crash()
            OPEN_DAMAGES[what](folder)
            await heir.start()
            for node in (other, former):  # nobody else is left to be elected
                await node.crash()
                await town.fence(node)
            assert town.writer is heir
            for node in (other, former):
                await node.start()
                await town.unfence(node)
            await town.write(b"20")
            expected = [b"%d" % number for number in range(21)]
            await eventually(lambda: readable(town) == expected)
            await eventually(lambda: len(town.stream.ranges[0].done) == 3)
            assert heir.fatal == []

    asyncio.run(story())


def test_the_end_of_a_range_can_be_told_where_its_copy_is_damaged(tmp_path: Path) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            for number in range(20):
                await town.write(b"%d" % number)
            node = town.writer
            (folder,) = node.folder.glob("topics/*/partition-0/range-0.g0")
            size = node.streams.door("t", 0).log.size_bytes
            node.store.write_checkpoint()
            await node.crash()
            cut("*.log")(folder)
            await node.start()
            log = node.store.logs[folder]
            point = SealPoint(Offset(15), ())
            later = town.clock.wall_ms() + 1000
            end = range_end(town.stream, town.stream.last, log, point, (Epoch(1), later))
            assert 0 < end.size_bytes <= size
            assert end.max_timestamp == later

    asyncio.run(story())


def test_a_replica_whose_sync_failed_is_in_limbo_after_a_restart_on_the_same_boot(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            await town.write(b"a")
            node = next(node for node in town.nodes.values() if node is not town.writer)
            node.store.files.access.sync_failed()
            await node.crash()
            node.fatal.clear()
            await node.start()
            roles = node.streams._roles
            assert roles is not None
            held = roles.replicas.hold(
                town.placement.catalogue.need_topic(STREAM.topic), town.stream, town.stream.last
            )
            assert held.machine.limbo

    asyncio.run(story())
