"""Whole nodes in virtual time: answers of a node that was replaced and does not know it yet."""

import asyncio
from functools import partial
from pathlib import Path
from random import Random

import pytest
from tests.kit.loop import virtual_time

from mainstem.coordination.groups.requests import CommitRequest, OffsetToCommit
from mainstem.coordination.shards.partitioning import OFFSETS_TOPIC
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.testing.simulation.cluster.node import SimNode
from mainstem.testing.simulation.cluster.nodes import SimCluster
from mainstem.testing.simulation.cluster.transactions import CachedFinder, fetched
from mainstem.testing.simulation.faulty_files import FaultyFiles

pytestmark = virtual_time

STALL_S = 20.0


@pytest.mark.parametrize("is_cut_off", [True, False])
async def test_a_coordinator_that_was_replaced_while_its_disk_stalls_returns_no_old_offset(
    tmp_path: Path, *, is_cut_off: bool
) -> None:
    """It loses its lease and has one again, or hands its shard over.

    As long as it does not know of its successor, clients are asked to repeat their request.
    """
    with FaultyFiles() as files:
        cluster = SimCluster(
            tmp_path, Random(1), "written", files, is_oversize=False, is_mixed=False
        )
        await cluster.begin()
        await asyncio.sleep(3)
        old = await away_from_the_leader(cluster)
        await commit(old, 1)
        assert await position(old) == 1
        cluster.loop.stall(old.id, STALL_S)
        if is_cut_off:
            cluster.network.isolate(old.id)
            cluster.catalogue_group.isolate(cluster.catalogue_group.nodes[old.id])
        else:
            hand_over(cluster, old)
        async with asyncio.timeout(STALL_S / 2):
            while (new := coordinator(cluster)) is old:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.1)
            await asyncio.sleep(2)
        await commit(new, 2)
        cluster.repair()

        until = cluster.loop.time() + STALL_S / 3
        while cluster.loop.time() < until:
            with pytest.raises(MainstemError) as refused:
                await position(old)
            assert refused.value.code is ErrorCode.COORDINATOR_LOADING
            await asyncio.sleep(0.1)
        assert old.catalogue.topic(OFFSETS_TOPIC).streams[0].writer == old.id  # type: ignore[union-attr]

        await cluster.heal()
        assert await fetched(CachedFinder(cluster.find), "g") == 2
        for node in cluster.nodes.values():
            node.kill()
        await asyncio.sleep(1)


def coordinator(cluster: SimCluster) -> SimNode:
    found = cluster.find(OFFSETS_TOPIC, 0)
    assert found is not None, "all nodes are up"
    return found


async def away_from_the_leader(cluster: SimCluster) -> SimNode:
    """The coordinator, on a node that does not lead the catalogue."""
    leader = cluster.catalogue_group.leader()
    assert leader is not None, "all nodes are up"
    if coordinator(cluster).id == leader.id:
        hand_over(cluster, coordinator(cluster))
        await asyncio.sleep(2)
    assert coordinator(cluster).id != leader.id
    return coordinator(cluster)


def hand_over(cluster: SimCluster, node: SimNode) -> None:
    """Let another node coordinate."""
    topic = cluster.catalogue_group.service.catalogue.topic(OFFSETS_TOPIC)
    assert topic is not None, "it was made"
    assert node.streams is not None, "all nodes are up"
    [stream] = topic.streams
    successor = next(one for one in stream.last.replicas if one != node.id)
    node.streams.roll(stream.id, new_writer=successor)


async def commit(node: SimNode, offset: int) -> None:
    request = CommitRequest(group_id="g", offsets=(OffsetToCommit("x", 0, offset),))
    assert await node.serve(partial(node.coordinators.groups.commit_offsets, request)) == [None]


async def position(node: SimNode) -> int:
    fetching = partial(node.coordinators.groups.fetch_offsets, "g", [("x", 0)], stable=True)
    [found] = await node.serve(fetching)
    return found.committed.offset
