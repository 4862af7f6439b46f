"""Queue and exchange objects: publish, consume, bind, browse."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, Unpack

from msgspec import Struct

from mainstem.client.native.errors import mainstem_error
from mainstem.client.native.message import MessageProperties, QueueMessage, outgoing
from mainstem.client.native.queue_consumer import QueueConsumer
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.wire.native import requests
from mainstem.wire.native.answers import (
    BrowsedList,
    BrowsedMessage,
    Got,
    MessageCount,
    Published,
    QueueInfo,
    QueueList,
)
from mainstem.wire.native.words import WireMessage, Word

WINDOW: Final = 100


class PublishResult(Struct, frozen=True):
    """The result of a batch: how many are stored, and the indexes of those routed to no queue."""

    stored: int
    unrouted: tuple[int, ...] = ()


class QueueClient(Protocol):
    """The operations of the client that queues and exchanges use."""

    async def ask(self, word: Word) -> Any:
        """Send a request and wait for its response."""
        ...

    async def ask_to_publish(
        self, exchange: str, key: str | None, messages: Sequence[WireMessage]
    ) -> Published:
        """Publish in order, in as many frames as needed."""
        ...

    def consumption(self, word: requests.Subscribe) -> QueueConsumer:
        """A new consumer; its subscription number is filled in."""
        ...

    def got(self, answer: Got, *, no_ack: bool) -> QueueMessage | None:
        """The message of a response to a get."""
        ...


class Exchange:
    """One exchange. Made by ``Queues.exchange`` and ``Queues.declare_exchange``."""

    def __init__(self, client: QueueClient, name: str) -> None:
        self._client = client
        self.name = name

    async def publish(
        self, value: bytes | str | None, *, key: str = "", **properties: Unpack[MessageProperties]
    ) -> bool:
        """Publishes a message and waits until it is stored; returns whether a queue received it.

        Raises:
            MainstemError: it is not stored.
        """
        result = await self.publish_many([outgoing(value, properties)], key=key)
        return not result.unrouted

    async def publish_many(
        self, messages: Iterable[bytes | str | WireMessage], *, key: str = ""
    ) -> PublishResult:
        """Publishes messages in order and waits until all are stored.

        Raises:
            MainstemError: the first refusal; those before it may be stored.
        """
        return await _published(self._client, self.name, key, messages)

    async def bind(
        self,
        to: "Queue | Exchange",
        key: str = "",
        *,
        headers: Mapping[str, bytes | None] | None = None,
    ) -> None:
        """Binds a queue or another exchange to this exchange."""
        await self._client.ask(
            requests.Bind(
                exchange=self.name,
                to=to.name,
                key=key,
                headers=dict(headers or {}),
                to_exchange=isinstance(to, Exchange),
            )
        )

    async def unbind(
        self,
        to: "Queue | Exchange",
        key: str = "",
        *,
        headers: Mapping[str, bytes | None] | None = None,
    ) -> None:
        """Deletes a binding; messages already routed stay in their queues."""
        await self._client.ask(
            requests.Unbind(
                exchange=self.name,
                to=to.name,
                key=key,
                headers=dict(headers or {}),
                to_exchange=isinstance(to, Exchange),
            )
        )

    async def delete(self, *, if_unused: bool = False) -> None:
        """Deletes the exchange and its bindings."""
        await self._client.ask(requests.DeleteExchange(name=self.name, if_unused=if_unused))


class Queue:
    """One queue. Made by ``Queues.queue`` and ``Queues.declare``."""

    def __init__(self, client: QueueClient, name: str) -> None:
        self._client = client
        self.name = name

    async def publish(
        self, value: bytes | str | None, **properties: Unpack[MessageProperties]
    ) -> None:
        """Publishes a message to this queue and waits until it is stored.

        Raises:
            InvalidRequest: the queue does not exist.
            MainstemError: it is not stored: the queue is full, or the node failed.
        """
        await self.publish_many([outgoing(value, properties)])

    async def publish_many(self, messages: Iterable[bytes | str | WireMessage]) -> int:
        """Publishes messages in order and waits until all are stored; returns how many.

        Raises:
            MainstemError: the first refusal; those before it may be stored.
        """
        result = await _published(self._client, "", self.name, messages)
        if result.unrouted:
            raise InvalidRequest(
                ErrorCode.UNKNOWN_QUEUE,
                "the queue does not exist",
                subject=self.name,
                remedy="declare it first",
            )
        return result.stored

    def consume(
        self,
        *,
        window: int = WINDOW,
        no_ack: bool = False,
        exclusive: bool = False,
        priority: int = 0,
        subscriber: str | None = None,
    ) -> QueueConsumer:
        """Messages as they arrive, for ``async for``.

        Args:
            window: how many may be unsettled at a time.
            no_ack: messages are settled when sent; those in transit are lost with the connection.
            exclusive: no other consumer is allowed.
            priority: consumers of higher priority get messages first.
            subscriber: the durable name of a subscriber, for fan-out queues.
        """
        return self._client.consumption(
            requests.Subscribe(
                subscription=0,
                queue=self.name,
                window=window,
                credit=window if no_ack else None,
                no_ack=no_ack,
                exclusive=exclusive,
                priority=priority,
                subscriber=subscriber,
            )
        )

    async def get(self, *, no_ack: bool = False) -> QueueMessage | None:
        """One message, if one is ready."""
        answer: Got = await self._client.ask(requests.Get(queue=self.name, no_ack=no_ack))
        return self._client.got(answer, no_ack=no_ack)

    async def info(self) -> QueueInfo:
        """Describes the queue: messages, consumers, settings."""
        answer: QueueList = await self._client.ask(requests.DescribeQueue(name=self.name))
        return answer.queues[0]

    async def browse(self, *, start: int = 0, limit: int = 100) -> list[BrowsedMessage]:
        """Browses messages from a sequence number on; none is removed."""
        word = requests.BrowseQueue(name=self.name, start=start, limit=limit)
        answer: BrowsedList = await self._client.ask(word)
        return answer.messages

    async def move(self, to: "Queue | None" = None, *, limit: int | None = None) -> int:
        """Moves ready messages to another queue, by default dead letters to their origin."""
        word = requests.MoveMessages(
            name=self.name, to=None if to is None else to.name, limit=limit
        )
        answer: MessageCount = await self._client.ask(word)
        return answer.messages

    async def purge(self) -> int:
        """Drops all messages that are not being delivered; returns how many."""
        answer: MessageCount = await self._client.ask(requests.PurgeQueue(name=self.name))
        return answer.messages

    async def delete(self, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Deletes the queue; returns how many messages were ready."""
        word = requests.DeleteQueue(name=self.name, if_unused=if_unused, if_empty=if_empty)
        answer: MessageCount = await self._client.ask(word)
        return answer.messages


async def _published(
    client: QueueClient, exchange: str, key: str, messages: Iterable[bytes | str | WireMessage]
) -> PublishResult:
    batch = [m if isinstance(m, WireMessage) else outgoing(m, {}) for m in messages]
    if not batch:
        return PublishResult(0)
    answer = await client.ask_to_publish(exchange, key, batch)
    if answer.refused:
        raise mainstem_error(answer.refused[0].error)
    return PublishResult(answer.stored, tuple(answer.unrouted))
