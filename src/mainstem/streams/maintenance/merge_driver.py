"""Keeps the number of ranges of a stream small: neighbours that hold little become one.

Every restart and every compacted segment adds a range. When a stream has more than the catalogue's
limit, the run of sealed neighbours with the least bytes is joined, in a process of its own. Only
ranges that the same nodes hold are joined: those that lack a copy get it first.
"""

from itertools import groupby

from mainstem.log.cleaning.merging import MergedRange, MergeJob, merge, smallest_run
from mainstem.log.range_log import RangeLog
from mainstem.log.store import LogStore
from mainstem.model.ids import NodeId, RangeIndex
from mainstem.model.metadata import Stream
from mainstem.placement.changes.commands import MergeRanges
from mainstem.placement.service import PlacementService
from mainstem.streams.failover.state_recovery import found_log, range_log
from mainstem.streams.maintenance.worker_process_driver import PeriodicStreamTask
from mainstem.streams.service import StreamService
from mainstem.streams.writer.stream_driver import StreamWriter

RANGES_MAX = 32
RANGES_AFTER = 24


class MergeDriver(PeriodicStreamTask):
    """Joins ranges of the streams that have too many.

    Args:
        streams: the node's streams.
        placement: the placement service.
        store: the node's files.
        ranges_max: how many ranges a stream may have.
        ranges_after: how many it has once they were joined.
    """

    def __init__(
        self,
        streams: StreamService,
        placement: PlacementService,
        store: LogStore,
        *,
        ranges_max: int = RANGES_MAX,
        ranges_after: int = RANGES_AFTER,
    ) -> None:
        super().__init__(streams, store, "keeps its many ranges")
        self._ranges_max = ranges_max
        self._ranges_after = ranges_after
        self._placement = placement

    def _is_due(self, stream: StreamWriter) -> bool:
        return len(stream.ranges) > self._ranges_max

    async def _maintain(self, stream: StreamWriter) -> bool:
        known = self._placement.catalogue.need_stream(stream.id)
        joined = mergeable_ranges(stream, known, len(stream.ranges) - self._ranges_after + 1)
        if not joined:
            return False
        generation = 1 + max(held.identity.name.generation for held in joined)
        job = MergeJob(
            tuple(held.directory for held in joined), generation, stream.settings.segment_bytes
        )
        merged = await self._work_on(stream, joined, merge, job)
        if merged is None:
            return False
        if stream.closed is None and all(held in stream.ranges for held in joined):
            await self._swap(stream, joined, merged, generation)
        return True

    async def _swap(
        self, stream: StreamWriter, joined: list[RangeLog], merged: MergedRange, generation: int
    ) -> None:
        first, last = joined[0].identity.name.index, joined[-1].identity.name.index
        done = await self._streams.ranges.spread(stream, first, generation)
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
        range_info = next(each for each in known.ranges if each.index == first)
        fresh = found_log(self._store, topic, known, range_info) or range_log(
            self._store, topic, known, range_info, stream.settings
        )
        stream.replace_ranges(joined, fresh, known)
        for held in joined:
            self._streams.ranges.let_go(stream, held)


def mergeable_ranges(stream: StreamWriter, known: Stream, count: int) -> list[RangeLog]:
    """Up to ``count`` sealed neighbours on the same nodes: most of them, then the least bytes.

    Their nodes are those in the catalogue now: copies move while the stream is written.
    """
    replicas = {range_info.index: frozenset(range_info.replicas) for range_info in known.ranges}

    def placed(log: RangeLog) -> frozenset[NodeId] | None:
        is_whole = log.sealed and not log.missing
        return replicas.get(RangeIndex(log.identity.name.index)) if is_whole else None

    best: list[RangeLog] = []
    best_rank = (0, 0)
    for nodes, run in groupby(stream.ranges[:-1], placed):
        logs = list(run)
        length = min(count, len(logs))
        if nodes is None or length < 2:
            continue
        sizes = [log.size_bytes for log in logs]
        at = smallest_run(sizes, length)
        rank = (length, -sum(sizes[at : at + length]))
        if rank > best_rank or not best:
            best, best_rank = logs[at : at + length], rank
    return best
