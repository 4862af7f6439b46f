"""Snapshots: the existing rows, spooled into files that the stream delivers before changes.

    table ──COPY──▶ 00000000.copy, 00000001.copy, …   (+ .json: which rows these are)

The exported snapshot of a slot ends with its session, so rows are on disk before Spark gets their
offset: a batch that is repeated reads the same file. A table with a key is read in key order, and
after a crash it is resumed after the last key on disk; what the new session saw beyond the start of
the stream is recorded in a stamp (``cdc.stamps``). Other tables are delivered when they are
completely on disk, and restarted after a crash.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from psycopg import sql

from mainstem.pipelines.cdc.postgres.pgoutput import lsn_number
from mainstem.pipelines.cdc.postgres.server import PublishedTable, connect, refusals
from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig
from mainstem.pipelines.cdc.postgres.table import NUMBERS, PostgresTableSchema
from mainstem.pipelines.cdc.snapshot_stamps import Stamp, marked
from mainstem.pipelines.cdc.spool import (
    SPOOL_NAME,
    STATE_NAME,
    SpoolState,
    first_mark,
    last_mark,
    private,
    save_state,
    write_safely,
)
from mainstem.pipelines.connector.state_file import read_json

WRITE_BYTES: Final = 1 << 20


class SpoolFile(Struct, frozen=True):
    """The metadata of a spool file.

    ``first``, ``last`` and ``usual`` are the values of ``snapshot`` in events; for a chunk of an
    incremental snapshot, ``snapshot`` contains the transactions that it saw.
    """

    shape: PostgresTableSchema
    rows: int
    lsn: int
    xid: int
    at_us: int
    first: str = "true"
    last: str = "true"
    usual: str = "true"
    snapshot: str = ""


class PostgresSnapshotState(SpoolState, kw_only=True):
    """The progress of the snapshot; the stream starts at ``slot_lsn``.

    ``table_file`` is the file of the table that is being read; ``emptied`` are tables that were
    truncated after a part of them was delivered.
    """

    slot_lsn: int
    table_file: int = 0
    emptied: tuple[str, ...] = ()


class PostgresSnapshot:
    """Reads tables into the spool, one file at a time.

    Args:
        config: the settings.
        folder: the connector's folder.
        state: the progress so far.
        exported: the slot's exported snapshot while its session is open; None takes a new one.
        rows_per_file: the maximum number of rows of a file.
    """

    def __init__(
        self,
        config: PostgresCdcConfig,
        folder: Path,
        state: PostgresSnapshotState,
        *,
        exported: str | None,
        rows_per_file: int,
    ) -> None:
        self._config = config
        self._folder = folder
        self.state = state
        self._rows_per_file = rows_per_file
        self._session = connect(config)
        self._snapshot, self._until, self._xid = self._begin(exported)
        self._work: Iterator[None] | None = None

    def close(self) -> None:
        """Close the session; files on disk stay."""
        self._session.close()

    def more(self, tables: Callable[[], list[PublishedTable]]) -> bool:
        """Write one more file, or complete the snapshot; returns whether a file was written."""
        if self._work is None:
            self._work = self._files(tables())
        with refusals(self._config):
            return next(self._work, self) is None

    def _begin(self, exported: str | None) -> tuple[str, int, int]:
        with refusals(self._config):
            run = self._session.execute
            run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if exported is not None:
                run(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(exported)))
            row = run(
                "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text,"
                " pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
            ).fetchone()
        assert row is not None
        snapshot, until, xid = row
        # The slot's exported snapshot ends exactly where the stream starts: no event is repeated.
        return ("" if exported is not None else snapshot), lsn_number(until), xid % (1 << 32)

    def _files(self, tables: list[PublishedTable]) -> Iterator[None]:
        state = self.state
        wanted = [each for each in tables if each.shape.full_name in state.tables]
        left = [each for each in wanted if each.shape.full_name not in state.done]
        for table in left:
            name = table.shape.full_name
            if state.after is not None and table.file != state.table_file:
                state.emptied += (name,)
            state.table_file = table.file
            if self._snapshot:
                after = tuple(state.after) if state.after is not None else None
                state.stamps.append(Stamp(name, self._snapshot, self._until, after))
            is_last_table = table is left[-1]
            for spooled in self._table(table, is_last_table=is_last_table):
                state.file_written(spooled.rows, is_shown=table.is_ordered)
                if table.is_ordered:
                    save_state(self._folder, state)
                yield
            state.table_written(name)
            save_state(self._folder, state)
        state.is_complete = True
        save_state(self._folder, state)
        self._session.execute("COMMIT")

    def _table(self, table: PublishedTable, *, is_last_table: bool) -> Iterator[SpoolFile]:
        """The files of one table; reads one row ahead to mark the last row."""
        shape = table.shape
        is_first = self.state.after is None
        begins_all = self.state.next_file == 0
        query = copy_query(table, self.state.after, is_ordered=table.is_ordered)
        with self._session.cursor() as cursor, cursor.copy(query) as copy:
            rows = iter(copy)
            held = next(rows, None)
            while held is not None:
                path = spool_path(self._folder, self.state.next_file)
                count, last, held = spool(path, bytes(held), rows, self._rows_per_file)
                if table.is_ordered:
                    self.state.after = row_key(shape, last)
                spooled = SpoolFile(
                    shape,
                    count,
                    self.state.slot_lsn or self._until,
                    self._xid,
                    time.time_ns() // 1000,
                    first=first_mark(is_first=is_first, begins_all=begins_all),
                    last=last_mark(is_last=held is None, ends_all=is_last_table),
                )
                write_safely(path.with_suffix(".json"), msgspec.json.encode(spooled))
                is_first = begins_all = False
                yield spooled


def spool(
    path: Path, row: bytes, rows: Iterator[bytes | bytearray | memoryview], bound: int
) -> tuple[int, bytes, bytes | None]:
    """Write rows up to the limit; returns their number, the last one, and the one after it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    count = 1
    held: bytes | None = None
    # The rows are not masked: only the owner may read the file.
    with open(path, "wb", WRITE_BYTES, opener=private) as out:
        write = out.write
        write(row)
        for each in rows:
            if count == bound:
                held = bytes(each)
                break
            row = each  # type: ignore[assignment]
            write(each)
            count += 1
        out.flush()
        os.fsync(out.fileno())
    return count, bytes(row), held


