"""A database's changes as a Spark stream: what is the same whatever the database.

The driver's side asks a follower how far the next batch goes; tasks read the parts that it was cut
into, and write events. A database brings its follower, its parts and how they are read.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from mainstem.pipelines.cdc.avro_events import in_format
from mainstem.pipelines.cdc.envelope import heartbeat
from mainstem.pipelines.cdc.frame import SCHEMA, arrow
from mainstem.pipelines.cdc.selection import Routing
from mainstem.pipelines.cdc.settings import CdcConfig
from mainstem.pipelines.connector.shapes import Place, TableRoute
from mainstem.pipelines.spark.planner_upkeep import ease_planner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTION: Final = "settings.secret"  # Spark blanks options with this word wherever it shows them
BEAT: Final = "beat"
Config = TypeVar("Config", bound=CdcConfig)


class ReaderSettings(Struct, Generic[Config], frozen=True, kw_only=True):
    """All that a reader is told."""

    config: Config
    state_dir: str
    rows_per_batch_max: int | None = None
    rehearsal: bool = False
    tables: tuple[TableRoute, ...] = ()

    def routing(self) -> Routing:
        """Where tables go."""
        config = self.config
        return Routing(
            config.topic_routing,
            database=config.database,
            name=config.source_name,
            routes=self.tables,
        )


def load(
    spark: "SparkSession", source: type["CdcDataSource"], config: CdcConfig, place: Place
) -> "DataFrame":
    """The frame of a source that stands at a place of a pipeline."""
    spark.dataSource.register(source)
    settings = ReaderSettings(
        config=config,
        state_dir=str(place.state_dir.absolute()),
        rows_per_batch_max=place.rows_per_batch_max,
        rehearsal=place.rehearsal,
        tables=place.tables,
    )
    reader = spark.readStream if place.streaming else spark.read
    given = msgspec.json.encode(settings).decode()
    return reader.format(source.name()).option(OPTION, given).load()


class CdcDataSource(DataSource):
    """The format; its one option is everything as JSON.

    ``settings`` is the type of what it says, ``rows`` and ``changes`` are those of the readers.
    """

    settings: ClassVar[Any]
    rows: ClassVar[Any]
    changes: ClassVar[Any]

    def schema(self) -> str:
        """Columns of records."""
        return SCHEMA

    def _settings(self) -> Any:
        return msgspec.json.decode(self.options[OPTION], type=self.settings)

    def reader(self, schema: Any) -> DataSourceReader:
        """All rows as they are now."""
        ease_planner()
        del schema
        return self.rows(self._settings())  # type: ignore[no-any-return]

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        """The rows, then their changes."""
        ease_planner()
        del schema
        return self.changes(self._settings())  # type: ignore[no-any-return]


class Follows(Protocol):
    """The driver's side of one query."""

    def end_of_log(self) -> Any:
        """Where the log ends now."""

    def next(self, start: Any, rows_max: int | None, cap: Any) -> Any:
        """The end of the batch after ``start``."""

    def commit(self, end: Any) -> None:
        """Nothing before this will be asked for again."""

    def close(self) -> None:
        """End all sessions."""


class CdcStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of one query. In the driver it follows; copies of it in tasks read.

    ``position`` is the type of what Spark's checkpoint keeps; among other things it counts
    heartbeats (``beat``) and tells when it was decided to go so far (``at_ms``).
    """

    position: ClassVar[Any]

    def __init__(self, settings: Any) -> None:
        self._settings = settings
        self._follower: Follows | None = None
        self._cap: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the settings, not the driver's sessions."""
        return {"_settings": self._settings, "_follower": None, "_cap": None}

    @abstractmethod
    def follower(self) -> Follows:
        """A new follower."""

    @abstractmethod
    def parts(self, begun: Any, until: Any) -> list[tuple[str, Any]]:
        """What a batch is made of but for heartbeats: kinds, and what tasks are told of each."""

    @abstractmethod
    def batches(self, kind: str, given: Any) -> Iterator[pa.RecordBatch]:
        """The records of one part."""

    # In the driver.

    def _followed(self) -> Follows:
        if self._follower is None:
            self._follower = self.follower()
        return self._follower

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Before everything; what there is to begin with is found with the first batch."""
        return msgspec.to_builtins(self.position())  # type: ignore[no-any-return]

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What one batch may bring."""
        rows_max = self._settings.rows_per_batch_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What comes later is none of this run's business."""
        self._cap = self._followed().end_of_log()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next batch goes."""
        begun = msgspec.convert(start, self.position)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._followed().next(begun, rows_max, self._cap)
        return msgspec.to_builtins(end)  # type: ignore[no-any-return]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The parts of a batch, and a heartbeat."""
        begun: Any = msgspec.convert(start, self.position)
        until: Any = msgspec.convert(end, self.position)
        parts = self.parts(begun, until)
        if until.beat > begun.beat:
            parts.append((BEAT, until.at_ms))
        return [InputPartition(part) for part in parts]

    def commit(self, end: dict[str, Any]) -> None:
        """Spark will not ask for anything before again."""
        self._followed().commit(msgspec.convert(end, self.position))

    def stop(self) -> None:
        """The query ends."""
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
