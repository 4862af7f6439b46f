"""Settings of one group, by Kafka's names; what is not set comes from the node.

``consumer.*`` applies to groups that the coordinator assigns, ``share.*`` to groups that share
records. A group may have both: which of them apply is known once it has members.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from mainstem.model.config.key import BOOLEAN, INT, STRING, ConfigKey, unknown_key
from mainstem.model.errors import ErrorCode, InvalidRequest

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
SHARE_SESSION_TIMEOUT = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL = "share.heartbeat.interval.ms"
SHARE_LOCK_DURATION = "share.record.lock.duration.ms"
SHARE_DELIVERY_LIMIT = "share.delivery.count.limit"
SHARE_LOCKS_MAX = "share.partition.max.record.locks"
SHARE_OFFSET_RESET = "share.auto.offset.reset"
SHARE_ISOLATION = "share.isolation.level"
SHARE_RENEWS = "share.renew.acknowledge.enable"

EARLIEST, LATEST = "earliest", "latest"
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
_BY_DURATION = "by_duration:"

GROUP_KEYS: dict[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            name=HEARTBEAT_INTERVAL,
            type=INT,
            default="5000",
            documentation="How often members of the group send heartbeats.",
            at_least=1,
        ),
        ConfigKey(
            name=SESSION_TIMEOUT,
            type=INT,
            default="45000",
            documentation="Time without a heartbeat after which a member counts as dead.",
            at_least=1,
        ),
        ConfigKey(
            name=SHARE_OFFSET_RESET,
            type=STRING,
            default=LATEST,
            documentation="Where a share group starts to read: earliest, latest, or "
            "by_duration:P… with an ISO 8601 duration before now.",
        ),
        ConfigKey(
            name=SHARE_DELIVERY_LIMIT,
            type=INT,
            default="5",
            documentation="How often a record is delivered before the share group archives it.",
            at_least=2,
        ),
        ConfigKey(
            name=SHARE_HEARTBEAT_INTERVAL,
            type=INT,
            default="5000",
            documentation="How often members of the share group send heartbeats.",
            at_least=1,
        ),
        ConfigKey(
            name=SHARE_ISOLATION,
            type=STRING,
            default=READ_UNCOMMITTED,
            documentation="Whether the share group reads records of transactions that were "
            "aborted or are still open.",
            one_of=(READ_COMMITTED, READ_UNCOMMITTED),
        ),
        ConfigKey(
            name=SHARE_LOCKS_MAX,
            type=INT,
            default="2000",
            documentation="Records of one partition between the first and the last in delivery.",
            at_least=100,
        ),
        ConfigKey(
            name=SHARE_LOCK_DURATION,
            type=INT,
            default="30000",
            documentation="How long a record stays locked before it is delivered again.",
            at_least=1000,
        ),
        ConfigKey(
            name=SHARE_RENEWS,
            type=BOOLEAN,
            default="true",
            documentation="Whether members may extend the lock of a record by renewing it.",
        ),
        ConfigKey(
            name=SHARE_SESSION_TIMEOUT,
            type=INT,
            default="45000",
            documentation="Time without a heartbeat after which a member counts as dead.",
            at_least=1,
        ),
    )
}
"""Every group setting by name."""


OF_GROUPS_ONLY = frozenset({SHARE_OFFSET_RESET, SHARE_ISOLATION, SHARE_RENEWS})
"""Those that a node has no setting for."""

NODE_NAMES = {name: f"group.{name}" for name in GROUP_KEYS if name not in OF_GROUPS_ONLY}
"""The node-level name that supplies the default of each of the others."""


class GroupBounds(Struct, frozen=True):
    """The bounds of group settings, (least, most), from the node's configuration."""

    session_timeout_ms: tuple[int, int] = (45_000, 60_000)
    heartbeat_interval_ms: tuple[int, int] = (5_000, 15_000)
    share_session_timeout_ms: tuple[int, int] = (45_000, 60_000)
    share_heartbeat_interval_ms: tuple[int, int] = (5_000, 15_000)
    share_lock_duration_ms: tuple[int, int] = (15_000, 60_000)
    share_delivery_limit: tuple[int, int] = (2, 10)
    share_locks: tuple[int, int] = (100, 4_000)

    @classmethod
    def of(cls, node_configs: Mapping[str, str]) -> "GroupBounds":
        """The bounds in a node's configuration, by Kafka's names."""
        defaults = cls()

        def pair(kind: str, name: str, known: tuple[int, int]) -> tuple[int, int]:
            least = node_configs.get(f"group.{kind}.min.{name}", known[0])
            most = node_configs.get(f"group.{kind}.max.{name}", known[1])
            return int(least), int(most)

        return cls(
            pair("consumer", "session.timeout.ms", defaults.session_timeout_ms),
            pair("consumer", "heartbeat.interval.ms", defaults.heartbeat_interval_ms),
            pair("share", "session.timeout.ms", defaults.share_session_timeout_ms),
            pair("share", "heartbeat.interval.ms", defaults.share_heartbeat_interval_ms),
            pair("share", "record.lock.duration.ms", defaults.share_lock_duration_ms),
            pair("share", "delivery.count.limit", defaults.share_delivery_limit),
            pair("share", "partition.max.record.locks", defaults.share_locks),
        )

    def for_key(self, name: str) -> tuple[int, int] | None:
        """The bounds of one setting; None where it has none."""
        return {
            SESSION_TIMEOUT: self.session_timeout_ms,
            HEARTBEAT_INTERVAL: self.heartbeat_interval_ms,
            SHARE_SESSION_TIMEOUT: self.share_session_timeout_ms,
            SHARE_HEARTBEAT_INTERVAL: self.share_heartbeat_interval_ms,
            SHARE_LOCK_DURATION: self.share_lock_duration_ms,
            SHARE_DELIVERY_LIMIT: self.share_delivery_limit,
            SHARE_LOCKS_MAX: self.share_locks,
        }.get(name)


