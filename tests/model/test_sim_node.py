"""One node of a simulated cluster, on a disk that refuses calls for a while."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from tests.kit.loop import virtual_time

from mainstem.log.disk.sync_marker import MARKER
from mainstem.model.features import LEVELS_OF_0_1, OWN_LEVELS
from mainstem.placement.raft_service import RaftPlacementService
from mainstem.testing.simulation.cluster.node import SimNode
from mainstem.testing.simulation.cluster.nodes import SimCluster
from mainstem.testing.simulation.faulty_files import FaultyFiles, FileFault

pytestmark = virtual_time


@asynccontextmanager
async def simulated_cluster(folder: Path, *, is_mixed: bool = False) -> AsyncIterator[SimCluster]:
    """Nodes that have started, on files that can fail."""
    with FaultyFiles() as files:
        rng = Random(1)
        cluster = SimCluster(folder, rng, "written", files, is_oversize=False, is_mixed=is_mixed)
        await cluster.begin()
        await asyncio.sleep(3)
        yield cluster
        await cluster.heal()
        cluster.check_fatal()
        for node in cluster.nodes.values():
            node.kill()
        await asyncio.sleep(1)


def fill_up_once_registered(node: SimNode) -> None:
    """The disk of a node is full from the moment on that the catalogue knows its new life."""
    register = node._register

    async def fill_up(service: RaftPlacementService) -> None:
        await register(service)
        node.disk.begin(FileFault.FULL)

    node._register = fill_up  # type: ignore[method-assign]


async def test_a_node_without_descriptors_can_be_killed_and_keeps_what_it_synced(
    tmp_path: Path,
) -> None:
    async with simulated_cluster(tmp_path) as cluster:
        node = cluster.nodes[cluster.stream.writer]
        node.disk.begin(FileFault.NO_DESCRIPTORS)
        assert not node.kill_and_corrupt()
        assert not node.is_up


async def test_a_node_whose_sync_has_failed_begins_on_a_disk_that_fills_up(tmp_path: Path) -> None:
    async with simulated_cluster(tmp_path) as cluster:
        node = cluster.nodes[cluster.stream.writer]
        node.kill()
        marker = node.folder / MARKER
        marker.unlink()
        fill_up_once_registered(node)
        cluster.start(node)
        await asyncio.sleep(5)
        assert node.streams is not None
        assert not marker.exists()


async def test_a_node_of_the_release_before_is_replaced_on_a_full_disk(tmp_path: Path) -> None:
    async with simulated_cluster(tmp_path, is_mixed=True) as cluster:
        node = next(one for one in cluster.nodes.values() if one.levels == LEVELS_OF_0_1)
        node.kill()
        node.levels = OWN_LEVELS
        fill_up_once_registered(node)
        cluster.start(node)
        await asyncio.sleep(5)
        assert node.streams is not None
