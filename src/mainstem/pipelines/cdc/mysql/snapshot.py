"""Snapshots: the existing rows, spooled into files that the stream delivers before changes.

    tables ──one transaction──▶ spool/00000000.arrow, 00000001.arrow, …

A transaction ends with its session, so rows are on disk before Spark gets their offset: a batch
that is repeated reads the same file. A table with an ordered key is read in key order, and after a
crash a new transaction continues after the last key on disk. It sees more than the first did; a
stamp (``cdc.stamps``) records up to which position of the log. Other tables are delivered when they
are completely on disk, and restarted after a crash.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import msgspec
import pyarrow as pa

from mainstem.pipelines.cdc.arrow_batches import ARROW, arrow
from mainstem.pipelines.cdc.avro.events import in_format
from mainstem.pipelines.cdc.envelope import NULL, ChangeRecord, event
from mainstem.pipelines.cdc.mysql.offset import BinlogPosition
from mainstem.pipelines.cdc.mysql.server import MysqlCdcServer, Row
from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql.table import (
    EventSource,
    MysqlEventWriter,
    MysqlTableSchema,
    key_texts,
)
from mainstem.pipelines.cdc.row_values import Value
from mainstem.pipelines.cdc.snapshot_stamps import Stamp
from mainstem.pipelines.cdc.spool import (
    SPOOL_NAME,
    STATE_NAME,
    SpoolState,
    first_mark,
    last_mark,
    save_state,
    write_file,
)
from mainstem.pipelines.connector.shapes import TableRoute
from mainstem.pipelines.connector.state_file import read_json

MakeWriter = Callable[[MysqlTableSchema], MysqlEventWriter]


class MysqlSnapshotState(SpoolState, kw_only=True):
    """The progress of the snapshot; the stream starts at ``spot`` of ``server``."""

    spot: BinlogPosition
    server: str
    gtid: str


class MysqlSnapshot:
    """Reads tables into the spool, one file at a time.

    Args:
        config: the settings.
        folder: the connector's folder.
        routes: topics of individual tables.
        state: the progress so far; None for a new snapshot.
        rows_per_file: the maximum number of rows of a file.
    """

    def __init__(
        self,
        config: MysqlCdcConfig,
        folder: Path,
        routes: Sequence[TableRoute],
        state: MysqlSnapshotState | None,
        rows_per_file: int,
    ) -> None:
        self._folder = folder
        self._rows_per_file = rows_per_file
        self._server = MysqlCdcServer(config)
        identity = self._server.identity
        spot, gtid = self._server.begin_snapshot()
        # An empty table does not count as the last one, although it may be last by name.
        shapes = [
            each
            for each in self._server.tables(config.chosen, config.exclude_tables)
            if self._server.has_rows(each)
        ]
        self._seen = spot if state is not None and state.spot != spot else None
        self._event_source = EventSource(time.time_ns() // 1000, spot)
        self.state = state or MysqlSnapshotState(
            spot=spot, server=identity, gtid=gtid, tables=[each.full_name for each in shapes]
        )
        self.rows_estimate = sum(map(self._server.rows_estimate, shapes))
        self._work = self._files(shapes, table_writers(config, routes, self._server.flavour))

    def close(self) -> None:
        """Close the session; files on disk stay."""
        self._work.close()
        self._server.close()

    def more(self) -> None:
        """Write one more file, or complete the snapshot."""
        next(self._work, None)

    def _files(
        self, shapes: Sequence[MysqlTableSchema], writer: MakeWriter
    ) -> Generator[None, None, None]:
        state = self.state
        left = [
            each
            for each in shapes
            if each.full_name in state.tables and each.full_name not in state.done
        ]
        for shape in left:
            if not shape.is_ordered or [each[0] for each in state.after or ()] != _kinds(shape):
                state.after = None
            if self._seen is not None:
                after = None if state.after is None else tuple(state.after)
                state.stamps.append(Stamp(shape.full_name, "", self._seen.order, after))
            for count in self._table(shape, writer(shape), is_last_table=shape is left[-1]):
                state.file_written(count, is_shown=shape.is_ordered)
                if shape.is_ordered:
                    save_state(self._folder, state)
                yield
            state.table_written(shape.full_name)
            save_state(self._folder, state)
        state.is_complete = True
        save_state(self._folder, state)

    def _table(
        self, shape: MysqlTableSchema, writer: MysqlEventWriter, *, is_last_table: bool
    ) -> Iterator[int]:
        """Write the files of one table; reads one row ahead to mark the last row."""
        state = self.state
        is_first, begins_all = state.after is None, state.next_file == 0
        rows = self._server.rows(shape, state.after)
        held = next(rows, None)
        while held is not None:
            chunk = [held, *islice(rows, self._rows_per_file - 1)]
            held = next(rows, None)
            marks = ["true"] * len(chunk)
            marks[0] = first_mark(is_first=is_first, begins_all=begins_all)
            # A row that is the first of all and the last of its table is marked as the first.
            if held is None and (is_last_table or not begins_all or len(chunk) > 1):
                marks[-1] = last_mark(is_last=True, ends_all=is_last_table)
            records = (
                row_record(writer, values, self._event_source, mark)
                for values, mark in zip(chunk, marks, strict=True)
            )
            write_spool(self._folder, state.next_file, in_format(records, self._server.config))
            if shape.is_ordered:
                state.after = key_texts(shape, chunk[-1])
            is_first = begins_all = False
            yield len(chunk)


def _kinds(shape: MysqlTableSchema) -> list[str]:
    """The kinds of a key's columns; after a change of the key, a table cannot be resumed."""
    words = dict(shape.columns)
    return [
        "x" if words[name].word == "bytes" else "n" if words[name].word == "int" else "t"
        for name in shape.key
    ]


