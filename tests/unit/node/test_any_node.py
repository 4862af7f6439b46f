"""What is passed on between two nodes: appends are stored once, or not, or said to be unknown."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from mainstem.cluster.peers.frames import Chunk, Service
from mainstem.cluster.peers.refusals import Unreachable
from mainstem.model.errors import (
    Corrupt,
    ErrorCode,
    InvalidRequest,
    MainstemError,
    Unavailable,
)
from mainstem.model.ids import NO_NODE, NodeId, Offset
from mainstem.node.any_node import AnyNodeStreams
from mainstem.streams.look_driver import Piece, StreamLook
from mainstem.testing.virtual_loop import VirtualLoop

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

    def door(self, topic: str, partition: int) -> object:
        if not self.has_heard:
            raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC)
        if not self.writes:
            raise Unavailable(ErrorCode.NOT_WRITER, "another node writes it")
        return object()

    door_by_id = flush = sizes = delete_records = None
    reader = reader_by_id = nearest = None

    async def look(self, topic: str, partition: int) -> StreamLook:
        self.door(topic, partition)
        return StreamLook(Shelf(6))

    def glance(self, topic: str, partition: int) -> StreamLook:
        if self.known is None:
            self.door(topic, partition)
        return StreamLook(Shelf(self.known or 6))

    async def append(self, topic: str, partition: int, batch: bytearray) -> Offset:
        self.stored.append(bytes(batch))
        if self.failure is not None:
            raise self.failure
        return Offset(41 + len(self.stored))


class Pair:
    """Two nodes; ``writer`` is who the catalogue says."""

    def __init__(self) -> None:
        self.writer = TWO
        self.local = {ONE: Local(), TWO: Local()}
        self.local[TWO].writes = True
        self.is_cut = False
        self.streams = {
            node: AnyNodeStreams(cast("Any", local), node, self, lambda *_: self.writer)
            for node, local in self.local.items()
        }

    async def ask(
        self, node: NodeId, service: Service, chunks: Sequence[Chunk], *, timeout_s: float
    ) -> memoryview:
        assert service is Service.REQUESTS
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


def play(story: Callable[[Pair], Any]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story(Pair()))


def test_an_append_goes_to_the_node_that_writes_the_partition() -> None:
    async def story(pair: Pair) -> None:
        assert await pair.append() == 42
        assert pair.local[TWO].stored == [BATCH]
        assert pair.local[ONE].stored == []

    play(story)


def test_a_writer_that_has_not_heard_of_a_new_topic_is_asked_again() -> None:
    async def story(pair: Pair) -> None:
        writer = pair.local[TWO]
        writer.has_heard = False
        asyncio.get_running_loop().call_later(1.0, setattr, writer, "has_heard", True)
        looked = asyncio.ensure_future(pair.streams[ONE].look("t", 0))
        assert await pair.append() == 42
        assert writer.stored == [BATCH]
        assert (await looked).last_stable == 6

    play(story)


def test_an_append_that_nobody_takes_waits_for_the_next_writer() -> None:
    async def story(pair: Pair) -> None:
        pair.take_over(NO_NODE)
        asyncio.get_running_loop().call_later(2.0, pair.take_over, ONE)
        assert await pair.append() == 42
        assert pair.local[ONE].stored == [BATCH]

    play(story)


def test_a_writer_that_has_changed_meanwhile_is_looked_for_again() -> None:
    async def story(pair: Pair) -> None:
        pair.local[TWO].writes = False  # the catalogue here does not know yet
        asyncio.get_running_loop().call_later(1.0, pair.take_over, ONE)
        assert await pair.append() == 42
        assert pair.local[TWO].stored == []

    play(story)


def test_a_node_that_stays_away_is_not_waited_for_for_ever() -> None:
    async def story(pair: Pair) -> None:
        pair.is_cut = True
        with pytest.raises(Unavailable, match="nobody wrote it"):
            await pair.append()

    play(story)


def test_what_may_be_stored_is_not_tried_again() -> None:
    async def story(pair: Pair) -> None:
        pair.local[TWO].failure = Unavailable(ErrorCode.NOT_WRITER, "deposed meanwhile")
        with pytest.raises(Unavailable) as unknown:
            await pair.append()
        assert unknown.value.code is ErrorCode.TIMED_OUT
        assert pair.local[TWO].stored == [BATCH]

    play(story)


@pytest.mark.parametrize("body", [b"", b"\0\0\0\1\xc1", b"junk junk"])
def test_what_is_no_append_is_refused(body: bytes) -> None:
    async def story(pair: Pair) -> None:
        with pytest.raises(Corrupt):
            await pair.streams[TWO].serve(ONE, memoryview(body))

    play(story)


def test_a_look_shows_what_the_writer_shows() -> None:
    async def story(pair: Pair) -> None:
        pair.local[ONE].known = 3
        look = await pair.streams[ONE].look("t", 0)
        assert (look.start_offset, look.last_stable) == (0, 6)
        assert await look.piece(5, 100) == Piece(BATCH, 6, [(5, 6)])
        assert await look.piece(6, 100) is None
        assert await look.offset_at(7) == 5
        assert await look.offset_at(100) is None

    play(story)


def test_a_look_at_what_a_replica_has_for_certain_asks_nobody() -> None:
    async def story(pair: Pair) -> None:
        pair.is_cut = True
        pair.local[ONE].known = 3
        look = await pair.streams[ONE].look("t", 0, 3)
        assert look.last_stable == 3

    play(story)


def test_a_look_waits_for_the_next_writer_before_it_takes_what_a_replica_has() -> None:
    async def story(pair: Pair) -> None:
        pair.local[ONE].known = 3
        pair.take_over(NO_NODE)
        asyncio.get_running_loop().call_later(2.0, pair.take_over, TWO)
        assert (await pair.streams[ONE].look("t", 0)).last_stable == 6
        pair.take_over(NO_NODE)
        assert (await pair.streams[ONE].look("t", 0)).last_stable == 3
        pair.local[ONE].known = None
        with pytest.raises(Unavailable):
            await pair.streams[ONE].look("t", 0)

    play(story)
