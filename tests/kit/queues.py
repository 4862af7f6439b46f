"""Queues on real files: stopped, killed and started again in one process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.kit.streams import StreamNode
from tests.kit.waiting import eventually

from mainstem.broker.api.queues import (
    Binding,
    ConsumeRequest,
    ConsumerWindow,
    Delivery,
    Destination,
    Exchange,
    ExchangeKind,
    Published,
    QueueSettings,
    Routing,
    Subscription,
)
from mainstem.broker.services.topics_service import NodeDefaults, TopicsAdmin
from mainstem.model.ids import NodeId
from mainstem.model.message import Message
from mainstem.model.metadata import Node
from mainstem.node.clock import SystemClock
from mainstem.node.queues import QueueServices
from mainstem.queues.routing.message_routing import routing_of

NAMESPACE = "/"
MEMORY_BYTES = 10**9
PATIENCE_S = 5.0


class Inbox:
    """A consumer that keeps what it is given."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.endings: list[object] = []
        self.subscription: Subscription

    @property
    def bodies(self) -> list[bytes | None]:
        """What came, in order."""
        return [each.message.value for each in self.deliveries]

    @property
    def numbers(self) -> list[int]:
        """What names it when it is settled."""
        return [each.number for each in self.deliveries]

    async def wait_for(self, count: int) -> list[bytes | None]:
        """Wait until so many messages have come."""
        await eventually(lambda: len(self.deliveries) >= count)
        return self.bodies


class QueueNode(StreamNode):
    """A node of streams and queues."""

    def __init__(self, folder: Path, memory_bytes_max: int = MEMORY_BYTES) -> None:
        super().__init__(folder)
        # Time passes by itself here: leases, expiry and delays are waited for.
        self.clock = SystemClock()  # type: ignore[assignment]
        self.rooms: QueueServices
        self._memory_bytes_max = memory_bytes_max
        self.answers: dict[int, Published] = {}
        self._token = 0

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        node = Node(NodeId(1), "127.0.0.1", 9092)
        topics = TopicsAdmin(self.placement.service, node, NodeDefaults({}))
        self.rooms = QueueServices(
            self.placement.service,
            topics,
            self.streams,
            self.clock,
            memory_bytes_max=self._memory_bytes_max,
        )
        self.queues = self.rooms.service
        self.rooms.driver.start()
        await self.queues.ready()
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.rooms.driver.stop()
        await super().__aexit__(*args)

    async def declare(self, name: str, **settings: object) -> None:
        """A queue like that."""
        wish = QueueSettings(**settings)  # type: ignore[arg-type]
        await self.queues.declare_queue(NAMESPACE, name, wish, connection="c")

    async def exchange(self, name: str, kind: str = "direct", **more: object) -> None:
        """An exchange of that kind."""
        wish = Exchange(name=name, kind=ExchangeKind(kind), **more)  # type: ignore[arg-type]
        await self.queues.declare_exchange(NAMESPACE, wish)

    async def bind(self, exchange: str, queue: str, key: str = "") -> None:
        """A way from an exchange to a queue."""
        target = Destination(is_queue=True, name=queue)
        await self.queues.bind(NAMESPACE, Binding(exchange, target, key), connection="c")

    def publish(self, exchange: str, key: str, *bodies: bytes, **more: object) -> list[int]:
        """Publish without waiting; the tokens."""
        publisher = self.queues.publisher(NAMESPACE, self._settled)
        tokens = []
        for body in bodies:
            self._token += 1
            routing = Routing((key,), **more)  # type: ignore[arg-type]
            publisher.publish(exchange, Message(key.encode(), body), routing, self._token)
            tokens.append(self._token)
        return tokens

    async def send(
        self, exchange: str, key: str, *bodies: bytes, **more: object
    ) -> list[Published]:
        """Publish and wait for the answers."""
        return await self.settled(self.publish(exchange, key, *bodies, **more))

    async def send_message(self, exchange: str, message: Message) -> Published:
        """Publish a message with headers."""
        self._token += 1
        publisher = self.queues.publisher(NAMESPACE, self._settled)
        publisher.publish(exchange, message, routing_of(message), self._token)
        return (await self.settled([self._token]))[0]

    async def settled(self, tokens: Sequence[int]) -> list[Published]:
        """The answers to publishes."""
        await eventually(lambda: all(token in self.answers for token in tokens))
        return [self.answers[token] for token in tokens]

    def consume(self, queue: str, window: int = 0, **wish: object) -> Inbox:
        """A consumer of a queue."""
        inbox = Inbox()
        wanted = ConsumeRequest(window=ConsumerWindow(window), connection="c", **wish)  # type: ignore[arg-type]
        inbox.subscription = self.queues.consume(
            NAMESPACE, queue, wanted, inbox.deliveries.extend, inbox.endings.append
        )
        return inbox

    async def drain(self, queue: str) -> list[bytes | None]:
        """All that is ready in a queue, settled by being taken."""
        found: list[bytes | None] = []
        while True:
            delivery, _ = await self.queues.get(NAMESPACE, queue, connection="c", no_ack=True)
            if delivery is None:
                return found
            found.append(delivery.message.value)

    def _settled(self, tokens: Sequence[int], published: Published) -> None:
        for token in tokens:
            assert token not in self.answers, "one answer to one publish"
            self.answers[token] = published
