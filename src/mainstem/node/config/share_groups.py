"""The settings of share groups (KIP-932)."""

from typing import Annotated

from msgspec import Meta, Struct


class ShareSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Share groups; the fields are those of ``coordination.share.settings``."""

    session_timeout_ms: Annotated[
        int, Meta(ge=1, description="Time without a heartbeat after which a member counts as dead.")
    ] = 45_000
    session_timeout_min_ms: Annotated[
        int, Meta(ge=1, description="Smallest session time-out that a share group may set.")
    ] = 45_000
    session_timeout_max_ms: Annotated[
        int, Meta(ge=1, description="Largest session time-out that a share group may set.")
    ] = 60_000
    heartbeat_interval_ms: Annotated[
        int, Meta(ge=1, description="How often members of a share group send heartbeats.")
    ] = 5_000
    heartbeat_interval_min_ms: Annotated[
        int, Meta(ge=1, description="Smallest heartbeat interval that a share group may set.")
    ] = 5_000
    heartbeat_interval_max_ms: Annotated[
        int, Meta(ge=1, description="Largest heartbeat interval that a share group may set.")
    ] = 15_000
    lock_duration_ms: Annotated[
        int,
        Meta(
            ge=1_000,
            le=3_600_000,
            description="How long a record stays locked by a member before it is delivered to "
            "another. Raise it if processing takes longer.",
        ),
    ] = 30_000
    lock_duration_min_ms: Annotated[
        int, Meta(ge=1_000, le=30_000, description="Shortest lock that a share group may set.")
    ] = 15_000
    lock_duration_max_ms: Annotated[
        int, Meta(ge=30_000, le=3_600_000, description="Longest lock that a share group may set.")
    ] = 60_000
    delivery_limit: Annotated[
        int,
        Meta(
            ge=2,
            le=10,
            description="How often a record is delivered before the group archives it.",
        ),
    ] = 5
    delivery_limit_min: Annotated[
        int, Meta(ge=2, le=5, description="Smallest such limit that a share group may set.")
    ] = 2
    delivery_limit_max: Annotated[
        int, Meta(ge=5, le=25, description="Largest such limit that a share group may set.")
    ] = 10
    locks_max: Annotated[
        int,
        Meta(
            ge=100,
            le=10_000,
            description="Records of one partition between the first and the last in delivery. "
            "Raise it for many members and slow work.",
        ),
    ] = 2_000
    locks_max_min: Annotated[
        int, Meta(ge=100, le=2_000, description="Smallest such number that a share group may set.")
    ] = 100
    locks_max_max: Annotated[
        int,
        Meta(ge=2_000, le=10_000, description="Largest such number that a share group may set."),
    ] = 4_000
    members_max: Annotated[
        int, Meta(ge=1, le=1_000, description="Members of one share group; more are refused.")
    ] = 200
    sessions_max: Annotated[
        int, Meta(ge=1, description="Members of share groups that read from this node at once.")
    ] = 2_000

    def kafka_names(self) -> dict[str, str]:
        """What is set, under the names that Kafka's tools know."""
        names = {
            "delivery.count.limit": self.delivery_limit,
            "heartbeat.interval.ms": self.heartbeat_interval_ms,
            "max.delivery.count.limit": self.delivery_limit_max,
            "max.heartbeat.interval.ms": self.heartbeat_interval_max_ms,
            "max.partition.max.record.locks": self.locks_max_max,
            "max.record.lock.duration.ms": self.lock_duration_max_ms,
            "max.session.timeout.ms": self.session_timeout_max_ms,
            "max.share.sessions": self.sessions_max,
            "max.size": self.members_max,
            "min.delivery.count.limit": self.delivery_limit_min,
            "min.heartbeat.interval.ms": self.heartbeat_interval_min_ms,
            "min.partition.max.record.locks": self.locks_max_min,
            "min.record.lock.duration.ms": self.lock_duration_min_ms,
            "min.session.timeout.ms": self.session_timeout_min_ms,
            "partition.max.record.locks": self.locks_max,
            "record.lock.duration.ms": self.lock_duration_ms,
            "session.timeout.ms": self.session_timeout_ms,
        }
        return {f"group.share.{name}": str(value) for name, value in names.items()}
