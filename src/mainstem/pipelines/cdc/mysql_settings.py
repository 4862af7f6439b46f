"""The settings of change data capture from MySQL and MariaDB, as they stand in a pipeline file."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainstem.pipelines.connector.spec import Secret

PLACEHOLDER = "__debezium_unavailable_value"


class MysqlCdcConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which server, which tables, and how their changes are told."""

    host: Annotated[str, Meta(description="Name or address of the server.")] = "localhost"
    port: Annotated[int, Meta(ge=1, le=65535, description="Its port.")] = 3306
    database: Annotated[str, Meta(min_length=1, description="The database to follow.")]
    user: Annotated[
        str, Meta(description="A user with SELECT, REPLICATION SLAVE and BINLOG MONITOR.")
    ] = "root"
    password: Annotated[Secret | None, Meta(description="The user's password.")] = None
    ssl: Annotated[
        Literal["disable", "require", "verify"],
        Meta(description="Whether the connection is encrypted, and the server's name checked."),
    ] = "disable"
    ssl_root_cert: Annotated[
        str | None, Meta(description="File of certificates that servers are checked against.")
    ] = None
    name: Annotated[
        str | None,
        Meta(description="Name of this source in events; the database's name by default."),
    ] = None

    tables: Annotated[
        tuple[str, ...],
        Meta(description="Tables, `database.table` with * and ?; all of `database` if empty."),
    ] = ()
    exclude_tables: Annotated[
        tuple[str, ...], Meta(description="Tables to leave out, written the same way.")
    ] = ()
    include_columns: Annotated[
        tuple[str, ...],
        Meta(description="Columns to keep, `database.table.column` with * and ?; all if empty."),
    ] = ()
    exclude_columns: Annotated[
        tuple[str, ...], Meta(description="Columns to leave out. Columns of keys always stay.")
    ] = ()
    mask_columns: Annotated[
        dict[str, str],
        Meta(
            description="Patterns of text columns and what is shown instead of their values: "
            "`hash` (SHA-256), `redact` (ten asterisks), or `truncate:N`."
        ),
    ] = {}
    mask_salt: Annotated[
        Secret, Meta(description="Mixed into hashes, so that values cannot be guessed.")
    ] = ""
    key_columns: Annotated[
        dict[str, tuple[str, ...]],
        Meta(description="Patterns of tables and the columns to be their keys."),
    ] = {}

    topic_routing: Annotated[
        str,
        Meta(description="Topic of a table; {database}, {schema}, {table} and {name} are filled."),
    ] = "cdc.{database}.{table}"
    schema_changes_topic: Annotated[
        str | None, Meta(description="Topic that statements changing the schema are told to.")
    ] = None

    snapshot_mode: Annotated[
        Literal["initial", "initial_only", "no_data"],
        Meta(description="Whether the rows that are there already are told as events of op r."),
    ] = "initial"
    snapshot_rows_per_file: Annotated[
        int, Meta(ge=1, le=10_000_000, description="Rows per file of the snapshot's spool.")
    ] = 50_000

    decimal_mode: Annotated[
        Literal["precise", "double", "string"],
        Meta(description="decimal as base64 of its unscaled bytes, as a number, or as text."),
    ] = "string"
    time_mode: Annotated[
        Literal["adaptive_time_microseconds", "connect", "isostring"],
        Meta(description="Dates and times as numbers in their own precision, in ms, or ISO 8601."),
    ] = "adaptive_time_microseconds"
    binary_mode: Annotated[
        Literal["base64", "base64-url-safe", "hex"],
        Meta(description="How binary columns are written in JSON."),
    ] = "base64"
    placeholder: Annotated[
        str, Meta(description="Stands for a value that binlog_row_image kept out of the log.")
    ] = PLACEHOLDER

    tombstones: Annotated[
        bool, Meta(description="Whether a deletion is followed by its key without a value.")
    ] = True
    skipped_operations: Annotated[
        tuple[Literal["c", "u", "d", "t"], ...], Meta(description="Operations that are not told.")
    ] = ()
    heartbeat_interval_ms: Annotated[
        int, Meta(ge=0, description="A heartbeat record when nothing happens; 0: none.")
    ] = 0
    connect_timeout_s: Annotated[
        int, Meta(ge=1, le=600, description="How long the server may take to answer.")
    ] = 10

    @property
    def source_name(self) -> str:
        """What events call this source."""
        return self.name or self.database

    @property
    def chosen(self) -> tuple[str, ...]:
        """The patterns of tables to follow."""
        return self.tables or (f"{self.database}.*",)
