"""Shared part of the ``postgres`` and ``mysql`` connectors: settings, checks, frames, writers."""

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from mainstem.model.errors import MainstemError
from mainstem.pipelines.connector.batches import written_by
from mainstem.pipelines.connector.shapes import (
    Column,
    ConnectorContext,
    Discovered,
    Finding,
    failed,
    passed,
    refused,
    warned,
)
from mainstem.pipelines.connector.spec import Category, Secret, Spec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from mainstem.pipelines.database_tables.databases import DatabaseColumn, DatabaseServer, Kind
    from mainstem.pipelines.database_tables.source import TableScan

TITLES = {"postgres": "PostgreSQL table", "mysql": "MySQL or MariaDB table"}
MODULES = {"postgres": ("psycopg",), "mysql": ("pymysql",)}


class DatabaseConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The connection to the database."""

    database: Annotated[str, Meta(min_length=1, description="Name of the database.")]
    user: Annotated[str, Meta(min_length=1, description="User name.")]
    password: Annotated[Secret | None, Meta(description="Password.")] = None
    host: Annotated[str, Meta(description="Address of the server.")] = "127.0.0.1"
    port: Annotated[
        int | None, Meta(description="Port; the default port of the server if unset.")
    ] = None
    tls: Annotated[
        Literal["disable", "prefer", "require", "verify-ca", "verify-full"],
        Meta(description="Whether the connection is encrypted and the server verified."),
    ] = "prefer"
    ca_path: Annotated[str | None, Meta(description="PEM file of CA certificates.")] = None
    connect_timeout_ms: Annotated[int, Meta(ge=1, description="Connection timeout.")] = 10_000


class TableSourceConfig(DatabaseConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table to read and how new rows are found."""

    table: Annotated[str, Meta(min_length=1, description="Table, or `schema.table`.")]
    mode: Annotated[
        Literal["bulk", "incrementing", "timestamp"],
        Meta(
            description=(
                "bulk: the whole table by its primary key; incrementing: rows with a larger"
                " value in column; timestamp: changed rows, by a timestamp and the primary key."
            )
        ),
    ] = "incrementing"
    column: Annotated[
        str | None,
        Meta(description="The incrementing or timestamp column; by default the primary key."),
    ] = None
    columns: Annotated[list[str], Meta(description="Columns to read; by default all.")] = []
    key: Annotated[
        list[str], Meta(description="Columns of the record's key; by default the primary key.")
    ] = []
    delay_ms: Annotated[
        int,
        Meta(
            ge=0, description="timestamp: minimum age of a row, so that its transaction has ended."
        ),
    ] = 5_000
    again_ms: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="bulk: read the table again after this time."),
    ] = None


