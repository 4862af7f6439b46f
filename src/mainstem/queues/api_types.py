"""The values that pass between queues and the protocols that serve them.

    Publisher ──(exchange, Message, Routing, token)──▶ queues ──Delivery──▶ consumer
        ◀──────── settled(tokens, Published) ─────────

``Routing`` determines where a message goes and when. A protocol passes it with a publish; it is
read from the record where a message came from another protocol, or is routed again after a crash
(``message_routing``).
"""

from collections.abc import Awaitable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from mainstem.model.errors import MainstemError
from mainstem.model.message import Message
from mainstem.queues.engine.consumer_window import ConsumerWindow
from mainstem.queues.engine.settling import Settlement
from mainstem.queues.routing.exchange import Binding, Exchange
from mainstem.queues.settings import QueueSettings

NO_HEADERS: Mapping[str, Any] = MappingProxyType({})


class Routing(NamedTuple):
    """Determines where a message goes: its keys (several with CC and BCC) and headers.

    Times are milliseconds since 1970, 0 is never. ``expires_ms`` may be ``AT_ONCE``: on arrival in
    a queue, unless a consumer has space there. ``visible_ms`` is the earliest time of delivery.
    """

    keys: tuple[str, ...]
    headers: Mapping[str, Any] = NO_HEADERS
    priority: int = 0
    expires_ms: int = 0
    visible_ms: int = 0


class PublishStatus(Enum):
    """The result of a publish."""

    # It is committed, in the stream of its exchange or of a queue.
    STORED = "stored"
    # It is not stored: no queue matches, and no other reader could get it.
    NOBODY = "nobody"
    # A queue is full, memory is short, or the disk refused it: nothing was stored.
    REFUSED = "refused"
    # Another node became the writer before the commit: it may be stored or not.
    UNKNOWN = "unknown"


class Published(NamedTuple):
    """The answer to a publish. ``is_routed``: at least one queue gets the message."""

    status: PublishStatus
    is_routed: bool
    error: MainstemError | None = None


class DeliverySource(Protocol):
    """A holder of deliveries: a subscription, or a single get."""

    def settle(self, numbers: Sequence[int], how: Settlement) -> None:
        """Settle deliveries; the facts are written at the end of this turn of the loop.

        Numbers that are no longer held (lease over, queue deleted) are ignored.
        """
        ...

    def settled(self) -> Awaitable[None]:
        """Return once all previous settlements are committed and survive a crash.

        Raises:
            Unavailable: the outcome is not known.
        """
        ...


class Delivery(NamedTuple):
    """One unsettled message of a holder. ``number`` identifies it in ``source.settle``."""

    source: DeliverySource
    number: int
    message: Message
    # The exchange that the message was published to; '' is the default exchange.
    exchange: str
    # Number of deliveries of the message, including this one.
    attempt: int
    failures: int
    sequence: int

    @property
    def redelivered(self) -> bool:
        """Whether the message was delivered before."""
        return self.attempt > 1


class ConsumeRequest(Struct, frozen=True, kw_only=True):
    """The parameters of a consumer.

    Args:
        name: the name shown to administrators; need not be unique.
        connection: the owner; exclusive queues serve only their own connection.
        no_ack: deliveries are settled when they are sent.
        is_exclusive: no other consumer is allowed.
        priority: consumers of higher priority come first.
        window: how much may be unsettled or sent; sessions may change it (``ConsumerWindow``).
        shared: the window of the whole channel, if it has one.
        subscriber: the permanent name of a subscriber of a fan-out.
    """

    name: str = ""
    connection: str = ""
    no_ack: bool = False
    is_exclusive: bool = False
    priority: int = 0
    window: ConsumerWindow
    shared: ConsumerWindow | None = None
    subscriber: str | None = None


class QueueStatus(Struct, frozen=True, kw_only=True):
    """The answer to a declaration: number of ready messages, and of consumers."""

    name: str
    messages: int
    consumers: int
    is_new: bool = False
    # Whether AMQP clients get the number of failed deliveries of a message.
    reports_failures: bool = False


class QueueView(Struct, frozen=True, kw_only=True):
    """A queue as administrators see it."""

    namespace: str
    name: str
    settings: QueueSettings
    ready: int
    unsettled: int
    delayed: int
    dying: int
    total: int
    total_bytes: int
    consumers: int
    connection: str = ""


class ExchangeView(Struct, frozen=True, kw_only=True):
    """An exchange as administrators see it; ``topic`` is empty until a message was stored."""

    namespace: str
    exchange: Exchange
    topic: str
    bindings: int


class BindingView(Struct, frozen=True, kw_only=True):
    """A binding as administrators see it."""

    namespace: str
    binding: Binding


class PeekedMessage(NamedTuple):
    """A message that was read without being consumed."""

    sequence: int
    message: Message
    exchange: str
    # ready, delayed, unsettled or dying
    place: str
    attempts: int
    failures: int
