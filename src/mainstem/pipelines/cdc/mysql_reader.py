"""``format("mainstem-mysql-cdc")``: the changes of a MySQL or MariaDB server as a Spark stream.

The driver's side asks the follower how far to go; tasks read files of the spool, or the log between
two places, and write events. One span of the log is one task, in order.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from mainstem.pipelines.cdc.frame import arrow
from mainstem.pipelines.cdc.mysql_follower import Follower, Position, log_records
from mainstem.pipelines.cdc.mysql_server import Server
from mainstem.pipelines.cdc.mysql_settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql_snapshot import read_spool, snapshot_records
from mainstem.pipelines.cdc.mysql_table import Told
from mainstem.pipelines.cdc.reader import CdcDataSource, CdcStreamReader, ReaderSettings

Settings = ReaderSettings[MysqlCdcConfig]


class TablesReader(DataSourceReader):
    """All tables at one moment, in one task; nothing is remembered."""

    def __init__(self, settings: Settings) -> None:
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


class ChangesReader(CdcStreamReader):
    """The stream of one query."""

    position = Position
    _settings: Settings

    def follower(self) -> Follower:
        """A new follower."""
        settings = self._settings
        return Follower(settings.config, Path(settings.state_dir), settings.tables)

    def parts(self, begun: Position, until: Position) -> list[tuple[str, Any]]:
        """Files of the spool, or one span of the log."""
        parts: list[tuple[str, Any]] = [
            ("file", number) for number in range(begun.files, until.files)
        ]
        if not parts and begun.spot.file and begun.spot.order < until.spot.order:
            parts.append(("log", msgspec.json.encode((begun, until))))
        return parts

    def batches(self, kind: str, given: Any) -> Iterator[pa.RecordBatch]:
        """The records of one part."""
        settings = self._settings
        if kind == "file":
            yield from read_spool(Path(settings.state_dir), given)
        else:
            begun, until = msgspec.json.decode(given, type=tuple[Position, Position])
            yield from arrow(log_records(settings.config, settings.tables, begun, until))


class MysqlCdcDataSource(CdcDataSource):
    """The format of MySQL's and MariaDB's changes."""

    settings = Settings
    rows = TablesReader
    changes = ChangesReader

    @classmethod
    def name(cls) -> str:
        """What it is called in ``format(...)``."""
        return "mainstem-mysql-cdc"
