"""Effective settings of a share group: the group's own within the node's limits, or the node's."""

from collections.abc import Callable, Mapping

from mainstem.coordination.share.partition import SharePartitionLimits
from mainstem.coordination.share.settings import ShareSettings
from mainstem.model.config.group import (
    GROUP_KEYS,
    READ_COMMITTED,
    SHARE_DELIVERY_LIMIT,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_ISOLATION,
    SHARE_LOCK_DURATION,
    SHARE_LOCKS_MAX,
    SHARE_OFFSET_RESET,
    SHARE_RENEWS,
    SHARE_SESSION_TIMEOUT,
    reset_of,
)

Texts = Callable[[str], Mapping[str, str]]


class ShareConfigs:
    """The settings of share groups; a change takes effect at the next request.

    Args:
        settings: the node's settings.
        texts: returns the settings of a group, by Kafka's names.
    """

    def __init__(self, settings: ShareSettings, texts: Texts) -> None:
        self.settings = settings
        self._texts = texts

    def session_timeout_ms(self, group_id: str) -> int:
        """Time without heartbeats after which a member is removed."""
        s = self.settings
        return self._number(
            group_id,
            SHARE_SESSION_TIMEOUT,
            s.session_timeout_ms,
            (s.session_timeout_min_ms, s.session_timeout_max_ms),
        )

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Interval at which members of the group send heartbeats."""
        s = self.settings
        return self._number(
            group_id,
            SHARE_HEARTBEAT_INTERVAL,
            s.heartbeat_interval_ms,
            (s.heartbeat_interval_min_ms, s.heartbeat_interval_max_ms),
        )

    def rules(self, group_id: str) -> SharePartitionLimits:
        """Lock duration, delivery limit and window size of the group."""
        s = self.settings
        return SharePartitionLimits(
            lock_duration_ms=self._number(
                group_id,
                SHARE_LOCK_DURATION,
                s.lock_duration_ms,
                (s.lock_duration_min_ms, s.lock_duration_max_ms),
            ),
            delivery_limit=self._number(
                group_id,
                SHARE_DELIVERY_LIMIT,
                s.delivery_limit,
                (s.delivery_limit_min, s.delivery_limit_max),
            ),
            locks_max=self._number(
                group_id, SHARE_LOCKS_MAX, s.locks_max, (s.locks_max_min, s.locks_max_max)
            ),
            renews=bool(GROUP_KEYS[SHARE_RENEWS].parse(self._text(group_id, SHARE_RENEWS))),
        )

    def reset(self, group_id: str) -> str | int:
        """Where the group starts to read: ``EARLIEST``, ``LATEST``, or milliseconds before now."""
        return reset_of(self._text(group_id, SHARE_OFFSET_RESET))

    def committed_only(self, group_id: str) -> bool:
        """Whether the group reads with isolation level ``read_committed``."""
        return self._text(group_id, SHARE_ISOLATION) == READ_COMMITTED

    def _text(self, group_id: str, name: str) -> str:
        return self._texts(group_id).get(name) or GROUP_KEYS[name].default or ""

    def _number(self, group_id: str, name: str, known: int, bounds: tuple[int, int]) -> int:
        chosen = self._texts(group_id).get(name)
        return known if chosen is None else min(max(int(chosen), bounds[0]), bounds[1])
