"""The client for queues without asyncio: the same names, and every call waits.

    with BlockingQueues("127.0.0.1:2925") as queues:
        orders = queues.declare("orders")
        orders.publish(b"first")
        for message in orders.consume():
            with message:
                ...

The asyncio client runs in a thread of its own, so keep-alive and reconnects continue while the
program works. Thread-safe.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Literal, Self, Unpack

from mainstem.client.concurrency.loop_thread import LoopThread
from mainstem.client.concurrency.sync_wrapper import SyncWrapper, waits
from mainstem.client.native.connection import NativeSettings
from mainstem.client.native.message import MessageProperties, QueueMessage, RejectReason
from mainstem.client.native.queue import WINDOW, Exchange, PublishResult, Queue
from mainstem.client.queues import Queues, QueueSettings
from mainstem.wire.native.answers import QueueInfo
from mainstem.wire.native.words import WireMessage


class BlockingMessage:
    """One delivery; see ``QueueMessage``."""

    def __init__(self, thread: LoopThread, message: QueueMessage) -> None:
        self._thread = thread
        self.message = message
        self.value = message.value
        self.key = message.key
        self.headers = message.headers
        self.properties = message.properties
        self.attempt = message.attempt
        self.failures = message.failures

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.ack()
        else:
            self.nack(failed=isinstance(error, Exception))

    @property
    def text(self) -> str:
        """The body as text."""
        return self.message.text

    def ack(self) -> None:
        """Acknowledge the message."""
        self._thread.soon(self.message.ack)

    def nack(self, *, failed: bool = True, delay_ms: int | None = None) -> None:
        """Return the message to the queue, after a failed attempt or unprocessed."""
        self._thread.soon(partial(self.message.nack, failed=failed, delay_ms=delay_ms))

    def reject(self, reason: RejectReason = "rejected") -> None:
        """Reject the message: dead-letter it if the queue has a dead letter exchange."""
        self._thread.soon(partial(self.message.reject, reason))


class BlockingQueue:
    """One queue; see ``Queue``."""

    def __init__(self, thread: LoopThread, queue: Queue) -> None:
        self._thread = thread
        self._queue = queue
        self.name = queue.name

    def publish(self, value: bytes | str | None, **properties: Unpack[MessageProperties]) -> None:
        """Publishes a message to this queue and waits until it is stored."""
        self._thread.call(self._queue.publish(value, **properties))

    def publish_many(self, messages: Iterable[bytes | str | WireMessage]) -> int:
        """Publishes messages in order and waits until all are stored; returns how many."""
        return self._thread.call(self._queue.publish_many(messages))

    def consume(
        self, *, window: int = WINDOW, no_ack: bool = False, idle_ms: int | None = None
    ) -> Iterator[BlockingMessage]:
        """Messages as they arrive, for ``for``; ends after ``idle_ms`` without one."""
        messages = self._queue.consume(window=window, no_ack=no_ack)
        self._thread.call(messages.open())
        try:
            while True:
                try:
                    message = self._thread.call(messages.next(idle_ms))
                except TimeoutError:
                    return
                yield BlockingMessage(self._thread, message)
        finally:
            self._thread.call(messages.close())

    def get(self, *, no_ack: bool = False) -> BlockingMessage | None:
        """One message, if one is ready."""
        message = self._thread.call(self._queue.get(no_ack=no_ack))
        return None if message is None else BlockingMessage(self._thread, message)

    def info(self) -> QueueInfo:
        """Describes the queue: messages, consumers, settings."""
        return self._thread.call(self._queue.info())

    def move(self, to: "BlockingQueue | None" = None, *, limit: int | None = None) -> int:
        """Moves ready messages to another queue, by default dead letters to their origin."""
        return self._thread.call(self._queue.move(None if to is None else to._queue, limit=limit))

    def purge(self) -> int:
        """Drops all messages that are not being delivered; returns how many."""
        return self._thread.call(self._queue.purge())

    def delete(self, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Deletes the queue; returns how many messages were ready."""
        return self._thread.call(self._queue.delete(if_unused=if_unused, if_empty=if_empty))


class BlockingExchange:
    """One exchange; see ``Exchange``."""

    def __init__(self, thread: LoopThread, exchange: Exchange) -> None:
        self._thread = thread
        self._exchange = exchange
        self.name = exchange.name

    def publish(
        self, value: bytes | str | None, *, key: str = "", **properties: Unpack[MessageProperties]
    ) -> bool:
        """Publishes a message and waits until it is stored; returns whether a queue received it."""
        return self._thread.call(self._exchange.publish(value, key=key, **properties))

    def publish_many(
        self, messages: Iterable[bytes | str | WireMessage], *, key: str = ""
    ) -> PublishResult:
        """Publishes messages in order and waits until all are stored."""
        return self._thread.call(self._exchange.publish_many(messages, key=key))

    def bind(self, to: "BlockingQueue | BlockingExchange", key: str = "") -> None:
        """Binds a queue or another exchange to this exchange."""
        self._thread.call(self._exchange.bind(_inner(to), key))

    def unbind(self, to: "BlockingQueue | BlockingExchange", key: str = "") -> None:
        """Deletes a binding."""
        self._thread.call(self._exchange.unbind(_inner(to), key))

    def delete(self, *, if_unused: bool = False) -> None:
        """Deletes the exchange and its bindings."""
        self._thread.call(self._exchange.delete(if_unused=if_unused))


class BlockingQueues(SyncWrapper[Queues]):
    """Uses queues without asyncio; every call blocks. A context manager.

    Args:
        addresses: one node or several, ``host:port`` each.
        settings: of the connection.
    """

    def __init__(
        self,
        addresses: str | Sequence[str] = "127.0.0.1:2925",
        settings: NativeSettings | None = None,
    ) -> None:
        super().__init__(lambda: Queues(addresses, settings))

    def queue(self, name: str) -> BlockingQueue:
        """An existing queue; sends no request."""
        thread, queues = self.parts
        return BlockingQueue(thread, queues.queue(name))

    def declare(
        self,
        name: str = "",
        settings: QueueSettings | None = None,
        *,
        preset: Literal["native", "plain"] = "native",
        policy: Literal["fail", "ignore", "override"] = "fail",
    ) -> BlockingQueue:
        """Declares a queue; without a name the node generates one."""
        thread, queues = self.parts
        made = thread.call(queues.declare(name, settings, preset=preset, policy=policy))
        return BlockingQueue(thread, made)

    list_queues = waits(Queues.list_queues)
    list_exchanges = waits(Queues.list_exchanges)
    list_bindings = waits(Queues.list_bindings)

    def exchange(self, name: str) -> BlockingExchange:
        """An existing exchange; sends no request."""
        thread, queues = self.parts
        return BlockingExchange(thread, queues.exchange(name))

    def declare_exchange(
        self, name: str, kind: str = "topic", *, shared: bool = False
    ) -> BlockingExchange:
        """Declares an exchange."""
        thread, queues = self.parts
        made = thread.call(queues.declare_exchange(name, kind, shared=shared))
        return BlockingExchange(thread, made)


def _inner(to: BlockingQueue | BlockingExchange) -> Queue | Exchange:
    return to._queue if isinstance(to, BlockingQueue) else to._exchange
