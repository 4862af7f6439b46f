"""One namespace in service: its queues, who publishes there, and what its streams ask.

What is published goes to the stream of its exchange; what the stream's router offers goes to the
shards of the queues.
"""

from collections.abc import Sequence
from typing import Protocol

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.message import Message
from mainstem.queues.admission import Credit
from mainstem.queues.bodies_runtime import Bodies
from mainstem.queues.effects import Effects
from mainstem.queues.exchange import DEFAULT_EXCHANGE
from mainstem.queues.exchange_stream_runtime import ExchangeStream
from mainstem.queues.facts import SourcesPassed
from mainstem.queues.publisher_runtime import LivePublisher
from mainstem.queues.queue import Queue
from mainstem.queues.queue_shard_runtime import QueueShardRuntime
from mainstem.queues.router import Offer, Router
from mainstem.queues.settings import Overflow, QueueName
from mainstem.queues.space_book import SpaceBook
from mainstem.queues.space_exchanges_runtime import ExchangeSurroundings, SpaceExchanges
from mainstem.queues.steady_clock import SteadyClock
from mainstem.queues.vocabulary import Routing
from mainstem.queues.watermarks import Pressure
from mainstem.streams.writer_driver import StreamWriter


class Surroundings(ExchangeSurroundings, Protocol):
    """What a namespace asks of the rest of the room."""

    clock: SteadyClock
    bodies: Bodies

    def partition_for(self, key: str) -> int:
        """A number for a key."""
        ...

    def refused(self, space: "Space", queue: str, message: Message, routing: Routing) -> None:
        """A full queue wants what it refuses to be a dead letter."""
        ...


class Space(SpaceExchanges):
    """See the module."""

    def __init__(
        self, name: str, book: SpaceBook, home: QueueShardRuntime, around: Surroundings
    ) -> None:
        super().__init__(name, book, home, around)
        self.queues: dict[str, tuple[QueueShardRuntime, int]] = {}
        self.refusing: set[str] = set()
        self._house = around

    def make_stream(self, exchange: str, door: StreamWriter, router: Router) -> ExchangeStream:
        """A stream of an exchange, in service."""
        house = self._house
        return ExchangeStream(exchange, door, router, house.bodies, house.clock, self)

    def add_queue(self, name: str, shard: QueueShardRuntime, number: int) -> None:
        """A queue is there."""
        self.revision += 1
        self.queues[name] = (shard, number)
        self.note_settings(name)

    def begin(self, queue: Queue, effects: Effects) -> None:
        """A queue is new: what was appended before is not for it."""
        if sources := self.sources():
            queue.body.record(SourcesPassed(queue.body.id, tuple(sources)), effects)

    def note_settings(self, name: str) -> None:
        """A queue was declared, perhaps with other settings than before."""
        shard, number = self.queues[name]
        queue = shard.shard.queue(number)
        if queue is not None and queue.body.settings.overflow.needs_credit:
            self.refusing.add(name)
        else:
            self.refusing.discard(name)

    def remove_queue(self, name: str) -> None:
        """A queue is gone: its bindings go, and nothing is owed to it."""
        if self.queues.pop(name, None) is None:
            return
        self.refusing.discard(name)
        self.revision += 1
        self.change(self.book.topology.queue_gone(name))
        for stream in self.all_streams():
            if stream.router.on_queue_gone(name) is not None:
                self.stored(stream)

    def need(self, name: str, connection: str) -> tuple[QueueShardRuntime, int, Queue]:
        """A queue and its shard.

        Raises:
            InvalidRequest: there is none, or it belongs to another connection.
        """
        known = self.queues.get(name)
        if known is None:
            raise InvalidRequest(ErrorCode.UNKNOWN_QUEUE, f"no queue '{name}'", subject=name)
        shard = known[0]
        number, queue = shard.shard.need(QueueName(self.name, name), connection)
        return shard, number, queue

    def publish(
        self,
        publisher: LivePublisher,
        exchange: str,
        message: Message,
        routing: Routing,
        token: int,
    ) -> None:
        """A publisher has a message for an exchange."""
        streams = self.streams.get(exchange)
        if streams is None:
            # Raises where there is no such exchange; without a stream nobody is bound to it.
            if self.book.topology.live.exchange(exchange).internal and not publisher.is_forced:
                raise InvalidRequest(
                    ErrorCode.RESERVED_NAME, f"exchange '{exchange}' is internal", subject=exchange
                )
            publisher.nobody(token)
            return
        at = 0
        if len(streams) > 1:
            key = routing.keys[0]
            if exchange == DEFAULT_EXCHANGE:
                key = f"{self.name}\0{key}"
            at = self._house.partition_for(key) % len(streams)
        streams[at].publish(publisher, message, routing, token)

    def publish_many(
        self,
        publisher: LivePublisher,
        exchange: str,
        messages: Sequence[Message],
        routing: Routing,
        first: int,
    ) -> bool:
        """A publisher has messages for one stream; False where each has to be looked at."""
        streams = self.streams.get(exchange)
        if streams is None or (len(streams) > 1 and exchange != DEFAULT_EXCHANGE):
            return False
        at = 0
        if len(streams) > 1:
            at = self._house.partition_for(f"{self.name}\0{routing.keys[0]}") % len(streams)
        return streams[at].publish_many(publisher, messages, routing, first)

    def offer(self, stream: ExchangeStream, offer: Offer) -> None:
        """Messages are for a queue."""
        known = self.queues.get(offer.queue)
        if known is None:
            stream.on_stored(offer.queue, offer.pointers[-1].offset + 1)
        else:
            known[0].offer(known[1], offer, stream)

    def lend(self, queue: str, router: str, wanted: Credit) -> tuple[Overflow, Credit]:
        """Ask a queue that refuses for room."""
        shard, number = self.queues[queue]
        body = shard.shard.queue(number)
        assert body is not None, "queues are listed as long as they are there"
        return body.body.settings.overflow, body.gate.lend(router, wanted)

    def refused(self, queue: str, message: Message, routing: Routing) -> None:
        """A full queue wants what it refuses to be a dead letter."""
        self._house.refused(self, queue, message, routing)

    def admission_changed(self, queue: str, *, is_open: bool) -> None:
        """A queue takes messages, or takes none."""
        needs_credit = queue in self.refusing
        for stream in self.all_streams():
            if not needs_credit:
                stream.router.on_admission(queue, is_open=is_open)
            if is_open:
                self.later(stream.on_room)

    def on_pressure(self, level: Pressure) -> None:
        """Memory for queues runs short, or does no longer."""
        self.level = level
        for stream in self.all_streams():
            stream.router.pressure = level
