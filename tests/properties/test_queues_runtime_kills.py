"""Queues on real files, killed at any moment: what was confirmed and not acknowledged is there.

Each example plays publishers, consumers, bindings, snapshots and kills in an order that Hypothesis
chooses, and compares what a queue holds with a plain list.
"""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kit.queues import NAMESPACE, Inbox, QueueNode

from mainstem.broker.api.queues import ACKNOWLEDGE, RETURN, Binding, Destination
from mainstem.model.records.record import Record, build_batch

TARGET = Destination(is_queue=True, name="q")

STEPS = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(["", "orders"]), st.integers(1, 5)),
    st.tuples(st.just("write_as_kafka"), st.integers(1, 3)),
    st.tuples(st.just("write_and_die"), st.integers(1, 3)),
    st.tuples(st.just("acknowledge"), st.integers(1, 4)),
    st.tuples(st.just("give_back"), st.integers(1, 3)),
    st.tuples(st.just("rebind")),
    st.tuples(st.just("unbind")),
    st.tuples(st.just("shorten")),
    st.tuples(st.just("keep_cursors")),
    st.tuples(st.just("stop")),
    st.tuples(st.just("kill")),
)


class Play:
    """One course of events, and what ought to be in the queue after each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._is_bound = True
        self.held: list[bytes] = []
        self.node: QueueNode
        self.inbox: Inbox

    async def begin(self) -> None:
        await self._open()
        await self.node.exchange("orders", "fanout")
        await self.node.declare("q")
        await self.node.bind("orders", "q")
        self.inbox = self.node.consume("q", window=3)

    async def _open(self) -> None:
        self.node = await QueueNode(self._folder).__aenter__()

    def _bodies(self, count: int) -> list[bytes]:
        start, self._count = self._count, self._count + count
        return [b"%d" % number for number in range(start, self._count)]

    async def step(self, what: str, *how: object) -> None:
        await getattr(self, what)(*how)

    async def publish(self, exchange: str, count: int) -> None:
        bodies = self._bodies(count)
        await self.node.send(exchange, "q", *bodies)
        if exchange == "" or self._is_bound:
            self.held += bodies

    async def write_as_kafka(self, count: int) -> None:
        bodies = self._bodies(count)
        records = [Record(0, 1, b"k", body) for body in bodies]
        await self.node.streams.append("orders", 0, build_batch(records))
        if self._is_bound:
            self.held += bodies

    async def write_and_die(self, count: int) -> None:
        """Records are committed, and no queue hears of them before the node dies."""
        await self.node.rooms.driver.stop()
        await self.write_as_kafka(count)
        await self.kill()

    async def acknowledge(self, count: int) -> None:
        await self._settle(count, is_done=True)

    async def give_back(self, count: int) -> None:
        await self._settle(count, is_done=False)

    async def rebind(self) -> None:
        await self.node.queues.bind(NAMESPACE, Binding("orders", TARGET))
        self._is_bound = True

    async def unbind(self) -> None:
        await self.node.queues.unbind(NAMESPACE, Binding("orders", TARGET))
        self._is_bound = False

    async def shorten(self) -> None:
        for shard in self.node.rooms.driver.shards:
            await self.node.rooms.upkeep.shorten(shard)

    async def keep_cursors(self) -> None:
        await self.node.rooms.upkeep.run_once(is_full=True)

    async def stop(self) -> None:
        await self.node.__aexit__()
        await self._come_back()

    async def kill(self) -> None:
        await self.node.crash()
        await self._come_back()

    async def _settle(self, count: int, *, is_done: bool) -> None:
        expected = min(3, len(self.held))
        await self.inbox.wait_for(expected)
        chosen = self.inbox.deliveries[:count]
        del self.inbox.deliveries[:count]
        numbers = [each.number for each in chosen]
        self.inbox.subscription.settle(numbers, ACKNOWLEDGE if is_done else RETURN)
        for shard in self.node.rooms.driver.shards:
            await shard.safe()
        if is_done:
            for each in chosen:
                assert each.message.value is not None
                self.held.remove(each.message.value)

    async def _come_back(self) -> None:
        await self._open()
        self.inbox = self.node.consume("q", window=3)

    async def end(self) -> None:
        self.inbox.subscription.close()
        found = await self.node.drain("q")
        await self.node.__aexit__()
        assert sorted(found, key=_number) == self.held
        assert len(set(found)) == len(found)


def _number(body: bytes | None) -> int:
    assert body is not None
    return int(body)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, min_size=1, max_size=14))
def test_what_was_confirmed_and_not_acknowledged_is_there_whenever_a_node_dies(
    steps: list[tuple[str, ...]],
) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            course = Play(Path(folder))
            await course.begin()
            for step in steps:
                await course.step(*step)
            await course.end()

    asyncio.run(play())
