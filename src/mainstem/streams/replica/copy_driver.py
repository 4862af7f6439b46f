"""Copies sealed ranges that this node should hold and does not hold completely.

Guarantees: every batch is checked before it is written, and the range is reported as done only when
all of it is on disk and sealed; failures are retried, with other sources first, after growing
pauses, cut short if a reader waits for the range; a few ranges are copied at a time, so that
writers are not delayed.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from mainstem.log.disk.file_access import storage_error
from mainstem.log.disk.sync_job import carry_out
from mainstem.log.naming import RangeName, range_directory
from mainstem.log.range_log import RangeLog, end_sealing_job, seal_of, sealing_job, sync_error
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import NodeId, Offset, RangeIndex, StreamId
from mainstem.model.metadata import Range, Stream, Topic
from mainstem.placement.changes.replication_commands import ReplicaDone, ReplicaLost
from mainstem.streams.context import StreamsContext
from mainstem.streams.failover.driver import read_from
from mainstem.streams.replica.driver import ReplicaDriver
from mainstem.streams.replica.messages import AskBatches, BatchesReply, RangeKey, key_of
from mainstem.streams.replica.service import COPY_BYTES_MAX, ReplicaService
from mainstem.streams.storage_retry_driver import refusal_of

COPIES_MAX: Final = 2
PAUSE_S_MIN: Final = 0.2
PAUSE_S_MAX: Final = 10.0
# The shortest pause when readers wait for the range, however many there are.
WANTED_PAUSE_S: Final = 0.2

_log = logging.getLogger(__name__)


class CopyPauses:
    """The pauses between two attempts to copy a range, cut short if a reader waits for it."""

    def __init__(self) -> None:
        self._wanted: dict[RangeKey, asyncio.Event] = {}

    def cut_short(self, key: RangeKey) -> None:
        """End the pause of a range that a reader waits for."""
        wanted = self._wanted.get(key)
        if wanted is not None:
            wanted.set()

    async def pause(self, key: RangeKey, pause_s: float) -> None:
        """Wait that long, or until a reader waits for it, but at least ``WANTED_PAUSE_S``."""
        wanted = self._wanted[key] = asyncio.Event()
        try:
            await asyncio.sleep(WANTED_PAUSE_S)
            async with asyncio.timeout(pause_s - WANTED_PAUSE_S):
                await wanted.wait()
        except TimeoutError:
            pass  # no reader waits for it
        finally:
            if self._wanted.get(key) is wanted:  # a task that is stopped may have a successor
                del self._wanted[key]


class CopyDriver:
    """Completes the sealed ranges of this node.

    Args:
        context: the services of the node.
        replicas: the replicas on this node.
        on_replaced: called when other files replaced those of a range.
    """

    def __init__(
        self,
        context: StreamsContext,
        replicas: ReplicaService,
        on_replaced: Callable[[StreamId, RangeLog, RangeLog], None],
    ) -> None:
        self._context = context
        self._on_replaced = on_replaced
        self._replicas = replicas
        self._turns = asyncio.Semaphore(COPIES_MAX)
        self._turn = 0
        self._lost: set[RangeKey] = set()
        self.pauses = CopyPauses()
        self._tasks: dict[RangeKey, asyncio.Task[None]] = {}

    def reconcile(self, topic: Topic, stream: Stream, range_info: Range) -> None:
        """Complete the replica of a sealed range, unless that is under way."""
        key = key_of(stream.id, range_info.index)
        if key in self._tasks:
            return
        assert range_info.end is not None, "only sealed ranges are completed"
        held: ReplicaDriver | None = None
        if not range_info.generation:
            held = self._replicas.registry.hold(topic, stream, range_info)
            if held.machine.sealed_end is None:
                held.seal(range_info.end)
            held.log.missing = held.machine.written_end < range_info.end
        work = self._repeat(key, held)
        task = self._tasks[key] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda done: self._completed(key, done))

    def report_lost(self, key: RangeKey) -> None:
        """This node's copy of a range cannot be used: it is to be copied again."""
        if key in self._tasks:
            self._lost.add(key)  # reported when what is under way has ended
            return
        task = self._tasks[key] = asyncio.get_running_loop().create_task(self._lose(key))
        task.add_done_callback(lambda done: self._completed(key, done))

    def stop(self, key: RangeKey) -> None:
        """The range is no longer assigned to this node."""
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    def stop_stream(self, stream: StreamId) -> None:
        """The stream was deleted, and its files with it."""
        for key in [key for key in self._tasks if key.stream == stream]:
            self.stop(key)

    def close(self) -> None:
        """End everything that is under way."""
        for task in self._tasks.values():
            task.cancel()

    def _completed(self, key: RangeKey, task: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._context.flusher.fatal(error)
        elif key in self._lost and key not in self._tasks:
            self._lost.discard(key)
            if not task.cancelled():
                self.report_lost(key)

    async def _lose(self, key: RangeKey) -> None:
        lost = ReplicaLost(key.stream, RangeIndex(key.index), self._context.node)
        try:
            await self._context.placement.submit(lost)
        except MainstemError as error:
            _log.warning("range %d of %s is damaged here: %s", key.index, key.stream, error)

    async def _repeat(self, key: RangeKey, held: ReplicaDriver | None) -> None:
        """Complete a range in the catalogue's current generation, rewritten meanwhile or not."""
        pause_s = PAUSE_S_MIN
        while True:
            try:
                async with self._turns:  # which may take long: the catalogue is read after it
                    range_info = self._range_info(key)
                    if (
                        range_info is None
                        or range_info.end is None
                        or not self._is_wanted(range_info)
                    ):
                        return
                    if range_info.generation or held is None:
                        await self._complete_folder(key, range_info)
                    else:
                        await self._complete(key, range_info, held)
            except (MainstemError, OSError) as error:
                is_final = isinstance(error, OSError) or error.code is ErrorCode.STORAGE_FAILED
                if is_final and refusal_of(error) is None:
                    raise
                _log.info("range %d of %s is incomplete: %s", key.index, key.stream, error)
            else:
                return
            await self.pauses.pause(key, pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    async def _complete(self, key: RangeKey, range_info: Range, held: ReplicaDriver) -> None:
        if held.log.damage:
            raise Corrupt("it is damaged here, and no complete copy is known")
        await self._copy(key, range_info, held)
        await self._synced(held)
        await self._seal(held.log)
        held.log.missing = False
        await self._report(key, range_info)
        held.settled()

    async def _complete_folder(self, key: RangeKey, range_info: Range) -> None:
        topic = self._context.placement.catalogue.need_topic(key.stream.topic)
        sources = self._sources(range_info)
        if not sources:
            raise Unavailable(ErrorCode.WRITER_UNAVAILABLE, f"no node has range {key.index}")
        source = sources[self._turn % len(sources)]
        self._turn += 1
        await self._replicas.folders.take_over(topic, key, range_info, source)
        stream = topic.streams[key.partition]
        name = RangeName(key.stream, topic.name, range_info.index, range_info.generation)
        store = self._context.store
        old = store.logs.get(range_directory(store.data_dir, name))
        if old is not None:
            old.close(discard=True)
        fresh = self._replicas.registry.log_of(topic, stream, range_info)
        store.drop_aside(fresh.directory)
        if old is not None:
            self._on_replaced(key.stream, old, fresh)
        await self._report(key, range_info)

    async def _copy(self, key: RangeKey, range_info: Range, held: ReplicaDriver) -> None:
        assert range_info.end is not None, "only sealed ranges are copied"
        at = Offset(held.log.written_end)
        if not held.log.segments:  # what lies below the start of the stream no longer exists
            at = max(at, self._context.placement.catalogue.need_stream(key.stream).start)
        sources = self._sources(range_info)
        while at < range_info.end:
            found, batches = await self._read(key, range_info, sources, at)
            if found.opening is not None and not held.log.segments:
                held.log.snapshot = found.opening
            staged = held.checked(memoryview(batches), found.start, found.until)
            is_first = not held.log.segments
            held.copied([batch for batch in staged if is_first or batch[1] >= at])
            at = Offset(held.log.written_end)

    def _sources(self, range_info: Range) -> list[NodeId]:
        """The nodes that have a range; dead ones only if there is no other."""
        others = [node for node in range_info.holders if node != self._context.node]
        live = [node for node in others if self._context.placement.catalogue.is_live(node)]
        return live or others

    async def _read(
        self, key: RangeKey, range_info: Range, sources: list[NodeId], at: Offset
    ) -> tuple[BatchesReply, bytes | memoryview]:
        assert range_info.end is not None, "only sealed ranges are copied"
        asked = AskBatches(key, range_info.generation, at, range_info.end, COPY_BYTES_MAX)
        refusal: MainstemError = Unavailable(
            ErrorCode.WRITER_UNAVAILABLE, f"no node has a complete range {key.index}"
        )
        while sources:
            try:
                found = await read_from(self._context, self._replicas, sources[0], asked)
            except MainstemError as error:
                refusal = error
            else:
                if found[0].until > at:
                    return found
                refusal = Corrupt(f"node {sources[0]} does not have what it is listed with")
            del sources[0]
        raise refusal

    async def _synced(self, held: ReplicaDriver) -> None:
        """Wait until the files are on disk; a sync is under way or started now."""
        while held.log.synced_end < held.log.written_end:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def synced(done: asyncio.Future[None] = done) -> None:
                if not done.done():
                    done.set_result(None)

            held.on_synced = synced
            self._context.flusher.sync(held.log)
            await done

    async def _seal(self, log: RangeLog) -> None:
        """Record on disk that a range is sealed; the syncs are done by threads."""
        if log.sealed and not log.seal_pending:
            return
        log.begin_seal()
        if not log.segments:
            return
        loop = asyncio.get_running_loop()
        access = self._context.store.files.access
        job = sealing_job(log)
        try:
            await loop.run_in_executor(None, carry_out, job, access)
        except OSError as error:
            if log.discarded:
                return
            raise sync_error(log, job, error) from error
        end_sealing_job(log, job)
        try:
            write = partial(seal_of(log).write, log.directory, sync=True)
            await loop.run_in_executor(None, write)
            log.seal_pending = False
        except OSError as error:
            if not log.discarded:
                raise storage_error(error, log.directory) from error

    async def _report(self, key: RangeKey, range_info: Range) -> None:
        node = self._context.node
        current = self._range_info(key)
        if current is None or self._is_recorded(current):
            return
        directory = self._context.store.directory_id.hex()
        await self._context.placement.submit(
            ReplicaDone(key.stream, range_info.index, node, directory, range_info.generation)
        )

    def _is_recorded(self, range_info: Range) -> bool:
        node = self._context.node
        return node in range_info.holders and node not in range_info.replicating

    def _is_wanted(self, range_info: Range) -> bool:
        return self._context.node in (*range_info.replicas, *range_info.replicating)

    def _range_info(self, key: RangeKey) -> Range | None:
        topic = self._context.placement.catalogue.topic_by_id(key.stream.topic)
        if topic is None:
            return None
        ranges = topic.streams[key.partition].ranges
        return next((range_info for range_info in ranges if range_info.index == key.index), None)
