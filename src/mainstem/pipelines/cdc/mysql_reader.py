"""``format("mainstem-mysql-cdc")``: the changes of a MySQL or MariaDB server as a Spark stream.

The driver's side asks the follower how far to go; tasks read files of the spool, or the log between
two places, and write events. One span of the log is one task, in order.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

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

from mainstem.pipelines.cdc.envelope import heartbeat
from mainstem.pipelines.cdc.frame import SCHEMA, arrow
from mainstem.pipelines.cdc.mysql_follower import Follower, Position, log_records
from mainstem.pipelines.cdc.mysql_server import Server
from mainstem.pipelines.cdc.mysql_settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql_snapshot import read_spool, snapshot_records
from mainstem.pipelines.cdc.mysql_table import Spot, Told
from mainstem.pipelines.connector.shapes import TableRoute
from mainstem.pipelines.spark.planner_upkeep import ease_planner

OPTION: Final = "settings.secret"  # Spark blanks options with this word wherever it shows them


class ReaderSettings(Struct, frozen=True, kw_only=True):
    """All that a reader is told."""

    config: MysqlCdcConfig
    state_dir: str
    rows_per_batch_max: int | None = None
    tables: tuple[TableRoute, ...] = ()


class MysqlCdcDataSource(DataSource):
    """The format; its one option is everything as JSON."""

    @classmethod
    def name(cls) -> str:
        """What it is called in ``format(...)``."""
        return "mainstem-mysql-cdc"

    def schema(self) -> str:
        """Columns of records."""
        return SCHEMA

    def _settings(self) -> ReaderSettings:
        return msgspec.json.decode(self.options[OPTION], type=ReaderSettings)

    def reader(self, schema: Any) -> DataSourceReader:
        """All rows as they are now."""
        ease_planner()
        del schema
        return TablesReader(self._settings())

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        """The rows, then their changes."""
        ease_planner()
        del schema
        return ChangesReader(self._settings())


class TablesReader(DataSourceReader):
    """All tables at one moment, in one task; nothing is remembered."""

    def __init__(self, settings: ReaderSettings) -> None:
        self._settings = settings

    def partitions(self) -> Sequence[InputPartition]:
        """One transaction sees one moment."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows."""
        del partition
        settings = self._settings
        server = Server(settings.config)
        try:
            told = Told(time.time_ns() // 1000, server.begin_snapshot())
            shapes = server.tables(settings.config.chosen, settings.config.exclude_tables)
            yield from arrow(
                snapshot_records(server, settings.config, settings.tables, shapes, told)
            )
        finally:
            server.close()


class ChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of one query. In the driver it follows; copies of it in tasks read."""

    def __init__(self, settings: ReaderSettings) -> None:
        self._settings = settings
        self._follower: Follower | None = None
        self._cap: Spot | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the settings, not the driver's sessions."""
        return {"_settings": self._settings, "_follower": None, "_cap": None}

    # In the driver.

    def _followed(self) -> Follower:
        if self._follower is None:
            settings = self._settings
            self._follower = Follower(settings.config, Path(settings.state_dir), settings.tables)
        return self._follower

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Before everything; what there is to begin with is found with the first batch."""
        return msgspec.to_builtins(Position())  # type: ignore[no-any-return]

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What one batch may bring."""
        rows_max = self._settings.rows_per_batch_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What comes later is none of this run's business."""
        self._cap = self._followed().end_of_log()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next batch goes."""
        begun = msgspec.convert(start, Position)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._followed().next(begun, rows_max, self._cap)
        return msgspec.to_builtins(end)  # type: ignore[no-any-return]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Files of the spool, or one span of the log, or a heartbeat."""
        begun, until = msgspec.convert(start, Position), msgspec.convert(end, Position)
        parts = [InputPartition(("file", number)) for number in range(begun.files, until.files)]
        if not parts and begun.spot.file and begun.spot.order < until.spot.order:
            parts.append(InputPartition(("log", msgspec.json.encode((begun, until)))))
        if until.beats > begun.beats:
            parts.append(InputPartition(("beat", until.at_ms)))
        return parts

    def commit(self, end: dict[str, Any]) -> None:
        """Spark will not ask for anything before again."""
        self._followed().commit(msgspec.convert(end, Position))

    def stop(self) -> None:
        """The query ends."""
        if self._follower is not None:
            self._follower.close()

    # In tasks.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one part."""
        kind, given = partition.value
        settings = self._settings
        if kind == "file":
            yield from read_spool(Path(settings.state_dir), given)
        elif kind == "log":
            begun, until = msgspec.json.decode(given, type=tuple[Position, Position])
            yield from arrow(log_records(settings.config, settings.tables, begun, until))
        else:
            yield from arrow([heartbeat(settings.config.source_name, given)])
