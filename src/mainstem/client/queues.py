"""The client for queues, over the native protocol.

    async with mainstem.connect("127.0.0.1:2925") as queues:
        orders = await queues.declare("orders")
        await orders.publish(b"first")
        async for message in orders.consume():
            async with message:
                ...

Guarantees: when ``publish`` returns, the message is stored; a lost connection is replaced after 1 s
to 5 min and every consumer continues, with the queues that ended with the old one declared again;
publishers wait while the node requests it.
"""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self

from mainstem.client.concurrency.background_tasks import TaskSet
from mainstem.client.native.connection import NativeConnection, NativeSettings
from mainstem.client.native.link import NativeLink
from mainstem.client.native.message import QueueMessage, Settler
from mainstem.client.native.queue import Exchange, Queue
from mainstem.client.native.queue_consumer import QueueConsumer
from mainstem.client.native.queue_consumers import QueueConsumers
from mainstem.client.native.topic_log import TopicLog
from mainstem.model.errors import MainstemError
from mainstem.wire.native import requests
from mainstem.wire.native.answers import (
    BindingInfo,
    BindingList,
    DeclaredQueue,
    Deliver,
    Ended,
    ExchangeInfo,
    ExchangeList,
    Flow,
    Got,
    Published,
    QueueInfo,
    QueueList,
    RefusedMessage,
)
from mainstem.wire.native.words import WireMessage, WireQueueSettings, Word

__all__ = ["NativeSettings", "QueueSettings", "Queues"]

QueueSettings = WireQueueSettings

MESSAGES_PER_FRAME: Final = 1_000
FRAME_BYTES: Final = 1024 * 1024
FLOW_TIMEOUT_S: Final = 60.0
# Declarations to repeat after a reconnect: queues that end with their connection.
REMEMBERED_MAX: Final = 10_000


