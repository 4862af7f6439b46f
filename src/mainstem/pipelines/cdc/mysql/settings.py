"""The settings of change data capture from MySQL and MariaDB in a pipeline file."""

from typing import Annotated, Literal

from msgspec import Meta

from mainstem.pipelines.cdc.settings import CdcConfig, Port, TopicRouting

Operation = Literal["c", "u", "d", "t"]


class MysqlCdcConfig(CdcConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Server, tables (all of ``database`` if none), and the format of change events."""

    port: Port = 3306
    user: Annotated[
        str, Meta(description="User with SELECT, REPLICATION SLAVE and BINLOG MONITOR.")
    ] = "root"
    ssl: Annotated[
        Literal["disable", "prefer", "require", "verify"],
        Meta(description="Whether connections are encrypted, and the server's name verified."),
    ] = "prefer"
    topic_routing: TopicRouting = "cdc.{database}.{table}"
    schema_changes_topic: Annotated[
        str | None, Meta(description="Topic for statements that change the schema.")
    ] = None

    time_mode: Annotated[
        Literal["adaptive_time_microseconds", "connect", "isostring"],
        Meta(description="Dates and times as numbers in column precision, in ms, or ISO 8601."),
    ] = "adaptive_time_microseconds"
    skipped_operations: Annotated[
        tuple[Operation, ...], Meta(description="Operations for which no events are written.")
    ] = ()

    @property
    def chosen(self) -> tuple[str, ...]:
        """The patterns of tables to capture."""
        return self.tables or (f"{self.database}.*",)
