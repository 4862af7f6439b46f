"""Permissions of one MQTT client: topics it may publish to and receive from.

Access rules refer to topics of the log. A user with ``Write`` on ``mqtt`` may publish to all MQTT
topics stored there; a rule on ``mqtt/sensors/`` (literal or prefixed) allows only those.
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
    """Checks which topics one MQTT client may publish to and receive from.

    Decisions are cached until a rule changes.
    """

    def __init__(self, settings: MqttSettings) -> None:
        self._settings = settings
        self._rights: Rights = AllRights()
        self._cache = PermissionCache(self._rights, self._decide, DECISIONS_MAX)
        self.is_free = True  # every operation is allowed

    def grant(self, rights: Rights) -> None:
        """Set the permissions after a successful login."""
        self._rights = rights
        self._cache = PermissionCache(rights, self._decide, DECISIONS_MAX)
        self.is_free = isinstance(rights, AllRights)

    def may_write(self, topic: str) -> bool:
        """Whether the client may publish to an MQTT topic."""
        return self.is_free or self._cache.may((Operation.WRITE, topic))

    def may_read(self, topic: str) -> bool:
        """Whether the client may receive messages of an MQTT topic."""
        return self.is_free or self._cache.may((Operation.READ, topic))

    def may_subscribe(self, text: str) -> bool:
        """Whether the client may subscribe to a filter; each message is checked as well."""
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