def check_group_configs(configs: Mapping[str, str], bounds: GroupBounds | None = None) -> None:
    """Check names and values, and with ``bounds`` also whether a group may choose them.

    Raises:
        InvalidRequest: an unknown name, a value out of bounds.
    """
    for name, text in configs.items():
        key = GROUP_KEYS.get(name)
        if key is None:
            raise unknown_key(name, GROUP_KEYS, "group")
        value = key.parse(text)
        if name == SHARE_OFFSET_RESET:
            reset_of(text)
        allowed = None if bounds is None else bounds.for_key(name)
        if allowed is None:
            continue
        assert isinstance(value, int), "all that have bounds are numbers"
        least, most = allowed
        if not least <= value <= most:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                f"{name} is {value}, which is not between {least} and {most}",
                subject=name,
            )


_DURATION = re.compile(
    r"P(?:(?P<days>[0-9]{1,9})D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]{1,9})H)?(?:(?P<minutes>[0-9]{1,9})M)?"
    r"(?:(?P<seconds>[0-9]{1,9})(?:\.(?P<fraction>[0-9]{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)


def reset_of(text: str) -> str | int:
    """Where a share group starts: ``EARLIEST``, ``LATEST``, or this many milliseconds ago.

    Raises:
        InvalidRequest: the text is none of them.
    """
    word = text.strip()
    if word.lower() in (EARLIEST, LATEST):
        return word.lower()
    found = None
    if word.lower().startswith(_BY_DURATION):
        duration = word[len(_BY_DURATION) :]
        found = _DURATION.fullmatch(duration) if len(duration) > 1 else None
    if found is None:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"{text[:100]!r} is not a reset strategy",
            subject=SHARE_OFFSET_RESET,
            remedy=f"use {EARLIEST}, {LATEST} or {_BY_DURATION}PnDTnHnMn.nS",
        )
    days, hours, minutes, seconds = (
        int(found[unit] or 0) for unit in ("days", "hours", "minutes", "seconds")
    )
    fraction_ms = int(((found["fraction"] or "") + "000")[:3])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms
