"""The limits of MQTT sessions of a node, and the topics that their messages go to."""

from typing import Final

from msgspec import Struct

from mainstem.model.limits import MIB

NEVER_S: Final = 0xFFFF_FFFF  # MQTT's value for a session that does not expire
WINDOW_MAX: Final = 65_535


class TopicRoute(Struct, frozen=True):
    """Routes MQTT topics with a prefix to a topic of the log."""

    prefix: str
    topic: str


class MqttSettings(Struct, frozen=True, kw_only=True):
    """The limits of MQTT on one node."""

    topic: str = "mqtt"
    routes: tuple[TopicRoute, ...] = ()
    packet_bytes_max: int = 1 * MIB
    receive_max: int = 1_000  # unacknowledged messages that a client may have sent
    window_max: int = 1_000  # unacknowledged messages that the node may have sent to a client
    topic_aliases_max: int = 100
    session_expiry_max_s: int = 7 * 24 * 3600
    sessions_max: int = 100_000
    subscriptions_max: int = 1_000  # of one session
    waiting_max: int = 100_000  # messages that wait for one session
    retained_max: int = 1_000_000
    retained_bytes_max: int = 256 * MIB
    keep_alive_max_s: int = 0  # 0: no limit
    connect_timeout_ms: int = 30_000

    def topic_for(self, name: str) -> str:
        """The topic of the log for an MQTT topic: that of the longest matching prefix."""
        found, length = self.topic, -1
        for route in self.routes:
            if len(route.prefix) > length and name.startswith(route.prefix):
                found, length = route.topic, len(route.prefix)
        return found

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics of the log that MQTT reads, without duplicates."""
        return tuple(dict.fromkeys([self.topic, *(route.topic for route in self.routes)]))
