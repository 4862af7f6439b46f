"""Consuming a queue: an async iterator of messages that outlives connections.

    async for message in queue.consume():
        async with message:
            ...

Guarantees: at most ``window`` messages are unsettled, including those not yet returned by the
iterator; after a lost connection the subscription is restored on the next one, and unsettled
messages are redelivered; deletion of the queue ends the iteration with an error; leaving the loop
ends the subscription, and messages not yet returned go back to the queue.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final, Protocol, Self

from mainstem.client.native.connection import NativeConnection
from mainstem.client.native.errors import copy_of, mainstem_error
from mainstem.client.native.message import QueueMessage, Settler
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.wire.native.answers import Deliver, Ended
from mainstem.wire.native.requests import Credit, Subscribe, Unsubscribe

RETRY_S: Final = 1.0


class ConsumerOwner(Protocol):
    """The client that a consumer belongs to."""

    async def begin(self, consumption: "QueueConsumer") -> None:
        """Subscribe now and after every reconnect."""
        ...

    async def end(self, consumption: "QueueConsumer") -> None:
        """Unsubscribe."""
        ...

    def retry(self, consumption: "QueueConsumer", delay_s: float) -> None:
        """Subscribe again after a while."""
        ...


class QueueConsumer:
    """Iterates over the messages of a queue across reconnects; made by ``Queue.consume``."""

    def __init__(self, home: ConsumerOwner, word: Subscribe) -> None:
        self._home = home
        self.word = word
        self._waiting: deque[QueueMessage] = deque()
        self._wakeup = asyncio.Event()
        self._settler: Settler | None = None
        self._connection: NativeConnection | None = None
        self._taken = 0
        self._failure: MainstemError | None = None
        self._is_open = False

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[QueueMessage]:
        is_ours = not self._is_open
        await self.open()
        try:
            while self._is_open:
                await self._some()
                if self._waiting:
                    yield self._take()
        finally:
            if is_ours:
                await self.close()

    async def open(self) -> None:
        """Subscribe; otherwise the iteration does.

        Raises:
            MainstemError: the queue does not exist, or the user may not read it.
        """
        if not self._is_open:
            self._is_open = True
            await self._home.begin(self)

    async def next(self, timeout_ms: int | None = None) -> QueueMessage:
        """The next message.

        Raises:
            TimeoutError: none arrived in time.
            MainstemError: the subscription ended.
        """
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            await self._some()
        if not self._waiting:
            raise InvalidRequest(ErrorCode.UNKNOWN_CONSUMER, "the consumer was closed")
        return self._take()

    async def close(self) -> None:
        """Unsubscribe; what is unsettled returns to the queue."""
        if not self._is_open:
            return
        self._is_open = False
        # Acknowledgements that wait for the end of the loop turn must be sent first.
        if self._settler is not None:
            self._settler.flush()
        self._waiting.clear()
        self._wakeup.set()
        await self._home.end(self)

    # Called by the client

    async def subscribe(self, connection: NativeConnection) -> None:
        """Subscribe on a new connection; unsettled deliveries of the old one are redelivered."""
        if self._settler is not None and not self.word.no_ack:
            self._waiting.clear()
        self._taken = 0
        self._connection = connection
        self._settler = Settler(connection, self.word.subscription)
        await connection.ask(self.word)

    async def unsubscribe(self, connection: NativeConnection) -> None:
        """Unsubscribe."""
        await connection.ask(Unsubscribe(subscription=self.word.subscription))

    def arrived(self, word: Deliver) -> None:
        """Add messages that have arrived."""
        settler = None if self.word.no_ack else self._settler
        self._waiting.extend(QueueMessage(delivery, settler) for delivery in word.deliveries)
        self._wakeup.set()

    def ended(self, word: Ended) -> None:
        """Handle the end of the subscription by the node."""
        error = (
            InvalidRequest(
                ErrorCode.UNKNOWN_QUEUE, "the queue was deleted", subject=self.word.queue
            )
            if word.error is None
            else mainstem_error(word.error)
        )
        if error.retriable:
            self._home.retry(self, RETRY_S)
        else:
            self.fail(error)

    def fail(self, error: MainstemError) -> None:
        """End the iteration with an error."""
        self._failure = self._failure or error
        self._wakeup.set()

    async def _some(self) -> None:
        """Wait until there is a message, or the consumer has ended."""
        while not self._waiting and self._is_open:
            if self._failure is not None:
                raise copy_of(self._failure)
            self._wakeup.clear()
            await self._wakeup.wait()

    def _take(self) -> QueueMessage:
        self._replenish()
        return self._waiting.popleft()

    def _replenish(self) -> None:
        """Grant credit for what was taken, where deliveries need no acknowledgement."""
        credit, connection = self.word.credit, self._connection
        if credit is None or connection is None:
            return
        self._taken += 1
        if self._taken * 2 >= credit:
            connection.send(Credit(subscription=self.word.subscription, messages=self._taken))
            self._taken = 0
