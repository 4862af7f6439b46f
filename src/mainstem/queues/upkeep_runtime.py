"""What queues do now and then: keep cursors, shorten their streams, let go of what nobody needs.

* cursors of routers are kept once a second; after a crash less has to be routed again;
* a shard whose facts have become many times what is true writes it down anew, and drops the rest;
* the topic of an exchange that is gone is deleted once no queue has a message there;
* retention may take what no queue needs: ``floor`` tells what is needed; what few messages pin is
  moved out of the way (``moving_runtime``).
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.topic_name import QUEUES_TOPIC
from mainstem.queues.moving_runtime import Movers
from mainstem.queues.queue_shard_runtime import QueueShardRuntime
from mainstem.queues.queues_runtime import QueuesRuntime
from mainstem.queues.space_book import TopicLeft
from mainstem.queues.space_runtime import Space
from mainstem.streams.writer_driver import StreamWriter

if TYPE_CHECKING:
    from mainstem.model.ids import StreamId

TICK_S = 1.0
PINS_EVERY_TICKS = 5
SNAPSHOT_FACTS_MIN = 20_000
SNAPSHOT_FACTOR = 4

_log = logging.getLogger(__name__)


class QueueUpkeep:
    """See the module."""

    def __init__(self, runtime: QueuesRuntime) -> None:
        self._runtime = runtime
        self._floors: dict[StreamId, int] = {}
        self.movers = Movers(runtime)

    async def run(self) -> None:
        """Tick after tick, for ever."""
        tick = 0
        while True:
            await asyncio.sleep(TICK_S)
            if self._runtime.refusal is not None or not self._runtime.shards:
                continue
            tick += 1
            try:
                await self.run_once(is_full=tick % PINS_EVERY_TICKS == 0)
            except MainstemError as error:
                _log.warning("the upkeep of queues waits: %s", error)

    async def run_once(self, *, is_full: bool) -> None:
        """One tick."""
        runtime = self._runtime
        for space in list(runtime.spaces.values()):
            space.keep_cursors()
        if not is_full:
            return
        await self.movers.run_once()
        self.note_floors()
        for space in list(runtime.spaces.values()):
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
        for space in self._runtime.spaces.values():
            for stream in space.all_streams():
                if not space.is_done(stream):
                    floors[stream.door.id] = stream.router.cursor
        for shard in self._runtime.shards:
            for _, queue in shard.shard:
                for stream_id, offset in queue.body.ledger.oldest_offsets().items():
                    floors[stream_id] = min(floors.get(stream_id, offset), offset)
        self._floors = floors

    async def shorten(self, shard: QueueShardRuntime) -> None:
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
            return runtime.is_queue_stream(stream.id)
        # Another node has all streams of queues; while they are loaded here nobody knows.
        refusal = runtime.refusal
        return refusal is None or refusal.code is not ErrorCode.NOT_COORDINATOR

    async def _drop_topics(self, space: Space) -> None:
        book = space.book
        for taken in list(book.topics.values()):
            if taken.exchange in book.topology.live:
                continue
            doors = self._runtime.topics.doors(taken.topic)
            if not taken.is_shared and any(door.id in self._floors for door in doors):
                continue
            if not space.close_exchange(taken.exchange):
                continue
            for door in doors:
                book.forget(door.id)
            space.record(TopicLeft(taken.exchange))
            await space.home.safe()
            if doors and not taken.is_shared:
                await self._runtime.topics.delete(taken.topic)
            for door in doors:
                self._runtime.bodies.forget(door.id)


def _is_long(shard: QueueShardRuntime) -> bool:
    messages = sum(len(queue.body.ledger) for _, queue in shard.shard)
    worth = SNAPSHOT_FACTOR * (messages // 100 + len(shard.shard))
    return shard.facts_since_snapshot > max(SNAPSHOT_FACTS_MIN, worth)
