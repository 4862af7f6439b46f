"""``format("mainstem-postgres-cdc")``: the changes of a PostgreSQL database as a Spark stream.

The driver determines where batches end; tasks read spool files, or the slot between two positions
of the log, and write events. One span of the log is one task, in order.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from psycopg import sql
from pyspark.sql.datasource import DataSourceReader, InputPartition

from mainstem.pipelines.cdc import snapshot_stamps as stamping
from mainstem.pipelines.cdc.arrow_batches import SCHEMA, arrow
from mainstem.pipelines.cdc.avro.events import in_format
from mainstem.pipelines.cdc.envelope import NULL, ChangeRecord, event
from mainstem.pipelines.cdc.postgres.change_decoder import PostgresChangeDecoder, PostgresLogSpan
from mainstem.pipelines.cdc.postgres.change_stream import PostgresChangeStream, chosen_tables
from mainstem.pipelines.cdc.postgres.message_spool import fetched_messages, spooled_messages
from mainstem.pipelines.cdc.postgres.offset import PostgresOffset
from mainstem.pipelines.cdc.postgres.server import PostgresCdcServer, refusals
from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig
from mainstem.pipelines.cdc.postgres.snapshot import (
    SpoolFile,
    read_spool_file,
    split_row,
    spool_path,
)
from mainstem.pipelines.cdc.postgres.table import (
    MADE_HERE,
    PostgresEventWriter,
    PostgresTableSchema,
)
from mainstem.pipelines.cdc.reader import CdcStreamReader, ReaderSettings
from mainstem.pipelines.spark.settings_source import SettingsSource

Settings = ReaderSettings[PostgresCdcConfig]


class PostgresTablesReader(DataSourceReader):
    """Reads tables with one task each; stores no state and changes nothing."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per table."""
        server = PostgresCdcServer(self._settings.config)
        try:
            tables = chosen_tables(server, self._settings.config)
        finally:
            server.close()
        return [InputPartition(msgspec.json.encode(each.shape)) for each in tables]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one table."""
        shape = msgspec.json.decode(partition.value, type=PostgresTableSchema)
        config = self._settings.config
        server = PostgresCdcServer(config)
        try:
            with refusals(config), server.session.cursor() as cursor:
                columns = sql.SQL(", ").join(sql.Identifier(each.name) for each in shape.columns)
                place = sql.Identifier(shape.schema, shape.name)
                copied = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(columns, place)
                spool_file = SpoolFile(shape, 0, server.flushed_lsn(), 0, 0)
                with cursor.copy(copied) as copy:
                    rows = (bytes(row) for row in copy)
                    yield from arrow(
                        in_format(snapshot_records(self._settings, spool_file, rows), config)
                    )
        finally:
            server.close()


class PostgresChangesReader(CdcStreamReader):
    """The stream of one query."""

    position = PostgresOffset
    _settings: Settings

    def follower(self) -> PostgresChangeStream:
        """A new change stream."""
        settings = self._settings
        return PostgresChangeStream(
            settings.config, Path(settings.state_dir), rehearsal=settings.rehearsal
        )

    def parts(self, begun: PostgresOffset, until: PostgresOffset) -> list[tuple[str, Any]]:
        """Spool files, or one span of the log."""
        folder = Path(self._settings.state_dir)
        span = msgspec.json.encode(PostgresLogSpan(begun.lsn, until.lsn, until.at_ms))
        parts: list[tuple[str, Any]] = []
        for number in range(begun.file, until.file):
            spool_file = read_spool_file(folder, number)
            kind = "chunk" if spool_file.snapshot else "file"
            parts.append((kind, (number, msgspec.json.encode(spool_file), span, until.stamps)))
        if not parts and begun.lsn and begun.epoch == until.epoch and begun.lsn < until.lsn:
            parts.append(("log", (span, until.stamps)))
        return parts

    def batches(self, kind: str, given: Any) -> Iterator[pa.RecordBatch]:
        """The records of one part."""
        settings = self._settings
        if kind == "log":
            coded, stamps = given
            span = msgspec.json.decode(coded, type=PostgresLogSpan)
            yield from arrow(in_format(log_records(settings, span, stamps), settings.config))
            return
        number, described, coded, stamps = given
        spool_file = msgspec.json.decode(described, type=SpoolFile)
        with spool_path(Path(settings.state_dir), number).open("rb") as rows:
            if kind == "file":
                yield from arrow(
                    in_format(snapshot_records(settings, spool_file, rows), settings.config)
                )
            else:
                span = msgspec.json.decode(coded, type=PostgresLogSpan)
                yield from arrow(
                    in_format(
                        chunk_records(settings, spool_file, rows, span, stamps), settings.config
                    )
                )


class PostgresCdcDataSource(SettingsSource):
    """The data source of changes of PostgreSQL."""

    format_name = "mainstem-postgres-cdc"
    columns = SCHEMA
    settings = Settings
    table_reader = PostgresTablesReader
    stream_reader = PostgresChangesReader


def snapshot_records(
    settings: Settings, spool_file: SpoolFile, rows: Iterable[bytes]
) -> Iterator[ChangeRecord]:
    """Rows of COPY's text format as events of op ``r``."""
    writer = PostgresEventWriter(spool_file.shape, settings.config, settings.routing())
    topic, layout, at_us = writer.topic, writer.layout, spool_file.at_us

    def tail(mark: str) -> bytes:
        sequence = b'[null,\\"%d\\"]' % spool_file.lsn
        xid, lsn = b"%d" % spool_file.xid, b"%d" % spool_file.lsn
        source = writer.source % (
            (at_us // 1000, mark.encode(), sequence, at_us, at_us, xid, lsn, MADE_HERE)
        )
        return event(NULL, b"", source, b"r", at_us // 1000).partition(b'"after":')[2]

    head, usual = b'{"before":null,"after":', tail(spool_file.usual)
    first, last = tail(spool_file.first), tail(spool_file.last)
    # A row that is the first of all and the last of its table is marked as the first, as in
    # Debezium.
    begins_all = spool_file.first == "first" and spool_file.last != "last"
    for number, row in enumerate(rows, 1):
        values = split_row(row)
        end = usual
        if number == 1 and spool_file.first != spool_file.usual:
            end = first
        if (
            number == spool_file.rows
            and spool_file.last != spool_file.usual
            and not (end is first and begins_all)
        ):
            end = last
        value = head + layout.row(values) + end
        yield ChangeRecord(topic, layout.key(values), value, at_us, None, writer.schemas)


def chunk_records(
    settings: Settings,
    spool_file: SpoolFile,
    rows: Iterable[bytes],
    span: PostgresLogSpan,
    stamps: str,
) -> Iterator[ChangeRecord]:
    """The rows of a chunk except those that change in the log span, then the log."""
    changed = _changed_keys(settings, spool_file, span)
    plain = PostgresEventWriter(spool_file.shape, _plain(settings.config), settings.routing())
    kept = (row for row in rows if plain.layout.key(split_row(row)) not in changed)
    yield from snapshot_records(settings, spool_file, kept)
    if span.since < span.until:
        yield from log_records(settings, span, stamps)


def _plain(config: PostgresCdcConfig) -> PostgresCdcConfig:
    """The settings for keys that are the unmodified primary key, whatever the events contain."""
    return msgspec.structs.replace(
        config, key_columns={}, mask_columns={}, skipped_operations=(), transaction_metadata=False
    )


def _changed_keys(
    settings: Settings, spool_file: SpoolFile, span: PostgresLogSpan
) -> set[bytes | None]:
    """The keys whose changes are both in the chunk and in the log span."""
    if span.since >= span.until:
        return set()
    seen = stamping.SeenTransactions(spool_file.snapshot)
    config, routing = _plain(settings.config), settings.routing()
    topic = routing.topic(spool_file.shape.schema, spool_file.shape.name)
    server = PostgresCdcServer(config)
    try:
        decoder = PostgresChangeDecoder(config, routing, server, span, stamping.Stamps([]))
        return {
            record.key
            for record in decoder.records(_messages(settings, span))
            if record.topic == topic
            and record.key is not None
            and decoder.xid is not None
            and seen.includes(decoder.xid)
        }
    finally:
        server.close()


def log_records(settings: Settings, span: PostgresLogSpan, stamps: str) -> Iterator[ChangeRecord]:
    """The changes of a span of the log."""
    config = settings.config
    server = PostgresCdcServer(config)
    try:
        held = stamping.Stamps(stamping.decode(stamps))
        decoder = PostgresChangeDecoder(config, settings.routing(), server, span, held)
        yield from decoder.records(_messages(settings, span))
    finally:
        server.close()


def _messages(settings: Settings, span: PostgresLogSpan) -> Iterator[tuple[int, bytes]]:
    """The slot's messages up to a position: from the driver's spool, or from the server again."""
    kept = spooled_messages(Path(settings.state_dir), span.since, span.until)
    if kept is not None:
        yield from kept
        return
    server = PostgresCdcServer(settings.config)
    try:
        with server.peeked(span.until) as blocks:
            yield from fetched_messages(blocks)
    finally:
        server.close()
