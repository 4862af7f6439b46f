"""Messages of queues: those to publish, and deliveries.

    with message:            acknowledged at the end; an error in the block returns it
        work(message.value)

Acknowledgements have no response, so nothing here waits; those of one loop turn are sent together.
"""

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Literal, Self, TypedDict

from mainstem.client.native.connection import NativeConnection
from mainstem.model.records.record import Header
from mainstem.wire.native.answers import WireDelivery
from mainstem.wire.native.requests import Ack, Nack, Reject
from mainstem.wire.native.words import WireMessage

Headers = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]
RejectReason = Literal["rejected", "bad-payload", "handler-error"]


class MessageProperties(TypedDict, total=False):
    """The properties of a message besides its value."""

    headers: Headers
    content_type: str
    correlation_id: str
    reply_to: str
    message_id: str
    priority: int
    timestamp_ms: int
    ttl_ms: int
    delay_ms: int


def outgoing(
    value: bytes | str | None, properties: MessageProperties, key: bytes | str | None = None
) -> WireMessage:
    """A message to publish."""
    given = dict(properties)
    headers = given.pop("headers", ())
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    message = WireMessage(
        value=_bytes(value),
        key=_bytes(key),
        headers=[(name, _bytes(content)) for name, content in pairs],  # type: ignore[attr-defined]
    )
    for name, content in given.items():
        setattr(message, name, content)
    return message


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


class Settler:
    """Settles the deliveries of one subscription on one connection."""

    __slots__ = ("_acks", "_connection", "_loop", "_subscription")

    def __init__(self, connection: NativeConnection, subscription: int) -> None:
        self._connection = connection
        self._subscription = subscription
        self._loop = asyncio.get_running_loop()
        self._acks: list[int] = []

    def ack(self, number: int) -> None:
        """Acknowledge a delivery; sent with the others of this loop turn."""
        if not self._acks:
            self._loop.call_soon(self.flush)
        self._acks.append(number)

    def nack(self, number: int, *, failed: bool, delay_ms: int | None) -> None:
        """Return a delivery to the queue."""
        self.flush()
        word = Nack(
            subscription=self._subscription, numbers=[number], failed=failed, delay_ms=delay_ms
        )
        self._connection.send(word)

    def reject(self, number: int, reason: RejectReason) -> None:
        """Reject a delivery; it is not redelivered."""
        self.flush()
        word = Reject(subscription=self._subscription, numbers=[number], reason=reason)
        self._connection.send(word)

    def flush(self) -> None:
        """Send the collected settlements now."""
        if self._acks:
            acks, self._acks = self._acks, []
            self._connection.send(Ack(subscription=self._subscription, numbers=acks))


class QueueMessage:
    """One delivery. Settling it again has no effect; after a lost connection it is redelivered.

    ``attempt`` counts its deliveries, ``failures`` those that failed.
    """

    __slots__ = ("_delivery", "_settler", "_wire", "is_settled")

    def __init__(self, delivery: WireDelivery, settler: Settler | None) -> None:
        self._delivery = delivery
        self._wire = delivery.message
        self._settler = settler
        self.is_settled = settler is None

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
            # An interrupt or cancellation is not a failed attempt.
            self.nack(failed=isinstance(error, Exception))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"QueueMessage({self.value!r}, key={self.key!r}, attempt={self.attempt})"

    # Contents

    @property
    def value(self) -> bytes:
        """The body."""
        return self._wire.value or b""

    @property
    def text(self) -> str:
        """The body as text."""
        return self.value.decode()

    @property
    def key(self) -> str:
        """The routing key."""
        return (self._wire.key or b"").decode(errors="replace")

    @property
    def headers(self) -> tuple[Header, ...]:
        """Every header, in order."""
        return tuple(self._wire.headers)

    @property
    def properties(self) -> WireMessage:
        """All properties of the message, field by field."""
        return self._wire

    @property
    def exchange(self) -> str:
        """The exchange it was published to; empty if published to a queue by name."""
        return self._delivery.exchange

    @property
    def attempt(self) -> int:
        """How often it has been delivered, this time included."""
        return self._delivery.attempt

    @property
    def failures(self) -> int:
        """How often it has been returned as failed."""
        return self._delivery.failures

    # Settling

    def ack(self) -> None:
        """Acknowledge the message."""
        if not self.is_settled and self._settler is not None:
            self.is_settled = True
            self._settler.ack(self._delivery.number)

    def nack(self, *, failed: bool = True, delay_ms: int | None = None) -> None:
        """Return the message, after a failed attempt or unprocessed; the queue sets the delay."""
        if not self.is_settled and self._settler is not None:
            self.is_settled = True
            self._settler.nack(self._delivery.number, failed=failed, delay_ms=delay_ms)

    def reject(self, reason: RejectReason = "rejected") -> None:
        """Reject the message: dead-letter it if the queue has a dead letter exchange."""
        if not self.is_settled and self._settler is not None:
            self.is_settled = True
            self._settler.reject(self._delivery.number, reason)
