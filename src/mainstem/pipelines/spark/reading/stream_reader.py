"""Topics as a Spark stream: where each micro-batch ends, and which offsets are committed.

    latestOffset(start) ──▶ partitions(start, end) ──▶ read, in tasks ──▶ the sink ──▶ latestOffset

Guarantees: a batch ends at or below the last stable offset; limits apply to every trigger,
including AvailableNow; a batch that Spark repeats reads the same records. Only Spark's checkpoint
decides where a query continues. The consumer group of the query follows it: when Spark requests
what comes after an offset, everything below has been processed, and that offset is committed, so
any Kafka tool shows the lag of the query.
"""

import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from mainstem.client.administration.groups import GroupAdmin
from mainstem.client.cluster import Cluster
from mainstem.client.consuming.committed_offsets import commit_offsets, fetch_committed
from mainstem.client.values import CommittedOffset, TopicPartition
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.pipelines.spark.cluster_client import SparkClusterClient, cached_client
from mainstem.pipelines.spark.reading import offset_map, topic_offsets
from mainstem.pipelines.spark.reading.offset_map import OffsetRange, Offsets, Written
from mainstem.pipelines.spark.reading.options import ReadOptions, parse_read_options
from mainstem.pipelines.spark.reading.table_reader import RangePartition, read_range

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID: Final = "sql.streaming.queryId"
COMMIT_INTERVAL_S: Final = 1.0
COMMIT_TIMEOUT_MS: Final = 10_000

