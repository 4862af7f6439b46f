"""The settings of group coordination, with Kafka's defaults."""

from msgspec import Struct

from mainstem.model import limits

_MINUTE_MS = 60_000


class GroupSettings(Struct, frozen=True, kw_only=True):
    """Each field description states when to change it.

    Attributes:
        initial_rebalance_delay_ms: how long the first member of an empty group waits for others;
            0 in tests and for groups of one.
        session_timeout_min_ms: lower it only to detect failed members sooner than six seconds.
        session_timeout_max_ms: raise it for members without heartbeats for over half an hour.
        new_member_timeout_ms: how long a first join may stay unanswered.
        members_max: members of one group.
        offset_metadata_bytes_max: raise it for clients that store much metadata with an offset.
        offsets_retention_ms: how long offsets of an empty group are kept; at least the longest
            pause of a consumer.
        offsets_retention_check_ms: interval between checks for expired offsets.
        offsets_partitions: partitions of the internal topic; fixed once the topic exists.
        consumer_session_timeout_ms: time without heartbeats after which a member of a consumer
            group is removed; members of such groups do not choose it themselves.
        consumer_heartbeat_interval_ms: interval at which those members send heartbeats; lower it
            to move partitions sooner, raise it for very large groups.
        consumer_session_timeout_min_ms, consumer_session_timeout_max_ms: limits of what a group
            may set for itself; values that were set before are limited as well.
        consumer_heartbeat_interval_min_ms, consumer_heartbeat_interval_max_ms: the same.
        consumer_members_max: members of one such group.
        consumer_migration_policy: allowed protocol changes of a group with members:
            bidirectional, upgrade (to the consumer protocol), downgrade, disabled.
    """

    initial_rebalance_delay_ms: int = 3_000
    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 30 * _MINUTE_MS
    new_member_timeout_ms: int = 5 * _MINUTE_MS
    members_max: int = limits.GROUP_MEMBERS_MAX
    offset_metadata_bytes_max: int = limits.OFFSET_METADATA_BYTES_MAX
    offsets_retention_ms: int = 7 * 24 * 60 * _MINUTE_MS
    offsets_retention_check_ms: int = 10 * _MINUTE_MS
    offsets_partitions: int = 50
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_session_timeout_min_ms: int = 45_000
    consumer_session_timeout_max_ms: int = 60_000
    consumer_heartbeat_interval_min_ms: int = 5_000
    consumer_heartbeat_interval_max_ms: int = 15_000
    consumer_members_max: int = limits.GROUP_MEMBERS_MAX
    consumer_migration_policy: str = "bidirectional"
