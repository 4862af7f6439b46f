"""Keeps the number of ranges of a stream small: neighbours that hold little become one.

Every restart and every compacted segment adds a range. When a stream has more than the catalogue
likes, the run of sealed neighbours with the least bytes is joined, in a process of its own.
"""

import asyncio
from concurrent.futures.process import BrokenProcessPool

from mainstem.log.merging import MergedRange, MergeJob, merge, smallest_run
from mainstem.log.range_log import RangeLog
from mainstem.log.store import LogStore
from mainstem.model.errors import MainstemError
from mainstem.model.ids import RangeIndex
from mainstem.placement.records import MergeRanges
from mainstem.placement.service import PlacementService
from mainstem.streams.recovery import range_log
from mainstem.streams.service import StreamService
from mainstem.streams.worker_driver import FileWorker
from mainstem.streams.writer_driver import StreamWriter
from mainstem.telemetry import logs

RANGES_MAX = 32
RANGES_AFTER = 24

log = logs.logger("streams")


class MergeDriver:
    """Joins ranges of the streams that have too many."""

    def __init__(
        self, streams: StreamService, placement: PlacementService, store: LogStore
    ) -> None:
        self._streams = streams
        self._placement = placement
        self._store = store
        self._worker = FileWorker()

    async def run(self, interval_ms: int) -> None:
        """Look for work now and then, for ever."""
        try:
            while True:
                await asyncio.sleep(interval_ms / 1000)
                await self.run_once()
        finally:
            self._worker.dismiss()

    async def run_once(self) -> int:
        """Join ranges of every stream that has too many; how many streams that were."""
        count = 0
        for stream in self._streams.all():
            if stream.closed is None and len(stream.ranges) > RANGES_MAX:
                try:
                    await self._tend(stream)
                    count += 1
                except (MainstemError, BrokenProcessPool) as error:
                    # The ranges stay as they are; the next pass tries again.
                    log.warning(
                        "%s-%d: ranges are not joined: %s",
                        stream.topic,
                        stream.id.partition,
                        error,
                    )
                    self._worker.dismiss()
        self._worker.dismiss()
        return count

    async def _tend(self, stream: StreamWriter) -> None:
        sealed = stream.ranges[:-1]
        count = len(stream.ranges) - RANGES_AFTER + 1
        at = smallest_run([held.size_bytes for held in sealed], count)
        joined = sealed[at : at + count]
        generation = 1 + max(held.identity.name.generation for held in joined)
        job = MergeJob(
            tuple(held.directory for held in joined), generation, stream.settings.segment_bytes
        )
        merged = await self._worker.run(merge, job)
        if stream.closed is None and all(held in stream.ranges for held in joined):
            await self._swap(stream, joined, merged, generation)

    async def _swap(
        self, stream: StreamWriter, joined: list[RangeLog], merged: MergedRange, generation: int
    ) -> None:
        first, last = joined[0].identity.name.index, joined[-1].identity.name.index
        known = await self._placement.submit(
            MergeRanges(
                stream.id,
                stream.known.epoch,
                RangeIndex(first),
                RangeIndex(last),
                generation,
                merged.size_bytes,
            )
        )
        topic = self._placement.catalogue.topic_by_id(stream.id.topic)
        if topic is None or stream.closed is not None:
            return  # deleted meanwhile, and its files with it
        facts = next(each for each in known.ranges if each.index == first)
        fresh = range_log(self._store, topic, known, facts, stream.settings)
        stream.replace_ranges(joined, fresh, known)
        for held in joined:
            self._store.drop_range(held)