def copy_query(
    table: PublishedTable,
    after: list[str] | None,
    *,
    is_ordered: bool,
    rows_max: int | None = None,
) -> sql.Composed:
    """The statement that copies a table, after a key if it is read in key order."""
    shape = table.shape
    columns = sql.SQL(", ").join(sql.Identifier(column.name) for column in shape.columns)
    place = sql.Identifier(shape.schema, shape.name)
    query = sql.SQL("SELECT {} FROM {}").format(columns, place)
    if is_ordered:
        keys = sql.SQL(", ").join(sql.Identifier(name) for name in shape.key)
        if after is not None:
            values = sql.SQL(", ").join(sql.Literal(text[1:]) for text in after)
            query += sql.SQL(" WHERE ({}) > ({})").format(keys, values)
        query += sql.SQL(" ORDER BY {}").format(keys)
    if rows_max is not None:
        query += sql.SQL(" LIMIT {}").format(sql.Literal(rows_max))
    return sql.SQL("COPY ({}) TO STDOUT").format(query)


def row_key(shape: PostgresTableSchema, row: bytes) -> list[str]:
    """The key of a row, as stored in stamps."""
    values = split_row(row)
    by_name = {column.name: at for at, column in enumerate(shape.columns)}
    key = []
    for name in shape.key:
        value = values[by_name[name]]
        assert value is not None, "a key is never null"
        is_number = shape.columns[by_name[name]].type.name in NUMBERS
        key.append(marked(value, is_number=is_number))
    return key


_ESCAPES: Final = {
    b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v", b"\\": b"\\",
}  # fmt: skip


def split_row(line: bytes) -> Sequence[bytes | None]:
    """The values of one line of COPY's text format."""
    parts = line.rstrip(b"\n").split(b"\t")
    if b"\\" not in line:
        return parts
    return [None if part == b"\\N" else _plain(part) for part in parts]


def _plain(part: bytes) -> bytes:
    if b"\\" not in part:
        return part
    head, *rest = part.split(b"\\")
    out = [head]
    is_escaped = False
    for piece in rest:
        if is_escaped:  # the second of two backslashes
            out.append(piece)
            is_escaped = False
        elif not piece:
            out.append(b"\\")
            is_escaped = True
        else:
            out.append(_ESCAPES.get(piece[:1], piece[:1]) + piece[1:])
    return b"".join(out)


def spool_path(folder: Path, number: int) -> Path:
    """The path of a spool file."""
    return folder / SPOOL_NAME / f"{number:08}.copy"


def read_spool_file(folder: Path, number: int) -> SpoolFile:
    """The metadata of a spool file."""
    described = spool_path(folder, number).with_suffix(".json").read_bytes()
    return msgspec.json.decode(described, type=SpoolFile)


def load_state(folder: Path) -> PostgresSnapshotState | None:
    """The progress of the snapshot; None if none was started."""
    return read_json(folder / STATE_NAME, PostgresSnapshotState, "a state of a snapshot")
