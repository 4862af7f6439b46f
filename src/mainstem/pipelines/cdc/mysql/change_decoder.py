"""Decodes binary log events to records: the changes between two positions of the log. Pure.

Guarantees: the same events always give the same records; a change of a key is a deletion of the old
key and a creation of the new one; a log that contains statements instead of rows is refused instead
of skipped.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest
from mainstem.pipelines.cdc import snapshot_stamps as stamping
from mainstem.pipelines.cdc.envelope import NULL, ChangeRecord, event
from mainstem.pipelines.cdc.mysql import binlog as log
from mainstem.pipelines.cdc.mysql.offset import BinlogPosition
from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql.table import (
    NO_GTID,
    EventSource,
    MysqlEventWriter,
    MysqlTableSchema,
    key_texts,
)
from mainstem.pipelines.cdc.mysql.values import Read, reader
from mainstem.pipelines.cdc.row_values import UNCHANGED, Values
from mainstem.pipelines.cdc.snapshot_stamps import Stamps, comparable
from mainstem.pipelines.cdc.table_selection import matches
from mainstem.pipelines.cdc.transactions import TransactionCounter
from mainstem.pipelines.connector.shapes import TableRoute

TABLES_KNOWN_MAX: Final = 4_096
_WRITES: Final = re.compile(r"\s*(insert|update|delete|replace|load)\b", re.IGNORECASE)
_TRUNCATE: Final = re.compile(
    r"\s*truncate\s+(?:table\s+)?(?:(`[^`]+`|\w+)\s*\.\s*)?(`[^`]+`|\w+)", re.IGNORECASE
)
_QUIET: Final = ("SAVEPOINT", "RELEASE", "ROLLBACK TO", "XA ")


class MysqlCatalogue(Struct, frozen=True):
    """What the log does not contain: ``flavour`` is ``mariadb`` or ``mysql``.

    ``charsets`` are names of character sets by collation, ``declared`` types that look like others
    in the log by ``database.table.column``, and ``uniques`` the columns that are used as the key of
    a table without one.
    """

    flavour: str
    charsets: dict[int, str]
    declared: dict[str, str] = {}
    uniques: dict[str, tuple[str, ...]] = {}


class MysqlLogSpan(Struct, frozen=True):
    """Where to start, the time of the events, and what snapshots already contain (``stamps``)."""

    start: BinlogPosition
    at_ms: int = 0
    stamps: str = ""


class _Followed(Struct, frozen=True):
    writer: MysqlEventWriter
    readers: tuple[Read, ...]


class MysqlChangeDecoder:
    """Decodes events to records, one at a time, in the order of the log.

    ``spot`` is where the next event starts, ``is_between`` whether no transaction is open there,
    and ``gtid`` is that of the last transaction. If ``queries`` is a list, schema changes are added
    to it.
    """

    def __init__(
        self,
        config: MysqlCdcConfig,
        routes: Sequence[TableRoute],
        origin: MysqlCatalogue,
        span: MysqlLogSpan,
    ) -> None:
        self._config = config
        self._routes = routes
        self._origin = origin
        self._at_ms = span.at_ms
        self._stamps = Stamps(stamping.decode(span.stamps))
        self._tally = TransactionCounter(is_included=config.transaction_metadata)
        self._skipped = frozenset(config.skipped_operations)
        self._by_description: dict[bytes, _Followed | None] = {}
        self._by_number: dict[int, _Followed | None] = {}
        self.gtid = NO_GTID
        self._stands_alone = False
        self._has_begun = False
        self._thread: int | None = None
        self._at_us = 0
        self._transaction = ""
        self.spot = span.start
        self.is_between = True
        self.queries: list[tuple[int, log.Query]] | None = None

    def decode(self, data: bytes) -> Iterator[ChangeRecord]:
        """The records of one event; ``spot`` is updated after the last one."""
        head = log.header(data)
        if head.kind == log.ROTATE:
            moved = log.rotate(data)
            self.spot = BinlogPosition(moved.file, moved.position)
            return
        if head.kind in log.ROWS:
            yield from self._rows(head, data)
        elif head.kind == log.TABLE_MAP:
            self._learn(data)
        elif head.kind in {log.MARIADB_GTID, log.MYSQL_GTID}:
            self._begin(log.gtid(data, head))
        elif head.kind == log.XID:
            yield from self._end()
        elif head.kind == log.QUERY:
            yield from self._on_query(head, log.query(data))
        if head.end:  # events that the server generates for a dump have no position in the file
            self.spot = BinlogPosition(self.spot.file, head.end)

    def _begin(self, gtid: log.Gtid) -> None:
        self.gtid = gtid.text
        self._stands_alone = gtid.stands_alone
        self._has_begun = False
        self._thread = None
        self.is_between = False

    def _end(self) -> Iterator[ChangeRecord]:
        self.is_between = True
        self._by_number.clear()
        if not self._tally.is_empty:
            yield from self._tally.boundary("END", self._transaction, self._at_us)
            self._tally.begin()

    def _on_query(self, head: log.Header, query: log.Query) -> Iterator[ChangeRecord]:
        text = query.text
        if text.startswith(("BEGIN", "XA START")):
            self._thread = query.thread
            self._has_begun = True
            self.is_between = False
            return
        if text in {"COMMIT", "ROLLBACK"}:
            yield from self._end()
            return
        if text.startswith(_QUIET):
            return
        if _WRITES.match(text) and matches(query.database, databases(self._config)):
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                f"the binlog of {query.database} has a statement instead of rows: {text[:80]!r}",
                subject=str(self.spot),
                remedy="set binlog_format = ROW, and remove the pipeline's state folder to start"
                " over",
            )
        yield from self._schema_changed(head, query)
        if self._stands_alone or not self._has_begun:
            yield from self._end()

    def _schema_changed(self, head: log.Header, query: log.Query) -> Iterator[ChangeRecord]:
        config = self._config
        event_source = self._event_source(head, row=0)
        if self.queries is not None:
            self.queries.append((event_source.spot.order, query))
        name = truncated(query)
        if name is not None and self._is_emptied(name, event_source.spot.order):
            database, _, table = name.partition(".")
            writer = self._writer(MysqlTableSchema(database, table))
            yield from self._event(writer, event_source, (NULL, NULL), b"t", None)
        if config.schema_changes_topic and matches(query.database, databases(config)):
            source = self._writer(MysqlTableSchema(query.database, "")).source(event_source)
            value = msgspec.json.encode(
                {
                    "source": msgspec.Raw(source),
                    "ts_ms": self._at_ms,
                    "databaseName": query.database,
                    "schemaName": None,
                    "ddl": query.text,
                }
            )
            key = msgspec.json.encode({"databaseName": query.database})
            yield ChangeRecord(config.schema_changes_topic, key, value, event_source.at_us)

    # Tables.

    def _is_emptied(self, full_name: str, place: int) -> bool:
        if "t" in self._skipped or not is_followed(full_name, self._config):
            return False
        # A complete snapshot already reflects the truncation.
        return not self._stamps.holds(full_name, (), place)

    def _writer(self, shape: MysqlTableSchema) -> MysqlEventWriter:
        return MysqlEventWriter(shape, self._config, self._routes, self._origin.flavour)

    def _learn(self, data: bytes) -> None:
        described = data[log.HEADER.size :]
        if described not in self._by_description:
            if len(self._by_description) >= TABLES_KNOWN_MAX:
                self._by_description.clear()
            self._by_description[described] = self._followed(data)
        self._by_number[log.table_number(data)] = self._by_description[described]

    def _followed(self, data: bytes) -> _Followed | None:
        if not is_followed(log.table_name(data), self._config):
            return None
        table = log.table_map(data, shapes_have_charsets=self._origin.flavour == "mariadb")
        origin, full_name = self._origin, f"{table.database}.{table.name}"
        read = [
            reader(column, origin.charsets, origin.declared.get(f"{full_name}.{column.name}", ""))
            for column in table.columns
        ]
        shape = MysqlTableSchema(
            table.database,
            table.name,
            tuple((column.name, of) for column, (of, _) in zip(table.columns, read, strict=True)),
            table.key,
            unique=origin.uniques.get(full_name, ()),
        )
        return _Followed(self._writer(shape), tuple(each for _, each in read))

    # Rows.

    def _rows(self, head: log.Header, data: bytes) -> Iterator[ChangeRecord]:
        number = log.table_number(data)
        try:
            followed = self._by_number[number]
        except KeyError:
            raise Corrupt(
                f"rows of table {number}, which has no table map event", subject=str(self.spot)
            ) from None
        if followed is None:
            return
        rows = log.rows(data, head.kind)
        if rows.width != len(followed.readers):
            raise Corrupt(
                f"rows of {rows.width} columns, but the table map has {len(followed.readers)}",
                subject=followed.writer.name,
            )
        for number, images in enumerate(_images(rows, followed.readers)):
            event_source = self._event_source(head, row=number)
            yield from self._change(followed.writer, event_source, rows.op, images)

    def _event_source(self, head: log.Header, *, row: int) -> EventSource:
        start = head.end - head.size
        return EventSource(
            head.at_s * 1_000_000,
            BinlogPosition(self.spot.file, start),
            head.server_id,
            self.gtid,
            row,
            self._thread,
        )

    def _change(
        self, table: MysqlEventWriter, event_source: EventSource, op: str, images: list[Values]
    ) -> Iterator[ChangeRecord]:
        layout = table.layout
        if op == "c":
            yield from self._there(table, event_source, images[0], b"c")
            return
        old = images[0]
        if op == "d":
            yield from self._gone(table, event_source, old)
            return
        new = images[1]
        for at, value in enumerate(new):
            if value is UNCHANGED:
                new[at] = old[at]
        old_key, new_key = layout.key(old), layout.key(new)
        if old_key is not None and new_key is not None and old_key != new_key:
            yield from self._gone(table, event_source, old, moved_to=new_key)
            yield from self._there(table, event_source, new, b"c", moved_from=old_key)
            return
        yield from self._there(table, event_source, new, b"u", before=layout.row(old))

    def _there(
        self,
        table: MysqlEventWriter,
        event_source: EventSource,
        new: Values,
        op: bytes,
        *,
        before: bytes = NULL,
        moved_from: bytes | None = None,
    ) -> Iterator[ChangeRecord]:
        if op.decode() in self._skipped or self._is_held(table, event_source, new):
            return
        headers = (("__debezium.oldkey", moved_from),) if moved_from is not None else None
        rows = (before, table.layout.row(new))
        yield from self._event(table, event_source, rows, op, table.layout.key(new), headers)

    def _gone(
        self,
        table: MysqlEventWriter,
        event_source: EventSource,
        old: Values,
        *,
        moved_to: bytes | None = None,
    ) -> Iterator[ChangeRecord]:
        if "d" in self._skipped or self._is_held(table, event_source, old):
            return
        headers = (("__debezium.newkey", moved_to),) if moved_to is not None else None
        key = table.layout.key(old)
        yield from self._event(
            table, event_source, (table.layout.row(old), NULL), b"d", key, headers
        )
        if self._config.tombstones and key is not None:
            yield ChangeRecord(table.topic, key, None, event_source.at_us, headers, table.schemas)

    def _event(
        self,
        table: MysqlEventWriter,
        event_source: EventSource,
        rows: tuple[bytes, bytes],
        op: bytes,
        key: bytes | None,
        headers: tuple[tuple[str, bytes], ...] | None = None,
    ) -> Iterator[ChangeRecord]:
        tally = self._tally
        order = NULL
        if tally.is_included:
            if tally.is_empty:
                self._transaction = (
                    event_source.gtid
                    or f"file={event_source.spot.file},pos={event_source.spot.position}"
                )
                yield from tally.boundary("BEGIN", self._transaction, event_source.at_us)
            self._at_us = event_source.at_us
            order = tally.order(table.name, self._transaction)
        value = event(rows[0], rows[1], table.source(event_source), op, self._at_ms, order)
        yield ChangeRecord(table.topic, key, value, event_source.at_us, headers, table.schemas)

    def _is_held(self, table: MysqlEventWriter, event_source: EventSource, values: Values) -> bool:
        """Whether a resumed snapshot already contains this change."""
        stamps, place = self._stamps, event_source.spot.order
        if place >= stamps.until or not stamps.concerns(table.name):
            return False
        return stamps.holds(table.name, comparable(key_texts(table.shape, values)), place)


def truncated(query: log.Query) -> str | None:
    """The table that a statement truncates; None for other statements."""
    found = _TRUNCATE.match(query.text)
    if found is None:
        return None
    return f"{(found[1] or query.database).strip('`')}.{found[2].strip('`')}"


def _images(rows: log.RowsEvent, readers: Sequence[Read]) -> Iterator[list[Values]]:
    """The old and new values of every row, as far as they were logged."""
    data, at, end = rows.data, rows.start, len(rows.data)
    while at < end:
        images = []
        for present in rows.present:
            size = (len(present) + 7) // 8
            nulls = int.from_bytes(data[at : at + size], "little")
            at += size
            values: Values = [UNCHANGED] * rows.width
            for place, column in enumerate(present):
                if nulls >> place & 1:
                    values[column] = None
                else:
                    values[column], at = readers[column](data, at)
            images.append(values)
        if at > end:
            raise Corrupt("a row exceeds its event", subject="binlog")
        yield images


def is_followed(full_name: str, config: MysqlCdcConfig) -> bool:
    """Whether a table's changes are captured."""
    return matches(full_name, config.chosen) and not matches(full_name, config.exclude_tables)


def databases(config: MysqlCdcConfig) -> list[str]:
    """Patterns of the databases of the captured tables."""
    return [pattern.partition(".")[0] for pattern in config.chosen]
