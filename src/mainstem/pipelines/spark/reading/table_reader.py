"""Topics as tables, and the shared part of tables and streams: reading a range."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from mainstem.client.consuming.range_reader import RangeReader, RangeSettings, RecordsTrimmed
from mainstem.client.values import TopicPartition
from mainstem.pipelines.spark.cluster_client import SparkClusterClient, cached_client
from mainstem.pipelines.spark.reading import topic_offsets
from mainstem.pipelines.spark.reading.offset_map import OffsetRange, split
from mainstem.pipelines.spark.reading.options import ReadOptions, parse_read_options

if TYPE_CHECKING:
    import pyarrow as pa


class RangePartition(InputPartition):
    """A range of a partition for one task."""

    def __init__(self, part: OffsetRange, **more: Any) -> None:
        super().__init__(tuple(part))
        self.more = more


class TopicTableReader(DataSourceReader):
    """Reads topics from their start to their end at planning time."""

    def __init__(self, options: dict[str, str]) -> None:
        self._given = options
        self._options = parse_read_options(options, streaming=False)

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges to read, each by a separate task."""
        wire = cached_client(self._options.servers, self._given)
        parts = split(
            wire.run(self._ranges(wire)),
            parts_min=self._options.parts_min,
            rows_max=self._options.part_rows_max,
        )
        return [RangePartition(each) for each in parts]

    async def _ranges(self, wire: SparkClusterClient) -> list[OffsetRange]:
        options = self._options
        wanted = await topic_offsets.partitions(wire.cluster, options)
        starts = await topic_offsets.located(wire.cluster, options, options.start, wanted)
        ends = await topic_offsets.located(wire.cluster, options, options.end, wanted)
        return [OffsetRange(each, starts[each], ends[each]) for each in wanted]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of one range."""
        if partition.value is None:  # Spark passes None if there is nothing to read
            return iter(())
        wire = cached_client(self._options.servers, self._given)
        return read_range(wire, self._options, _range_of(partition))


def read_range(
    wire: SparkClusterClient, options: ReadOptions, part: OffsetRange
) -> "Iterator[pa.RecordBatch]":
    """The rows of a range in Arrow batches.

    Raises:
        RecordsTrimmed: a part of it was deleted, and data loss is not allowed.
    """
    from mainstem.client.consuming.arrow_columns import record_batch

    settings = RangeSettings(read_committed=options.read_committed)
    start = part.start
    while True:
        reader = RangeReader(wire.cluster, part.partition, start, part.until, settings)
        try:
            for columns in wire.iterate(reader.columns(with_headers=options.with_headers)):
                if columns.row_count:
                    start = memoryview(columns.offsets).cast("q")[-1] + 1
                    yield record_batch(part.partition, columns, with_fields=options.with_fields)
        except RecordsTrimmed as error:
            if options.fail_on_data_loss:
                raise
            # Continue at the first offset that is left, unless it is after the range.
            if not start < error.earliest < part.until:
                return
            start = error.earliest
        else:
            return


def _range_of(partition: InputPartition) -> OffsetRange:
    place, start, until = partition.value
    return OffsetRange(TopicPartition(*place), start, until)
