"""One virtual host: its queues, its exchanges, and publishing.

A published message goes to the stream of its exchange; pointers that the stream's router offers go
to the shards of the queues.
"""

import asyncio
from collections.abc import Sequence

from mainstem.coordination.shards.partitioning import partition_for
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.message import Message
from mainstem.queues.api_types import Routing
from mainstem.queues.context import QueuesContext
from mainstem.queues.drivers.virtual_host_exchanges_driver import VirtualHostExchanges
from mainstem.queues.drivers.virtual_host_queues_driver import OnRefused, VirtualHostQueues
from mainstem.queues.engine.effects import QueueEffects
from mainstem.queues.engine.queue_machine import Queue
from mainstem.queues.facts import SourcesPassed
from mainstem.queues.publishing.publish_flush_driver import PublishFlusher
from mainstem.queues.publishing.publisher_driver import QueuePublisher
from mainstem.queues.routing.exchange import DEFAULT_EXCHANGE
from mainstem.queues.shards.shard_driver import QueueShardDriver

# The hash of a key is below this; modulo the number of partitions it gives the partition.
_KEY_HASH_MAX = 2**31 - 1


class VirtualHost:
    """Serves one virtual host to publishers; the shard ``home`` stores its topology."""

    def __init__(
        self,
        name: str,
        home: QueueShardDriver,
        flusher: PublishFlusher,
        context: QueuesContext,
        on_refused: OnRefused,
    ) -> None:
        self.name = name
        self.home = home
        self.state = home.live.shard.virtual_host(name)
        self.queues = VirtualHostQueues(name, on_refused)
        self.exchanges = VirtualHostExchanges(self.state, home, self.queues, flusher, context)

    def begin(self, queue: Queue, effects: QueueEffects) -> None:
        """Exclude messages that were appended before from a new queue."""
        if sources := self.exchanges.sources():
            queue.body.record(SourcesPassed(queue.body.id, tuple(sources)), effects)

    def remove_queue(self, name: str) -> None:
        """Remove a deleted queue with its bindings and pending offers."""
        if self.queues.remove(name):
            self.exchanges.queue_gone(name)

    def publish(
        self,
        publisher: QueuePublisher,
        exchange: str,
        message: Message,
        routing: Routing,
        token: int,
    ) -> None:
        """Publish a message to an exchange."""
        streams = self.exchanges.streams.get(exchange)
        if streams is None:
            # Raises for an unknown exchange; one without a stream has no bindings.
            if self.state.topology.live.exchange(exchange).internal and not publisher.is_forced:
                raise InvalidRequest(
                    ErrorCode.RESERVED_NAME, f"exchange '{exchange}' is internal", subject=exchange
                )
            publisher.unrouted(token)
            return
        at = 0
        if len(streams) > 1:
            key = routing.keys[0]
            if exchange == DEFAULT_EXCHANGE:
                key = f"{self.name}\0{key}"
            at = partition_for(key, _KEY_HASH_MAX) % len(streams)
        streams[at].batcher.publish(publisher, message, routing, token)

    def publish_many(
        self,
        publisher: QueuePublisher,
        exchange: str,
        messages: Sequence[Message],
        routing: Routing,
        first: int,
    ) -> bool:
        """Publish messages to one stream; False if they have to be published one by one."""
        streams = self.exchanges.streams.get(exchange)
        if streams is None or (len(streams) > 1 and exchange != DEFAULT_EXCHANGE):
            return False
        at = 0
        if len(streams) > 1:
            at = partition_for(f"{self.name}\0{routing.keys[0]}", _KEY_HASH_MAX) % len(streams)
        return streams[at].batcher.publish_many(publisher, messages, routing, first)

    def admission_changed(self, queue: str, *, is_open: bool) -> None:
        """Notify routers that a queue accepts messages, or no longer does."""
        needs_credit = queue in self.queues.refusing
        for stream in self.exchanges.all_streams():
            if not needs_credit:
                stream.router.on_admission(queue, is_open=is_open)
            if is_open:
                asyncio.get_running_loop().call_soon(stream.batcher.on_space)
