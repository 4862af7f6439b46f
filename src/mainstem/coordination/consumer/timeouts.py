"""How long members of a consumer group may be silent: what the group sets, or the node."""

from mainstem.coordination.consumer.topics import GroupTopics
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.model.config.group import HEARTBEAT_INTERVAL, SESSION_TIMEOUT


class GroupTimeouts:
    """The times that members are told; a change counts from the next heartbeat on."""

    def __init__(self, settings: GroupSettings, topics: GroupTopics) -> None:
        self._settings = settings
        self._topics = topics

    def session_timeout_ms(self, group_id: str) -> int:
        """Silence after which a member of the group counts as dead."""
        settings, chosen_ms = self._settings, self._topics.set_on(group_id, SESSION_TIMEOUT)
        if chosen_ms is None:
            return settings.consumer_session_timeout_ms
        least_ms = settings.consumer_session_timeout_min_ms
        return min(max(chosen_ms, least_ms), settings.consumer_session_timeout_max_ms)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often members of the group show that they live."""
        settings, chosen_ms = self._settings, self._topics.set_on(group_id, HEARTBEAT_INTERVAL)
        if chosen_ms is None:
            return settings.consumer_heartbeat_interval_ms
        least_ms = settings.consumer_heartbeat_interval_min_ms
        return min(max(chosen_ms, least_ms), settings.consumer_heartbeat_interval_max_ms)
