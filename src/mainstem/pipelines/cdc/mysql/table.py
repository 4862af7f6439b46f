"""A table of MySQL or MariaDB and how its events are written. Pure."""

from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Final

import msgspec
from msgspec import Struct

from mainstem.pipelines.cdc.avro.columns import mysql_column
from mainstem.pipelines.cdc.avro.events import MYSQL_SOURCE
from mainstem.pipelines.cdc.envelope import literal
from mainstem.pipelines.cdc.mysql.offset import BinlogPosition
from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql.values import ColumnType, converter
from mainstem.pipelines.cdc.table_layout import TableLayout, WrittenColumn, own_version
from mainstem.pipelines.cdc.table_selection import TableRouting
from mainstem.pipelines.connector.shapes import TableRoute

NO_GTID: Final = ""
_KEY_KINDS: Final = {"int": "n", "decimal": "d"}


class MysqlTableSchema(Struct, frozen=True):
    """A table's columns in their order, and its primary key in the key's order.

    It is chunkable when rows after a key can be queried, and ordered when such keys compare in
    Python as they do on the server.
    """

    database: str
    name: str
    columns: tuple[tuple[str, ColumnType], ...] = ()
    key: tuple[str, ...] = ()
    is_chunkable: bool = False
    is_ordered: bool = False
    unique: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """Database and name, separated by a dot."""
        return f"{self.database}.{self.name}"


def key_texts(shape: MysqlTableSchema, values: Sequence[object]) -> list[str]:
    """The primary key of a row as stored in stamps and queues: a kind, then the text."""
    by_name = {name: (at, of) for at, (name, of) in enumerate(shape.columns)}
    texts = []
    for name in shape.key:
        at, of = by_name[name]
        value = values[at]
        assert isinstance(value, bytes), "a key is never null and always logged"
        if of.word == "bytes":
            texts.append("x" + value.hex())  # sorts in the order of its bytes
        else:
            texts.append(_KEY_KINDS.get(of.word, "t") + value.decode())
    return texts


def key_literal(text: str) -> str:
    """A key value as an SQL literal; in hexadecimal, nothing has to be escaped."""
    kind, rest = text[0], text[1:]
    if kind == "x":
        return f"x'{rest}'"
    return f"{Decimal(rest)}" if kind in "nd" else f"_utf8mb4 x'{rest.encode().hex()}'"


class EventSource(Struct, frozen=True):
    """The parts of ``source`` that do not depend on the table."""

    at_us: int
    spot: BinlogPosition
    server_id: int = 0
    gtid: str = NO_GTID
    row: int = 0
    thread: int | None = None
    snapshot: str = "false"


class MysqlEventWriter:
    """The properties that all events of a table share."""

    def __init__(
        self,
        shape: MysqlTableSchema,
        config: MysqlCdcConfig,
        routes: Sequence[TableRoute],
        flavour: str,
    ) -> None:
        self.name = shape.full_name
        self.shape = shape
        routing = TableRouting(
            config.topic_routing, database=shape.database, name=config.source_name, routes=routes
        )
        self.topic = routing.topic(shape.database, shape.name)
        columns = [
            WrittenColumn(name, converter(of, config), partial(mysql_column, of, config))
            for name, of in shape.columns
        ]
        layout = TableLayout(
            (shape.database, shape.name), columns, shape.key or shape.unique, config
        )
        self.layout, self.schemas = layout.rows, layout.schemas(MYSQL_SOURCE)
        self._source = (
            b'{"version":%b,"connector":%b,"name":%b,"ts_ms":%%d,"snapshot":"%%b","db":%b,'
            b'"sequence":null,"ts_us":%%d,"ts_ns":%%d000,"table":%b,"server_id":%%d,"gtid":%%b,'
            b'"file":%%b,"pos":%%d,"row":%%d,"thread":%%b,"query":null}'
            % (
                literal(own_version()),
                literal(flavour),
                literal(config.source_name),
                literal(shape.database),
                literal(shape.name),
            )
        )

    def source(self, event_source: EventSource) -> bytes:
        """The ``source`` of an event."""
        return self._source % (
            event_source.at_us // 1000,
            event_source.snapshot.encode(),
            event_source.at_us,
            event_source.at_us,
            event_source.server_id,
            msgspec.json.encode(event_source.gtid or None),
            msgspec.json.encode(event_source.spot.file),
            event_source.spot.position,
            event_source.row,
            msgspec.json.encode(event_source.thread),
        )