class Queues:
    """Declares, lists and uses queues and exchanges over the native protocol.

    An async context manager.

    Args:
        addresses: one node or several, ``host:port`` each; the next one is tried when one is lost.
        settings: of the connection.
    """

    def __init__(
        self, addresses: str | Sequence[str], settings: NativeSettings | None = None
    ) -> None:
        self.settings = settings or NativeSettings()
        self._link = NativeLink(addresses, self.settings, self._on_notification, self._restore)
        self._fleeting: dict[str, requests.DeclareQueue] = {}
        self._may_publish = asyncio.Event()
        self._may_publish.set()
        self._gets: Settler | None = None
        self._tasks = TaskSet()
        self._consumptions = QueueConsumers(self._link, self._tasks)
        self.topics = TopicLog(self._link.ask)

    async def __aenter__(self) -> Self:
        try:
            await self._link.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._link.is_connected

    async def close(self) -> None:
        """Closes every consumer and the connection."""
        await self._consumptions.close()
        # Acknowledgements of the last loop turn are sent before the connection closes.
        await asyncio.sleep(0)
        await self._tasks.close()
        await self._link.close()

    # Queues

    def queue(self, name: str) -> Queue:
        """An existing queue; sends no request."""
        return Queue(self, name)

    async def declare(
        self,
        name: str = "",
        settings: QueueSettings | None = None,
        *,
        preset: Literal["native", "plain"] = "native",
        policy: Literal["fail", "ignore", "override"] = "fail",
    ) -> Queue:
        """Declares a queue; without a name the node generates one.

        Args:
            name: of the queue.
            settings: that differ from the preset.
            preset: ``native`` has limits, leases and retries; ``plain`` has none, as with AMQP.
            policy: what to do if the queue exists with other settings.

        Raises:
            InvalidRequest: it exists with other settings.
        """
        wanted = settings or QueueSettings()
        word = requests.DeclareQueue(name=name, settings=wanted, preset=preset, policy=policy)
        answer: DeclaredQueue = await self.ask(word)
        is_fleeting = wanted.exclusive or wanted.auto_delete or wanted.durable is False
        if is_fleeting and len(self._fleeting) < REMEMBERED_MAX:
            again = requests.DeclareQueue(
                name=answer.name, settings=wanted, preset=preset, policy=policy
            )
            self._fleeting[answer.name] = again
        return Queue(self, answer.name)

    async def list_queues(self) -> list[QueueInfo]:
        """Every queue of the namespace that the user may see."""
        answer: QueueList = await self.ask(requests.ListQueues())
        return answer.queues

    # Exchanges and bindings

    def exchange(self, name: str) -> Exchange:
        """An existing exchange; sends no request."""
        return Exchange(self, name)

    async def declare_exchange(
        self,
        name: str,
        kind: str = "topic",
        *,
        durable: bool = True,
        auto_delete: bool = False,
        alternate: str | None = None,
        shared: bool = False,
    ) -> Exchange:
        """Declares an exchange.

        Args:
            name: of the exchange; for Kafka clients this is the name of its topic.
            kind: direct, fanout, topic or headers.
            durable: whether it survives a restart of the node.
            auto_delete: whether it is deleted with its last binding.
            alternate: the exchange for messages that no queue matches.
            shared: whether an existing topic of that name may be used.
        """
        await self.ask(
            requests.DeclareExchange(
                name=name,
                kind=kind,
                durable=durable,
                auto_delete=auto_delete,
                alternate=alternate,
                shared=shared,
            )
        )
        return Exchange(self, name)

    async def list_exchanges(self) -> list[ExchangeInfo]:
        """Every exchange of the namespace that the user may see."""
        answer: ExchangeList = await self.ask(requests.ListExchanges())
        return answer.exchanges

    async def list_bindings(self) -> list[BindingInfo]:
        """Every binding of the namespace that the user may see."""
        answer: BindingList = await self.ask(requests.ListBindings())
        return answer.bindings

    # Used by queues, exchanges and consumers

    async def ask(self, word: Word) -> Any:
        """Sends a request, again over the next connection if this one ends meanwhile."""
        self._tasks.check()
        return await self._link.ask(word)

    async def ask_to_publish(
        self, exchange: str, key: str | None, messages: Sequence[WireMessage]
    ) -> Published:
        """Publishes in order, in as many frames as needed."""
        whole = Published(stored=0)
        for start, until in _portions(messages):
            async with asyncio.timeout(FLOW_TIMEOUT_S):
                await self._may_publish.wait()
            word = requests.Publish(
                exchange=exchange, key=key, messages=list(messages[start:until])
            )
            answer: Published = await self.ask(word)
            whole.stored += answer.stored
            whole.unrouted += [start + at for at in answer.unrouted]
            whole.refused += [
                RefusedMessage(start + each.place, each.error) for each in answer.refused
            ]
            if answer.refused:
                break
        return whole

    def consumption(self, word: requests.Subscribe) -> QueueConsumer:
        """A new consumer, with a number of its own."""
        return self._consumptions.new(word)

    def got(self, answer: Got, *, no_ack: bool) -> QueueMessage | None:
        """The message of a response to a get."""
        if answer.delivery is None:
            return None
        return QueueMessage(answer.delivery, None if no_ack else self._gets)

    async def _restore(self, connection: NativeConnection) -> None:
        """Restores declarations and subscriptions on a new connection."""
        self._may_publish.set()
        self._gets = Settler(connection, 0)
        for word in list(self._fleeting.values()):
            try:
                await connection.ask(word)
            except MainstemError as error:
                if error.retriable:
                    raise
                del self._fleeting[word.name]  # another connection owns it now
        await self._consumptions.restore(connection)

    def _on_notification(self, _: NativeConnection, word: Word) -> None:
        if isinstance(word, Deliver | Ended):
            self._consumptions.on_notification(word)
        elif isinstance(word, Flow):
            if word.publish:
                self._may_publish.set()
            else:
                self._may_publish.clear()


def _portions(messages: Sequence[WireMessage]) -> list[tuple[int, int]]:
    """Splits messages into [start, until) ranges that fit into one frame."""
    found: list[tuple[int, int]] = []
    start = size_bytes = 0
    for at, message in enumerate(messages):
        size_bytes += len(message.value or b"") + 64
        if at > start and (at - start >= MESSAGES_PER_FRAME or size_bytes > FRAME_BYTES):
            found.append((start, at))
            start, size_bytes = at, len(message.value or b"") + 64
    found.append((start, len(messages)))
    return found
