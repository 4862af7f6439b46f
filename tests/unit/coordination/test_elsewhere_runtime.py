"""Markers and questions between the nodes of a transaction."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from mainstem.cluster.peers.frames import Chunk, Service
from mainstem.coordination.elsewhere_runtime import Add, ClusterMarkers, Elsewhere
from mainstem.coordination.transaction import Partition, ProducerIdentity
from mainstem.model.errors import Corrupt, ErrorCode, Unavailable
from mainstem.model.ids import NO_NODE, NodeId
from mainstem.streams.markers import Marker
from mainstem.testing.memory_stream import MemoryStream
from mainstem.testing.virtual_loop import VirtualLoop

ONE, TWO = NodeId(1), NodeId(2)
PRODUCER = ProducerIdentity(7, 0)
COMMIT = Marker(commit=True, coordinator_epoch=3)
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
        self, partition: int, producer: ProducerIdentity, marker: Marker
    ) -> None:
        raise AssertionError("no positions here")


class Village:
    """Two nodes; node 1 coordinates, node 2 writes."""

    def __init__(self) -> None:
        self.stream = MemoryStream()
        self.coordinator = Coordinator()
        self.leads = ONE
        self.writer = TWO
        self.nodes = {number: self._node(number) for number in (ONE, TWO)}

    def _node(self, number: NodeId) -> tuple[ClusterMarkers, Elsewhere]:
        markers = ClusterMarkers(
            lambda topic, partition: self.stream,
            Positions(),
            node=number,
            peers=self,
            writer_of=lambda topic, partition: self.writer,
        )
        elsewhere = Elsewhere(number, self, markers, lambda _: self.leads, self.coordinator)
        return markers, elsewhere

    async def ask(
        self, node: NodeId, service: Service, chunks: Sequence[Chunk], *, timeout_s: float
    ) -> memoryview:
        assert service is Service.MARKERS
        await asyncio.sleep(0.001)
        answer = await self.nodes[node][1].serve(ONE, memoryview(b"".join(map(bytes, chunks))))
        return memoryview(b"".join(map(bytes, answer)))


def play(story: Callable[[Village], Any]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story(Village()))


ADD = Add("tx", PRODUCER, (PLACE,), verify_only=True)


def test_a_marker_goes_to_the_node_that_writes_the_partition() -> None:
    async def story(village: Village) -> None:
        await village.nodes[ONE][0].write(PLACE, PRODUCER, COMMIT)
        assert village.stream.written == 1

    play(story)


def test_a_marker_for_a_partition_without_a_writer_is_tried_again_later() -> None:
    async def story(village: Village) -> None:
        village.writer = NO_NODE
        asyncio.get_running_loop().call_later(1.0, setattr, village, "writer", TWO)
        await village.nodes[ONE][0].write_all([PLACE], PRODUCER, COMMIT)
        assert village.stream.written == 1

    play(story)


def test_the_coordinator_is_asked_wherever_it_is() -> None:
    async def story(village: Village) -> None:
        village.coordinator.answers = [ErrorCode.INVALID_TXN_STATE]
        elsewhere = village.nodes[TWO][1]
        assert not elsewhere.is_here("tx")
        assert await elsewhere.add(ADD) == [ErrorCode.INVALID_TXN_STATE]

    play(story)


def test_a_coordinator_that_is_being_replaced_is_asked_again() -> None:
    async def story(village: Village) -> None:
        village.coordinator.refusals = [
            Unavailable(ErrorCode.NOT_COORDINATOR, "another node"),
            Unavailable(ErrorCode.COORDINATOR_LOADING, "not yet"),
        ]
        assert await village.nodes[TWO][1].add(ADD) == [None]

    play(story)


def test_a_coordinator_that_stays_away_is_not_asked_for_ever() -> None:
    async def story(village: Village) -> None:
        village.coordinator.refusals = [
            Unavailable(ErrorCode.NOT_COORDINATOR, "another node") for _ in range(1_000)
        ]
        with pytest.raises(Unavailable) as refused:
            await village.nodes[TWO][1].add(ADD)
        # Not "not the coordinator": the client would look for that of its group.
        assert refused.value.code is ErrorCode.COORDINATOR_UNAVAILABLE

    play(story)


def test_no_record_follows_the_marker_of_its_own_transaction() -> None:
    async def story(village: Village) -> None:
        markers, elsewhere = village.nodes[TWO]

        async def the_transaction_ends() -> None:
            await markers.write_here(PLACE, PRODUCER, COMMIT)

        # The coordinator said yes, and the marker overtakes its answer.
        village.coordinator.before_answer = the_transaction_ends
        assert await elsewhere.add(ADD) == [ErrorCode.INVALID_TXN_STATE]

    play(story)


def test_the_marker_of_another_producer_breaks_no_guard() -> None:
    async def story(village: Village) -> None:
        markers, elsewhere = village.nodes[TWO]

        async def another_ends() -> None:
            await markers.write_here(PLACE, ProducerIdentity(8, 0), COMMIT)

        village.coordinator.before_answer = another_ends
        assert await elsewhere.add(ADD) == [None]

    play(story)


def test_what_is_no_question_is_refused() -> None:
    async def story(village: Village) -> None:
        with pytest.raises(Corrupt):
            await village.nodes[ONE][1].serve(TWO, memoryview(b"junk"))

    play(story)
