"""Which rights the words of the native protocol take, in the words of access rules.

An exchange is its topic, a queue the topic ``queue.<name>``; those of another namespace than ``/``
are called as Kafka clients see them. Declaring takes CREATE, publishing WRITE, consuming READ; a
binding takes WRITE on where it leads and READ on where it comes from.
"""

from typing import Final

from mainstem.broker.queues_api import DEFAULT_EXCHANGE, topic_for
from mainstem.broker.security_api import Rights
from mainstem.security.acl import CLUSTER_NAME, Operation, ResourceType

_REMEMBERED_MAX: Final = 1_024


class Permissions:
    """What one connection may do; what was allowed is remembered until any rule changes."""

    def __init__(self, rights: Rights, namespace: str) -> None:
        self._rights = rights
        self._namespace = namespace
        self._allowed: dict[tuple[Operation, str], int] = {}

    def queue(self, operation: Operation, name: str) -> None:
        """Refuse unless the client may do that to a queue."""
        if self._rights.version:
            self.topic(operation, topic_for(self._namespace, f"queue.{name}"))

    def exchange(self, operation: Operation, name: str) -> None:
        """Refuse unless the client may do that to an exchange; the default one is everybody's."""
        if self._rights.version and name != DEFAULT_EXCHANGE:
            self.topic(operation, topic_for(self._namespace, name))

    def publish(self, exchange: str, key: str) -> None:
        """Refuse unless the client may publish there."""
        if exchange == DEFAULT_EXCHANGE:
            self.queue(Operation.WRITE, key)
        else:
            self.exchange(Operation.WRITE, exchange)

    def topic(self, operation: Operation, name: str) -> None:
        """Refuse unless the client may do that to a topic.

        Raises:
            InvalidRequest: it may not.
        """
        version = self._rights.version
        if not version or self._allowed.get((operation, name)) == version:
            return
        self._rights.need(operation, ResourceType.TOPIC, name)
        if len(self._allowed) >= _REMEMBERED_MAX:
            self._allowed.clear()
        self._allowed[operation, name] = version

    def create_topic(self, name: str) -> None:
        """Refuse unless the client may make topics at all, or this one."""
        rights = self._rights
        if not rights.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
            rights.need(Operation.CREATE, ResourceType.TOPIC, name)

    def sees_queue(self, name: str) -> bool:
        """Whether a queue is shown to the client."""
        return self.sees_topic(topic_for(self._namespace, f"queue.{name}"))

    def sees_exchange(self, name: str) -> bool:
        """Whether an exchange is shown to the client."""
        return name == DEFAULT_EXCHANGE or self.sees_topic(topic_for(self._namespace, name))

    def sees_topic(self, name: str) -> bool:
        """Whether a topic is shown to the client."""
        return self._rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
