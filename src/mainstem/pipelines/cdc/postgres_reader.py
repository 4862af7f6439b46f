"""``format("mainstem-postgres-cdc")``: the changes of a PostgreSQL database as a Spark stream.

The driver's side asks the follower how far to go; tasks read files of the spool, or the slot
between two positions of the log, and write events. One span of the log is one task, in order.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from psycopg import sql
from pyspark.sql.datasource import DataSourceReader, InputPartition

from mainstem.pipelines.cdc import stamps as stamping
from mainstem.pipelines.cdc.avro_events import in_format
from mainstem.pipelines.cdc.envelope import NULL, Record, event
from mainstem.pipelines.cdc.frame import arrow
from mainstem.pipelines.cdc.postgres_changes import ChangeTeller, Span
from mainstem.pipelines.cdc.postgres_follower import Follower, chosen_tables
from mainstem.pipelines.cdc.postgres_messages import kept_messages, told_messages
from mainstem.pipelines.cdc.postgres_position import Position
from mainstem.pipelines.cdc.postgres_server import Server, refusals
from mainstem.pipelines.cdc.postgres_settings import PostgresCdcConfig
from mainstem.pipelines.cdc.postgres_snapshot import (
    SpoolFile,
    read_spool_file,
    split_row,
    spool_path,
)
from mainstem.pipelines.cdc.postgres_table import MADE_HERE, TableShape, TableWriter
from mainstem.pipelines.cdc.reader import CdcDataSource, CdcStreamReader, ReaderSettings

Settings = ReaderSettings[PostgresCdcConfig]


class TablesReader(DataSourceReader):
    """One task per table; nothing is remembered and nothing changes."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def partitions(self) -> Sequence[InputPartition]:
        """The tables."""
        server = Server(self._settings.config)
        try:
            tables = chosen_tables(server, self._settings.config)
        finally:
            server.close()
        return [InputPartition(msgspec.json.encode(each.shape)) for each in tables]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one table."""
        shape = msgspec.json.decode(partition.value, type=TableShape)
        config = self._settings.config
        server = Server(config)
        try:
            with refusals(config), server.session.cursor() as cursor:
                columns = sql.SQL(", ").join(sql.Identifier(each.name) for each in shape.columns)
                place = sql.Identifier(shape.schema, shape.name)
                copied = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(columns, place)
                told = SpoolFile(shape, 0, server.flushed_lsn(), 0, 0)
                with cursor.copy(copied) as copy:
                    rows = (bytes(row) for row in copy)
                    yield from arrow(
                        in_format(snapshot_records(self._settings, told, rows), config)
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
        return Follower(settings.config, Path(settings.state_dir), rehearsal=settings.rehearsal)

    def parts(self, begun: Position, until: Position) -> list[tuple[str, Any]]:
        """Files of the spool, or one span of the log."""
        folder = Path(self._settings.state_dir)
        span = msgspec.json.encode(Span(begun.lsn, until.lsn, until.at_ms))
        parts: list[tuple[str, Any]] = []
        for number in range(begun.file, until.file):
            told = read_spool_file(folder, number)
            kind = "chunk" if told.snapshot else "file"
            parts.append((kind, (number, msgspec.json.encode(told), span, until.stamps)))
        if not parts and begun.lsn and begun.epoch == until.epoch and begun.lsn < until.lsn:
            parts.append(("log", (span, until.stamps)))
        return parts

    def batches(self, kind: str, given: Any) -> Iterator[pa.RecordBatch]:
        """The records of one part."""
        settings = self._settings
        if kind == "log":
            coded, stamps = given
            span = msgspec.json.decode(coded, type=Span)
            yield from arrow(in_format(log_records(settings, span, stamps), settings.config))
            return
        number, described, coded, stamps = given
        told = msgspec.json.decode(described, type=SpoolFile)
        with spool_path(Path(settings.state_dir), number).open("rb") as rows:
            if kind == "file":
                yield from arrow(in_format(snapshot_records(settings, told, rows), settings.config))
            else:
                span = msgspec.json.decode(coded, type=Span)
                yield from arrow(
                    in_format(chunk_records(settings, told, rows, span, stamps), settings.config)
                )


class PostgresCdcDataSource(CdcDataSource):
    """The format of PostgreSQL's changes."""

    settings = Settings
    rows = TablesReader
    changes = ChangesReader

    @classmethod
    def name(cls) -> str:
        """What it is called in ``format(...)``."""
        return "mainstem-postgres-cdc"


