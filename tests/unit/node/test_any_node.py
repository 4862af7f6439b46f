"""Appends passed on between two nodes: stored once, or not, or said to be unknown."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from mainstem.cluster.peers.connection_transport import Chunk
from mainstem.cluster.peers.frames import Service
from mainstem.cluster.peers.refusals import Unreachable
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import NO_NODE, NodeId, Offset
from mainstem.node.any_node import AnyNodeStreams
from mainstem.testing.virtual_loop import VirtualLoop

ONE, TWO = NodeId(1), NodeId(2)
BATCH = b"a batch"


class Local:
    """The streams of one node, of which it writes all or none."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.writes = False
        self.failure: MainstemError | None = None

    def door(self, topic: str, partition: int) -> object:
        if not self.writes:
            raise Unavailable(ErrorCode.NOT_WRITER, "another node writes it")
        return object()

    door_by_id = flush = sizes = delete_records = None

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
