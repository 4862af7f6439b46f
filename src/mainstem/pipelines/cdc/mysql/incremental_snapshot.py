"""Incremental snapshots: tables read again while their changes stream, in chunks by primary key.

A chunk is read by one statement, and then the end of the log is requested. Every change that the
chunk could have seen is before that position. Its batch contains the chunk first, without the keys
that change in the log up to there, then the log: readers see each key's events in order.
Nothing is locked and nothing is written to the database.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from mainstem.pipelines.cdc.avro.events import in_format
from mainstem.pipelines.cdc.incremental_snapshot import CHUNK_ROWS, MARK, IncrementalSnapshotQueue
from mainstem.pipelines.cdc.mysql.binlog_scanner import BinlogScanner, plain
from mainstem.pipelines.cdc.mysql.change_decoder import MysqlChangeDecoder, MysqlLogSpan
from mainstem.pipelines.cdc.mysql.offset import BinlogPosition, MysqlOffset
from mainstem.pipelines.cdc.mysql.server import MysqlCdcServer, Row
from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql.snapshot import row_record, write_spool
from mainstem.pipelines.cdc.mysql.table import (
    EventSource,
    MysqlEventWriter,
    MysqlTableSchema,
    key_texts,
)
from mainstem.pipelines.connector.shapes import TableRoute

Watch = Callable[[bytes], int]
Walk = Callable[[BinlogPosition, Watch], BinlogScanner]


class SnapshotChunk(Struct, frozen=True):
    """A chunk that was read, and the scan of the log up to its end.

    It is void if its table may have been altered meanwhile: old and new keys are not comparable.
    """

    walker: BinlogScanner
    is_void: bool = False


class MysqlIncrementalSnapshot(IncrementalSnapshotQueue):
    """Reads the tables that signals request."""

    def __init__(
        self,
        config: MysqlCdcConfig,
        folder: Path,
        routes: Sequence[TableRoute],
        start_file: int,
    ) -> None:
        super().__init__(folder, start_file)
        self._config = config
        self._routes = routes

    def chunk(
        self, server: MysqlCdcServer, start: MysqlOffset, rows_max: int | None, walk: Walk
    ) -> SnapshotChunk | None:
        """Read the next chunk into the next file; None when no table is left."""
        bound = min(CHUNK_ROWS, self._config.snapshot_rows_per_file, rows_max or CHUNK_ROWS)

        def read(
            name: str, after: list[str] | None
        ) -> tuple[SnapshotChunk, list[str] | None] | None:
            found = [each for each in server.tables((name,)) if each.is_chunkable]
            if not found:
                return None
            rows = list(server.rows(found[0], after, bound))
            if not rows:
                return None
            chunk = self._written(server, found[0], rows, start, walk)
            return chunk, after if chunk.is_void else key_texts(found[0], rows[-1])

        return self.take(start.file, read)

    def _written(
        self,
        server: MysqlCdcServer,
        shape: MysqlTableSchema,
        rows: list[Row],
        start: MysqlOffset,
        walk: Walk,
    ) -> SnapshotChunk:
        simple = plain(self._config, (shape.full_name,))
        decoder = MysqlChangeDecoder(simple, (), server.origin(), MysqlLogSpan(start.spot))
        changed: set[bytes | None] = set()

        def watch(event: bytes) -> int:
            changed.update(record.key for record in decoder.decode(event))
            return 0

        walker = walk(server.end_of_log(), watch)
        if walker.mentions(shape.name):
            return SnapshotChunk(walker, is_void=True)
        key = MysqlEventWriter(shape, simple, (), server.flavour).layout.key
        writer = MysqlEventWriter(shape, self._config, self._routes, server.flavour)
        event_source = EventSource(time.time_ns() // 1000, walker.spot)
        kept = (row for row in rows if key(list(row)) not in changed)
        records = (row_record(writer, row, event_source, MARK) for row in kept)
        write_spool(self._folder, start.file, in_format(records, self._config))
        return SnapshotChunk(walker)
