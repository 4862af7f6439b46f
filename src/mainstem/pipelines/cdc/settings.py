"""The settings that all sources of change data capture have, as they stand in a pipeline file."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainstem.pipelines.connector.spec import Secret

PLACEHOLDER = "__debezium_unavailable_value"

Port = Annotated[int, Meta(ge=1, le=65535, description="Its port.")]
TopicRouting = Annotated[
    str, Meta(description="Topic of a table; {database}, {schema}, {table} and {name} are filled.")
]
SnapshotMode = Literal["initial", "always", "initial_only", "no_data", "when_needed"]


class CdcConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which server, which tables, and how their changes are told; ``schema.table`` names a table.

    MySQL and MariaDB have a database where others have a schema.
    """

    host: Annotated[str, Meta(description="Name or address of the server.")] = "localhost"
    port: Port
    database: Annotated[str, Meta(min_length=1, description="The database to follow.")]
    user: Annotated[str, Meta(description="Who logs in.")]
    password: Annotated[Secret | None, Meta(description="The user's password.")] = None
    ssl_root_cert: Annotated[
        str | None, Meta(description="File of certificates that servers are checked against.")
    ] = None
    connect_timeout_s: Annotated[
        int, Meta(ge=1, le=600, description="How long the server may take to answer.")
    ] = 10
    name: Annotated[
        str | None,
        Meta(description="Name of this source in events; the database's name by default."),
    ] = None

    tables: Annotated[
        tuple[str, ...], Meta(description="Tables to follow, `schema.table` with * and ?.")
    ] = ()
    exclude_tables: Annotated[
        tuple[str, ...], Meta(description="Tables to leave out, written the same way.")
    ] = ()
    include_columns: Annotated[
        tuple[str, ...],
        Meta(description="Columns to keep, `schema.table.column` with * and ?; all if empty."),
    ] = ()
    exclude_columns: Annotated[
        tuple[str, ...], Meta(description="Columns to leave out. Columns of keys always stay.")
    ] = ()
    mask_columns: Annotated[
        dict[str, str],
        Meta(
            description="Patterns of text columns and what is shown instead of their values: "
            "`hash` (SHA-256), `redact` (ten asterisks, for null too), or `truncate:N`."
        ),
    ] = {}
    mask_salt: Annotated[
        Secret, Meta(description="Mixed into hashes, so that values cannot be guessed.")
    ] = ""
    key_columns: Annotated[
        dict[str, tuple[str, ...]],
        Meta(description="Patterns of tables and the columns to be their keys."),
    ] = {}

    topic_routing: TopicRouting

    snapshot_mode: Annotated[
        SnapshotMode,
        Meta(description="When the rows that are there already are told as events of op r."),
    ] = "initial"
    snapshot_rows_per_file: Annotated[
        int, Meta(ge=1, le=10_000_000, description="Rows per file of the snapshot's spool.")
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
        Meta(description="Topic of Avro schemas by fingerprint; {database}, {name} are filled."),
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
        str, Meta(description="Stands for a value that the log does not hold.")
    ] = PLACEHOLDER

    tombstones: Annotated[
        bool, Meta(description="Whether a deletion is followed by its key without a value.")
    ] = True
    transaction_metadata: Annotated[
        bool, Meta(description="Whether events name their transaction, and it its events.")
    ] = False
    heartbeat_interval_ms: Annotated[
        int, Meta(ge=0, description="A heartbeat record when nothing happens; 0: none.")
    ] = 0
    heartbeat_query: Annotated[
        str | None, Meta(description="A statement that every heartbeat runs, such as an UPDATE.")
    ] = None

    @property
    def source_name(self) -> str:
        """What events call this source."""
        return self.name or self.database
