"""The broker API for queues, exchanges and bindings.

    queues.declare_…, bind, …            answered once the change is committed
    queues.publisher(namespace, settled) publishes in order; not a coroutine per message
    queues.consume(…, deliver, ended)    deliveries in batches; settled through the subscription

Values are re-exported here so that protocols need to look no further. Refusals are raised as
``MainstemError``s: UNKNOWN_QUEUE, UNKNOWN_EXCHANGE (404), DECLARATION_DIFFERS, RESOURCE_IN_USE and
QUEUE_NOT_EMPTY (406), RESOURCE_LOCKED (405), RESERVED_NAME (403), INVALID_ARGUMENT and
INVALID_BINDING (406), LIMIT_REACHED, OVERLOADED, COORDINATOR_LOADING. What somebody may do is asked
by the protocols, through ``Rights``, before they call.

A node where nobody uses queues has no topics for them: they are made at the first declaration.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from mainstem.model.errors import MainstemError
from mainstem.model.message import Message
from mainstem.queues.api_types import (
    NO_HEADERS,
    BindingView,
    ConsumeRequest,
    Delivery,
    DeliverySource,
    ExchangeView,
    PeekedMessage,
    Published,
    PublishStatus,
    QueueStatus,
    QueueView,
    Routing,
)
from mainstem.queues.arguments import arguments_of, settings_of
from mainstem.queues.counts import QueueCounts
from mainstem.queues.dead_letter_history import Death, amqp_table, death_history_of
from mainstem.queues.declaration import OnDifference
from mainstem.queues.delivery_tags import DeliveryTags, Tagged
from mainstem.queues.engine.consumer_window import ConsumerWindow
from mainstem.queues.engine.settling import (
    ACKNOWLEDGE,
    REJECT,
    RELEASE,
    RETURN,
    Settlement,
    SettlementOutcome,
)
from mainstem.queues.facts import AT_ONCE, Reason
from mainstem.queues.message_filter import selection
from mainstem.queues.routing.exchange import (
    DEFAULT_EXCHANGE,
    Binding,
    Destination,
    Exchange,
    ExchangeKind,
    exchange_of,
)
from mainstem.queues.routing.exchange_topics import DEFAULT_NAMESPACE, topic_for
from mainstem.queues.settings import NATIVE, DeliveryMode, Overflow, QueueSettings

__all__ = [
    "ACKNOWLEDGE",
    "AT_ONCE",
    "DEFAULT_EXCHANGE",
    "DEFAULT_NAMESPACE",
    "NATIVE",
    "NO_HEADERS",
    "REJECT",
    "RELEASE",
    "RETURN",
    "Binding",
    "BindingView",
    "ConsumeRequest",
    "ConsumerWindow",
    "Death",
    "Deliver",
    "Delivery",
    "DeliveryMode",
    "DeliverySource",
    "DeliveryTags",
    "Destination",
    "Ended",
    "Exchange",
    "ExchangeKind",
    "ExchangeView",
    "OnDifference",
    "OnFlow",
    "OnSettled",
    "Overflow",
    "PeekedMessage",
    "PublishStatus",
    "Published",
    "Publisher",
    "QueueCounts",
    "QueueSettings",
    "QueueStatus",
    "QueueView",
    "Queues",
    "QueuesAdmin",
    "Reason",
    "Routing",
    "Settlement",
    "SettlementOutcome",
    "Subscription",
    "Tagged",
    "amqp_table",
    "arguments_of",
    "death_history_of",
    "exchange_of",
    "selection",
    "settings_of",
    "topic_for",
]

# Tokens of publishes that end alike, in the order in which they were published.
OnSettled = Callable[[Sequence[int], Published], None]
Deliver = Callable[[Sequence[Delivery]], None]
# A subscription ended without its own doing: the queue was deleted, or is lost to this node.
Ended = Callable[[MainstemError | None], None]
# Whether a publisher should go on; told when that changes.
OnFlow = Callable[[bool], None]


class Publisher(Protocol):
    """One source of messages, whose order is kept within each exchange: a channel, a session."""

    def publish(self, exchange: str, message: Message, routing: Routing, token: int = -1) -> None:
        """Publish. All that comes in one turn of the loop is one append per stream.

        ``settled`` of this publisher is called with the token once the message is committed, or
        refused; never for a token below zero. Where ``is_routed`` is false and the publisher said
        ``mandatory``, the message is to be returned before it is confirmed.

        Raises:
            InvalidRequest: there is no such exchange, or it is not for publishers.
        """
        ...

    def publish_many(
        self, exchange: str, messages: Sequence[Message], routing: Routing, first: int
    ) -> None:
        """Publish messages that go the same way: ``routing`` is that of each.

        They have no headers, and a time; their tokens count up from ``first``. As ``publish`` of
        one after the other, for less.

        Raises:
            InvalidRequest: there is no such exchange, or it is not for publishers.
        """
        ...

    @property
    def is_blocked(self) -> bool:
        """Whether the session should stop reading: a queue makes its publishers wait.

        What is published meanwhile waits in order, up to a limit, and is refused beyond.
        """
        ...

    def close(self) -> None:
        """Nobody listens for what is settled any more; what was published goes on."""
        ...


class Subscription(DeliverySource, Protocol):
    """One consumer of a queue. Deliveries come through ``deliver`` until it is cancelled."""

    def changed(self) -> None:
        """The session changed ``messages_max`` of the window or of the shared one."""
        ...

    def credit(self, messages: int) -> None:
        """Grant more deliveries, where the window began with ``credit``."""
        ...

    def cancel(self) -> None:
        """Deliver nothing more; what was delivered stays in hand and can be settled."""
        ...

    def close(self) -> None:
        """The session is gone: what it had returns to its place."""
        ...


class QueuesAdmin(Protocol):
    """What administrators look at, and what only they do."""

    def namespaces(self) -> Sequence[str]:
        """Every namespace in use, and the default one."""
        ...

    def exchanges(self, namespace: str) -> Iterable[ExchangeView]:
        """Every exchange of a namespace."""
        ...

    def bindings(self, namespace: str) -> Iterable[BindingView]:
        """Every binding of a namespace; those of the default exchange are not listed."""
        ...

    def queues(self, namespace: str) -> Iterable[QueueView]:
        """Every queue of a namespace."""
        ...

    def describe(self, namespace: str, name: str) -> QueueView:
        """Describe one queue."""
        ...

    async def browse(
        self, namespace: str, name: str, *, start: int = 0, limit: int = 100
    ) -> Sequence[PeekedMessage]:
        """Messages from a sequence on, in order, without taking them."""
        ...

    async def move(
        self,
        namespace: str,
        source: str,
        *,
        destination: str | None = None,
        where: Callable[[PeekedMessage], bool] | None = None,
        limit: int | None = None,
    ) -> int:
        """Publish ready messages of a queue to another one and take them out of the first.

        Without a destination dead letters go back where they died first: to the exchange and with
        the keys that their history names. How many were moved.
        """
        ...

    def counts(self) -> QueueCounts:
        """What queues have done since the node started."""
        ...


class Queues(Protocol):
    """Queues, exchanges and bindings of all namespaces."""

    @property
    def admin(self) -> QueuesAdmin:
        """For administrators."""
        ...

    async def ready(self) -> None:
        """Wait until what is stored is loaded; a session begins with it.

        Raises:
            Unavailable: it cannot be loaded, or the node is stopping.
        """
        ...

    # Exchanges and bindings

    async def declare_exchange(
        self, namespace: str, declared: Exchange, *, passive: bool = False, shared: bool = False
    ) -> Exchange:
        """Let an exchange be there; ``passive`` only looks.

        A topic of that name that is no exchange is taken over where ``shared`` says so.
        """
        ...

    async def delete_exchange(self, namespace: str, name: str, *, if_unused: bool = False) -> None:
        """Take an exchange away, with its bindings; one that is not there is no error."""
        ...

    async def bind(self, namespace: str, binding: Binding, *, connection: str = "") -> None:
        """Let messages of an exchange go to a queue or to another exchange, from now on."""
        ...

    async def unbind(self, namespace: str, binding: Binding, *, connection: str = "") -> None:
        """End a binding; nothing that was routed is lost."""
        ...

    # Queues

    async def declare_queue(
        self,
        namespace: str,
        name: str,
        settings: QueueSettings,
        *,
        connection: str = "",
        policy: OnDifference = OnDifference.FAIL,
        keeps_failures: bool = False,
    ) -> QueueStatus:
        """Let a queue be there; ``connection`` owns it if it is exclusive.

        With ``keeps_failures`` a new queue that limits attempts and names no dead letter exchange
        gets a queue ``<name>.dead`` for what used them up; one that is there is left as it is.
        """
        ...

    def status(
        self, namespace: str, name: str, *, connection: str = "", is_use: bool = False
    ) -> QueueStatus:
        """A queue that is there; AMQP's passive declaration counts as a use of it."""
        ...

    async def delete_queue(
        self,
        namespace: str,
        name: str,
        *,
        connection: str = "",
        if_unused: bool = False,
        if_empty: bool = False,
    ) -> int:
        """Take a queue away; how many messages were ready."""
        ...

    async def purge_queue(self, namespace: str, name: str, *, connection: str = "") -> int:
        """Drop all that is in nobody's hands; how many messages."""
        ...

    def connection_gone(self, connection: str) -> None:
        """A connection ended: its exclusive queues go. Its subscriptions are closed before."""
        ...

    # Messages

    def publisher(
        self, namespace: str, settled: OnSettled, flow: OnFlow | None = None
    ) -> Publisher:
        """Somebody wants to publish. ``flow`` is told when it should stop, and may go on.

        ``settled`` may be called before ``publish`` returns.
        """
        ...

    def consume(
        self, namespace: str, queue: str, request: ConsumeRequest, deliver: Deliver, ended: Ended
    ) -> Subscription:
        """Somebody wants to consume. The first deliveries come in a later turn of the loop."""
        ...

    async def get(
        self, namespace: str, queue: str, *, connection: str = "", no_ack: bool = False
    ) -> tuple[Delivery | None, int]:
        """One message, if one is ready, and how many are left."""
        ...
