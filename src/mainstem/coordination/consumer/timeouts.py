"""Session timeout and heartbeat interval of consumer groups: the group's setting or the node's."""

from mainstem.coordination.consumer.topics import GroupTopics
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.model.config.group import HEARTBEAT_INTERVAL, SESSION_TIMEOUT


class GroupTimeouts:
    """Timeouts of consumer groups; a change takes effect at the next heartbeat."""

    def __init__(self, settings: GroupSettings, topics: GroupTopics) -> None:
        self._settings = settings
        self._topics = topics

    def session_timeout_ms(self, group_id: str) -> int:
        """Time without heartbeats after which a member is removed."""
        settings, chosen_ms = self._settings, self._topics.set_on(group_id, SESSION_TIMEOUT)
        if chosen_ms is None:
            return settings.consumer_session_timeout_ms
        least_ms = settings.consumer_session_timeout_min_ms
        return min(max(chosen_ms, least_ms), settings.consumer_session_timeout_max_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Interval at which members of the group send heartbeats."""
        settings, chosen_ms = self._settings, self._topics.set_on(group_id, HEARTBEAT_INTERVAL)
        if chosen_ms is None:
            return settings.consumer_heartbeat_interval_ms
        least_ms = settings.consumer_heartbeat_interval_min_ms
        return min(max(chosen_ms, least_ms), settings.consumer_heartbeat_interval_max_ms)
