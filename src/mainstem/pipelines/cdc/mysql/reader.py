"""``format("mainstem-mysql-cdc")``: the changes of a MySQL or MariaDB server as a Spark stream.

The driver determines where batches end; tasks read spool files, or the log between two positions,
and write events. One span of the log is one task, in order.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from mainstem.pipelines.cdc.arrow_batches import SCHEMA, arrow
from mainstem.pipelines.cdc.avro.events import in_format
from mainstem.pipelines.cdc.mysql.batch_planner import log_records
from mainstem.pipelines.cdc.mysql.change_stream import MysqlChangeStream
from mainstem.pipelines.cdc.mysql.offset import MysqlOffset
from mainstem.pipelines.cdc.mysql.server import MysqlCdcServer
from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql.snapshot import read_spool, table_records, table_writers
from mainstem.pipelines.cdc.mysql.table import EventSource
from mainstem.pipelines.cdc.reader import CdcStreamReader, ReaderSettings
from mainstem.pipelines.spark.settings_source import SettingsSource

Settings = ReaderSettings[MysqlCdcConfig]


class MysqlTablesReader(DataSourceReader):
    """Reads all tables in one consistent snapshot, in one task; stores no state."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def partitions(self) -> Sequence[InputPartition]:
        """One partition: one transaction sees a consistent snapshot."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of all tables."""
        del partition
        settings = self._settings
        server = MysqlCdcServer(settings.config)
        try:
            spot, _ = server.begin_snapshot()
            shapes = server.tables(settings.config.chosen, settings.config.exclude_tables)
            writer = table_writers(settings.config, settings.tables, server.flavour)
            event_source = EventSource(time.time_ns() // 1000, spot)
            records = table_records(server, shapes, writer, event_source)
            yield from arrow(in_format(records, settings.config))
        finally:
            server.close()


class MysqlChangesReader(CdcStreamReader):
    """The stream of one query."""

    position = MysqlOffset
    _settings: Settings

    def follower(self) -> MysqlChangeStream:
        """A new change stream."""
        settings = self._settings
        return MysqlChangeStream(settings.config, Path(settings.state_dir), settings.tables)

    def parts(self, begun: MysqlOffset, until: MysqlOffset) -> list[tuple[str, Any]]:
        """Spool files, or one span of the log with the chunk that precedes it."""
        parts: list[tuple[str, Any]] = [
            ("file", number) for number in range(begun.file, until.file)
        ]
        if begun.goes_on_to(until):
            chunk = begun.file if parts else None
            return [("log", (chunk, msgspec.json.encode((begun, until))))]
        return parts

    def batches(self, kind: str, given: Any) -> Iterator[pa.RecordBatch]:
        """The records of one part."""
        settings = self._settings
        folder = Path(settings.state_dir)
        if kind == "file":
            yield from read_spool(folder, given)
            return
        chunk, span = given
        if chunk is not None:
            yield from read_spool(folder, chunk)
        begun, until = msgspec.json.decode(span, type=tuple[MysqlOffset, MysqlOffset])
        records = log_records(settings.config, settings.tables, begun, until)
        yield from arrow(in_format(records, settings.config))


class MysqlCdcDataSource(SettingsSource):
    """The data source of changes of MySQL and MariaDB."""

    format_name = "mainstem-mysql-cdc"
    columns = SCHEMA
    settings = Settings
    table_reader = MysqlTablesReader
    stream_reader = MysqlChangesReader
