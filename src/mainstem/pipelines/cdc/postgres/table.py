"""How events of one PostgreSQL table are written: topic, layout of rows, source. Pure.

It is created from the table's description at the time of the change, so added and dropped columns
are handled as they were then.
"""

from functools import partial
from typing import Final

from msgspec import Struct

from mainstem.pipelines.cdc.avro.columns import postgres_column
from mainstem.pipelines.cdc.avro.events import POSTGRES_SOURCE
from mainstem.pipelines.cdc.envelope import literal
from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig
from mainstem.pipelines.cdc.postgres.values import TypeInfo, converter
from mainstem.pipelines.cdc.table_layout import TableLayout, WrittenColumn, own_version
from mainstem.pipelines.cdc.table_selection import TableRouting

CONNECTOR: Final = "postgresql"
MADE_HERE: Final = b'"origin":null,"origin_lsn":null'


class PostgresColumn(Struct, frozen=True):
    """A column; ``identifies`` when old rows always contain it."""

    name: str
    type: TypeInfo
    identifies: bool = False


class PostgresTableSchema(Struct, frozen=True):
    """A table at one time.

    ``key`` is its primary key, in the key's order; ``unique`` are the columns of a unique index,
    none of which may be null: they are used as the key if there is no primary key.
    """

    schema: str
    name: str
    columns: tuple[PostgresColumn, ...]
    key: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """Schema and name, separated by a dot."""
        return f"{self.schema}.{self.name}"

    @property
    def is_chunkable(self) -> bool:
        """Whether it can be read in the order of its key."""
        return bool(self.key)


class PostgresEventWriter:
    """The properties that all events of a table share."""

    def __init__(
        self, shape: PostgresTableSchema, config: PostgresCdcConfig, routing: TableRouting
    ) -> None:
        self.name = shape.full_name
        self.topic = routing.topic(shape.schema, shape.name)
        columns = [
            WrittenColumn(
                column.name,
                converter(column.type, config),
                partial(postgres_column, column.type, config),
            )
            for column in shape.columns
        ]
        layout = TableLayout((shape.schema, shape.name), columns, shape.key or shape.unique, config)
        self.layout, self.schemas = layout.rows, layout.schemas(POSTGRES_SOURCE)
        by_name = {column.name: at for at, column in enumerate(shape.columns)}
        # Whether an old row contains the key, so that a change of the key can be detected.
        self.old_has_key = all(shape.columns[at].identifies for at in self.layout.key_positions)
        self.stamp_key = tuple(
            (by_name[name], shape.columns[by_name[name]].type.name in NUMBERS)
            for name in shape.key
            if name in by_name
        )
        self.source = source_template(config, shape.schema, shape.name)


NUMBERS: Final = frozenset({"int2", "int4", "int8"})


def source_template(config: PostgresCdcConfig, schema: str, table: str) -> bytes:
    """The template of ``source`` for a table's events.

    It is filled with ts_ms, snapshot, sequence, ts_us, ts_us, xid and lsn (both as text), and the
    origin, such as ``MADE_HERE``.
    """
    return (
        b'{"version":%b,"connector":"%b","name":%b,"ts_ms":%%d,"snapshot":"%%b","db":%b,'
        b'"sequence":"%%b","ts_us":%%d,"ts_ns":%%d000,"schema":%b,"table":%b,'
        b'"txId":%%b,"lsn":%%b,"xmin":null,%%b}'
        % (
            literal(own_version()),
            CONNECTOR.encode(),
            literal(config.source_name),
            literal(config.database),
            literal(schema),
            literal(table),
        )
    )
