"""What is passed on between two nodes: appends are stored once, or not, or said to be unknown."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from tests.kit.loop import virtual_time

from mainstem.cluster.peers.error_codec import Unreachable
from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.model.errors import (
    Corrupt,
    ErrorCode,
    InvalidRequest,
    MainstemError,
    Unavailable,
)
from mainstem.model.ids import NO_NODE, NodeId, Offset
from mainstem.node.clustering.stream_forwarding import ForwardingStreams
from mainstem.streams.reading.local_reader_driver import LocalReader, StreamPiece

pytestmark = virtual_time

ONE, TWO = NodeId(1), NodeId(2)
BATCH = b"a batch"


class Shelf:
    """A stream of one batch at offset 5, of which ``known`` offsets can be seen."""

    start_offset = 0
    lapsed = closed = None

    def __init__(self, known: int) -> None:
        self.last_stable = known
        self.until_offset = 6

    def read(self, offset: int | None = None, **_: object) -> Any:
        if offset is None:
            return BATCH
        return self if offset < self.last_stable else None

    def aborted_transactions(self, start: int, until: int) -> list[tuple[int, int]]:
        return [(start, until)]

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        return (5, timestamp, 0) if timestamp < 100 else None

    def add_waiter(self, wake: Callable[[], None]) -> None: ...

    def remove_waiter(self, wake: Callable[[], None]) -> None: ...


class Local:
    """The streams of one node, of which it writes all or none."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.writes = False
        self.has_heard = True  # of the topic
        self.known: int | None = None  # what a replica here knows
        self.failure: MainstemError | None = None

    def partition(self, topic: str, partition: int) -> object:
        if not self.has_heard:
            raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC)
        if not self.writes:
            raise Unavailable(ErrorCode.NOT_WRITER, "another node writes it")
        return object()

    partition_by_id = flush = sizes = delete_records = None
    reader = reader_by_id = nearest = None

    async def open_reader(self, topic: str, partition: int) -> LocalReader:
        self.partition(topic, partition)
        return LocalReader(Shelf(6))

    def stable_reader(self, topic: str, partition: int) -> LocalReader:
        if self.known is None:
            self.partition(topic, partition)
        return LocalReader(Shelf(self.known or 6))

    async def append(self, topic: str, partition: int, batch: bytearray) -> Offset:
        self.stored.append(bytes(batch))
        if self.failure is not None:
            raise self.failure
        return Offset(41 + len(self.stored))


class TwoNodes:
    """Two nodes; ``writer`` is who the catalogue says."""

    def __init__(self) -> None:
        self.writer = TWO
        self.local = {ONE: Local(), TWO: Local()}
        self.local[TWO].writes = True
        self.is_cut = False
        self.streams = {
            node: ForwardingStreams(cast("Any", local), node, self, lambda *_: self.writer)
            for node, local in self.local.items()
        }

    async def ask(
        self, node: NodeId, service: PeerService, chunks: Sequence[Chunk], *, timeout_s: float
    ) -> memoryview:
        assert service is PeerService.REQUESTS
        await asyncio.sleep(0.001)
        if self.is_cut:
            raise Unreachable("cannot be reached")
        answer = await self.streams[node].serve(ONE, memoryview(b"".join(map(bytes, chunks))))
        return memoryview(b"".join(map(bytes, answer)))

    async def append(self) -> int:
        return await self.streams[ONE].append("t", 0, bytearray(BATCH))

    def take_over(self, node: NodeId) -> None:
        self.writer = node
        for number, local in self.local.items():
            local.writes = number == node


@pytest.fixture
def cluster() -> TwoNodes:
    return TwoNodes()


async def test_an_append_goes_to_the_node_that_writes_the_partition(cluster: TwoNodes) -> None:
    assert await cluster.append() == 42
    assert cluster.local[TWO].stored == [BATCH]
    assert cluster.local[ONE].stored == []


async def test_a_writer_that_has_not_heard_of_a_new_topic_is_asked_again(cluster: TwoNodes) -> None:
    writer = cluster.local[TWO]
    writer.has_heard = False
    asyncio.get_running_loop().call_later(1.0, setattr, writer, "has_heard", True)
    opened = asyncio.ensure_future(cluster.streams[ONE].open_reader("t", 0))
    assert await cluster.append() == 42
    assert writer.stored == [BATCH]
    assert (await opened).last_stable == 6


async def test_an_append_that_nobody_takes_waits_for_the_next_writer(cluster: TwoNodes) -> None:
    cluster.take_over(NO_NODE)
    asyncio.get_running_loop().call_later(2.0, cluster.take_over, ONE)
    assert await cluster.append() == 42
    assert cluster.local[ONE].stored == [BATCH]


async def test_a_writer_that_has_changed_meanwhile_is_looked_for_again(cluster: TwoNodes) -> None:
    cluster.local[TWO].writes = False  # the catalogue here does not know yet
    asyncio.get_running_loop().call_later(1.0, cluster.take_over, ONE)
    assert await cluster.append() == 42
    assert cluster.local[TWO].stored == []


async def test_a_node_that_stays_away_is_not_waited_for_for_ever(cluster: TwoNodes) -> None:
    cluster.is_cut = True
    with pytest.raises(Unavailable, match="it had no writer"):
        await cluster.append()


async def test_what_may_be_stored_is_not_tried_again(cluster: TwoNodes) -> None:
    cluster.local[TWO].failure = Unavailable(ErrorCode.NOT_WRITER, "deposed meanwhile")
    with pytest.raises(Unavailable) as unknown:
        await cluster.append()
    assert unknown.value.code is ErrorCode.TIMED_OUT
    assert cluster.local[TWO].stored == [BATCH]


@pytest.mark.parametrize("body", [b"", b"\0\0\0\1\xc1", b"junk junk"])
async def test_what_is_no_append_is_refused(cluster: TwoNodes, body: bytes) -> None:
    with pytest.raises(Corrupt):
        await cluster.streams[TWO].serve(ONE, memoryview(body))


async def test_a_look_shows_what_the_writer_shows(cluster: TwoNodes) -> None:
    cluster.local[ONE].known = 3
    reader = await cluster.streams[ONE].open_reader("t", 0)
    assert (reader.start_offset, reader.last_stable) == (0, 6)
    assert await reader.piece(5, 100) == StreamPiece(BATCH, 6, [(5, 6)])
    assert await reader.piece(6, 100) is None
    assert await reader.offset_at(7) == 5
    assert await reader.offset_at(100) is None


async def test_a_read_of_what_a_replica_has_for_certain_asks_nobody(cluster: TwoNodes) -> None:
    cluster.is_cut = True
    cluster.local[ONE].known = 3
    reader = await cluster.streams[ONE].open_reader("t", 0, 3)
    assert reader.last_stable == 3


async def test_a_look_waits_for_the_next_writer_before_it_takes_what_a_replica_has(
    cluster: TwoNodes,
) -> None:
    cluster.local[ONE].known = 3
    cluster.take_over(NO_NODE)
    asyncio.get_running_loop().call_later(2.0, cluster.take_over, TWO)
    assert (await cluster.streams[ONE].open_reader("t", 0)).last_stable == 6
    cluster.take_over(NO_NODE)
    assert (await cluster.streams[ONE].open_reader("t", 0)).last_stable == 3
    cluster.local[ONE].known = None
    with pytest.raises(Unavailable):
        await cluster.streams[ONE].open_reader("t", 0)
