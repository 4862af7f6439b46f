"""Sealed ranges that this node is to hold and does not hold whole: copied from those who do.

Promises: every batch is checked before it is written, and the range is reported as done only when
all of it is on disk and sealed; what fails is tried again, with other sources first; a few ranges
are copied at a time, so that writers are not held up.
"""

import asyncio
import logging
from typing import Final

from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import NodeId, Offset
from mainstem.model.metadata import Range, Stream, Topic
from mainstem.placement.replication_records import ReplicaDone
from mainstem.streams.fail_over_driver import read_from
from mainstem.streams.held_replica_driver import HeldReplica
from mainstem.streams.replica_messages import AskBatches, Batches, RangeKey, key_of
from mainstem.streams.replica_service import COPY_BYTES_MAX, ReplicaService
from mainstem.streams.surroundings import Surroundings

COPIES_MAX: Final = 2
PAUSE_S_MIN: Final = 0.2
PAUSE_S_MAX: Final = 10.0

_log = logging.getLogger(__name__)


class CopyDriver:
    """Brings the sealed ranges of this node to their ends."""

    def __init__(self, around: Surroundings, replicas: ReplicaService) -> None:
        self._around = around
        self._replicas = replicas
        self._turns = asyncio.Semaphore(COPIES_MAX)
        self._tasks: dict[RangeKey, asyncio.Task[None]] = {}

    def tend(self, topic: Topic, stream: Stream, facts: Range) -> None:
        """Complete the replica of a sealed range, unless that is under way."""
        key = key_of(stream.id, facts.index)
        if key in self._tasks:
            return
        held = self._replicas.hold(topic, stream, facts)
        assert facts.end is not None, "only sealed ranges are completed"
        if held.machine.sealed_end is None:
            held.seal(facts.end)
        held.log.missing = held.machine.written_end < facts.end
        task = asyncio.get_running_loop().create_task(self._complete(key, held))
        self._tasks[key] = task
        task.add_done_callback(lambda done: self._completed(key, done))

    def stop(self, key: RangeKey) -> None:
        """The range is wanted here no longer."""
        task = self._tasks.get(key)
        if task is not None:
            task.cancel()

    def close(self) -> None:
        """End everything that is under way."""
        for task in self._tasks.values():
            task.cancel()

    def _completed(self, key: RangeKey, task: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._around.flusher.fatal(error)

    async def _complete(self, key: RangeKey, held: HeldReplica) -> None:
        pause_s = PAUSE_S_MIN
        while True:
            facts = self._facts(key)
            if facts is None or facts.end is None or not self._is_wanted(facts):
                return
            try:
                async with self._turns:
                    await self._copy(key, facts, held)
                await self._synced(held)
                if not held.log.sealed:
                    held.log.seal()
                held.log.missing = False
                await self._report(key, facts)
            except MainstemError as error:
                if error.code is ErrorCode.STORAGE_FAILED:
                    raise
                _log.info("range %d of %s is not whole: %s", key.index, key.stream, error)
            else:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    async def _copy(self, key: RangeKey, facts: Range, held: HeldReplica) -> None:
        assert facts.end is not None, "only sealed ranges are copied"
        at = Offset(held.log.written_end)
        sources = [node for node in facts.holders if node != self._around.node]
        while at < facts.end:
            found, batches = await self._read(key, facts, sources, at)
            if found.opening is not None and not held.log.segments:
                held.log.snapshot = found.opening
            staged = held.checked(memoryview(batches), found.start, found.until)
            held.copied([batch for batch in staged if batch[1] >= at])
            at = Offset(held.log.written_end)

    async def _read(
        self, key: RangeKey, facts: Range, sources: list[NodeId], at: Offset
    ) -> tuple[Batches, bytes | memoryview]:
        assert facts.end is not None, "only sealed ranges are copied"
        asked = AskBatches(key, facts.generation, at, facts.end, COPY_BYTES_MAX)
        refusal: MainstemError = Unavailable(
            ErrorCode.WRITER_UNAVAILABLE, f"nobody has range {key.index} whole"
        )
        while sources:
            try:
                found = await read_from(self._around, self._replicas, sources[0], asked)
            except MainstemError as error:
                refusal = error
            else:
                if found[0].until > at:
                    return found
                refusal = Corrupt(f"node {sources[0]} does not have what it is said to have")
            del sources[0]
        raise refusal

    async def _synced(self, held: HeldReplica) -> None:
        """Wait until the files are on disk; a sync is under way or asked for now."""
        while held.log.synced_end < held.log.written_end:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def synced(done: asyncio.Future[None] = done) -> None:
                if not done.done():
                    done.set_result(None)

            held.on_synced = synced
            self._around.flusher.sync(held.log)
            await done

    async def _report(self, key: RangeKey, facts: Range) -> None:
        node = self._around.node
        current = self._facts(key)
        if current is None or self._is_recorded(current):
            return
        directory = self._around.store.directory_id.hex()
        await self._around.placement.submit(
            ReplicaDone(key.stream, facts.index, node, directory, facts.generation)
        )

    def _is_recorded(self, facts: Range) -> bool:
        node = self._around.node
        return node in facts.holders and node not in facts.replicating

    def _is_wanted(self, facts: Range) -> bool:
        return self._around.node in (*facts.replicas, *facts.replicating)

    def _facts(self, key: RangeKey) -> Range | None:
        topic = self._around.placement.catalogue.topic_by_id(key.stream.topic)
        if topic is None:
            return None
        ranges = topic.streams[key.partition].ranges
        return next((facts for facts in ranges if facts.index == key.index), None)
