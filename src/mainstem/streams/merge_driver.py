"""Keeps the number of ranges of a stream small: neighbours that hold little become one.

Every restart and every compacted segment adds a range. When a stream has more than the catalogue
likes, the run of sealed neighbours with the least bytes is joined, in a process of its own.
"""

from mainstem.log.merging import MergedRange, MergeJob, merge, smallest_run
from mainstem.log.range_log import RangeLog
from mainstem.log.store import LogStore
from mainstem.model.ids import RangeIndex
from mainstem.placement.records import MergeRanges
from mainstem.placement.service import PlacementService
from mainstem.streams.recovery import found_log, range_log
from mainstem.streams.service import StreamService
from mainstem.streams.worker_driver import StreamRounds
from mainstem.streams.writer_driver import StreamWriter

RANGES_MAX = 32
RANGES_AFTER = 24


class MergeDriver(StreamRounds):
    """Joins ranges of the streams that have too many."""

    def __init__(
        self, streams: StreamService, placement: PlacementService, store: LogStore
    ) -> None:
        super().__init__(streams, "keeps its many ranges")
        self._placement = placement
        self._store = store

    def _is_due(self, stream: StreamWriter) -> bool:
        return len(stream.ranges) > RANGES_MAX

    async def _tend(self, stream: StreamWriter) -> bool:
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
        return True

    async def _swap(
        self, stream: StreamWriter, joined: list[RangeLog], merged: MergedRange, generation: int
    ) -> None:
        first, last = joined[0].identity.name.index, joined[-1].identity.name.index
        done = await self._streams.spread(stream, first, generation)
        known = await self._placement.submit(
            MergeRanges(
                stream.id,
                stream.known.epoch,
                RangeIndex(first),
                RangeIndex(last),
                generation,
                merged.size_bytes,
                done,
            )
        )
        topic = self._placement.catalogue.topic_by_id(stream.id.topic)
        if topic is None or stream.closed is not None:
            return  # deleted meanwhile, and its files with it
        facts = next(each for each in known.ranges if each.index == first)
        fresh = found_log(self._store, topic, known, facts) or range_log(
            self._store, topic, known, facts, stream.settings
        )
        stream.replace_ranges(joined, fresh, known)
        for held in joined:
            self._streams.let_go(stream, held)
