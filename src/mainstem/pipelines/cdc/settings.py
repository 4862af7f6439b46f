"""The settings of change data capture, as they stand in a pipeline file."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from mainstem.pipelines.connector.spec import Secret

PLACEHOLDER = "__debezium_unavailable_value"


class PostgresCdcConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which database, which tables, and how their changes are told."""

    host: Annotated[str, Meta(description="Name or address of the server.")] = "localhost"
    port: Annotated[int, Meta(ge=1, le=65535, description="Its port.")] = 5432
    database: Annotated[str, Meta(min_length=1, description="The database to follow.")]
    user: Annotated[str, Meta(description="A role that may log in for replication.")] = "postgres"
    password: Annotated[Secret | None, Meta(description="The role's password.")] = None
    sslmode: Annotated[
        Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"],
        Meta(description="How the connection is encrypted, in libpq's words."),
    ] = "prefer"
    ssl_root_cert: Annotated[
        str | None, Meta(description="File of certificates that servers are checked against.")
    ] = None
    name: Annotated[
        str | None,
        Meta(description="Name of this source in events; the database's name by default."),
    ] = None

    tables: Annotated[
        tuple[str, ...],
        Meta(description="Tables to follow, `schema.table`, with * and ?; all of public if empty."),
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
    ] = "cdc.{database}.{schema}.{table}"

    slot_name: Annotated[
        str,
        Meta(pattern="^[a-z0-9_]{1,63}$", description="Replication slot; made when missing."),
    ] = "mainstem"
    publication_name: Annotated[
        str, Meta(min_length=1, description="Publication; made when missing.")
    ] = "mainstem"
    publication_autocreate: Annotated[
        Literal["filtered", "all_tables", "disabled"],
        Meta(description="Whether the publication is made for the chosen tables, all, or not."),
    ] = "filtered"

    snapshot_mode: Annotated[
        Literal["initial", "always", "initial_only", "no_data", "when_needed"],
        Meta(description="When the rows that are there already are told as events of op r."),
    ] = "initial"
    snapshot_rows_per_file: Annotated[
        int, Meta(ge=1, le=10_000_000, description="Rows per file of the snapshot's spool.")
    ] = 50_000

    decimal_mode: Annotated[
        Literal["precise", "double", "string"],
        Meta(description="numeric as base64 of its unscaled bytes, as a number, or as text."),
    ] = "string"
    time_mode: Annotated[
        Literal["adaptive", "adaptive_time_microseconds", "connect", "isostring"],
        Meta(description="Dates and times as numbers in their own precision, in ms, or ISO 8601."),
    ] = "adaptive"
    binary_mode: Annotated[
        Literal["base64", "base64-url-safe", "hex"],
        Meta(description="How bytea is written in JSON."),
    ] = "base64"
    interval_mode: Annotated[
        Literal["numeric", "string"],
        Meta(description="interval in microseconds (a month is 30.4375 days), or ISO 8601."),
    ] = "numeric"
    placeholder: Annotated[
        str, Meta(description="Stands for a large value that an update left as it was.")
    ] = PLACEHOLDER

    tombstones: Annotated[
        bool, Meta(description="Whether a deletion is followed by its key without a value.")
    ] = True
    skipped_operations: Annotated[
        tuple[Literal["c", "u", "d", "t", "m"], ...],
        Meta(description="Operations that are not told."),
    ] = ()
    messages: Annotated[
        bool, Meta(description="Whether pg_logical_emit_message is told as events of op m.")
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
    signal_table: Annotated[
        str | None,
        Meta(description="Table `schema.table` (id, type, data) whose new rows are commands."),
    ] = None
    wal_warning_bytes: Annotated[
        int, Meta(ge=1, description="Warn when the slot keeps more log than this.")
    ] = 1 << 30
    connect_timeout_s: Annotated[
        int, Meta(ge=1, le=600, description="How long the server may take to answer.")
    ] = 10

    @property
    def source_name(self) -> str:
        """What events call this source."""
        return self.name or self.database
