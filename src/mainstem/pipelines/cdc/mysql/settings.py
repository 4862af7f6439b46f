"""The settings of change data capture from MySQL and MariaDB, as they stand in a pipeline file."""

from typing import Annotated, Literal

from msgspec import Meta

from mainstem.pipelines.cdc.settings import CdcConfig, Port, TopicRouting

Operation = Literal["c", "u", "d", "t"]


class MysqlCdcConfig(CdcConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which server, which tables (all of ``database`` if none), and how their changes are told."""

    port: Port = 3306
    user: Annotated[
        str, Meta(description="A user with SELECT, REPLICATION SLAVE and BINLOG MONITOR.")
    ] = "root"
    ssl: Annotated[
        Literal["disable", "prefer", "require", "verify"],
        Meta(description="Whether connections are encrypted, and the server's name checked."),
    ] = "prefer"
    topic_routing: TopicRouting = "cdc.{database}.{table}"
    schema_changes_topic: Annotated[
        str | None, Meta(description="Topic that statements changing the schema are told to.")
    ] = None

    time_mode: Annotated[
        Literal["adaptive_time_microseconds", "connect", "isostring"],
        Meta(description="Dates and times as numbers in their own precision, in ms, or ISO 8601."),
    ] = "adaptive_time_microseconds"
    skipped_operations: Annotated[
        tuple[Operation, ...], Meta(description="Operations that are left out.")
    ] = ()

    @property
    def chosen(self) -> tuple[str, ...]:
        """The patterns of tables to follow."""
        return self.tables or (f"{self.database}.*",)
