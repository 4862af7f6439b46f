"""A table of MySQL or MariaDB and how its events are written. Pure."""

from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Final

import msgspec
from msgspec import Struct

from mainstem.pipelines.cdc.envelope import Field, RowLayout, literal
from mainstem.pipelines.cdc.mysql_settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql_values import ColumnType, converter
from mainstem.pipelines.cdc.selection import Routing, kept_columns, mask_for, matches
from mainstem.pipelines.connector.shapes import TableRoute

NO_GTID: Final = ""


class Spot(Struct, frozen=True, order=False):
    """A place in the log: a file's name and a position in it."""

    file: str = ""
    position: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """Spots compare by the number at the end of the file's name, then by position."""
        return (int(self.file.rpartition(".")[2] or 0), self.position)


class TableShape(Struct, frozen=True):
    """A table's columns in their order, and its primary key in the key's order."""

    database: str
    name: str
    columns: tuple[tuple[str, ColumnType], ...] = ()
    key: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """Database and name with a dot."""
        return f"{self.database}.{self.name}"


class Told(Struct, frozen=True):
    """Where an event comes from: what ``source`` says beside the table."""

    at_us: int
    spot: Spot
    server_id: int = 0
    gtid: str = NO_GTID
    row: int = 0
    thread: int | None = None
    snapshot: str = "false"


class TableWriter:
    """Everything that is the same for all events of a table."""

    def __init__(
        self,
        shape: TableShape,
        config: MysqlCdcConfig,
        routes: Sequence[TableRoute],
        flavour: str,
    ) -> None:
        self.name = shape.full_name
        routing = Routing(
            config.topic_routing, database=shape.database, name=config.source_name, routes=routes
        )
        self.topic = routing.topic(shape.database, shape.name)
        by_name = {name: at for at, (name, _) in enumerate(shape.columns)}
        key_names = [name for name in key_of(shape, config) if name in by_name]
        kept = kept_columns(
            self.name, list(by_name), config.include_columns, config.exclude_columns
        )

        def field(name: str) -> Field:
            _, type_ = shape.columns[by_name[name]]
            mask = mask_for(f"{self.name}.{name}", config.mask_columns, config.mask_salt)
            return Field(name, by_name[name], mask or converter(type_, config))

        self.layout = RowLayout(
            [field(name) for name in by_name if name in kept or name in key_names],
            [field(name) for name in key_names],
            placeholder=config.placeholder,
        )
        self._source = (
            b'{"version":%b,"connector":%b,"name":%b,"ts_ms":%%d,"snapshot":"%%b","db":%b,'
            b'"sequence":null,"ts_us":%%d,"ts_ns":%%d000,"table":%b,"server_id":%%d,"gtid":%%b,'
            b'"file":%%b,"pos":%%d,"row":%%d,"thread":%%b,"query":null}'
            % (
                literal(_version()),
                literal(flavour),
                literal(config.source_name),
                literal(shape.database),
                literal(shape.name),
            )
        )

    def source(self, told: Told) -> bytes:
        """The ``source`` of an event."""
        return self._source % (
            told.at_us // 1000,
            told.snapshot.encode(),
            told.at_us,
            told.at_us,
            told.server_id,
            msgspec.json.encode(told.gtid or None),
            msgspec.json.encode(told.spot.file),
            told.spot.position,
            told.row,
            msgspec.json.encode(told.thread),
        )


def key_of(shape: TableShape, config: MysqlCdcConfig) -> Sequence[str]:
    """The columns of a table's key: as the settings say, or its primary key."""
    for pattern, names in config.key_columns.items():
        if matches(shape.full_name, [pattern]):
            return names
    return shape.key


@lru_cache
def _version() -> str:
    return version("mainstem")
