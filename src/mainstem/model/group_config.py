"""Settings of one consumer group, by Kafka's names; what is not set comes from the node."""

from collections.abc import Mapping

from msgspec import Struct

from mainstem.model.config_key import INT, ConfigKey, unknown_key
from mainstem.model.errors import ErrorCode, InvalidRequest

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"

GROUP_KEYS: dict[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            name=HEARTBEAT_INTERVAL,
            type=INT,
            default="5000",
            documentation="How often members of the group show that they live.",
            at_least=1,
        ),
        ConfigKey(
            name=SESSION_TIMEOUT,
            type=INT,
            default="45000",
            documentation="Silence after which a member of the group counts as dead.",
            at_least=1,
        ),
    )
}
"""Every group setting by name."""


NODE_NAMES = {name: f"group.{name}" for name in GROUP_KEYS}
"""The node-level name that supplies the default of each."""


class GroupBounds(Struct, frozen=True):
    """What groups may set, (least, most), as the node's configuration says."""

    session_timeout_ms: tuple[int, int] = (45_000, 60_000)
    heartbeat_interval_ms: tuple[int, int] = (5_000, 15_000)

    @classmethod
    def of(cls, node_configs: Mapping[str, str]) -> "GroupBounds":
        """The bounds in a node's configuration, by Kafka's names."""
        defaults = cls()

        def pair(name: str, known: tuple[int, int]) -> tuple[int, int]:
            least = node_configs.get(f"group.consumer.min.{name}", known[0])
            most = node_configs.get(f"group.consumer.max.{name}", known[1])
            return int(least), int(most)

        return cls(
            pair("session.timeout.ms", defaults.session_timeout_ms),
            pair("heartbeat.interval.ms", defaults.heartbeat_interval_ms),
        )


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
        assert isinstance(value, int), "all of them are numbers"
        if bounds is None:
            continue
        is_session = name == SESSION_TIMEOUT
        least, most = bounds.session_timeout_ms if is_session else bounds.heartbeat_interval_ms
        if not least <= value <= most:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                f"{name} is {value}, which is not between {least} and {most}",
                subject=name,
            )