def table_writers(config: MysqlCdcConfig, routes: Sequence[TableRoute], flavour: str) -> MakeWriter:
    """A function that makes event writers of tables."""
    return lambda shape: MysqlEventWriter(shape, config, routes, flavour)


def table_records(
    server: MysqlCdcServer,
    shapes: Sequence[MysqlTableSchema],
    writer: MakeWriter,
    event_source: EventSource,
) -> Iterator[ChangeRecord]:
    """The rows of tables as events of op ``r``, for batch reads without state."""
    rows = chain.from_iterable(
        ((table, values) for values in server.rows(table.shape)) for table in map(writer, shapes)
    )
    return (row_record(table, values, event_source, "true") for table, values in rows)


def row_record(
    writer: MysqlEventWriter, values: Row, event_source: EventSource, mark: str
) -> ChangeRecord:
    """The event of an existing row."""
    row = list[Value](values)
    source = writer.source(msgspec.structs.replace(event_source, snapshot=mark))
    value = event(NULL, writer.layout.row(row), source, b"r", event_source.at_us // 1000)
    return ChangeRecord(
        writer.topic, writer.layout.key(row), value, event_source.at_us, None, writer.schemas
    )


def spool_path(folder: Path, number: int) -> Path:
    """The path of a spool file."""
    return folder / SPOOL_NAME / f"{number:08}.arrow"


def read_spool(folder: Path, number: int) -> Iterator[pa.RecordBatch]:
    """The records of a spool file."""
    with pa.memory_map(str(spool_path(folder, number))) as mapped:
        file = pa.ipc.open_file(mapped)
        for each in range(file.num_record_batches):
            yield file.get_batch(each)


def write_spool(folder: Path, number: int, records: Iterable[ChangeRecord]) -> None:
    """Write a spool file."""

    def write(out: BinaryIO) -> None:
        with pa.ipc.new_file(out, ARROW) as written:
            for batch in arrow(records):
                written.write_batch(batch)

    write_file(spool_path(folder, number), write)


def load_state(folder: Path) -> MysqlSnapshotState | None:
    """The progress of the snapshot; None if none was started."""
    return read_json(folder / STATE_NAME, MysqlSnapshotState, "a state of a snapshot")
