"""``format("mainstem-postgres-cdc")``: the changes of a PostgreSQL database as a Spark stream.

The driver's side asks the follower how far to go; tasks read files of the spool, or the slot
between two positions of the log, and write events. One span of the log is one task, in order.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec import Struct
from psycopg import sql
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

from mainstem.pipelines.cdc import stamps as stamping
from mainstem.pipelines.cdc.envelope import NULL, Record, event, heartbeat
from mainstem.pipelines.cdc.frame import SCHEMA, arrow
from mainstem.pipelines.cdc.postgres_changes import ChangeTeller, Span
from mainstem.pipelines.cdc.postgres_follower import Follower, chosen_tables
from mainstem.pipelines.cdc.postgres_position import Position
from mainstem.pipelines.cdc.postgres_server import Server, refusals
from mainstem.pipelines.cdc.postgres_settings import PostgresCdcConfig
from mainstem.pipelines.cdc.postgres_snapshot import (
    SpoolFile,
    read_spool_file,
    split_row,
    spool_path,
)
from mainstem.pipelines.cdc.postgres_table import TableShape, TableWriter
from mainstem.pipelines.cdc.selection import Routing
from mainstem.pipelines.connector.shapes import TableRoute
from mainstem.pipelines.spark.planner_upkeep import ease_planner

OPTION: Final = "settings.secret"  # Spark blanks options with this word wherever it shows them
_COPY_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\x00"
_COPY_HEADER_BYTES: Final = 19
# Of a row (lsn, data): two fields, eight bytes of place, and the size of the message.
_COPY_ROW: Final = struct.Struct(">hiQi")


class ReaderSettings(Struct, frozen=True, kw_only=True):
    """All that a reader is told."""

    config: PostgresCdcConfig
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


class PostgresCdcDataSource(DataSource):
    """The format; its one option is everything as JSON."""

    @classmethod
    def name(cls) -> str:
        """What it is called in ``format(...)``."""
        return "mainstem-postgres-cdc"

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
    """One task per table; nothing is remembered and nothing changes."""

    def __init__(self, settings: ReaderSettings) -> None:
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
                    yield from arrow(snapshot_records(self._settings, told, rows))
        finally:
            server.close()


class ChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of one query. In the driver it follows; copies of it in tasks read."""

    def __init__(self, settings: ReaderSettings) -> None:
        self._settings = settings
        self._follower: Follower | None = None
        self._cap: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get the settings, not the driver's sessions."""
        return {"_settings": self._settings, "_follower": None, "_cap": None}

    # In the driver.

    def _followed(self) -> Follower:
        if self._follower is None:
            settings = self._settings
            self._follower = Follower(
                settings.config, Path(settings.state_dir), rehearsal=settings.rehearsal
            )
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
        """Files of the spool, or one span of the log, and a heartbeat."""
        begun, until = msgspec.convert(start, Position), msgspec.convert(end, Position)
        folder = Path(self._settings.state_dir)
        span = msgspec.json.encode(Span(begun.lsn, until.lsn, until.at_ms))
        parts = []
        for number in range(begun.file, until.file):
            told = read_spool_file(folder, number)
            place = (number, span, until.stamps)
            kind = "chunk" if told.snapshot else "file"
            parts.append(InputPartition((kind, place, msgspec.json.encode(told))))
        if not parts and begun.lsn and begun.epoch == until.epoch and begun.lsn < until.lsn:
            parts.append(InputPartition(("log", span, until.stamps)))
        if until.beat > begun.beat:
            parts.append(InputPartition(("beat", until.at_ms, "")))
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
        kind, first, second = partition.value
        if kind == "file":
            told = msgspec.json.decode(second, type=SpoolFile)
            with spool_path(Path(self._settings.state_dir), first[0]).open("rb") as rows:
                yield from arrow(snapshot_records(self._settings, told, rows))
        elif kind == "chunk":
            told = msgspec.json.decode(second, type=SpoolFile)
            number, coded, stamps = first
            span = msgspec.json.decode(coded, type=Span)
            with spool_path(Path(self._settings.state_dir), number).open("rb") as rows:
                yield from arrow(chunk_records(self._settings, told, rows, span, stamps))
        elif kind == "log":
            span = msgspec.json.decode(first, type=Span)
            yield from arrow(log_records(self._settings, span, second))
        else:
            yield from arrow([heartbeat(self._settings.config.source_name, first)])


def snapshot_records(
    settings: ReaderSettings, told: SpoolFile, rows: Iterable[bytes]
) -> Iterator[Record]:
    """Rows of COPY's text format as events of op ``r``."""
    writer = TableWriter(told.shape, settings.config, settings.routing())
    topic, layout, at_us = writer.topic, writer.layout, told.at_us

    def tail(mark: str) -> bytes:
        sequence = b'[null,\\"%d\\"]' % told.lsn
        source = writer.source % (
            (at_us // 1000, mark.encode(), sequence, at_us, at_us, told.xid, told.lsn)
        )
        return event(NULL, b"", source, b"r", at_us // 1000).partition(b'"after":')[2]

    head, usual = b'{"before":null,"after":', tail(told.usual)
    first, last = tail(told.first), tail(told.last)
    for number, row in enumerate(rows, 1):
        values = split_row(row)
        end = usual
        if number == 1 and told.first != told.usual:
            end = first
        if number == told.rows and told.last != told.usual:
            end = last
        yield Record(topic, layout.key(values), head + layout.row(values) + end, at_us)  # type: ignore[arg-type]


def chunk_records(
    settings: ReaderSettings, told: SpoolFile, rows: Iterable[bytes], span: Span, stamps: str
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


def _changed_keys(settings: ReaderSettings, told: SpoolFile, span: Span) -> set[bytes | None]:
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
            for record in teller.records(_messages(config, span.until))
            if record.topic == topic
            and record.key is not None
            and teller.xid is not None
            and seen.includes(teller.xid)
        }
    finally:
        server.close()


def log_records(settings: ReaderSettings, span: Span, stamps: str) -> Iterator[Record]:
    """The changes of a span of the log."""
    config = settings.config
    server = Server(config)
    try:
        held = stamping.Stamps(stamping.decode(stamps))
        teller = ChangeTeller(config, settings.routing(), server, span, held)
        yield from teller.records(_messages(config, span.until))
    finally:
        server.close()


def _messages(config: PostgresCdcConfig, until: int) -> Iterator[tuple[int, bytes]]:
    """The messages of the slot up to a position, over a session of their own."""
    server = Server(config)
    try:
        with server.peeked(until) as blocks:
            unpack, size = _COPY_ROW.unpack_from, _COPY_ROW.size
            for block in blocks:
                at = _COPY_HEADER_BYTES if block[:11] == _COPY_SIGNATURE else 0
                if len(block) - at < size:
                    continue  # the trailer
                _, _, lsn, _ = unpack(block, at)
                yield lsn, bytes(block[at + size :])
    finally:
        server.close()
