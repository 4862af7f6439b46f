"""Consuming on one connection: subscriptions, credit, settlements.

The queue limits unsettled deliveries (``ConsumerWindow``). Credit that the client grants, or
unlimited credit, is passed to the queue in portions that fit into ``UNSENT_BYTES``, so that a
client that reads slowly does not accumulate unsent deliveries.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from mainstem.broker.api.queues import (
    ACKNOWLEDGE,
    REJECT,
    RELEASE,
    RETURN,
    ConsumeRequest,
    ConsumerWindow,
    Delivery,
    RemovalReason,
    Settlement,
    SettlementOutcome,
    Subscription,
)
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.limits import KIB, MIB
from mainstem.protocols.native.convert import size_of, wire_delivery
from mainstem.protocols.native.errors import error_of
from mainstem.protocols.native.link import NativeConnectionLink, NativeService
from mainstem.protocols.native.pending_gets_service import PendingGets
from mainstem.security.authorisation.acl import Operation
from mainstem.security.quotas import FETCH_BYTES
from mainstem.wire.native.answers import Deliver, Ended, WireDelivery
from mainstem.wire.native.requests import Ack, Credit, Nack, Reject, Subscribe, Unsubscribe

UNSENT_BYTES: Final = 4 * MIB
FRAME_BYTES: Final = 256 * KIB
LENT_MAX: Final = 1_000
LENT_FIRST: Final = 100
RETRY_MS: Final = 10
# Deliveries of single gets are settled under this number.
GOT: Final = 0

_REJECTIONS: Final = {
    reason.value: Settlement(SettlementOutcome.REJECT, reason=reason)
    for reason in (RemovalReason.BAD_PAYLOAD, RemovalReason.HANDLER_ERROR)
} | {RemovalReason.REJECTED.value: REJECT}


class _Subscriber:
    """One subscription. ``wanted`` is credit of the client not yet passed to the queue."""

    __slots__ = ("id", "is_open", "lent", "portion", "subscription", "wanted")

    def __init__(self, number: int, wanted: int | None) -> None:
        self.id = number
        self.wanted = wanted
        self.lent = 0
        self.portion = LENT_FIRST
        self.is_open = True
        self.subscription: Subscription | None = None


class NativeConsuming:
    """Serves the subscriptions of one connection: credit and settlement."""

    def __init__(
        self, link: NativeConnectionLink, service: NativeService, gets: PendingGets
    ) -> None:
        self._link = link
        self._service = service
        self._gets = gets
        self._subscribers: dict[int, _Subscriber] = {}
        self._is_closed = False

    # Subscriptions

    def subscribe(self, word: Subscribe) -> None:
        """Start a subscription.

        Raises:
            MainstemError: it is not allowed, or its number is in use.
        """
        link = self._link
        link.permissions.queue(Operation.READ, word.queue)
        self._check(word)
        subscriber = _Subscriber(word.subscription, word.credit)
        first = LENT_FIRST if word.credit is None else min(word.credit, LENT_FIRST)
        subscriber.lent = first
        if subscriber.wanted is not None:
            subscriber.wanted -= first
        window = ConsumerWindow(
            0 if word.no_ack else word.window, bytes_max=word.window_bytes, credit=first
        )
        request = ConsumeRequest(
            name=word.name,
            connection=link.connection,
            no_ack=word.no_ack,
            is_exclusive=word.exclusive,
            priority=word.priority,
            window=window,
            subscriber=word.subscriber,
        )
        subscriber.subscription = self._service.broker.queues.consume(
            link.namespace,
            word.queue,
            request,
            partial(self._deliver, subscriber),
            partial(self._ended, subscriber),
        )
        self._subscribers[word.subscription] = subscriber

    def credit(self, word: Credit) -> None:
        """Add credit to a subscription."""
        subscriber = self._found(word.subscription)
        if subscriber.wanted is None:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                "the subscription does not use credit",
                subject=str(word.subscription),
                remedy="subscribe with credit",
            )
        subscriber.wanted += word.messages
        self._lend(subscriber)

    def unsubscribe(self, word: Unsubscribe) -> None:
        """End a subscription."""
        subscriber = self._found(word.subscription)
        subscriber.is_open = False
        assert subscriber.subscription is not None
        if word.keep:
            subscriber.subscription.cancel()
        else:
            del self._subscribers[word.subscription]
            subscriber.subscription.close()

    def close(self) -> None:
        """End all subscriptions: unsettled messages return to their position in the queue."""
        self._is_closed = True
        self._gets.close()
        for subscriber in self._subscribers.values():
            subscriber.is_open = False
            if subscriber.subscription is not None:
                subscriber.subscription.close()
        self._subscribers.clear()

    # Settlements: numbers that are no longer held are ignored

    def ack(self, word: Ack) -> None:
        """Acknowledge deliveries."""
        self._settle(word.subscription, word.numbers, ACKNOWLEDGE)

    def nack(self, word: Nack) -> None:
        """Return deliveries to their queue."""
        how = RETURN if word.failed else RELEASE
        if word.delay_ms is not None:
            how = Settlement(
                SettlementOutcome.RETURN, is_failure=word.failed, delay_ms=word.delay_ms
            )
        self._settle(word.subscription, word.numbers, how)

    def reject(self, word: Reject) -> None:
        """Reject deliveries: they are not delivered again."""
        self._settle(word.subscription, word.numbers, _REJECTIONS[word.reason])

    def _settle(self, subscription: int, numbers: Sequence[int], how: Settlement) -> None:
        if subscription == GOT:
            self._gets.settle(numbers, how)
            return
        subscriber = self._subscribers.get(subscription)
        if subscriber is not None and subscriber.subscription is not None:
            subscriber.subscription.settle(numbers, how)

    # Deliveries

    def _deliver(self, subscriber: _Subscriber, deliveries: Sequence[Delivery]) -> None:
        if self._is_closed:
            return  # unsettled deliveries returned when the connection closed
        size_bytes = 0
        parts: list[WireDelivery] = []
        part_bytes = 0
        for delivery in deliveries:
            wire = wire_delivery(delivery, delivery.number)
            parts.append(wire)
            part_bytes += size_of(wire.message)
            if part_bytes >= FRAME_BYTES:
                size_bytes += self._send(subscriber, parts)
                parts, part_bytes = [], 0
        if parts:
            size_bytes += self._send(subscriber, parts)
        count = len(deliveries)
        self._service.metrics.messages_out += count
        subscriber.lent -= count
        subscriber.portion = max(1, min(LENT_MAX, UNSENT_BYTES * count // max(1, size_bytes)))
        again = partial(self._lend, subscriber)
        wait_ms = self._link.charge(FETCH_BYTES, size_bytes)
        if wait_ms:
            self._link.runner.later(wait_ms, again)
        else:
            self._link.runner.soon(again)

    def _send(self, subscriber: _Subscriber, parts: list[WireDelivery]) -> int:
        return self._link.send(0, Deliver(subscription=subscriber.id, deliveries=parts))

    def _lend(self, subscriber: _Subscriber) -> None:
        """Pass credit to the queue, once the client has read enough of what was sent."""
        if self._is_closed or not subscriber.is_open or subscriber.subscription is None:
            return
        if self._link.unsent_bytes() > UNSENT_BYTES:
            self._link.runner.later(RETRY_MS, partial(self._lend, subscriber))
            return
        more = subscriber.portion - subscriber.lent
        if subscriber.wanted is not None:
            more = min(more, subscriber.wanted)
        if more > 0:
            subscriber.lent += more
            if subscriber.wanted is not None:
                subscriber.wanted -= more
            subscriber.subscription.credit(more)

    def _ended(self, subscriber: _Subscriber, error: MainstemError | None) -> None:
        """End a subscription: the queue was deleted, or another node serves it."""
        if self._is_closed or not subscriber.is_open:
            return
        subscriber.is_open = False
        self._subscribers.pop(subscriber.id, None)
        wire_error = None if error is None else error_of(error)
        self._link.send(0, Ended(subscription=subscriber.id, error=wire_error))

    def _check(self, word: Subscribe) -> None:
        if word.subscription == GOT or word.subscription in self._subscribers:
            raise InvalidRequest(
                ErrorCode.DUPLICATE_RESOURCE,
                "the subscription number is in use",
                subject=str(word.subscription),
                remedy="use the next unused number, from 1",
            )
        if len(self._subscribers) >= self._service.limits.subscriptions_max:
            raise InvalidRequest(ErrorCode.LIMIT_REACHED, "too many subscriptions")

    def _found(self, number: int) -> _Subscriber:
        subscriber = self._subscribers.get(number)
        if subscriber is None or subscriber.subscription is None:
            raise InvalidRequest(
                ErrorCode.UNKNOWN_CONSUMER, "there is no such subscription", subject=str(number)
            )
        return subscriber
