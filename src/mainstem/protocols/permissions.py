"""The rights that requests of a client need, and a cache of the decisions.

An exchange is its topic, a queue the topic ``queue.<name>``; those of another namespace (virtual
host) than ``/`` are named as Kafka clients see them (``exchange.<namespace>.<name>``). Declaring
needs CREATE, deleting DELETE, publishing WRITE, consuming READ; a binding needs WRITE on its
destination and READ on its source.
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
    """Decisions about one client, cached until any rule changes.

    Args:
        rights: what the client may do.
        ask: decides; if it raises, nothing is cached, so that every refusal is audited.
        size_max: how many decisions are cached.
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
        namespace: the namespace of its queues and exchanges.
        denied: creates the protocol's own error; without it the broker's error is raised.
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
        """Refuse unless the client may do that to an exchange; the default one is allowed."""
        if self._rights.version and name != DEFAULT_EXCHANGE:
            self._cache.may((operation, EXCHANGE, name))

    def publish(self, exchange: str, key: str) -> None:
        """Refuse unless the client may publish to the exchange, or to the queue of the key."""
        if not self._rights.version:
            return
        if exchange == DEFAULT_EXCHANGE:
            self._cache.may((Operation.WRITE, QUEUE, key))
        else:
            self._cache.may((Operation.WRITE, EXCHANGE, exchange))

    def topic(self, operation: Operation, name: str) -> None:
        """Refuse unless the client may do that to a topic.

        Raises:
            InvalidRequest: the client may not.
        """
        if self._rights.version:
            self._cache.may((operation, TOPIC, name))

    def create_topic(self, name: str) -> None:
        """Refuse unless the client may create any topic, or this one."""
        rights = self._rights
        if not rights.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
            rights.need(Operation.CREATE, ResourceType.TOPIC, name)

    def sees_queue(self, name: str) -> bool:
        """Whether the client may see a queue."""
        return self.sees_topic(self._resource(QUEUE, name))

    def sees_exchange(self, name: str) -> bool:
        """Whether the client may see an exchange."""
        return name == DEFAULT_EXCHANGE or self.sees_topic(self._resource(EXCHANGE, name))

    def sees_topic(self, name: str) -> bool:
        """Whether the client may see a topic."""
        return self._rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name)

    def _resource(self, kind: str, name: str) -> str:
        """The topic name that access rules use for it."""
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