_log = logging.getLogger(__name__)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of one query; Spark keeps one object per run, and copies of it in its tasks."""

    def __init__(self, options: dict[str, str]) -> None:
        self._given = options
        self._options = parse_read_options(options, streaming=True)
        self._cap: Offsets | None = None
        self._progress: GroupProgress | None = None
        self._moved_at: float | None = None  # None: nothing was read yet

    # In the driver.

    def initialOffset(self) -> Written:
        """Where a query without a checkpoint starts."""
        wire = self._wire()

        async def ask() -> Offsets:
            wanted = await topic_offsets.partitions(wire.cluster, self._options)
            return await topic_offsets.located(
                wire.cluster, self._options, self._options.start, wanted
            )

        return offset_map.written(wire.run(ask()))

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of one batch."""
        rows_max = self._options.rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """End this run at the current end of the topics."""
        self._cap = self._latest()

    def latestOffset(self, start: Written, limit: ReadLimit) -> Written:
        """The end of the next batch."""
        begun = offset_map.read(start)
        self._follow(begun)
        latest = self._latest() if self._cap is None else dict(self._cap)
        ends = self._checked(begun, latest)
        if self._waits_for_more(begun, ends):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = offset_map.limited(self._with_new(begun, ends), ends, limit.max_rows)
        if ends != begun:
            self._moved_at = time.monotonic()
        return offset_map.written(ends)

    def reportLatestOffset(self) -> Written:
        """The end of the topics, for Spark's metrics of the lag."""
        return offset_map.written(self._latest())

    def partitions(self, start: Written, end: Written) -> Sequence[InputPartition]:
        """The ranges of one batch, each for a separate task."""
        ends = offset_map.read(end)
        begun = self._with_new(offset_map.read(start), ends)
        ranges = [OffsetRange(each, begun.get(each, 0), ends[each]) for each in sorted(ends)]
        options = self._options
        parts = offset_map.split(
            ranges, parts_min=options.parts_min, rows_max=options.part_rows_max
        )
        found = [RangePartition(each) for each in parts]
        if found and options.group is None:
            # Only tasks know the query id; the first one commits it with the token.
            found[0].more = {"begun": start, "token": self._followed().token}
        return found

    def commit(self, end: Written) -> None:
        """Spark will not request anything below ``end`` again."""
        self._follow(offset_map.read(end), at_once=True)

    def stop(self) -> None:
        """Does nothing: the last offsets are committed at the next start."""

    # In tasks.

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of one range."""
        wire = self._wire()
        place, first, until = partition.value
        introduction = getattr(partition, "more", {})
        if introduction:
            _introduce(wire, self._options, introduction)
        part = OffsetRange(TopicPartition(*place), first, until)
        return read_range(wire, self._options, part)

    # Helpers.

    def _wire(self) -> SparkClusterClient:
        return cached_client(self._options.servers, self._given)

    def _latest(self) -> Offsets:
        wire = self._wire()

        async def ask() -> Offsets:
            wanted = await self._existing(wire.cluster)
            return await topic_offsets.latest(wire.cluster, self._options, wanted)

        return wire.run(ask())

    async def _existing(self, cluster: Cluster) -> list[TopicPartition]:
        """The existing partitions; if data loss is allowed, missing ones are ignored."""
        try:
            return await topic_offsets.partitions(cluster, self._options)
        except InvalidRequest as error:
            gone = (ErrorCode.INVALID_TOPIC_NAME, ErrorCode.INVALID_PARTITIONS)
            if error.code not in gone:
                raise
            if self._options.fail_on_data_loss:
                raise InvalidRequest(
                    error.code,
                    f"{error.cause}, but a query reads it",
                    subject=error.subject,
                    remedy="start with a new checkpoint, or set failOnDataLoss to false",
                ) from None
        there = await cluster.all_topics()
        return sorted(
            TopicPartition(name, index)
            for name in self._options.topics
            if name in there
            for index in there[name].partitions
            if not self._options.assigned or TopicPartition(name, index) in self._options.assigned
        )

    def _checked(self, begun: Offsets, latest: Offsets) -> Offsets:
        """The ends; none may be before its start unless data loss is allowed."""
        lost = [each for each in begun if latest.get(each, -1) < begun[each]]
        if lost and self._options.fail_on_data_loss:
            each = lost[0]
            end = latest.get(each)
            raise InvalidRequest(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the query has read up to {begun[each]}, the partition "
                + (
                    "no longer exists"
                    if end is None
                    else f"ends at {end}: was the topic re-created?"
                ),
                subject=str(each),
                remedy="start with a new checkpoint, or set failOnDataLoss to false",
            )
        return latest

    def _waits_for_more(self, begun: Offsets, ends: Offsets) -> bool:
        """Whether there are too few records for a batch and the maximum delay has not passed."""
        rows_min = self._options.rows_min
        if rows_min is None or self._moved_at is None:
            return False
        waiting = sum(max(0, until - begun.get(each, 0)) for each, until in ends.items())
        waited_s = time.monotonic() - self._moved_at
        return waiting < rows_min and waited_s < self._options.delay_max_s

    def _with_new(self, begun: Offsets, ends: Offsets) -> Offsets:
        """The starts, including those of new partitions, which are read from their first offset."""
        new = [each for each in ends if each not in begun]
        if not new:
            return begun
        wire = self._wire()
        return begun | wire.run(topic_offsets.earliest(wire.cluster, new))

    def _followed(self) -> "GroupProgress":
        if self._progress is None:
            self._progress = GroupProgress(self._options)
        return self._progress

    def _follow(self, done: Offsets, *, at_once: bool = False) -> None:
        self._followed().reached(self._wire(), done, at_once=at_once)


class GroupProgress:
    """Commits the progress of a query as the offsets of a consumer group.

    Spark does not pass the query id to the driver's side of a source. Unless the user sets a name,
    the group is named after the query: a task, which has the id, commits the start of its batch
    with a token, and the group is found here by that token.
    """

    def __init__(self, options: ReadOptions) -> None:
        self.token = secrets.token_hex(8)
        self._options = options
        self._group = options.group
        self._shown: Offsets = {}
        self._shown_at = float("-inf")
        self._seen: Offsets = {}
        self._has_failed = False

    def reached(self, wire: SparkClusterClient, done: Offsets, *, at_once: bool) -> None:
        """Commit the offsets below which everything is processed. Errors are only logged."""
        is_idle = done == self._seen
        self._seen = done
        now = time.monotonic()
        if done == self._shown or not (
            at_once or is_idle or now - self._shown_at > COMMIT_INTERVAL_S
        ):
            return
        if self._has_failed and now - self._shown_at <= COMMIT_INTERVAL_S:
            return
        self._shown_at = now
        try:
            wire.run(self._show(wire.cluster, done))
        except MainstemError as error:
            if not self._has_failed:
                _log.warning("the progress of the query is not committed to its group: %s", error)
            self._has_failed = True

    async def _show(self, cluster: Cluster, done: Offsets) -> None:
        if self._group is None:
            self._group = await self._introduced(cluster)
        if self._group is None:
            return
        offsets = {each: CommittedOffset(offset) for each, offset in done.items()}
        await commit_offsets(cluster, self._group, offsets, timeout_ms=COMMIT_TIMEOUT_MS)
        self._shown = done
        self._has_failed = False

    async def _introduced(self, cluster: Cluster) -> str | None:
        """The group to which a task of this run has committed, if one ran already."""
        prefix = f"{self._options.group_prefix}-"
        for listed in await GroupAdmin(cluster, timeout_ms=COMMIT_TIMEOUT_MS).list_all():
            if listed.id.startswith(prefix):
                committed = await fetch_committed(cluster, listed.id, timeout_ms=COMMIT_TIMEOUT_MS)
                if any(each.metadata == self.token for each in committed.values()):
                    return listed.id
        return None


def _introduce(
    wire: SparkClusterClient, options: ReadOptions, introduction: dict[str, Any]
) -> None:
    """Commits the start of a batch to the group of this task's query."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    if query is None:
        return
    offsets = {
        each: CommittedOffset(offset, metadata=introduction["token"])
        for each, offset in offset_map.read(introduction["begun"]).items()
    }
    group = f"{options.group_prefix}-{query}"
    try:
        wire.run(commit_offsets(wire.cluster, group, offsets, timeout_ms=COMMIT_TIMEOUT_MS))
    except MainstemError as error:
        _log.warning("the progress of the query is not committed to %s: %s", group, error)
