"""From events of the log to records: what happened between two places of it. Pure.

Promises: the same events give the same records however often they are told; a change of a key is a
deletion of the old one and the appearance of the new one; a log that does not hold rows, because
the server writes statements, is refused instead of passed over.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest
from mainstem.pipelines.cdc import mysql_binlog as log
from mainstem.pipelines.cdc.envelope import NULL, Record, event
from mainstem.pipelines.cdc.mysql_settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql_table import NO_GTID, Spot, TableShape, TableWriter, Told
from mainstem.pipelines.cdc.mysql_values import Read, reader
from mainstem.pipelines.cdc.rows import UNCHANGED, Values
from mainstem.pipelines.cdc.selection import matches
from mainstem.pipelines.connector.shapes import TableRoute

TABLES_KNOWN_MAX: Final = 4_096
_WRITES: Final = re.compile(r"\s*(insert|update|delete|replace|load)\b", re.IGNORECASE)
_TRUNCATE: Final = re.compile(
    r"\s*truncate\s+(?:table\s+)?(?:(`[^`]+`|\w+)\s*\.\s*)?(`[^`]+`|\w+)", re.IGNORECASE
)
_QUIET: Final = ("SAVEPOINT", "RELEASE", "ROLLBACK TO", "XA ")


class Origin(Struct, frozen=True):
    """What the server is: ``mariadb`` or ``mysql``, and the names of its character sets."""

    flavour: str
    charsets: dict[int, str]


class _Followed(Struct, frozen=True):
    writer: TableWriter
    readers: tuple[Read, ...]


class ChangeTeller:
    """Turns events into records, one at a time, in the order of the log.

    ``spot`` is where the next event begins; ``is_between`` whether no transaction is open there.
    """

    def __init__(
        self,
        config: MysqlCdcConfig,
        routes: Sequence[TableRoute],
        origin: Origin,
        *,
        start: Spot,
        at_ms: int,
    ) -> None:
        self._config = config
        self._routes = routes
        self._origin = origin
        self._at_ms = at_ms
        self._skipped = frozenset(config.skipped_operations)
        self._by_description: dict[bytes, _Followed | None] = {}
        self._by_number: dict[int, _Followed | None] = {}
        self._gtid = NO_GTID
        self._stands_alone = False
        self._has_begun = False
        self._thread: int | None = None
        self.spot = start
        self.is_between = True

    def tell(self, data: bytes) -> Iterator[Record]:
        """The records of one event; ``spot`` has moved when the last is taken."""
        head = log.header(data)
        if head.kind == log.ROTATE:
            moved = log.rotate(data)
            self.spot = Spot(moved.file, moved.position)
            return
        if head.kind in log.ROWS:
            yield from self._rows(head, log.rows(data, head.kind))
        elif head.kind == log.TABLE_MAP:
            self._learn(data)
        elif head.kind in {log.MARIADB_GTID, log.MYSQL_GTID}:
            self._begin(
                log.mariadb_gtid(data, head.server_id)
                if head.kind == log.MARIADB_GTID
                else log.mysql_gtid(data)
            )
        elif head.kind == log.XID:
            self._end()
        elif head.kind == log.QUERY:
            yield from self._said(head, log.query(data))
        if head.end:  # what the server makes up for a dump has no place in the file
            self.spot = Spot(self.spot.file, head.end)

    def _begin(self, gtid: log.Gtid) -> None:
        self._gtid = gtid.text
        self._stands_alone = gtid.stands_alone
        self._has_begun = False
        self._thread = None
        self.is_between = False

    def _end(self) -> None:
        self.is_between = True
        self._by_number.clear()

    def _said(self, head: log.Header, query: log.Query) -> Iterator[Record]:
        text = query.text
        self._thread = query.thread
        if text.startswith(("BEGIN", "XA START")):
            self._has_begun = True
            self.is_between = False
            return
        if text in {"COMMIT", "ROLLBACK"}:
            self._end()
            return
        if text.startswith(_QUIET):
            return
        if _WRITES.match(text) and matches(query.database, _databases(self._config)):
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                f"the log of {query.database} holds a statement instead of rows: {text[:80]!r}",
                subject=f"{self.spot.file}:{self.spot.position}",
                remedy="set binlog_format = ROW, and remove the pipeline's state folder to begin"
                " anew",
            )
        yield from self._schema_changed(head, query)
        if self._stands_alone or not self._has_begun:
            self._end()

    def _schema_changed(self, head: log.Header, query: log.Query) -> Iterator[Record]:
        config = self._config
        told = self._told(head, row=0)
        if (found := _TRUNCATE.match(query.text)) and "t" not in self._skipped:
            database = (found[1] or query.database).strip("`")
            shape = TableShape(database, found[2].strip("`"))
            if self._is_followed(shape.full_name):
                writer = self._writer(shape)
                value = event(NULL, NULL, writer.source(told), b"t", self._at_ms)
                yield Record(writer.topic, None, value, told.at_us)
        if config.schema_changes_topic and matches(query.database, _databases(config)):
            source = self._writer(TableShape(query.database, "")).source(told)
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
            yield Record(config.schema_changes_topic, key, value, told.at_us)

    # Tables.

    def _is_followed(self, full_name: str) -> bool:
        config = self._config
        return matches(full_name, config.chosen) and not matches(full_name, config.exclude_tables)

    def _writer(self, shape: TableShape) -> TableWriter:
        return TableWriter(shape, self._config, self._routes, self._origin.flavour)

    def _learn(self, data: bytes) -> None:
        described = data[log.HEADER.size :]
        if described not in self._by_description:
            if len(self._by_description) >= TABLES_KNOWN_MAX:
                self._by_description.clear()
            self._by_description[described] = self._followed(data)
        number = int.from_bytes(described[:6], "little")
        self._by_number[number] = self._by_description[described]

    def _followed(self, data: bytes) -> _Followed | None:
        if not self._is_followed(log.table_name(data)):
            return None
        table = log.table_map(data)
        read = [reader(column, self._origin.charsets) for column in table.columns]
        shape = TableShape(
            table.database,
            table.name,
            tuple((column.name, of) for column, (of, _) in zip(table.columns, read, strict=True)),
            table.key,
        )
        return _Followed(self._writer(shape), tuple(each for _, each in read))

    # Rows.

    def _rows(self, head: log.Header, rows: log.RowsEvent) -> Iterator[Record]:
        try:
            followed = self._by_number[rows.table]
        except KeyError:
            raise Corrupt(
                f"rows of table {rows.table}, which was never described",
                subject=f"{self.spot.file}:{self.spot.position}",
            ) from None
        if followed is None:
            return
        if rows.width != len(followed.readers):
            raise Corrupt(
                f"rows of {rows.width} columns where {len(followed.readers)} were described",
                subject=followed.writer.name,
            )
        for number, images in enumerate(_images(rows, followed.readers)):
            told = self._told(head, row=number)
            yield from self._change(followed.writer, told, rows.op, images)

    def _told(self, head: log.Header, *, row: int) -> Told:
        start = head.end - head.size
        return Told(
            head.at_s * 1_000_000,
            Spot(self.spot.file, start),
            head.server_id,
            self._gtid,
            row,
            self._thread,
        )

    def _change(
        self, table: TableWriter, told: Told, op: str, images: list[Values]
    ) -> Iterator[Record]:
        layout = table.layout
        if op == "c":
            yield from self._there(table, told, images[0], b"c")
            return
        old = images[0]
        if op == "d":
            yield from self._gone(table, told, old)
            return
        new = images[1]
        for at, value in enumerate(new):
            if value is UNCHANGED:
                new[at] = old[at]
        old_key, new_key = layout.key(old), layout.key(new)
        if old_key is not None and new_key is not None and old_key != new_key:
            yield from self._gone(table, told, old, moved_to=new_key)
            yield from self._there(table, told, new, b"c", moved_from=old_key)
            return
        yield from self._there(table, told, new, b"u", before=layout.row(old))

    def _there(
        self,
        table: TableWriter,
        told: Told,
        new: Values,
        op: bytes,
        *,
        before: bytes = NULL,
        moved_from: bytes | None = None,
    ) -> Iterator[Record]:
        if op.decode() in self._skipped:
            return
        headers = (("__debezium.oldkey", moved_from),) if moved_from is not None else None
        value = event(before, table.layout.row(new), table.source(told), op, self._at_ms)
        yield Record(table.topic, table.layout.key(new), value, told.at_us, headers)

    def _gone(
        self, table: TableWriter, told: Told, old: Values, *, moved_to: bytes | None = None
    ) -> Iterator[Record]:
        if "d" in self._skipped:
            return
        headers = (("__debezium.newkey", moved_to),) if moved_to is not None else None
        key = table.layout.key(old)
        value = event(table.layout.row(old), NULL, table.source(told), b"d", self._at_ms)
        yield Record(table.topic, key, value, told.at_us, headers)
        if self._config.tombstones and key is not None:
            yield Record(table.topic, key, None, told.at_us)


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
            raise Corrupt("a row longer than its event", subject="binlog")
        yield images


def _databases(config: MysqlCdcConfig) -> list[str]:
    return [pattern.partition(".")[0] for pattern in config.chosen]


def snapshot_record(writer: TableWriter, values: Sequence[bytes | None], told: Told) -> Record:
    """A row that was there already."""
    row: Values = list(values)
    at_ms = told.at_us // 1000
    value = event(NULL, writer.layout.row(row), writer.source(told), b"r", at_ms)
    return Record(writer.topic, writer.layout.key(row), value, told.at_us)
