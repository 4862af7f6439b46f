"""Queues that live in a test: enough of the counter's face to serve AMQP sessions.

Routing follows direct and fanout exchanges; everything is settled at once. What the real ones do
is tested where they live.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from mainstem.broker.api.queues import (
    ACKNOWLEDGE,
    REJECT,
    Binding,
    ConsumeRequest,
    Deliver,
    Delivery,
    Ended,
    Exchange,
    ExchangeKind,
    OnFlow,
    OnSettled,
    Published,
    PublishStatus,
    QueueSettings,
    QueueStatus,
    Routing,
    Settlement,
)
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.message import Message


class Stored:
    """One message of one queue."""

    def __init__(self, message: Message, exchange: str) -> None:
        self.message = message
        self.exchange = exchange
        self.attempt = 0
        self.failures = 0


class OneQueue:
    def __init__(self, settings: QueueSettings, connection: str) -> None:
        self.settings = settings
        self.connection = connection if settings.exclusive else ""
        self.ready: deque[Stored] = deque()
        self.consumers: list[OneSubscription] = []


class Holder:
    """Who has deliveries in hand."""

    def __init__(self, queues: "QueuesInMemory", queue: OneQueue) -> None:
        self.queues = queues
        self.queue = queue
        self.held: dict[int, Stored] = {}

    def hand_out(self, *, no_ack: bool) -> Delivery:
        stored = self.queue.ready.popleft()
        stored.attempt += 1
        self.queues.number += 1
        number = self.queues.number
        if not no_ack:
            self.held[number] = stored
        return Delivery(
            self, number, stored.message, stored.exchange, stored.attempt, stored.failures, number
        )

    def settle(self, numbers: Sequence[int], how: Settlement) -> None:
        back = []
        for number in numbers:
            stored = self.held.pop(number, None)
            self.queues.settled.append((number, how))
            if stored is not None and how not in (ACKNOWLEDGE, REJECT):
                stored.failures += how.is_failure
                back.append(stored)
        self.queue.ready.extendleft(reversed(back))
        self.queues.soon(self.queues.pump)

    async def settled(self) -> None:
        if self.queues.refuses_settlements:
            raise Unavailable(ErrorCode.COORDINATOR_UNAVAILABLE, "queues are being loaded anew")


class OneSubscription(Holder):
    def __init__(
        self,
        queues: "QueuesInMemory",
        queue: OneQueue,
        wish: ConsumeRequest,
        deliver: Deliver,
        ended: Ended,
    ) -> None:
        super().__init__(queues, queue)
        self.wish = wish
        self.deliver = deliver
        self.ended = ended

    def may_have(self) -> bool:
        window, shared = self.wish.window, self.wish.shared
        if window.credit is not None and window.credit <= 0:
            return False
        if shared is not None and shared.messages_max:
            held = sum(
                len(each.held) for each in self.queue.consumers if each.wish.shared is shared
            )
            if held >= shared.messages_max:
                return False
        return not window.messages_max or len(self.held) < window.messages_max

    def changed(self) -> None:
        self.queues.soon(self.queues.pump)

    def credit(self, messages: int) -> None:
        assert self.wish.window.credit is not None
        self.wish.window.credit += messages
        self.queues.soon(self.queues.pump)

    def cancel(self) -> None:
        self.queue.consumers.remove(self)

    def close(self) -> None:
        self.settle(list(self.held), Settlement(ACKNOWLEDGE.outcome.RETURN))
        if self in self.queue.consumers:
            self.queue.consumers.remove(self)


class OnePublisher:
    def __init__(self, queues: "QueuesInMemory", namespace: str, settled: OnSettled) -> None:
        self.queues = queues
        self.settled = settled
        self.is_blocked = False

    def publish(self, exchange: str, message: Message, routing: Routing, token: int = -1) -> None:
        reached = self.queues.route(exchange, routing)
        self.queues.published.append((exchange, message, routing))
        refused = self.queues.refuses_publishes or self.queues.publish_error is not None
        if not refused:
            for queue in reached:
                queue.ready.append(Stored(message, exchange))
        status = (
            PublishStatus.REFUSED
            if refused
            else PublishStatus.STORED
            if reached
            else PublishStatus.NOBODY
        )
        if token >= 0:
            error = self.queues.publish_error
            self.queues.soon(lambda: self.settled([token], Published(status, bool(reached), error)))
        self.queues.soon(self.queues.pump)

    def close(self) -> None:
        """Nothing to forget."""


class QueuesInMemory:
    """See the module."""

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        self.soon = soon
        self.exchanges: dict[str, Exchange] = {
            "": Exchange(name="", kind=ExchangeKind.DIRECT),
            "amq.direct": Exchange(name="amq.direct", kind=ExchangeKind.DIRECT),
            "amq.fanout": Exchange(name="amq.fanout", kind=ExchangeKind.FANOUT),
        }
        self.found: dict[str, OneQueue] = {}
        self.bound: list[Binding] = []
        self.published: list[tuple[str, Message, Routing]] = []
        self.settled: list[tuple[int, Settlement]] = []
        self.gone: list[str] = []
        self.flows: list[OnFlow | None] = []
        self.settlers: list[OnSettled] = []
        self.refuses_publishes = False
        self.refuses_settlements = False
        self.publish_error: MainstemError | None = None
        self.number = 0
        self.admin: Any = None

    async def ready(self) -> None:
        """At once."""

    async def declare_exchange(
        self, namespace: str, wish: Exchange, *, passive: bool = False, shared: bool = False
    ) -> Exchange:
        if passive and wish.name not in self.exchanges:
            raise InvalidRequest(ErrorCode.UNKNOWN_EXCHANGE, "no such", subject=wish.name)
        return self.exchanges.setdefault(wish.name, wish)

    async def delete_exchange(self, namespace: str, name: str, *, if_unused: bool = False) -> None:
        self.exchanges.pop(name, None)

    async def bind(self, namespace: str, binding: Binding, *, connection: str = "") -> None:
        if binding.source not in self.exchanges:
            raise InvalidRequest(ErrorCode.UNKNOWN_EXCHANGE, "no such", subject=binding.source)
        self._queue(binding.destination.name, connection)
        self.bound.append(binding)

    async def unbind(self, namespace: str, binding: Binding, *, connection: str = "") -> None:
        if binding in self.bound:
            self.bound.remove(binding)

    async def declare_queue(
        self,
        namespace: str,
        name: str,
        settings: QueueSettings,
        *,
        connection: str = "",
        policy: Any = None,
        keeps_failures: bool = False,
    ) -> QueueStatus:
        known = self.found.get(name)
        if known is not None and known.settings != settings:
            raise InvalidRequest(
                ErrorCode.DECLARATION_DIFFERS,
                "inequivalent arg 'durable': received 'true' but current is 'false'",
                subject=name,
            )
        self.found.setdefault(name, OneQueue(settings, connection))
        return self.status(namespace, name, connection=connection)

    def status(
        self, namespace: str, name: str, *, connection: str = "", is_use: bool = False
    ) -> QueueStatus:
        queue = self._queue(name, connection)
        return QueueStatus(
            name=name,
            messages=len(queue.ready),
            consumers=len(queue.consumers),
            reports_failures=True,
        )

    async def delete_queue(
        self,
        namespace: str,
        name: str,
        *,
        connection: str = "",
        if_unused: bool = False,
        if_empty: bool = False,
    ) -> int:
        queue = self._queue(name, connection)
        if if_unused and queue.consumers:
            raise InvalidRequest(ErrorCode.RESOURCE_IN_USE, "in use", subject=name)
        del self.found[name]
        for consumer in queue.consumers:
            consumer.ended(None)
        return len(queue.ready)

    async def purge_queue(self, namespace: str, name: str, *, connection: str = "") -> int:
        queue = self._queue(name, connection)
        count = len(queue.ready)
        queue.ready.clear()
        return count

    def connection_gone(self, connection: str) -> None:
        self.gone.append(connection)
        self.found = {
            name: queue for name, queue in self.found.items() if queue.connection != connection
        }

    def publisher(
        self, namespace: str, settled: OnSettled, flow: OnFlow | None = None
    ) -> OnePublisher:
        self.flows.append(flow)
        self.settlers.append(settled)
        return OnePublisher(self, namespace, settled)

    def consume(
        self, namespace: str, queue: str, wish: ConsumeRequest, deliver: Deliver, ended: Ended
    ) -> OneSubscription:
        found = self._queue(queue, wish.connection)
        if any(each.wish.is_exclusive for each in found.consumers):
            raise InvalidRequest(ErrorCode.RESOURCE_IN_USE, "in use", subject=queue)
        subscription = OneSubscription(self, found, wish, deliver, ended)
        found.consumers.append(subscription)
        self.soon(self.pump)
        return subscription

    async def get(
        self, namespace: str, queue: str, *, connection: str = "", no_ack: bool = False
    ) -> tuple[Delivery | None, int]:
        found = self._queue(queue, connection)
        if not found.ready:
            return None, 0
        return Holder(self, found).hand_out(no_ack=no_ack), len(found.ready)

    def pump(self) -> None:
        """Deliver what is ready."""
        for queue in self.found.values():
            for consumer in queue.consumers:
                batch = []
                while queue.ready and consumer.may_have():
                    window = consumer.wish.window
                    if window.credit is not None:
                        window.credit -= 1
                    batch.append(consumer.hand_out(no_ack=consumer.wish.no_ack))
                if batch:
                    consumer.deliver(batch)

    def route(self, exchange: str, routing: Routing) -> list[OneQueue]:
        if exchange not in self.exchanges:
            raise InvalidRequest(ErrorCode.UNKNOWN_EXCHANGE, "no such", subject=exchange)
        if exchange == "":
            return [self.found[key] for key in routing.keys if key in self.found]
        fanout = self.exchanges[exchange].kind is ExchangeKind.FANOUT
        return [
            self.found[each.destination.name]
            for each in self.bound
            if each.source == exchange
            and each.destination.name in self.found
            and (fanout or each.key in routing.keys)
        ]

    def _queue(self, name: str, connection: str) -> OneQueue:
        queue = self.found.get(name)
        if queue is None:
            raise InvalidRequest(ErrorCode.UNKNOWN_QUEUE, "no such", subject=name)
        if queue.connection not in ("", connection):
            raise InvalidRequest(ErrorCode.RESOURCE_LOCKED, "locked", subject=name)
        return queue
