"""The settings of share groups, with Kafka's defaults."""

from msgspec import Struct

_MINUTE_MS = 60_000


class ShareSettings(Struct, frozen=True, kw_only=True):
    """Each field says when to change it; ``_min`` and ``_max``: what a group may set for itself.

    Attributes:
        session_timeout_ms: time without heartbeats after which a member is removed.
        heartbeat_interval_ms: interval at which members send heartbeats.
        lock_duration_ms: how long a record is locked for a member; raise it for slow processing.
        delivery_limit: how often a record is delivered before it is archived.
        locks_max: records of one partition between the first and the last in delivery.
        members_max: members of one group.
        sessions_max: members that read from this node at once.
    """

    session_timeout_ms: int = 45_000
    session_timeout_min_ms: int = 45_000
    session_timeout_max_ms: int = _MINUTE_MS
    heartbeat_interval_ms: int = 5_000
    heartbeat_interval_min_ms: int = 5_000
    heartbeat_interval_max_ms: int = 15_000
    lock_duration_ms: int = 30_000
    lock_duration_min_ms: int = 15_000
    lock_duration_max_ms: int = _MINUTE_MS
    delivery_limit: int = 5
    delivery_limit_min: int = 2
    delivery_limit_max: int = 10
    locks_max: int = 2_000
    locks_max_min: int = 100
    locks_max_max: int = 4_000
    members_max: int = 200
    sessions_max: int = 2_000
