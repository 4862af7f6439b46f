"""The client for queues without asyncio: the same names, and every call waits.

    with BlockingQueues("127.0.0.1:2925") as queues:
        orders = queues.declare("orders")
        orders.publish(b"first")
        for message in orders.consume():
            with message:
                ...

The asyncio client runs in a thread of its own, so keep-alive and reconnects go on while the program
works. All of it may be used from several threads.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar, Unpack

from mainstem.client.native_connection import NativeSettings
from mainstem.client.queue import WINDOW, Exchange, PublishResult, Queue
from mainstem.client.queue_message import Properties, QueueMessage, RejectReason
from mainstem.client.queues import Queues, QueueSettings
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.wire.native.answers import QueueInfo
from mainstem.wire.native.words import WireMessage

Result = TypeVar("Result")
JOIN_TIMEOUT_S: Final = 10.0


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="mainstem-client", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Carries work out in the loop and waits for it."""
        if not self._thread.is_alive():
            work.close()
            raise InvalidRequest(ErrorCode.INVALID_REQUEST, "the client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def soon(self, call: Callable[[], None]) -> None:
        """Has something done in the loop, in its turn; nothing is done once it is closed."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(call)

    def close(self) -> None:
        """Ends the loop and its thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


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
        """Done."""
        self._thread.soon(self.message.ack)

    def nack(self, *, failed: bool = True, delay_ms: int | None = None) -> None:
        """Back to the queue, after a failed try or untried."""
        self._thread.soon(partial(self.message.nack, failed=failed, delay_ms=delay_ms))

    def reject(self, reason: RejectReason = "rejected") -> None:
        """Never again: to the dead letters, where the queue has a place for them."""
        self._thread.soon(partial(self.message.reject, reason))


class BlockingQueue:
    """One queue; see ``Queue``."""

    def __init__(self, thread: LoopThread, queue: Queue) -> None:
        self._thread = thread
        self._queue = queue
        self.name = queue.name

    def publish(self, value: bytes | str | None, **properties: Unpack[Properties]) -> None:
        """Publishes a message to this queue and waits until it is stored."""
        self._thread.call(self._queue.publish(value, **properties))

    def publish_many(self, messages: Iterable[bytes | str | WireMessage]) -> int:
        """Publishes messages in order and waits until all are stored; how many."""
        return self._thread.call(self._queue.publish_many(messages))

    def consume(
        self, *, window: int = WINDOW, no_ack: bool = False, idle_ms: int | None = None
    ) -> Iterator[BlockingMessage]:
        """Messages as they come, for ``for``; ends when none came for ``idle_ms``."""
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
        """How the queue is: messages, consumers, settings."""
        return self._thread.call(self._queue.info())

    def move(self, to: "BlockingQueue | None" = None, *, limit: int | None = None) -> int:
        """Moves ready messages to another queue; dead letters without one go where they died."""
        return self._thread.call(self._queue.move(None if to is None else to._queue, limit=limit))

    def purge(self) -> int:
        """Drops what is in nobody's hands; how many messages."""
        return self._thread.call(self._queue.purge())

    def delete(self, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Takes the queue away; how many messages were ready."""
        return self._thread.call(self._queue.delete(if_unused=if_unused, if_empty=if_empty))


class BlockingExchange:
    """One exchange; see ``Exchange``."""

    def __init__(self, thread: LoopThread, exchange: Exchange) -> None:
        self._thread = thread
        self._exchange = exchange
        self.name = exchange.name

    def publish(
        self, value: bytes | str | None, *, key: str = "", **properties: Unpack[Properties]
    ) -> bool:
        """Publishes a message and waits until it is stored; whether any queue got it."""
        return self._thread.call(self._exchange.publish(value, key=key, **properties))

    def publish_many(
        self, messages: Iterable[bytes | str | WireMessage], *, key: str = ""
    ) -> PublishResult:
        """Publishes messages in order and waits until all are stored."""
        return self._thread.call(self._exchange.publish_many(messages, key=key))

    def bind(self, to: "BlockingQueue | BlockingExchange", key: str = "") -> None:
        """Lets messages go to a queue or to another exchange from now on."""
        self._thread.call(self._exchange.bind(_inner(to), key))

    def unbind(self, to: "BlockingQueue | BlockingExchange", key: str = "") -> None:
        """Ends a binding."""
        self._thread.call(self._exchange.unbind(_inner(to), key))

    def delete(self, *, if_unused: bool = False) -> None:
        """Takes the exchange away, with its bindings."""
        self._thread.call(self._exchange.delete(if_unused=if_unused))


class BlockingQueues:
    """See the module's text. A context manager.

    Args:
        addresses: one node or several, ``host:port`` each.
        settings: how to talk to them.
    """

    def __init__(
        self,
        addresses: str | Sequence[str] = "127.0.0.1:2925",
        settings: NativeSettings | None = None,
    ) -> None:
        self._addresses = addresses
        self._settings = settings
        self._thread: LoopThread | None = None
        self._queues: Queues | None = None

    def __enter__(self) -> Self:
        thread = LoopThread()
        try:
            self._queues = thread.call(_opened(self._addresses, self._settings))
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends every consumption and the connection."""
        thread, queues = self._thread, self._queues
        self._thread = self._queues = None
        if thread is not None and queues is not None:
            thread.call(queues.close())
            thread.close()

    def queue(self, name: str) -> BlockingQueue:
        """A queue that is there already; nothing is asked."""
        thread, queues = self._parts()
        return BlockingQueue(thread, queues.queue(name))

    def declare(
        self,
        name: str = "",
        settings: QueueSettings | None = None,
        *,
        preset: Literal["native", "plain"] = "native",
        policy: Literal["fail", "ignore", "override"] = "fail",
    ) -> BlockingQueue:
        """Lets a queue be there; without a name the node makes one up."""
        thread, queues = self._parts()
        made = thread.call(queues.declare(name, settings, preset=preset, policy=policy))
        return BlockingQueue(thread, made)

    def list_queues(self) -> list[QueueInfo]:
        """Every queue of the namespace that we may see."""
        thread, queues = self._parts()
        return thread.call(queues.list_queues())

    def exchange(self, name: str) -> BlockingExchange:
        """An exchange that is there already; nothing is asked."""
        thread, queues = self._parts()
        return BlockingExchange(thread, queues.exchange(name))

    def declare_exchange(
        self, name: str, kind: str = "topic", *, shared: bool = False
    ) -> BlockingExchange:
        """Lets an exchange be there."""
        thread, queues = self._parts()
        made = thread.call(queues.declare_exchange(name, kind, shared=shared))
        return BlockingExchange(thread, made)

    def _parts(self) -> tuple[LoopThread, Queues]:
        if self._thread is None or self._queues is None:
            raise InvalidRequest(ErrorCode.INVALID_REQUEST, "the client is not open")
        return self._thread, self._queues


async def _opened(addresses: str | Sequence[str], settings: NativeSettings | None) -> Queues:
    return await Queues(addresses, settings).__aenter__()


def _inner(to: BlockingQueue | BlockingExchange) -> Queue | Exchange:
    return to._queue if isinstance(to, BlockingQueue) else to._exchange
