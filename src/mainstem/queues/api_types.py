"""The values that pass between queues and the protocols that serve them.

    Publisher ──(exchange, Message, Routing, token)──▶ queues ──Delivery──▶ whoever consumes
        ◀──────── settled(tokens, Published) ─────────

``Routing`` is what decides where a message goes and when. A protocol gives it along with what it
publishes; it is read from the record again where a message came by another way, or was routed for
the second time after a crash (``routing``).
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
    """What decides where a message goes: its keys (several with CC and BCC) and headers.

    Times are milliseconds since 1970, 0 is never. ``expires_ms`` may be ``AT_ONCE``: on arrival in
    a queue, unless a consumer has space there. ``visible_ms`` is when the message may reach a
    consumer at the earliest.
    """

    keys: tuple[str, ...]
    headers: Mapping[str, Any] = NO_HEADERS
    priority: int = 0
    expires_ms: int = 0
    visible_ms: int = 0


class PublishStatus(Enum):
    """What became of a published message."""

    # It is committed, in the stream of its exchange or in a queue's.
    STORED = "stored"
    # It is stored nowhere: nobody wants it, and nobody could read it.
    NOBODY = "nobody"
    # A queue is full, memory is short, or the disk refused it: nothing was stored.
    REFUSED = "refused"
    # Another node writes the stream before it was committed: it may be stored or not.
    UNKNOWN = "unknown"


class Published(NamedTuple):
    """The answer to a publish. ``is_routed``: at least one queue gets the message."""

    status: PublishStatus
    is_routed: bool
    error: MainstemError | None = None


class DeliverySource(Protocol):
    """Whoever holds deliveries: a subscription, or a single get."""

    def settle(self, numbers: Sequence[int], how: Settlement) -> None:
        """Deliveries end; the facts are written with everything else of this turn of the loop.

        Numbers that are not held any more (lease over, queue deleted) are passed over.
        """
        ...

    def settled(self) -> Awaitable[None]:
        """Return once everything settled before is committed: no crash brings it back.

        Raises:
            Unavailable: it is not known whether it is.
        """
        ...


class Delivery(NamedTuple):
    """One message in somebody's hands. ``number`` names it to ``source.settle``."""

    source: DeliverySource
    number: int
    message: Message
    # The exchange that the message was published to; '' is the default exchange.
    exchange: str
    # How often it has been handed out, this time included.
    attempt: int
    failures: int
    sequence: int

    @property
    def redelivered(self) -> bool:
        """Whether somebody has had the message before."""
        return self.attempt > 1


class ConsumeRequest(Struct, frozen=True, kw_only=True):
    """How somebody wants to consume.

    Args:
        name: what the consumer is called where people look; need not be unique.
        connection: whose consumer it is; exclusive queues serve their own connection only.
        no_ack: deliveries are settled by being sent.
        is_exclusive: nobody else may consume.
        priority: more urgent consumers come first.
        window: how much may be unsettled or sent; sessions may change it (``ConsumerWindow``).
        shared: a window of the whole channel, if it has one.
        subscriber: the lasting name of a subscriber of a fan-out.
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
    """The answer to a declaration: messages that are ready, and consumers."""

    name: str
    messages: int
    consumers: int
    is_new: bool = False
    # Whether clients of AMQP are told how often a message failed.
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
    """An exchange as administrators see it; ``topic`` is empty as long as nothing was stored."""

    namespace: str
    exchange: Exchange
    topic: str
    bindings: int


class BindingView(Struct, frozen=True, kw_only=True):
    """A binding as administrators see it."""

    namespace: str
    binding: Binding


class PeekedMessage(NamedTuple):
    """A message that was looked at where it stands."""

    sequence: int
    message: Message
    exchange: str
    # ready, delayed, unsettled or dying
    place: str
    attempts: int
    failures: int
