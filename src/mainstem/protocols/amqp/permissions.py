"""Which rights AMQP's verbs take, in the words of access rules.

An exchange is its topic, a queue the topic ``queue.<name>``; in another virtual host than ``/``
both are called as Kafka clients see them (``exchange.<host>.<name>``). Configuring takes CREATE and
DELETE, publishing WRITE, consuming READ; a binding takes WRITE on where it leads and READ on where
it comes from.
"""

from typing import Final

from mainstem.broker.queues_api import DEFAULT_EXCHANGE, topic_for
from mainstem.broker.security_api import Rights
from mainstem.model.errors import MainstemError
from mainstem.protocols.amqp.refusal import ACCESS_REFUSED, ChannelRefusal
from mainstem.security.acl import Operation, ResourceType

_REMEMBERED_MAX: Final = 1_024


class Permissions:
    """What one channel may do; what was allowed is remembered until any rule changes."""

    def __init__(self, rights: Rights, namespace: str, user: str) -> None:
        self._rights = rights
        self._namespace = namespace
        self._user = user
        self._allowed: dict[tuple[Operation, str], int] = {}

    def queue(self, operation: Operation, name: str) -> None:
        """Refuse unless the client may do that to a queue."""
        if self._rights.version:
            self._need(operation, topic_for(self._namespace, f"queue.{name}"), "queue", name)

    def exchange(self, operation: Operation, name: str) -> None:
        """Refuse unless the client may do that to an exchange; the default one is everybody's."""
        if self._rights.version and name != DEFAULT_EXCHANGE:
            self._need(operation, topic_for(self._namespace, name), "exchange", name)

    def publish(self, exchange: str, key: str) -> None:
        """Refuse unless the client may publish there."""
        if not self._rights.version:
            return
        if exchange == DEFAULT_EXCHANGE:
            self.queue(Operation.WRITE, key)
        else:
            self.exchange(Operation.WRITE, exchange)

    def _need(self, operation: Operation, resource: str, what: str, name: str) -> None:
        rights = self._rights
        version = rights.version
        if self._allowed.get((operation, resource)) == version:
            return
        try:
            rights.need(operation, ResourceType.TOPIC, resource)
        except MainstemError:
            raise ChannelRefusal(
                ACCESS_REFUSED,
                f"{operation.name.lower()} access to {what} '{name}' in vhost "
                f"'{self._namespace}' refused for user '{self._user}'",
            ) from None
        if len(self._allowed) >= _REMEMBERED_MAX:
            self._allowed.clear()
        self._allowed[operation, resource] = version
