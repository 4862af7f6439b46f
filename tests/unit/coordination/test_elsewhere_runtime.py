"""Markers and questions between the nodes of a transaction."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.kit.loop import virtual_time
from tests.kit.simulation.coordination.memory_stream import MemoryStream

from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.coordination.transactions.remote_coordinator_service import (
    Add,
    ClusterMarkers,
    RemoteCoordinator,
)
from mainstem.coordination.transactions.state import Partition, ProducerIdentity
from mainstem.model.errors import Corrupt, ErrorCode, Unavailable
from mainstem.model.ids import NO_NODE, NodeId
from mainstem.streams.producers.transaction_markers import TransactionMarker

pytestmark = virtual_time

ONE, TWO = NodeId(1), NodeId(2)
PRODUCER = ProducerIdentity(7, 0)
COMMIT = TransactionMarker(commit=True, coordinator_epoch=3)
PLACE: Partition = ("t", 0)


class Coordinator:
    """Transactions of one node, in which every partition is or is not."""

    def __init__(self) -> None:
        self.answers: list[ErrorCode | None] = [None]
        self.refusals: list[Unavailable] = []
        self.before_answer: Callable[[], Awaitable[None]] | None = None

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[Partition],
        *,
        verify_only: bool,
        forward: bool,
    ) -> Sequence[ErrorCode | None]:
        assert not forward, "who is asked answers itself"
        if self.refusals:
            raise self.refusals.pop(0)
        if self.before_answer is not None:
            await self.before_answer()
        return self.answers


class Positions:
    async def end_transaction(
        self, partition: int, producer: ProducerIdentity, marker: TransactionMarker
    ) -> None:
        raise AssertionError("no positions here")


class TwoNodes:
    """Two nodes; node 1 coordinates, node 2 writes."""

    def __init__(self) -> None:
        self.stream = MemoryStream()
        self.coordinator = Coordinator()
        self.leads = ONE
        self.writer = TWO
        self.nodes = {number: self._node(number) for number in (ONE, TWO)}

    def _node(self, number: NodeId) -> tuple[ClusterMarkers, RemoteCoordinator]:
        markers = ClusterMarkers(
            lambda topic, partition: self.stream,
            Positions(),
            node=number,
            peers=self,
            writer_of=lambda topic, partition: self.writer,
        )
        elsewhere = RemoteCoordinator(number, self, markers, lambda _: self.leads, self.coordinator)
        return markers, elsewhere

    async def ask(
        self, node: NodeId, service: PeerService, chunks: Sequence[Chunk], *, timeout_s: float
    ) -> memoryview:
        assert service is PeerService.MARKERS
        await asyncio.sleep(0.001)
        answer = await self.nodes[node][1].serve(ONE, memoryview(b"".join(map(bytes, chunks))))
        return memoryview(b"".join(map(bytes, answer)))


@pytest.fixture
def cluster() -> TwoNodes:
    return TwoNodes()


ADD = Add("tx", PRODUCER, (PLACE,), verify_only=True)


async def test_a_marker_goes_to_the_node_that_writes_the_partition(cluster: TwoNodes) -> None:
    await cluster.nodes[ONE][0].write(PLACE, PRODUCER, COMMIT)
    assert cluster.stream.written == 1


async def test_a_marker_for_a_partition_without_a_writer_is_tried_again_later(
    cluster: TwoNodes,
) -> None:
    cluster.writer = NO_NODE
    asyncio.get_running_loop().call_later(1.0, setattr, cluster, "writer", TWO)
    await cluster.nodes[ONE][0].write_all([PLACE], PRODUCER, COMMIT)
    assert cluster.stream.written == 1


async def test_the_coordinator_is_asked_wherever_it_is(cluster: TwoNodes) -> None:
    cluster.coordinator.answers = [ErrorCode.INVALID_TXN_STATE]
    elsewhere = cluster.nodes[TWO][1]
    assert not elsewhere.is_here("tx")
    assert await elsewhere.add(ADD) == [ErrorCode.INVALID_TXN_STATE]


async def test_a_coordinator_that_is_being_replaced_is_asked_again(cluster: TwoNodes) -> None:
    cluster.coordinator.refusals = [
        Unavailable(ErrorCode.NOT_COORDINATOR, "another node"),
        Unavailable(ErrorCode.COORDINATOR_LOADING, "not yet"),
    ]
    assert await cluster.nodes[TWO][1].add(ADD) == [None]


async def test_a_coordinator_that_stays_away_is_not_asked_for_ever(cluster: TwoNodes) -> None:
    cluster.coordinator.refusals = [
        Unavailable(ErrorCode.NOT_COORDINATOR, "another node") for _ in range(1_000)
    ]
    with pytest.raises(Unavailable) as refused:
        await cluster.nodes[TWO][1].add(ADD)
    # Not "not the coordinator": the client would look for that of its group.
    assert refused.value.code is ErrorCode.COORDINATOR_UNAVAILABLE


async def test_no_record_follows_the_marker_of_its_own_transaction(cluster: TwoNodes) -> None:
    markers, elsewhere = cluster.nodes[TWO]

    async def the_transaction_ends() -> None:
        await markers.write_here(PLACE, PRODUCER, COMMIT)

    # The coordinator said yes, and the marker overtakes its answer.
    cluster.coordinator.before_answer = the_transaction_ends
    assert await elsewhere.add(ADD) == [ErrorCode.INVALID_TXN_STATE]


async def test_the_marker_of_another_producer_breaks_no_guard(cluster: TwoNodes) -> None:
    markers, elsewhere = cluster.nodes[TWO]

    async def another_ends() -> None:
        await markers.write_here(PLACE, ProducerIdentity(8, 0), COMMIT)

    cluster.coordinator.before_answer = another_ends
    assert await elsewhere.add(ADD) == [None]


async def test_what_is_no_question_is_refused(cluster: TwoNodes) -> None:
    with pytest.raises(Corrupt):
        await cluster.nodes[ONE][1].serve(TWO, memoryview(b"junk"))