def snapshot_records(
    settings: Settings, told: SpoolFile, rows: Iterable[bytes]
) -> Iterator[Record]:
    """Rows of COPY's text format as events of op ``r``."""
    writer = TableWriter(told.shape, settings.config, settings.routing())
    topic, layout, at_us = writer.topic, writer.layout, told.at_us

    def tail(mark: str) -> bytes:
        sequence = b'[null,\\"%d\\"]' % told.lsn
        xid, lsn = b"%d" % told.xid, b"%d" % told.lsn
        source = writer.source % (
            (at_us // 1000, mark.encode(), sequence, at_us, at_us, xid, lsn, MADE_HERE)
        )
        return event(NULL, b"", source, b"r", at_us // 1000).partition(b'"after":')[2]

    head, usual = b'{"before":null,"after":', tail(told.usual)
    first, last = tail(told.first), tail(told.last)
    # A row that is first of all and last of its table is told as the first, as Debezium does.
    begins_all = told.first == "first" and told.last != "last"
    for number, row in enumerate(rows, 1):
        values = split_row(row)
        end = usual
        if number == 1 and told.first != told.usual:
            end = first
        if number == told.rows and told.last != told.usual and not (end is first and begins_all):
            end = last
        value = head + layout.row(values) + end  # type: ignore[arg-type]
        yield Record(topic, layout.key(values), value, at_us, None, writer.schemas)  # type: ignore[arg-type]


def chunk_records(
    settings: Settings,
    told: SpoolFile,
    rows: Iterable[bytes],
    span: Span,
    stamps: str,
) -> Iterator[Record]:
    """Rows that were read beside the stream, but for those that the log tells, then the log."""
    changed = _changed_keys(settings, told, span)
    plain = TableWriter(told.shape, _plain(settings.config), settings.routing())
    kept = (row for row in rows if plain.layout.key(list(split_row(row))) not in changed)
    yield from snapshot_records(settings, told, kept)
    if span.since < span.until:
        yield from log_records(settings, span, stamps)


def _plain(config: PostgresCdcConfig) -> PostgresCdcConfig:
    """Keys that are the primary key as it stands, whatever is told to readers."""
    return msgspec.structs.replace(
        config, key_columns={}, mask_columns={}, skipped_operations=(), transaction_metadata=False
    )


def _changed_keys(settings: Settings, told: SpoolFile, span: Span) -> set[bytes | None]:
    """The keys whose changes the chunk saw and the log is about to tell."""
    if span.since >= span.until:
        return set()
    seen = stamping.SeenTransactions(told.snapshot)
    config, routing = _plain(settings.config), settings.routing()
    topic = routing.topic(told.shape.schema, told.shape.name)
    server = Server(config)
    try:
        teller = ChangeTeller(config, routing, server, span, stamping.Stamps([]))
        return {
            record.key
            for record in teller.records(_messages(settings, span))
            if record.topic == topic
            and record.key is not None
            and teller.xid is not None
            and seen.includes(teller.xid)
        }
    finally:
        server.close()


def log_records(settings: Settings, span: Span, stamps: str) -> Iterator[Record]:
    """The changes of a span of the log."""
    config = settings.config
    server = Server(config)
    try:
        held = stamping.Stamps(stamping.decode(stamps))
        teller = ChangeTeller(config, settings.routing(), server, span, held)
        yield from teller.records(_messages(settings, span))
    finally:
        server.close()


def _messages(settings: Settings, span: Span) -> Iterator[tuple[int, bytes]]:
    """The messages of the slot up to a position: as the driver kept them, or told once more."""
    kept = kept_messages(Path(settings.state_dir), span.since, span.until)
    if kept is not None:
        yield from kept
        return
    server = Server(settings.config)
    try:
        with server.peeked(span.until) as blocks:
            yield from told_messages(blocks)
    finally:
        server.close()
