"""What queues do now and then: keep cursors, shorten their streams, let go of what nobody needs.

* cursors of routers are kept once a second; after a crash less has to be routed again;
* a shard whose facts have become many times what is true writes it down anew, and drops the rest;
* the topic of an exchange that is gone is deleted once no queue has a message there;
* retention may take what no queue needs: ``floor`` tells what is needed; what few messages pin is
  moved out of the way (``body_relocation_driver``).
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.topic_name import QUEUES_TOPIC
from mainstem.queues.drivers.body_relocation_driver import BodyRelocator
from mainstem.queues.drivers.queues_driver import QueuesDriver
from mainstem.queues.drivers.virtual_host_driver import VirtualHost
from mainstem.queues.shards.shard_driver import QueueShardDriver
from mainstem.queues.storage.virtual_host_state import TopicLeft
from mainstem.streams.writer.stream_driver import StreamWriter

if TYPE_CHECKING:
    from mainstem.model.ids import StreamId

TICK_S = 1.0
PINS_EVERY_TICKS = 5
SNAPSHOT_FACTS_MIN = 20_000
SNAPSHOT_FACTOR = 4

_log = logging.getLogger(__name__)


class QueueUpkeep:
    """Stores cursors, trims streams and removes what is unused, periodically."""

    def __init__(self, runtime: QueuesDriver) -> None:
        self._runtime = runtime
        self._floors: dict[StreamId, int] = {}
        self.movers = BodyRelocator(runtime)

    async def run(self) -> None:
        """Tick after tick, for ever."""
        tick = 0
        while True:
            await asyncio.sleep(TICK_S)
            if self._runtime.hosts.refusal is not None or not self._runtime.shards:
                continue
            tick += 1
            try:
                await self.run_once(is_full=tick % PINS_EVERY_TICKS == 0)
            except MainstemError as error:
                _log.warning("the upkeep of queues waits: %s", error)

    async def run_once(self, *, is_full: bool) -> None:
        """Do the work of one tick."""
        runtime = self._runtime
        for space in list(runtime.hosts.by_name.values()):
            space.exchanges.keep_cursors()
        if not is_full:
            return
        await self.movers.run_once()
        self.note_floors()
        for space in list(runtime.hosts.by_name.values()):
            await self._drop_topics(space)
        for shard in list(runtime.shards):
            if _is_long(shard):
                await self.shorten(shard)

    def floor(self, stream: StreamWriter) -> int:
        """The first offset of a stream that a queue may need; what is committed, if none does.

        What was noted stays true: queues only ever get messages from behind a cursor.
        """
        noted = self._floors.get(stream.id) if self._runtime.shards else None
        if noted is not None:
            return noted
        # Not looked at yet: nothing may go.
        return stream.start_offset if self._is_needed(stream) else stream.committed

    def note_floors(self) -> None:
        """Look at every queue once, for all streams."""
        floors: dict[StreamId, int] = {}
        for space in self._runtime.hosts.by_name.values():
            for stream in space.exchanges.all_streams():
                if not space.exchanges.is_done(stream):
                    floors[stream.writer.id] = stream.router.cursor
        for shard in self._runtime.shards:
            for _, queue in shard.shard:
                for stream_id, offset in queue.body.ledger.oldest_offsets().items():
                    floors[stream_id] = min(floors.get(stream_id, offset), offset)
        self._floors = floors

    async def shorten(self, shard: QueueShardDriver) -> None:
        """Write down what is true now and drop what led there."""
        shard.run_turn()
        start = shard.live.written
        facts = list(shard.live.shard.snapshot())
        for fact in facts:
            shard.store(fact)
        await shard.safe()
        shard.facts_since_snapshot = 0
        await self._runtime.topics.trim(QUEUES_TOPIC, shard.live.partition, start)

    def _is_needed(self, stream: StreamWriter) -> bool:
        runtime = self._runtime
        if not runtime.topics.is_there(QUEUES_TOPIC):
            return False
        if runtime.shards:
            return runtime.context.bodies.is_queue_stream(stream.id)
        # Another node has all streams of queues; while they are loaded here nobody knows.
        refusal = runtime.hosts.refusal
        return refusal is None or refusal.code is not ErrorCode.NOT_COORDINATOR

    async def _drop_topics(self, space: VirtualHost) -> None:
        state = space.state
        for taken in list(state.topics.values()):
            if taken.exchange in state.topology.live:
                continue
            writers = self._runtime.topics.writers(taken.topic)
            if not taken.is_shared and any(writer.id in self._floors for writer in writers):
                continue
            if not space.exchanges.close_exchange(taken.exchange):
                continue
            for writer in writers:
                state.forget(writer.id)
            space.exchanges.record(TopicLeft(taken.exchange))
            await space.home.safe()
            if writers and not taken.is_shared:
                await self._runtime.topics.delete(taken.topic)
            for writer in writers:
                self._runtime.context.bodies.forget(writer.id)


def _is_long(shard: QueueShardDriver) -> bool:
    messages = sum(len(queue.body.ledger) for _, queue in shard.shard)
    worth = SNAPSHOT_FACTOR * (messages // 100 + len(shard.shard))
    return shard.facts_since_snapshot > max(SNAPSHOT_FACTS_MIN, worth)
