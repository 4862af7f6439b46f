"""Queues of values instead of bytes: any type that msgspec supports, as JSON or MessagePack.

    orders = TypedQueue(queue, Order)
    await orders.publish(Order(7))
    async for message in orders.consume():
        with message:
            ship(message.body)

A message that cannot be decoded is rejected as ``bad-payload``: it becomes a dead letter if the
queue has a dead letter exchange, and never reaches the loop.
"""

from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Final, Generic, Literal, Self, TypeVar, Unpack

import msgspec

from mainstem.client.native.message import MessageProperties, QueueMessage, outgoing
from mainstem.client.native.queue import WINDOW, Queue
from mainstem.model.decode_errors import DECODE_ERRORS

Body = TypeVar("Body")

_TYPES: Final = {"json": "application/json", "msgpack": "application/msgpack"}


class TypedMessage(Generic[Body]):
    """A message and the value that it holds."""

    __slots__ = ("body", "message")

    def __init__(self, message: QueueMessage, body: Body) -> None:
        self.message = message
        self.body = body

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.message.__exit__(kind, error, trace)


class TypedQueue(Generic[Body]):
    """Publishes and consumes typed values, encoded as JSON or MessagePack."""

    def __init__(
        self, queue: Queue, body: type[Body], encoding: Literal["json", "msgpack"] = "json"
    ) -> None:
        self.queue = queue
        self._content_type = _TYPES[encoding]
        self._decoder: msgspec.json.Decoder[Body] | msgspec.msgpack.Decoder[Body]
        self._encoder: msgspec.json.Encoder | msgspec.msgpack.Encoder
        if encoding == "json":
            self._decoder, self._encoder = msgspec.json.Decoder(body), msgspec.json.Encoder()
        else:
            self._decoder, self._encoder = msgspec.msgpack.Decoder(body), msgspec.msgpack.Encoder()

    async def publish(self, body: Body, **properties: Unpack[MessageProperties]) -> None:
        """Publishes a value and waits until it is stored."""
        properties.setdefault("content_type", self._content_type)
        await self.queue.publish(self._encoder.encode(body), **properties)

    async def publish_many(self, bodies: Iterable[Body]) -> int:
        """Publishes values in order and waits until all are stored; returns how many."""
        properties = MessageProperties(content_type=self._content_type)
        encode = self._encoder.encode
        return await self.queue.publish_many(outgoing(encode(body), properties) for body in bodies)

    async def consume(self, *, window: int = WINDOW) -> AsyncIterator[TypedMessage[Body]]:
        """Values as they arrive, for ``async for``."""
        async with self.queue.consume(window=window) as messages:
            async for message in messages:
                try:
                    body = self._decoder.decode(message.value)
                except DECODE_ERRORS:
                    message.reject("bad-payload")
                    continue
                yield TypedMessage(message, body)
