"""The settings that all change data capture sources share in a pipeline file."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainstem.pipelines.connector.spec import Secret

PLACEHOLDER = "__debezium_unavailable_value"

Port = Annotated[int, Meta(ge=1, le=65535, description="Port of the server.")]
TopicRouting = Annotated[
    str,
    Meta(description="Topic of a table; {database}, {schema}, {table} and {name} are replaced."),
]
SnapshotMode = Literal["initial", "always", "initial_only", "no_data", "when_needed"]


class CdcConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Server, tables, and the format of change events; ``schema.table`` names a table.

    MySQL and MariaDB have a database where others have a schema.
    """

    host: Annotated[str, Meta(description="Host name or address of the server.")] = "localhost"
    port: Port
    database: Annotated[str, Meta(min_length=1, description="Database to capture.")]
    user: Annotated[str, Meta(description="User name.")]
    password: Annotated[Secret | None, Meta(description="Password of the user.")] = None
    ssl_root_cert: Annotated[
        str | None, Meta(description="PEM file of CA certificates that verify the server.")
    ] = None
    connect_timeout_s: Annotated[int, Meta(ge=1, le=600, description="Timeout of connecting.")] = 10
    name: Annotated[
        str | None,
        Meta(description="Name of this source in events; the database's name by default."),
    ] = None

    tables: Annotated[
        tuple[str, ...], Meta(description="Tables to capture, `schema.table` with * and ?.")
    ] = ()
    exclude_tables: Annotated[
        tuple[str, ...], Meta(description="Tables to exclude, written the same way.")
    ] = ()
    include_columns: Annotated[
        tuple[str, ...],
        Meta(description="Columns to capture, `schema.table.column` with * and ?; all if empty."),
    ] = ()
    exclude_columns: Annotated[
        tuple[str, ...], Meta(description="Columns to exclude. Key columns are always included.")
    ] = ()
    mask_columns: Annotated[
        dict[str, str],
        Meta(
            description="Patterns of text columns and how their values are masked: "
            "`hash` (SHA-256), `redact` (ten asterisks, for null too), or `truncate:N`."
        ),
    ] = {}
    mask_salt: Annotated[
        Secret, Meta(description="Salt of hashes, so that values cannot be guessed.")
    ] = ""
    key_columns: Annotated[
        dict[str, tuple[str, ...]],
        Meta(description="Patterns of tables and the columns of their record keys."),
    ] = {}

    topic_routing: TopicRouting

    snapshot_mode: Annotated[
        SnapshotMode,
        Meta(description="When existing rows are written as events of op r."),
    ] = "initial"
    snapshot_rows_per_file: Annotated[
        int, Meta(ge=1, le=10_000_000, description="Rows per spool file of the snapshot.")
    ] = 50_000
    signal_table: Annotated[
        str | None,
        Meta(description="Table `schema.table` (id, type, data) whose new rows are commands."),
    ] = None

    format: Annotated[
        Literal["json", "avro"],
        Meta(description="How keys and values are written; avro: in single-object encoding."),
    ] = "json"
    schema_topic: Annotated[
        str,
        Meta(description="Topic of Avro schemas by fingerprint; {database}, {name} are replaced."),
    ] = "cdc.{database}.schemas"

    decimal_mode: Annotated[
        Literal["precise", "double", "string"],
        Meta(description="Decimals as base64 of their unscaled bytes, as numbers, or as text."),
    ] = "string"
    binary_mode: Annotated[
        Literal["base64", "base64-url-safe", "hex"],
        Meta(description="How binary columns are written in JSON."),
    ] = "base64"
    placeholder: Annotated[
        str, Meta(description="Written for a value that the log does not contain.")
    ] = PLACEHOLDER

    tombstones: Annotated[
        bool, Meta(description="Whether a deletion is followed by a tombstone.")
    ] = True
    transaction_metadata: Annotated[
        bool, Meta(description="Whether to write transaction ids and transaction boundaries.")
    ] = False
    heartbeat_interval_ms: Annotated[
        int,
        Meta(ge=0, description="Interval of heartbeat records when there are no changes; 0: none."),
    ] = 0
    heartbeat_query: Annotated[
        str | None, Meta(description="Statement that every heartbeat runs, such as an UPDATE.")
    ] = None

    @property
    def source_name(self) -> str:
        """The name of this source in events."""
        return self.name or self.database
