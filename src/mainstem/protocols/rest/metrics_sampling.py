"""Metrics that are computed on request: streams, consumer lag, memory.

Lag in seconds is the age of the batch that a group reads next; it costs one small read per lagging
partition. The work is limited, yields to other tasks of the node, and is shared by all requests
within one second.
"""

import asyncio
import os
from pathlib import Path

from mainstem.broker.api.broker import Broker, PartitionWriter
from mainstem.model.clock import Clock
from mainstem.model.errors import MainstemError, Unavailable
from mainstem.model.records.batch import HEADER_BYTES, read_header
from mainstem.telemetry.metrics import LagSample, QueueSample, Sample, StreamSample

FRESH_S = 1.0
GROUPS_SAMPLED_MAX = 10_000
LAGS_SAMPLED_MAX = 20_000
_STEPS_BETWEEN_PAUSES = 200
_STATM = Path("/proc/self/statm")


class MetricsSampler:
    """Samples a node through its broker API."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._started = clock.monotonic()
        self._sampled_at = float("-inf")
        self._sample = Sample()
        self._sampling = asyncio.Lock()

    def uptime_seconds(self) -> float:
        """Time since the node started to serve."""
        return self._clock.monotonic() - self._started

    def brief(self) -> Sample:
        """The metrics that cost next to nothing to compute."""
        return Sample(
            queues=self._queues(),
            topics=sum(1 for _ in self._broker.topics.all()),
            memory_bytes=memory_bytes(),
            uptime_seconds=self.uptime_seconds(),
        )

    async def full(self) -> Sample:
        """All metrics, at most a second old."""
        async with self._sampling:
            if self._clock.monotonic() - self._sampled_at >= FRESH_S:
                self._sample = await self._take()
                self._sampled_at = self._clock.monotonic()
        return self._sample

    async def _take(self) -> Sample:
        broker = self._broker
        streams = []
        for step, (topic, partition, size) in enumerate(broker.streams.sizes()):
            if step % _STEPS_BETWEEN_PAUSES == 0:
                await asyncio.sleep(0)
            writer = self._writer(topic, partition)
            if writer is not None:
                start, end = writer.start_offset, writer.committed
                streams.append(StreamSample(topic, partition, start, end, size))
        states: dict[str, int] = {}
        groups = broker.groups.list()
        for group in groups:
            states[group.state] = states.get(group.state, 0) + 1
        lags: list[LagSample] = []
        for group in groups[:GROUPS_SAMPLED_MAX]:
            if len(lags) < LAGS_SAMPLED_MAX:
                lags += await self._lags(group.group_id)
                await asyncio.sleep(0)
        return Sample(
            streams=streams,
            lags=lags,
            groups_by_state=states,
            queues=self._queues(),
            queue_counts=self._queue_counts(),
            topics=sum(1 for _ in broker.topics.all()),
            memory_bytes=memory_bytes(),
            uptime_seconds=self.uptime_seconds(),
        )

    def _queues(self) -> list[QueueSample]:
        admin = self._broker.queues.admin
        try:
            views = [view for name in admin.namespaces() for view in admin.queues(name)]
        except Unavailable:
            return []  # the lease has ended: the node that took over reports them
        return [
            QueueSample(
                namespace=view.namespace,
                queue=view.name,
                ready=view.ready,
                unsettled=view.unsettled,
                delayed=view.delayed,
                total_bytes=view.total_bytes,
                consumers=view.consumers,
            )
            for view in views
        ]

    def _queue_counts(self) -> dict[str, dict[str, int]]:
        counts = self._broker.queues.admin.counts()
        return {
            name: {str(reason): count for reason, count in value.items()}
            if isinstance(value := getattr(counts, name), dict)
            else {"": value}
            for name in counts.__slots__
        }

    async def _lags(self, group: str) -> list[LagSample]:
        try:
            fetched = await self._broker.groups.fetch_offsets(group, None)
        except MainstemError:
            return []  # the group was deleted meanwhile, or its coordinator is loading
        lags = []
        for position in fetched:
            writer = self._writer(position.topic, position.partition)
            at = position.committed.offset
            if writer is None or at < 0:
                continue
            lags.append(
                LagSample(
                    group=group,
                    topic=position.topic,
                    partition=position.partition,
                    committed=at,
                    lag_records=max(0, writer.last_stable - at),
                    lag_seconds=self._age_s(writer, at),
                )
            )
        return lags

    def _age_s(self, writer: PartitionWriter, offset: int) -> float:
        """How old the batch at ``offset`` is; 0 if the reader is at the end."""
        at = max(offset, writer.start_offset)
        if at >= writer.last_stable:
            return 0.0
        try:
            found = writer.read(at, max_bytes=1, committed_only=True, min_one=True)
            if found is None:
                return 0.0
            header = read_header(os.pread(found.fd, HEADER_BYTES, found.position))
        except MainstemError:
            return 0.0  # damage is reported by reads, not by a metric
        return max(0.0, (self._clock.wall_ms() - header.max_timestamp) / 1000)

    def _writer(self, topic: str, partition: int) -> PartitionWriter | None:
        try:
            return self._broker.streams.partition(topic, partition)
        except MainstemError:
            return None  # deleted meanwhile


def memory_bytes() -> int:
    """Resident memory of this process."""
    pages = int(_STATM.read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
