"""The settings of change data capture from PostgreSQL, as they stand in a pipeline file."""

from typing import Annotated, Literal

from msgspec import Meta

from mainstem.pipelines.cdc.settings import CdcConfig, Port, TopicRouting


class PostgresCdcConfig(CdcConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which database, which tables, and how their changes are told; all of ``public`` if none."""

    port: Port = 5432
    user: Annotated[str, Meta(description="A role that may log in for replication.")] = "postgres"
    sslmode: Annotated[
        Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"],
        Meta(description="How the connection is encrypted, in libpq's words."),
    ] = "prefer"
    topic_routing: TopicRouting = "cdc.{database}.{schema}.{table}"

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
    wal_warning_bytes: Annotated[
        int, Meta(ge=1, description="Warn when the slot keeps more log than this.")
    ] = 1 << 30

    time_mode: Annotated[
        Literal["adaptive", "adaptive_time_microseconds", "connect", "isostring"],
        Meta(description="Dates and times as numbers in their own precision, in ms, or ISO 8601."),
    ] = "adaptive"
    interval_mode: Annotated[
        Literal["numeric", "string"],
        Meta(description="interval in microseconds (a month is 30.4375 days), or ISO 8601."),
    ] = "numeric"
    skipped_operations: Annotated[
        tuple[Literal["c", "u", "d", "t", "m"], ...],
        Meta(description="Operations that are left out."),
    ] = ()
    messages: Annotated[
        bool, Meta(description="Whether pg_logical_emit_message is told as events of op m.")
    ] = True
