"""States of share partitions on their way to the node that coordinates the group."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.kit.groups import GroupNode
from tests.kit.loop import virtual_time
from tests.kit.simulation.coordination.topic_list import TopicList

from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.coordination.share.facts import ShareState
from mainstem.coordination.share.partition import SavedRecordRun, SavedSharePartition
from mainstem.coordination.share.requests import ShareHeartbeat
from mainstem.coordination.share.state_persister_service import ShareStatePersister
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import NO_NODE, NodeId

pytestmark = virtual_time

ONE, TWO = NodeId(1), NodeId(2)
STATE = ShareState(SavedSharePartition(3, (SavedRecordRun(2, 0, 1),)), 0, 7, 1)


class TwoNodes:
    """Two nodes; node 1 coordinates the group, node 2 writes the partition."""

    def __init__(self) -> None:
        self.place = (TopicList().id_of("t"), 0)
        self.leads = ONE
        self.refusals: list[MainstemError] = []
        self.asked = 0
        self.groups = {number: GroupNode({"t": 1}).coordinator() for number in (ONE, TWO)}
        self.stores = {
            number: ShareStatePersister(number, self, groups.share_groups, lambda _: self.leads)
            for number, groups in self.groups.items()
        }

    async def open(self) -> None:
        for groups in self.groups.values():
            groups.start()
        heartbeat = ShareHeartbeat(group_id="g", member_id="m", epoch=0, topics=("t",))
        await self.groups[ONE].share_groups.heartbeat(heartbeat)

    async def ask(
        self, node: NodeId, service: PeerService, chunks: Sequence[Chunk], *, timeout_s: float
    ) -> memoryview:
        assert service is PeerService.SHARES
        self.asked += 1
        await asyncio.sleep(0.001)
        if self.refusals:
            raise self.refusals.pop(0)
        answer = await self.stores[node].serve(TWO, memoryview(b"".join(map(bytes, chunks))))
        return memoryview(b"".join(map(bytes, answer)))


@pytest.fixture
async def cluster() -> TwoNodes:
    cluster = TwoNodes()
    await cluster.open()
    return cluster


@pytest.mark.parametrize("node", [ONE, TWO])
async def test_a_state_is_stored_and_found_from_every_node(cluster: TwoNodes, node: NodeId) -> None:
    store = cluster.stores[node]
    assert await store.read("g", cluster.place, 7) is None
    await store.write("g", cluster.place, STATE)
    found = await store.read("g", cluster.place, 7)
    assert found is not None
    assert (found.share, found.leader_epoch) == (STATE.share, 7)
    assert bool(cluster.asked) is (node == TWO)


async def test_a_coordinator_that_moves_is_followed(cluster: TwoNodes) -> None:
    cluster.leads = NO_NODE
    asyncio.get_running_loop().call_later(1.0, setattr, cluster, "leads", ONE)
    cluster.refusals = [Unavailable(ErrorCode.NOT_COORDINATOR, "not here")]
    await cluster.stores[TWO].write("g", cluster.place, STATE)
    assert cluster.groups[ONE].share_groups.states("g")[cluster.place] == STATE


async def test_without_a_coordinator_the_writer_gives_up_after_a_while(cluster: TwoNodes) -> None:
    cluster.leads = NO_NODE
    with pytest.raises(MainstemError) as refusal:
        await cluster.stores[TWO].write("g", cluster.place, STATE)
    assert refusal.value.code is ErrorCode.COORDINATOR_UNAVAILABLE


async def test_what_the_coordinator_refuses_is_not_tried_again(cluster: TwoNodes) -> None:
    with pytest.raises(MainstemError) as refusal:
        await cluster.stores[ONE].write("other", cluster.place, STATE)
    assert refusal.value.code is ErrorCode.UNKNOWN_GROUP
    with pytest.raises(Corrupt):
        await cluster.stores[ONE].serve(TWO, memoryview(b"\xc1"))
