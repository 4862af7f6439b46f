"""How one PostgreSQL table is told: its topic, the layout of its rows, its source. Pure.

Made from what the server says about the table at the time of the change, so that a column that
came or went is told as it was then.
"""

from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Final

from msgspec import Struct

from mainstem.pipelines.cdc.avro_columns import MASKED, postgres_column
from mainstem.pipelines.cdc.avro_events import POSTGRES_SOURCE, table_schemas
from mainstem.pipelines.cdc.envelope import Field, RowLayout, literal
from mainstem.pipelines.cdc.postgres_settings import PostgresCdcConfig
from mainstem.pipelines.cdc.postgres_values import TypeInfo, converter
from mainstem.pipelines.cdc.selection import Routing, kept_columns, mask_for, matches, null_for

CONNECTOR: Final = "postgresql"
MADE_HERE: Final = b'"origin":null,"origin_lsn":null'


class TableColumn(Struct, frozen=True):
    """A column; ``identifies`` when old rows always carry it."""

    name: str
    type: TypeInfo
    identifies: bool = False


class TableShape(Struct, frozen=True):
    """A table at one moment.

    ``key`` is its primary key, in its order; ``unique`` are the columns of a unique index, none of
    which may be null: they stand in where there is no primary key.
    """

    schema: str
    name: str
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """Schema and name with a dot."""
        return f"{self.schema}.{self.name}"

    @property
    def is_chunkable(self) -> bool:
        """Whether it can be read in the order of its key."""
        return bool(self.key)


class TableWriter:
    """Everything that is the same for all events of a table."""

    def __init__(self, shape: TableShape, config: PostgresCdcConfig, routing: Routing) -> None:
        self.name = shape.full_name
        self.topic = routing.topic(shape.schema, shape.name)
        by_name = {column.name: at for at, column in enumerate(shape.columns)}
        key_names = [name for name in key_of(shape, config) if name in by_name]
        kept = kept_columns(
            self.name, list(by_name), config.include_columns, config.exclude_columns
        )

        def field(name: str) -> Field:
            column = shape.columns[by_name[name]]
            full_name = f"{self.name}.{name}"
            mask = mask_for(full_name, config.mask_columns, config.mask_salt)
            null = null_for(full_name, config.mask_columns)
            convert = mask or converter(column.type, config)
            kind = None
            if config.format == "avro":
                kind = postgres_column(column.type, config) if mask is None else MASKED
            return Field(name, by_name[name], convert, kind, null)

        row = [field(name) for name in by_name if name in kept or name in key_names]
        key = [field(name) for name in key_names]
        self.layout = RowLayout(row, key, placeholder=config.placeholder)
        place = (config.source_name, shape.schema, shape.name)
        is_avro = config.format == "avro"
        self.schemas = table_schemas(place, row, key, POSTGRES_SOURCE) if is_avro else None
        # Whether an old row tells the key, so that a change of the key can be seen.
        self.old_tells_key = all(shape.columns[at].identifies for at in self.layout.key_positions)
        self.stamp_key = tuple(
            (by_name[name], shape.columns[by_name[name]].type.name in NUMBERS)
            for name in shape.key
            if name in by_name
        )
        self.source = source_template(config, shape.schema, shape.name)


NUMBERS: Final = frozenset({"int2", "int4", "int8"})


def key_of(shape: TableShape, config: PostgresCdcConfig) -> Sequence[str]:
    """The columns of a table's key: as the settings say, its primary key, or a unique index."""
    for pattern, names in config.key_columns.items():
        if matches(shape.full_name, [pattern]):
            return names
    return shape.key or shape.unique


def source_template(config: PostgresCdcConfig, schema: str, table: str) -> bytes:
    """The ``source`` of a table's events.

    To be filled with ts_ms, snapshot, sequence, ts_us, ts_us, xid (text), lsn and the origin, such
    as ``MADE_HERE``.
    """
    return (
        b'{"version":%b,"connector":"%b","name":%b,"ts_ms":%%d,"snapshot":"%%b","db":%b,'
        b'"sequence":"%%b","ts_us":%%d,"ts_ns":%%d000,"schema":%b,"table":%b,'
        b'"txId":%%b,"lsn":%%d,"xmin":null,%%b}'
        % (
            literal(_version()),
            CONNECTOR.encode(),
            literal(config.source_name),
            literal(config.database),
            literal(schema),
            literal(table),
        )
    )


@lru_cache
def _version() -> str:
    return version("mainstem")
