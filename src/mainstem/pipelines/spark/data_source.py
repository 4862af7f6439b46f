"""Topics as a Spark data source: ``format("mainstem")``, for tables and for streams.

Columns and options are those of Spark's Kafka source. Records are fetched in whole batches,
checked, and decoded directly into Arrow. Writing is implemented in ``writing.sink``.

Spark loads this module in about six processes, each of which needs one of these readers and
writers: their modules are loaded only where they are needed, which keeps those processes small.
"""

from collections.abc import MutableMapping
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from mainstem.pipelines.spark.processes.planner_tuning import tune_planner
from mainstem.pipelines.spark.reading.options import flag

NAME: Final = "mainstem"
COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)
HEADERS_COLUMN: Final = ", headers array<struct<key: string, value: binary>>"
FIELDS_COLUMN: Final = ", plainFields map<string, variant>"


class MainstemSource(DataSource):
    """Reads and writes topics."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = {name.lower(): value for name, value in options.items()}

    @classmethod
    def name(cls) -> str:
        """The name in ``format(...)``."""
        return NAME

    def schema(self) -> str:
        """The columns of Spark's Kafka source, and the optional ones that were requested."""
        with_headers = flag(self._options, "includeheaders", default=False)
        with_fields = flag(self._options, "includeplainfields", default=False)
        headers = HEADERS_COLUMN if with_headers else ""
        return COLUMNS + headers + (FIELDS_COLUMN if with_fields else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads topics as tables."""
        from mainstem.pipelines.spark.reading.table_reader import TopicTableReader

        tune_planner()
        return TopicTableReader(self._options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Reads topics as streams."""
        from mainstem.pipelines.spark.reading.stream_reader import TopicStreamReader

        tune_planner()
        return TopicStreamReader(self._options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Writes tables to topics."""
        from mainstem.pipelines.spark.writing.sink import TopicTableWriter

        tune_planner()
        return TopicTableWriter(self._options, schema)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        """Writes streams to topics."""
        from mainstem.pipelines.spark.writing.sink import TopicStreamWriter

        tune_planner()
        return TopicStreamWriter(self._options, schema)
