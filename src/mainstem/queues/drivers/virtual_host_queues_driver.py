"""The queues of one virtual host by name: offers, credit and admission."""

from collections.abc import Callable

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.message import Message
from mainstem.queues.admission.credit import Credit
from mainstem.queues.api_types import Routing
from mainstem.queues.engine.queue_machine import Queue
from mainstem.queues.publishing.exchange_stream_driver import ExchangeStream
from mainstem.queues.routing.router import Offer
from mainstem.queues.settings import Overflow, QueueName
from mainstem.queues.shards.shard_driver import QueueShardDriver

# Virtual host, queue, message, routing.
OnRefused = Callable[[str, str, Message, Routing], None]


class VirtualHostQueues:
    """Finds the queues of one virtual host and requests credit from them.

    ``refusing``: queues that refuse or block when they are full. ``revision`` counts the
    changes of queues, exchanges and bindings.
    """

    def __init__(self, host: str, on_refused: OnRefused) -> None:
        self.host = host
        self._on_refused = on_refused
        self.by_name: dict[str, tuple[QueueShardDriver, int]] = {}
        self.refusing: set[str] = set()
        self.revision = 0

    def add(self, name: str, shard: QueueShardDriver, number: int) -> None:
        """Add a declared queue, or update its settings."""
        self.changed()
        self.by_name[name] = (shard, number)
        queue = shard.shard.queue(number)
        if queue is not None and queue.body.settings.overflow.needs_credit:
            self.refusing.add(name)
        else:
            self.refusing.discard(name)

    def remove(self, name: str) -> bool:
        """Remove a deleted queue; returns whether it existed."""
        if self.by_name.pop(name, None) is None:
            return False
        self.refusing.discard(name)
        self.changed()
        return True

    def changed(self) -> None:
        """Invalidate cached routes after a change of queues, exchanges or bindings."""
        self.revision += 1

    def need(self, name: str, connection: str) -> tuple[QueueShardDriver, int, Queue]:
        """A queue and its shard.

        Raises:
            InvalidRequest: it does not exist, or belongs to another connection.
        """
        known = self.by_name.get(name)
        if known is None:
            raise InvalidRequest(ErrorCode.UNKNOWN_QUEUE, f"no queue '{name}'", subject=name)
        shard = known[0]
        number, queue = shard.shard.need(QueueName(self.host, name), connection)
        return shard, number, queue

    def offer(self, stream: ExchangeStream, offer: Offer) -> None:
        """Offer messages to a queue."""
        known = self.by_name.get(offer.queue)
        if known is None:
            stream.on_stored(offer.queue, offer.pointers[-1].offset + 1)
        else:
            known[0].offer(known[1], offer, stream)

    def lend(self, queue: str, router: str, wanted: Credit) -> tuple[Overflow, Credit]:
        """Request credit from a queue that refuses."""
        shard, number = self.by_name[queue]
        body = shard.shard.queue(number)
        assert body is not None, "queues are listed while they exist"
        return body.body.settings.overflow, body.admission.lend(router, wanted)

    def refused(self, queue: str, message: Message, routing: Routing) -> None:
        """Dead-letter a message that a full queue refused."""
        self._on_refused(self.host, queue, message, routing)
