"""The broker API for queues, exchanges and bindings.

    queues.declare_…, bind, …            answered once the change is committed
    queues.publisher(namespace, settled) publishes in order; not a coroutine per message
    queues.consume(…, deliver, ended)    deliveries in batches; settled through the subscription

Values are re-exported here, so that protocols import only this module. Refusals are raised as
``MainstemError``s: UNKNOWN_QUEUE, UNKNOWN_EXCHANGE (404), DECLARATION_DIFFERS, RESOURCE_IN_USE and
QUEUE_NOT_EMPTY (406), RESOURCE_LOCKED (405), RESERVED_NAME (403), INVALID_ARGUMENT and
INVALID_BINDING (406), LIMIT_REACHED, OVERLOADED, COORDINATOR_LOADING. Protocols check permissions
through ``Rights`` before they call.

The topics of queues are created at the first declaration.
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
from mainstem.queues.facts import AT_ONCE, RemovalReason
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
    "RemovalReason",
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

# Tokens of publishes with the same result, in the order in which they were published.
OnSettled = Callable[[Sequence[int], Published], None]
Deliver = Callable[[Sequence[Delivery]], None]
# A subscription was ended by the broker: the queue was deleted, or moved to another node.
Ended = Callable[[MainstemError | None], None]
# Called when a publisher should stop or may continue.
OnFlow = Callable[[bool], None]


class Publisher(Protocol):
    """One source of messages, whose order is kept within each exchange: a channel, a session."""

    def publish(self, exchange: str, message: Message, routing: Routing, token: int = -1) -> None:
        """Publish a message. All messages of one event loop iteration are one append per stream.

        ``settled`` of this publisher is called with the token once the message is committed, or
        refused; never for a token below zero. If ``is_routed`` is false and the message was
        ``mandatory``, it is to be returned before it is confirmed.

        Raises:
            InvalidRequest: there is no such exchange, or it is not for publishers.
        """
        ...

    def publish_many(
        self, exchange: str, messages: Sequence[Message], routing: Routing, first: int
    ) -> None:
        """Publish messages with the same ``routing``.

        They have no headers, and a time; their tokens count up from ``first``. Equivalent to one
        ``publish`` per message, at a lower cost.

        Raises:
            InvalidRequest: there is no such exchange, or it is not for publishers.
        """
        ...

    @property
    def is_blocked(self) -> bool:
        """Whether the session should stop reading because a queue blocks its publishers.

        Messages published meanwhile wait in order, up to a limit, and are refused beyond it.
        """
        ...

    def close(self) -> None:
        """Stop calling ``settled``; messages already published are still stored."""
        ...


class Subscription(DeliverySource, Protocol):
    """One consumer of a queue. Deliveries come through ``deliver`` until it is cancelled."""

    def changed(self) -> None:
        """The session changed ``messages_max`` of the window or of the shared one."""
        ...

    def credit(self, messages: int) -> None:
        """Grant more deliveries, where the window started with ``credit``."""
        ...

    def cancel(self) -> None:
        """Stop delivering; unsettled deliveries can still be settled."""
        ...

    def close(self) -> None:
        """End with the session: its unsettled messages return to their places in the queue."""
        ...


class QueuesAdmin(Protocol):
    """Operations for administrators."""

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

        Without a destination dead letters go back to where they were first dead-lettered: to the
        exchange and with the keys of their history. Returns how many were moved.
        """
        ...

    def counts(self) -> QueueCounts:
        """Counts of all queues since the node started."""
        ...


class Queues(Protocol):
    """Queues, exchanges and bindings of all namespaces."""

    @property
    def admin(self) -> QueuesAdmin:
        """For administrators."""
        ...

    async def ready(self) -> None:
        """Wait until stored state is loaded; sessions call it first.

        Raises:
            Unavailable: it cannot be loaded, or the node is stopping.
        """
        ...

    # Exchanges and bindings

    async def declare_exchange(
        self, namespace: str, declared: Exchange, *, passive: bool = False, shared: bool = False
    ) -> Exchange:
        """Declare an exchange; ``passive`` only checks that it exists.

        An existing topic of that name that is no exchange is used only with ``shared``.
        """
        ...

    async def delete_exchange(self, namespace: str, name: str, *, if_unused: bool = False) -> None:
        """Delete an exchange with its bindings; a missing one is no error."""
        ...

    async def bind(self, namespace: str, binding: Binding, *, connection: str = "") -> None:
        """Bind an exchange to a queue or to another exchange."""
        ...

    async def unbind(self, namespace: str, binding: Binding, *, connection: str = "") -> None:
        """Remove a binding; messages already routed are kept."""
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
        """Declare a queue; ``connection`` owns it if it is exclusive.

        With ``keeps_failures`` a new queue with a delivery limit and no dead letter exchange gets a
        queue ``<name>.dead`` for messages that exceed it; an existing queue is not changed.
        """
        ...

    def status(
        self, namespace: str, name: str, *, connection: str = "", is_use: bool = False
    ) -> QueueStatus:
        """The status of an existing queue; AMQP's passive declaration counts as a use of it."""
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
        """Delete a queue; returns how many messages were ready."""
        ...

    async def purge_queue(self, namespace: str, name: str, *, connection: str = "") -> int:
        """Drop all messages that are not in delivery; returns how many."""
        ...

    def connection_gone(self, connection: str) -> None:
        """Delete the exclusive queues of an ended connection, whose subscriptions are closed."""
        ...

    # Messages

    def publisher(
        self, namespace: str, settled: OnSettled, flow: OnFlow | None = None
    ) -> Publisher:
        """A new publisher. ``flow`` is called when it should stop and when it may continue.

        ``settled`` may be called before ``publish`` returns.
        """
        ...

    def consume(
        self, namespace: str, queue: str, request: ConsumeRequest, deliver: Deliver, ended: Ended
    ) -> Subscription:
        """Subscribe. The first deliveries come in a later iteration of the event loop."""
        ...

    async def get(
        self, namespace: str, queue: str, *, connection: str = "", no_ack: bool = False
    ) -> tuple[Delivery | None, int]:
        """Take one message, if one is ready; also returns how many are left."""
        ...
