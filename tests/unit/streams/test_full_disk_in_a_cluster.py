"""Nodes of a cluster whose disk is full refuse, wait and go on; nobody ends."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.streams.full_disk import FullDisk
from tests.unit.streams.town import Town, TownNode, batch_of, eventually

from mainstem.streams import (
    held_replica_driver,
    replication_driver,
    roles_service,
    roll_driver,
    storage_retry_driver,
)
from mainstem.streams.range_writer import WriterLimits


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (held_replica_driver, roles_service, roll_driver, storage_retry_driver):
        monkeypatch.setattr(module, "RETRY_S", 0.02)
    limits = WriterLimits(lag_ms=300, resend_ms=50)
    monkeypatch.setattr(replication_driver, "LIMITS", limits)


def watched(node: TownNode) -> None:
    """What the watch of the node's disk does once there is space."""
    node.streams._flusher.space.measured(1 << 60)


def others(town: Town) -> list[TownNode]:
    return [node for node in town.nodes.values() if node is not town.writer]


def test_a_writer_goes_on_without_a_replica_whose_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            await town.write(b"0")
            full = others(town)[0]
            disk = FullDisk(monkeypatch, full.folder)
            disk.room = 0
            for number in range(1, 5):
                await town.write(b"%d" % number)
            await eventually(lambda: full.id not in town.stream.last.replicas)
            await town.write(b"5")
            assert all(node.fatal == [] for node in town.nodes.values())
            disk.room = None
            watched(full)
            await eventually(lambda: full.id in town.stream.ranges[0].holders)
            assert town.values() == [b"%d" % number for number in range(6)]

    asyncio.run(story())


def test_a_writer_whose_disk_is_full_rolls_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            await town.write(b"0")
            writer = town.writer
            index = town.stream.last.index
            for other in others(town):
                town.network.cut(writer.id, other.id)
            waiting = asyncio.create_task(writer.streams.append("t", 0, batch_of(b"1")))
            await asyncio.sleep(0.05)
            disk = FullDisk(monkeypatch, writer.folder)
            disk.room = 0
            writer.streams.roll(town.stream.id)
            await eventually(lambda: town.stream.last.index > index)  # the catalogue has opened it
            await asyncio.sleep(0.1)
            assert not waiting.done()
            assert writer.fatal == []
            disk.room = None
            watched(writer)
            town.network.heal()
            assert await asyncio.wait_for(waiting, 10) == 1
            await town.write(b"2")
            assert town.values() == [b"0", b"1", b"2"]

    asyncio.run(story())


def test_a_promise_that_cannot_be_stored_is_stored_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with Town(tmp_path) as town:
            await town.create()
            await town.write(b"0")
            old = town.writer
            disk = FullDisk(monkeypatch, tmp_path / "node-")
            disk.room = 0  # on every node, but not where the catalogue is
            await old.crash()
            await town.fence(old)
            await asyncio.sleep(0.2)
            assert all(node.fatal == [] for node in town.nodes.values())
            disk.room = None
            for node in town.nodes.values():
                watched(node)
            await town.write(b"1")
            assert town.values() == [b"0", b"1"]

    asyncio.run(story())
