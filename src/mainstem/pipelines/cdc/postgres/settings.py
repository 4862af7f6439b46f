"""The settings of change data capture from PostgreSQL in a pipeline file."""

from typing import Annotated, Literal

from msgspec import Meta

from mainstem.pipelines.cdc.settings import CdcConfig, Port, TopicRouting


class PostgresCdcConfig(CdcConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Database, tables (all of ``public`` if none), and the format of change events."""

    port: Port = 5432
    user: Annotated[str, Meta(description="Role with LOGIN and REPLICATION.")] = "postgres"
    sslmode: Annotated[
        Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"],
        Meta(description="Encryption of the connection, as libpq's sslmode."),
    ] = "prefer"
    topic_routing: TopicRouting = "cdc.{database}.{schema}.{table}"

    slot_name: Annotated[
        str,
        Meta(pattern="^[a-z0-9_]{1,63}$", description="Replication slot; created if missing."),
    ] = "mainstem"
    publication_name: Annotated[
        str, Meta(min_length=1, description="Publication; created if missing.")
    ] = "mainstem"
    publication_autocreate: Annotated[
        Literal["filtered", "all_tables", "disabled"],
        Meta(description="Create the publication for the selected tables, for all, or not at all."),
    ] = "filtered"
    wal_warning_bytes: Annotated[
        int, Meta(ge=1, description="Warn when the server retains more WAL for the slot.")
    ] = 1 << 30

    time_mode: Annotated[
        Literal["adaptive", "adaptive_time_microseconds", "connect", "isostring"],
        Meta(description="Dates and times as numbers in column precision, in ms, or ISO 8601."),
    ] = "adaptive"
    interval_mode: Annotated[
        Literal["numeric", "string"],
        Meta(description="interval in microseconds (a month is 30.4375 days), or ISO 8601."),
    ] = "numeric"
    skipped_operations: Annotated[
        tuple[Literal["c", "u", "d", "t", "m"], ...],
        Meta(description="Operations for which no events are written."),
    ] = ()
    messages: Annotated[
        bool, Meta(description="Whether pg_logical_emit_message writes events of op m.")
    ] = True
