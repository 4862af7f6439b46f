"""A database's changes as a Spark stream: the part that all databases share.

The driver asks a ``ChangeStream`` where the next batch ends; tasks read the parts that the batch is
split into, and write events. Each database provides its stream, its parts and how they are read.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from mainstem.pipelines.cdc.arrow_batches import arrow
from mainstem.pipelines.cdc.avro.events import in_format
from mainstem.pipelines.cdc.envelope import heartbeat
from mainstem.pipelines.cdc.settings import CdcConfig
from mainstem.pipelines.cdc.table_selection import TableRouting
from mainstem.pipelines.connector.shapes import ConnectorContext, TableRoute
from mainstem.pipelines.spark.settings_source import SettingsSource, load

BEAT: Final = "beat"
Config = TypeVar("Config", bound=CdcConfig)


class ReaderSettings(Struct, Generic[Config], frozen=True, kw_only=True):
    """The settings of a reader."""

    config: Config
    state_dir: str
    rows_per_batch_max: int | None = None
    rehearsal: bool = False
    tables: tuple[TableRoute, ...] = ()

    def routing(self) -> TableRouting:
        """The topics of tables."""
        config = self.config
        return TableRouting(
            config.topic_routing,
            database=config.database,
            name=config.source_name,
            routes=self.tables,
        )


def load_changes(
    spark: SparkSession,
    source: type[SettingsSource],
    config: CdcConfig,
    context: ConnectorContext,
) -> DataFrame:
    """The frame of a source in a pipeline."""
    settings = ReaderSettings(
        config=config,
        state_dir=str(context.state_dir.absolute()),
        rows_per_batch_max=context.rows_per_batch_max,
        rehearsal=context.rehearsal,
        tables=context.tables,
    )
    return load(spark, source, settings, streaming=context.streaming)


class ChangeStream(Protocol):
    """The driver's side of one query."""

    def end_of_log(self) -> Any:
        """Where the log ends now."""

    def next(self, start: Any, rows_max: int | None, cap: Any) -> Any:
        """The end of the batch after ``start``."""

    def commit(self, end: Any) -> None:
        """Release everything before ``end``: Spark will not request it again."""

    def close(self) -> None:
        """Close all sessions."""


class CdcStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of one query. It plans batches in the driver; its copies in tasks read.

    ``position`` is the type of the offset in Spark's checkpoint; among other things it counts
    heartbeats (``beat``) and has the time at which it was determined (``at_ms``).
    """

    position: ClassVar[Any]

    def __init__(self, settings: Any) -> None:
        self._settings = settings
        self._follower: ChangeStream | None = None
        self._cap: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """The state for tasks: the settings, without the driver's sessions."""
        return {"_settings": self._settings, "_follower": None, "_cap": None}

    @abstractmethod
    def follower(self) -> ChangeStream:
        """A new change stream."""

    @abstractmethod
    def parts(self, begun: Any, until: Any) -> list[tuple[str, Any]]:
        """The parts of a batch without heartbeats: kinds, and the input of the task for each."""

    @abstractmethod
    def batches(self, kind: str, given: Any) -> Iterator[pa.RecordBatch]:
        """The records of one part."""

    # In the driver.

    def _followed(self) -> ChangeStream:
        if self._follower is None:
            self._follower = self.follower()
        return self._follower

    def initialOffset(self) -> dict[str, Any]:
        """The empty offset; where to start is determined with the first batch."""
        first: dict[str, Any] = msgspec.to_builtins(self.position())
        return first

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of one batch."""
        rows_max = self._settings.rows_per_batch_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """End this run at the current end of the log."""
        self._cap = self._followed().end_of_log()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch."""
        begun = msgspec.convert(start, self.position)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._followed().next(begun, rows_max, self._cap)
        offset: dict[str, Any] = msgspec.to_builtins(end)
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The parts of a batch, and a heartbeat."""
        begun: Any = msgspec.convert(start, self.position)
        until: Any = msgspec.convert(end, self.position)
        parts = self.parts(begun, until)
        if until.beat > begun.beat:
            parts.append((BEAT, until.at_ms))
        return [InputPartition(part) for part in parts]

    def commit(self, end: dict[str, Any]) -> None:
        """Release everything before ``end``: Spark will not request it again."""
        self._followed().commit(msgspec.convert(end, self.position))

    def stop(self) -> None:
        """Close the stream at the end of the query."""
        if self._follower is not None:
            self._follower.close()

    # In tasks.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one part."""
        kind, given = partition.value
        if kind == BEAT:
            config = self._settings.config
            return arrow(in_format([heartbeat(config.source_name, given)], config))
        return self.batches(kind, given)
