"""Reads rows of a table page by page, in the order of some columns.

An offset is the position of the last row of a page: the values of the ordering columns, as JSON. A
page contains the rows between two offsets, so a batch that is repeated requests the same rows; a
row that was changed meanwhile is read as it is now.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from mainstem.pipelines.database_tables.databases import DatabaseServer, quoted, session
from mainstem.pipelines.spark.settings_source import SettingsSource

ROWS_PER_BATCH = 10_000
ROWS_PER_FETCH = 5_000
_ARROW = pa.schema([("value", pa.binary())])


class TableScan(Struct, frozen=True, kw_only=True):
    """A table and its order; after ``again_ms`` it is read again from the start."""

    server: DatabaseServer
    table: str
    columns: tuple[str, ...]
    order: tuple[str, ...]
    delay_ms: int = 0
    again_ms: int | None = None
    rows_per_batch_max: int = ROWS_PER_BATCH

    def last_within(self, after: str) -> str:
        """The offset of the last row of the next page; ``after`` when there is none."""
        kind = self.server.kind
        names = ", ".join(quoted(kind, name) for name in self.order)
        where, values = self._where(after, "")
        statement = (
            f"SELECT {names} FROM {quoted(kind, self.table)}{where}"  # noqa: S608
            f" ORDER BY {names} LIMIT {int(self.rows_per_batch_max)}"
        )
        last: tuple[Any, ...] | None = None
        with session(self.server) as opened, opened.cursor() as cursor:
            cursor.execute(statement, values)
            for row in cursor.fetchall():
                last = tuple(row)
        if last is None:
            return after
        return msgspec.json.encode(last, enc_hook=str).decode()

    def rows(self, after: str, until: str) -> Iterator[list[bytes]]:
        """The rows of a page as JSON objects, in pieces."""
        kind = self.server.kind
        names = ", ".join(quoted(kind, name) for name in self.columns)
        order = ", ".join(quoted(kind, name) for name in self.order)
        where, values = self._where(after, until)
        statement = f"SELECT {names} FROM {quoted(kind, self.table)}{where} ORDER BY {order}"  # noqa: S608
        encode = msgspec.json.Encoder(enc_hook=str).encode
        with session(self.server) as opened, opened.cursor() as cursor:
            cursor.execute(statement, values)
            while piece := cursor.fetchmany(ROWS_PER_FETCH):
                yield [encode(dict(zip(self.columns, row, strict=True))) for row in piece]

    def _where(self, after: str, until: str) -> tuple[str, list[Any]]:
        kind = self.server.kind
        names = ", ".join(quoted(kind, name) for name in self.order)
        marks = ", ".join(["%s"] * len(self.order))
        terms, values = [], []
        for position, sign in ((after, ">"), (until, "<=")):
            if position:
                terms.append(f"({names}) {sign} ({marks})")
                values += msgspec.json.decode(position, type=list[Any])
        if self.delay_ms:
            # Rows of transactions that started earlier may appear after later ones.
            ago = int(self.delay_ms) * 1000
            now = (
                f"now() - interval '{ago} microseconds'"
                if kind == "postgres"
                else f"now(6) - interval {ago} microsecond"
            )
            if not until:
                terms.append(f"{quoted(kind, self.order[0])} <= {now}")
        return (f" WHERE {' AND '.join(terms)}" if terms else ""), values


class _Range(InputPartition):
    def __init__(self, after: str, until: str) -> None:
        super().__init__(None)
        self.after = after
        self.until = until


def _read(page: TableScan, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, _Range)
    for values in page.rows(partition.after, partition.until):
        yield pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=_ARROW)


class _DatabaseBatchReader(DataSourceReader):
    def __init__(self, page: TableScan) -> None:
        self._page = page

    def partitions(self) -> Sequence[InputPartition]:
        until = self._page.last_within("")
        return [_Range("", until)] if until else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._page, partition)


class _DatabaseStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, page: TableScan) -> None:
        self._page = page
        self._is_once = False
        self._began_at = time.monotonic()

    def initialOffset(self) -> dict[str, Any]:
        return {"round": 0, "after": ""}

    def prepareForTriggerAvailableNow(self) -> None:
        self._is_once = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        del limit
        until = self._page.last_within(start["after"])
        again_ms = self._page.again_ms
        if until != start["after"] or again_ms is None or self._is_once:
            return {"round": start["round"], "after": until}
        if time.monotonic() - self._began_at < again_ms / 1000:
            return start
        self._began_at = time.monotonic()
        return {"round": start["round"] + 1, "after": self._page.last_within("")}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        after = start["after"] if start["round"] == end["round"] else ""
        return [_Range(after, end["after"])] if end["after"] != after else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._page, partition)


class TableDataSource(SettingsSource):
    """Rows as JSON, page by page; as a table, the first page."""

    format_name = "mainstem-table"
    columns = "value binary"
    settings = TableScan
    table_reader = _DatabaseBatchReader
    stream_reader = _DatabaseStreamReader
