"""Which rights a client's requests take, and how the answers are remembered.

An exchange is its topic, a queue the topic ``queue.<name>``; those of another namespace (virtual
host) than ``/`` are called as Kafka clients see them (``exchange.<namespace>.<name>``). Declaring
takes CREATE, deleting DELETE, publishing WRITE, consuming READ; a binding takes WRITE on where it
leads and READ on where it comes from.
"""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from mainstem.broker.api.queues import DEFAULT_EXCHANGE, topic_for
from mainstem.broker.api.security import Rights
from mainstem.model.errors import MainstemError
from mainstem.security.authorisation.acl import CLUSTER_NAME, Operation, ResourceType

QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"
TOPIC: Final = "topic"

_REMEMBERED_MAX: Final = 1_024

Denied = Callable[[Operation, str, str], Exception]  # the operation, the kind and the name
K = TypeVar("K")


class PermissionCache(Generic[K]):
    """Decisions about one client, remembered until any rule changes.

    Args:
        rights: what the client may do.
        ask: decides; where it raises, nothing is remembered, so that every refusal is audited.
        size_max: how many decisions are remembered.
    """

    __slots__ = ("_ask", "_known", "_rights", "_size_max", "_version")

    def __init__(self, rights: Rights, ask: Callable[[K], bool], size_max: int) -> None:
        self._rights = rights
        self._ask = ask
        self._size_max = size_max
        self._version = rights.version
        self._known: dict[K, bool] = {}

    def may(self, key: K) -> bool:
        """Whether the client may do what ``key`` stands for."""
        version = self._rights.version
        if version != self._version:
            self._version = version
            self._known.clear()
        known = self._known.get(key)
        if known is None:
            known = self._ask(key)
            if len(self._known) >= self._size_max:
                self._known.clear()
            self._known[key] = known
        return known


class ClientPermissions:
    """What one client may do to queues, exchanges and topics.

    Args:
        rights: what access rules allow the client.
        namespace: where its queues and exchanges are.
        denied: makes the protocol's own error of a refusal; without it the broker's is raised.
    """

    __slots__ = ("_cache", "_denied", "_namespace", "_rights")

    def __init__(self, rights: Rights, namespace: str, denied: Denied | None = None) -> None:
        self._rights = rights
        self._namespace = namespace
        self._denied = denied
        self._cache = PermissionCache(rights, self._ask, _REMEMBERED_MAX)

    def queue(self, operation: Operation, name: str) -> None:
        """Refuse unless the client may do that to a queue."""
        if self._rights.version:
            self._cache.may((operation, QUEUE, name))

    def exchange(self, operation: Operation, name: str) -> None:
        """Refuse unless the client may do that to an exchange; the default one is everybody's."""
        if self._rights.version and name != DEFAULT_EXCHANGE:
            self._cache.may((operation, EXCHANGE, name))

    def publish(self, exchange: str, key: str) -> None:
        """Refuse unless the client may publish there."""
        if not self._rights.version:
            return
        if exchange == DEFAULT_EXCHANGE:
            self._cache.may((Operation.WRITE, QUEUE, key))
        else:
            self._cache.may((Operation.WRITE, EXCHANGE, exchange))

    def topic(self, operation: Operation, name: str) -> None:
        """Refuse unless the client may do that to a topic.

        Raises:
            InvalidRequest: it may not.
        """
        if self._rights.version:
            self._cache.may((operation, TOPIC, name))

    def create_topic(self, name: str) -> None:
        """Refuse unless the client may make topics at all, or this one."""
        rights = self._rights
        if not rights.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
            rights.need(Operation.CREATE, ResourceType.TOPIC, name)

    def sees_queue(self, name: str) -> bool:
        """Whether a queue is shown to the client."""
        return self.sees_topic(self._resource(QUEUE, name))

    def sees_exchange(self, name: str) -> bool:
        """Whether an exchange is shown to the client."""
        return name == DEFAULT_EXCHANGE or self.sees_topic(self._resource(EXCHANGE, name))

    def sees_topic(self, name: str) -> bool:
        """Whether a topic is shown to the client."""
        return self._rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name)

    def _resource(self, kind: str, name: str) -> str:
        """The topic that access rules name."""
        if kind == TOPIC:
            return name
        return topic_for(self._namespace, f"queue.{name}" if kind == QUEUE else name)

    def _ask(self, key: tuple[Operation, str, str]) -> bool:
        operation, kind, name = key
        try:
            self._rights.need(operation, ResourceType.TOPIC, self._resource(kind, name))
        except MainstemError:
            if self._denied is None:
                raise
            raise self._denied(operation, kind, name) from None
        return True