class TableSinkConfig(DatabaseConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table to write and how."""

    table: Annotated[str, Meta(min_length=1, description="Table, or `schema.table`.")]
    schema: Annotated[
        str,
        Meta(description="Columns extracted from JSON values: `id bigint, name string`."),
    ]
    mode: Annotated[
        Literal["upsert", "insert"],
        Meta(description="upsert: by key, tombstones delete; insert: every record adds a row."),
    ] = "upsert"
    key: Annotated[list[str], Meta(description="Key columns; required for upsert.")] = []
    ledger_table: Annotated[
        str, Meta(description="Table of finished batches; created if missing.")
    ] = "mainstem_ledger"


def server_of(kind: "Kind", config: DatabaseConfig) -> "DatabaseServer":
    """The server of a config."""
    from mainstem.pipelines.database_tables.databases import DatabaseServer

    return DatabaseServer(
        kind=kind,
        host=config.host,
        port=config.port or {"postgres": 5432, "mysql": 3306}[kind],
        database=config.database,
        user=config.user,
        password=config.password,
        tls=config.tls,
        ca_path=config.ca_path,
        connect_timeout_ms=config.connect_timeout_ms,
    )


def _columns(kind: "Kind", config: TableSourceConfig | TableSinkConfig) -> "list[DatabaseColumn]":
    from mainstem.pipelines.database_tables.databases import (
        columns_of_table,
        session,
    )

    with session(server_of(kind, config)) as opened:
        return columns_of_table(opened, kind, config.table)


def _primary_key(columns: "list[DatabaseColumn]") -> tuple[str, ...]:
    return tuple(each.name for each in sorted(columns, key=lambda c: c.key) if each.key)


class TableSource:
    """Reads a table."""

    def __init__(self, kind: "Kind") -> None:
        self._kind = kind

    def spec(self) -> Spec:
        """The metadata of this source."""
        return Spec(
            name=self._kind,
            kind="source",
            title=TITLES[self._kind],
            category=Category.DATABASE,
            config=TableSourceConfig,
            extra=self._kind,
            modules=MODULES[self._kind],
            notes="Deletes, and changes without a timestamp, need change data capture.",
        )

    def check(self, config: TableSourceConfig) -> list[Finding]:
        """Whether the table exists and has the necessary columns."""
        try:
            columns = _columns(self._kind, config)
        except MainstemError as error:
            return [refused(error)]
        if not columns:
            return [failed(f"table {config.table} does not exist", "create it, or correct table")]
        names = {each.name for each in columns}
        wanted = [*config.columns, *config.key, *([config.column] if config.column else [])]
        found = [
            failed(
                f"{config.table} has no column {name}",
                f"its columns are {', '.join(sorted(names))}",
            )
            for name in wanted
            if name not in names
        ]
        if not _order(config, columns):
            found.append(failed(f"{config.table} has no primary key", "set column"))
        if config.mode == "timestamp" and config.column is None:
            found.append(failed("timestamp needs a column", "set column"))
        return found or [passed(f"{config.table} can be read")]

    def discover(self, config: TableSourceConfig) -> list[Discovered]:
        """The tables of the database."""
        from mainstem.pipelines.database_tables.databases import (
            columns_of_table,
            session,
            tables_of,
        )

        found = []
        with session(server_of(self._kind, config)) as opened:
            for name, rows in tables_of(opened, self._kind):
                columns = columns_of_table(opened, self._kind, name)
                found.append(
                    Discovered(
                        name=name,
                        columns=tuple(Column(c.name, c.type, c.nullable) for c in columns),
                        key=_primary_key(columns),
                        rows_estimate=rows,
                        config={"table": name},
                    )
                )
        return found

    def read(
        self, spark: "SparkSession", config: TableSourceConfig, context: ConnectorContext
    ) -> "DataFrame":
        """Rows as JSON objects with the key columns as key."""
        from pyspark.sql import functions as F

        self.spec().require()
        from mainstem.pipelines.database_tables.source import TableDataSource
        from mainstem.pipelines.spark.settings_source import load

        columns = _columns(self._kind, config)
        page = self._page(config, columns, context)
        frame = load(spark, TableDataSource, page, streaming=context.streaming)
        names = config.key or list(_primary_key(columns))
        if not names:
            return frame
        text = F.col("value").cast("string")
        parsed = F.try_parse_json(text)
        if len(names) == 1:
            key = F.try_variant_get(parsed, f"$['{names[0]}']", "string")
        else:
            parts = [
                F.try_variant_get(parsed, f"$['{name}']", "variant").alias(name) for name in names
            ]
            key = F.to_json(F.struct(*parts))
        return frame.select(key.cast("binary").alias("key"), F.col("value"))

    def _page(
        self, config: TableSourceConfig, columns: "list[DatabaseColumn]", context: ConnectorContext
    ) -> "TableScan":
        from mainstem.pipelines.database_tables.source import (
            ROWS_PER_BATCH,
            TableScan,
        )

        return TableScan(
            server=server_of(self._kind, config),
            table=config.table,
            columns=tuple(config.columns) or tuple(each.name for each in columns),
            order=_order(config, columns),
            delay_ms=config.delay_ms if config.mode == "timestamp" else 0,
            again_ms=config.again_ms if config.mode == "bulk" else None,
            rows_per_batch_max=context.rows_per_batch_max or ROWS_PER_BATCH,
        )


def _order(config: TableSourceConfig, columns: "list[DatabaseColumn]") -> tuple[str, ...]:
    """The columns by which the rows are ordered."""
    primary = _primary_key(columns)
    if config.column is None or config.mode == "bulk":
        return primary
    if config.mode == "incrementing":
        return (config.column,)
    return (config.column, *(name for name in primary if name != config.column))


class TableSink:
    """Writes a table, every record exactly once."""

    def __init__(self, kind: "Kind") -> None:
        self._kind = kind

    def spec(self) -> Spec:
        """The metadata of this sink."""
        return Spec(
            name=self._kind,
            kind="sink",
            title=TITLES[self._kind],
            category=Category.DATABASE,
            config=TableSinkConfig,
            extra=self._kind,
            modules=MODULES[self._kind],
        )

    def check(self, config: TableSinkConfig) -> list[Finding]:
        """Whether the table has the columns, and a key where one is needed."""
        from mainstem.pipelines.database_tables.rows import column_names

        if config.mode == "upsert" and not config.key:
            return [failed("upsert needs a key", "set key, or mode: insert")]
        try:
            wanted = set(column_names(config.schema))
            columns = _columns(self._kind, config)
        except ValueError as error:
            return [failed(str(error), "such as: id bigint, name string")]
        except MainstemError as error:
            return [refused(error)]
        if not columns:
            return [failed(f"table {config.table} does not exist", "create it, or correct table")]
        names = {each.name for each in columns}
        found = [
            failed(
                f"{config.table} has no column {name}",
                f"its columns are {', '.join(sorted(names))}",
            )
            for name in sorted(wanted - names)
        ]
        found += [
            failed(f"the key column {name} is not in schema", "add it to schema")
            for name in config.key
            if name not in wanted
        ]
        if config.mode == "upsert" and set(config.key) != set(_primary_key(columns)):
            found.append(
                warned(
                    f"key is not the primary key of {config.table}",
                    "a unique index on these columns is required",
                )
            )
        return found or [passed(f"{config.table} can be written to")]

    def write(
        self, frame: "DataFrame", config: TableSinkConfig, context: ConnectorContext
    ) -> "DataStreamWriter":
        """A writer that writes batch by batch."""
        self.spec().require()
        from mainstem.pipelines.database_tables.sink import SinkTable, write_batch

        target = SinkTable(
            server=server_of(self._kind, config),
            table=config.table,
            schema=config.schema,
            mode=config.mode,
            key=tuple(config.key),
            ledger=config.ledger_table,
        )
        return written_by(
            frame, lambda batch, identity: write_batch(batch, identity, target, context)
        )
