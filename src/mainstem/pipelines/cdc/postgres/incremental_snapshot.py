"""Incremental snapshots: tables read again while their changes stream, in chunks by primary key.

Each chunk is read by a separate transaction, which also returns what it saw and where the log was.
Its batch contains the chunk first, without the keys that change in the log up to that position,
then the log (as in DBLog, but without watermark writes, because the server reports what a
transaction saw). So readers see each key's events in order, deletions included.
"""

import time
from pathlib import Path

import msgspec

from mainstem.pipelines.cdc.incremental_snapshot import CHUNK_ROWS, MARK, IncrementalSnapshotQueue
from mainstem.pipelines.cdc.postgres.pgoutput import lsn_number
from mainstem.pipelines.cdc.postgres.server import PublishedTable, connect, refusals
from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig
from mainstem.pipelines.cdc.postgres.snapshot import (
    SpoolFile,
    copy_query,
    row_key,
    spool,
    spool_path,
)
from mainstem.pipelines.cdc.spool import write_safely


class PostgresIncrementalSnapshot(IncrementalSnapshotQueue):
    """Reads the tables that signals request."""

    def __init__(self, config: PostgresCdcConfig, folder: Path, start_file: int) -> None:
        super().__init__(folder, start_file)
        self._config = config

    def chunk(
        self, tables: list[PublishedTable], number: int, rows_max: int | None
    ) -> SpoolFile | None:
        """Read the next chunk into file ``number``; None when no table is left."""
        by_name = {each.shape.full_name: each for each in tables}
        bound = min(CHUNK_ROWS, self._config.snapshot_rows_per_file, rows_max or CHUNK_ROWS)

        def read(name: str, after: list[str] | None) -> tuple[SpoolFile, list[str]] | None:
            return self._read(by_name[name], number, after, bound) if name in by_name else None

        return self.take(number, read)

    def _read(
        self, table: PublishedTable, number: int, after: list[str] | None, bound: int
    ) -> tuple[SpoolFile, list[str]] | None:
        config = self._config
        with refusals(config), connect(config) as session:
            run = session.execute
            run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            row = run(
                "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text,"
                " pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
            ).fetchone()
            assert row is not None
            query = copy_query(table, after, is_ordered=True, rows_max=bound)
            with session.cursor() as cursor, cursor.copy(query) as copy:
                rows = iter(copy)
                first = next(rows, None)
                if first is None:
                    return None
                path = spool_path(self._folder, number)
                count, last, _ = spool(path, bytes(first), rows, bound)
        until = lsn_number(row[1])
        spool_file = SpoolFile(
            table.shape,
            count,
            until,
            row[2] % (1 << 32),
            time.time_ns() // 1000,
            first=MARK,
            last=MARK,
            usual=MARK,
            snapshot=row[0],
        )
        write_safely(path.with_suffix(".json"), msgspec.json.encode(spool_file))
        return spool_file, row_key(table.shape, last)
