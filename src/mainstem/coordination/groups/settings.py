"""The settings of group coordination, with Kafka's defaults."""

from msgspec import Struct

from mainstem.model import limits

_MINUTE_MS = 60_000


class GroupSettings(Struct, frozen=True, kw_only=True):
    """Each field says when to change it.

    Attributes:
        initial_rebalance_delay_ms: how long the first member of an empty group waits for others;
            0 in tests and for groups of one.
        session_timeout_min_ms: lower it only to notice dead members sooner than six seconds.
        session_timeout_max_ms: raise it for members that are silent for more than half an hour.
        new_member_timeout_ms: how long a first join may stay unanswered.
        members_max: members of one group.
        offset_metadata_bytes_max: raise it for clients that keep much beside an offset.
        offsets_retention_ms: how long positions outlive their group; at least the longest pause.
        offsets_retention_check_ms: how often expired positions are looked for.
        offsets_partitions: streams that share the groups; fixed once the topic exists.
        consumer_session_timeout_ms: silence after which a member that is assigned by the
            coordinator counts as dead; members of such groups do not choose it themselves.
        consumer_heartbeat_interval_ms: how often those members are told to show that they live;
            lower it to hand partitions over sooner, raise it for very large groups.
        consumer_session_timeout_min_ms, consumer_session_timeout_max_ms: what a group may set for
            itself; also what was set before these were changed is kept within them.
        consumer_heartbeat_interval_min_ms, consumer_heartbeat_interval_max_ms: the same.
        consumer_members_max: members of one such group.
        consumer_migration_policy: which ways a group with members may change its protocol:
            bidirectional, upgrade (to the coordinator's assignment), downgrade, disabled.
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
