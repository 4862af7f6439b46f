"""Periodic upkeep of queues: stores cursors, compacts their streams, deletes what is unused.

* cursors of routers are stored once a second, so that less is routed again after a crash;
* a shard with many more facts than its state needs writes a snapshot and drops older facts;
* the topic of a deleted exchange is deleted once no queue has a message there;
* retention may delete bodies that no queue needs: ``floor`` is the limit; bodies pinned by few
  messages are moved (``body_relocation_driver``).
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

    def __init__(self, driver: QueuesDriver) -> None:
        self._driver = driver
        self._floors: dict[StreamId, int] = {}
        self.body_relocator = BodyRelocator(driver)

    async def run(self) -> None:
        """Run one tick per interval, forever."""
        tick = 0
        while True:
            await asyncio.sleep(TICK_S)
            if self._driver.hosts.refusal is not None or not self._driver.shards:
                continue
            tick += 1
            try:
                await self.run_once(is_full=tick % PINS_EVERY_TICKS == 0)
            except MainstemError as error:
                _log.warning("queue upkeep failed and will be retried: %s", error)

    async def run_once(self, *, is_full: bool) -> None:
        """Do the work of one tick."""
        driver = self._driver
        for host in list(driver.hosts.by_name.values()):
            host.exchanges.keep_cursors()
        if not is_full:
            return
        await self.body_relocator.run_once()
        self.note_floors()
        for host in list(driver.hosts.by_name.values()):
            await self._drop_topics(host)
        for shard in list(driver.shards):
            if _is_long(shard):
                await self.shorten(shard)

    def floor(self, stream: StreamWriter) -> int:
        """The first offset of a stream that a queue may need; the committed end if none does.

        A noted floor stays valid: queues only get messages from behind a cursor.
        """
        noted = self._floors.get(stream.id) if self._driver.shards else None
        if noted is not None:
            return noted
        # Not computed yet: nothing may be deleted.
        return stream.start_offset if self._is_needed(stream) else stream.committed

    def note_floors(self) -> None:
        """Compute the floors of all streams from all queues."""
        floors: dict[StreamId, int] = {}
        for host in self._driver.hosts.by_name.values():
            for stream in host.exchanges.all_streams():
                if not host.exchanges.is_done(stream):
                    floors[stream.writer.id] = stream.router.cursor
        for shard in self._driver.shards:
            for _, queue in shard.shard:
                for stream_id, offset in queue.body.ledger.oldest_offsets().items():
                    floors[stream_id] = min(floors.get(stream_id, offset), offset)
        self._floors = floors

    async def shorten(self, shard: QueueShardDriver) -> None:
        """Write a snapshot of a shard and drop the facts before it."""
        shard.run_turn()
        start = shard.live.written
        facts = list(shard.live.shard.snapshot())
        for fact in facts:
            shard.store(fact)
        await shard.safe()
        shard.facts_since_snapshot = 0
        await self._driver.topics.trim(QUEUES_TOPIC, shard.live.partition, start)

    def _is_needed(self, stream: StreamWriter) -> bool:
        driver = self._driver
        if not driver.topics.is_there(QUEUES_TOPIC):
            return False
        if driver.shards:
            return driver.context.bodies.is_queue_stream(stream.id)
        # Unless another node serves the queues, the floors are unknown until they are loaded.
        refusal = driver.hosts.refusal
        return refusal is None or refusal.code is not ErrorCode.NOT_COORDINATOR

    async def _drop_topics(self, host: VirtualHost) -> None:
        state = host.state
        for taken in list(state.topics.values()):
            if taken.exchange in state.topology.live:
                continue
            writers = self._driver.topics.writers(taken.topic)
            if not taken.is_shared and any(writer.id in self._floors for writer in writers):
                continue
            if not host.exchanges.close_exchange(taken.exchange):
                continue
            for writer in writers:
                state.forget(writer.id)
            host.exchanges.record(TopicLeft(taken.exchange))
            await host.home.safe()
            if writers and not taken.is_shared:
                await self._driver.topics.delete(taken.topic)
            for writer in writers:
                self._driver.context.bodies.forget(writer.id)


def _is_long(shard: QueueShardDriver) -> bool:
    messages = sum(len(queue.body.ledger) for _, queue in shard.shard)
    worth = SNAPSHOT_FACTOR * (messages // 100 + len(shard.shard))
    return shard.facts_since_snapshot > max(SNAPSHOT_FACTS_MIN, worth)
