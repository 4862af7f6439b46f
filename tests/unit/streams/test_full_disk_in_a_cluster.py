"""Nodes of a cluster whose disk is full refuse, wait and go on; nobody ends."""

import asyncio
from pathlib import Path

import pytest
from tests.kit.cluster import StreamCluster, StreamClusterNode, batch_of
from tests.kit.waiting import eventually
from tests.unit.streams.full_disk import FullDisk

from mainstem.streams import storage_retry_driver
from mainstem.streams.failover import roles_service
from mainstem.streams.replica import driver
from mainstem.streams.writer import replication_driver, roll_driver
from mainstem.streams.writer.replication import WriterLimits


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (driver, roles_service, roll_driver, storage_retry_driver):
        monkeypatch.setattr(module, "RETRY_S", 0.02)
    limits = WriterLimits(lag_ms=300, resend_ms=50)
    monkeypatch.setattr(replication_driver, "LIMITS", limits)


def watched(node: StreamClusterNode) -> None:
    """What the watch of the node's disk does once there is space."""
    node.streams._context.flusher.space.measured(1 << 60)


def others(cluster: StreamCluster) -> list[StreamClusterNode]:
    return [node for node in cluster.nodes.values() if node is not cluster.writer]


async def test_a_writer_goes_on_without_a_replica_whose_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        full = others(cluster)[0]
        disk = FullDisk(monkeypatch, full.folder)
        disk.room = 0
        for number in range(1, 5):
            await cluster.write(b"%d" % number)
        await eventually(lambda: full.id not in cluster.stream.last.replicas)
        await cluster.write(b"5")
        assert all(node.fatal == [] for node in cluster.nodes.values())
        disk.room = None
        watched(full)
        await eventually(lambda: full.id in cluster.stream.ranges[0].holders)
        assert cluster.values() == [b"%d" % number for number in range(6)]


async def test_a_writer_whose_disk_is_full_rolls_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        writer = cluster.writer
        index = cluster.stream.last.index
        for other in others(cluster):
            cluster.network.cut(writer.id, other.id)
        waiting = asyncio.create_task(writer.streams.append("t", 0, batch_of(b"1")))
        await asyncio.sleep(0.05)
        disk = FullDisk(monkeypatch, writer.folder)
        disk.room = 0
        writer.streams.roll(cluster.stream.id)
        await eventually(lambda: cluster.stream.last.index > index)  # the catalogue has opened it
        await asyncio.sleep(0.1)
        assert not waiting.done()
        assert writer.fatal == []
        disk.room = None
        watched(writer)
        cluster.network.heal()
        assert await asyncio.wait_for(waiting, 10) == 1
        await cluster.write(b"2")
        assert cluster.values() == [b"0", b"1", b"2"]


async def test_a_promise_that_cannot_be_stored_is_stored_when_there_is_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        old = cluster.writer
        disk = FullDisk(monkeypatch, tmp_path / "node-")
        disk.room = 0  # on every node, but not where the catalogue is
        await old.crash()
        await cluster.fence(old)
        await asyncio.sleep(0.2)
        assert all(node.fatal == [] for node in cluster.nodes.values())
        disk.room = None
        for node in cluster.nodes.values():
            watched(node)
        await cluster.write(b"1")
        assert cluster.values() == [b"0", b"1"]
