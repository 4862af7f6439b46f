"""What one MQTT client may publish and see.

Rules are about topics of the log. Whoever may write ``mqtt`` may publish anything that goes there;
a rule about ``mqtt/sensors/`` (literal or prefixed) allows just those MQTT topics.
"""

from typing import Final

from mainstem.broker.api.security import Rights
from mainstem.protocols.mqtt.settings import MqttSettings
from mainstem.protocols.permissions import PermissionCache
from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.security.authorisation.authoriser import AllRights
from mainstem.wire.mqtt.topics import shared_filter

DECISIONS_MAX: Final = 10_000


class MqttPermissions:
    """Checks what one MQTT client may publish and receive.

    Answers are remembered until a rule changes.
    """

    def __init__(self, settings: MqttSettings) -> None:
        self._settings = settings
        self._rights: Rights = AllRights()
        self._cache = PermissionCache(self._rights, self._decide, DECISIONS_MAX)
        self.is_free = True  # nothing need be asked

    def are_now(self, rights: Rights) -> None:
        """A login went well."""
        self._rights = rights
        self._cache = PermissionCache(rights, self._decide, DECISIONS_MAX)
        self.is_free = isinstance(rights, AllRights)

    def may_write(self, topic: str) -> bool:
        """Whether the client may publish to an MQTT topic."""
        return self.is_free or self._cache.may((Operation.WRITE, topic))

    def may_read(self, topic: str) -> bool:
        """Whether the client may see messages of an MQTT topic."""
        return self.is_free or self._cache.may((Operation.READ, topic))

    def may_subscribe(self, text: str) -> bool:
        """Whether a filter makes sense to the client; each message is asked about as well."""
        if self.is_free:
            return True
        shared = shared_filter(text)
        return self._cache.may((Operation.READ, text if shared is None else shared.filter))

    def _decide(self, key: tuple[Operation, str]) -> bool:
        operation, topic = key
        of_log = self._settings.topic_for(topic)
        may = self._rights.may
        return may(operation, ResourceType.TOPIC, of_log) or may(
            operation, ResourceType.TOPIC, f"{of_log}/{topic}"
        )
