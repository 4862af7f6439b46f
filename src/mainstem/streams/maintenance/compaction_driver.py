"""Compaction of streams, in a process of its own: the node's loop only plans and swaps.

    plan ──▶ worker writes the next generation of each range ──▶ catalogue swaps ──▶ readers switch

The old generation is dropped last, so a crash at any point leaves one complete copy that the
catalogue names.
"""

from mainstem.log.cleaning.compaction import (
    AbortedTransaction,
    CompactedRange,
    CompactionJob,
    compact,
    sealed_range_of,
)
from mainstem.log.cleaning.compaction_plan import (
    CompactionPlan,
    CompactionSettings,
    plan_compaction,
)
from mainstem.log.range_log import RangeLog
from mainstem.log.store import LogStore
from mainstem.model.clock import Clock
from mainstem.model.errors import Corrupt
from mainstem.model.ids import RangeIndex
from mainstem.placement.changes.commands import SwapGeneration
from mainstem.placement.service import PlacementService
from mainstem.streams.failover.state_recovery import found_log, range_log
from mainstem.streams.maintenance.worker_process_driver import PeriodicStreamTask
from mainstem.streams.service import StreamService
from mainstem.streams.writer.stream_driver import StreamWriter
from mainstem.telemetry import logs

log = logs.logger("streams")


class CompactionDriver(PeriodicStreamTask):
    """Compacts the streams of compacted topics, one at a time."""

    def __init__(
        self,
        streams: StreamService,
        placement: PlacementService,
        store: LogStore,
        clock: Clock,
        keys_bytes_max: int,
    ) -> None:
        super().__init__(streams, store, "is not compacted")
        self._placement = placement
        self._clock = clock
        self._keys_bytes_max = keys_bytes_max

    def _is_due(self, stream: StreamWriter) -> bool:
        return stream.settings.compact and len(stream.ranges) > 1

    async def _maintain(self, stream: StreamWriter) -> bool:
        settings = stream.settings
        sealed = stream.ranges[:-1]
        plan = plan_compaction(
            [sealed_range_of(held) for held in sealed],
            CompactionSettings(
                settings.min_cleanable_dirty_ratio,
                settings.min_compaction_lag_ms,
                settings.max_compaction_lag_ms,
                settings.delete_retention_ms,
            ),
            stable_until=stream.last_stable,
            now_ms=self._clock.wall_ms(),
        )
        if plan is None:
            return False
        sources = [held for held in sealed if held.segments and held.written_end <= plan.until]
        job = self._job(stream, sources, plan)
        results = await self._work_on(stream, sources, compact, job)
        if results is None:
            return False
        by_source = {held.directory: held for held in sources}
        for result in results:
            held = by_source[result.source]
            if result.target is not None and held in stream.ranges and stream.closed is None:
                await self._swap(stream, held, result)
        return True

    def _job(
        self, stream: StreamWriter, sources: list[RangeLog], plan: CompactionPlan
    ) -> CompactionJob:
        return CompactionJob(
            sources=tuple(held.directory for held in sources),
            dirty_from=plan.dirty_from,
            until=plan.until,
            now_ms=self._clock.wall_ms(),
            delete_retention_ms=stream.settings.delete_retention_ms,
            segment_bytes=stream.settings.segment_bytes,
            key_map_bytes=self._keys_bytes_max,
            aborted=tuple(
                AbortedTransaction(producer, first, marker)
                for marker, producer, first in stream.state.transactions.snapshot().aborted
            ),
            last_sequences=frozenset(stream.state.producers.last_offsets()),
        )

    async def _swap(self, stream: StreamWriter, held: RangeLog, result: CompactedRange) -> None:
        name = held.identity.name
        done = await self._streams.ranges.spread(stream, name.index, name.generation + 1)
        known = await self._placement.submit(
            SwapGeneration(
                stream.id,
                stream.known.epoch,
                RangeIndex(name.index),
                expected_generation=name.generation,
                generation=name.generation + 1,
                size_bytes=result.size_bytes,
                batch_count=0,
                max_timestamp=result.max_timestamp,
                max_timestamp_offset=result.offset_of_max_timestamp,
                done=done,
            )
        )
        topic = self._placement.catalogue.topic_by_id(stream.id.topic)
        if topic is None or stream.closed is not None:
            return  # deleted meanwhile, and its files with it
        range_info = next(each for each in known.ranges if each.index == name.index)
        try:
            fresh = found_log(self._store, topic, known, range_info) or range_log(
                self._store, topic, known, range_info, stream.settings
            )
        except Corrupt:
            log.exception("%s-%d: the compacted range cannot be read", topic.name, name.index)
            raise
        stream.replace_ranges([held], fresh, known)
        self._streams.ranges.let_go(stream, held)
