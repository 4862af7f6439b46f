"""The subscriptions of a shard, and the delivery of messages to them.

While another node may own the shard, deliveries are held back; they are sent in order once the
lease is renewed, or dropped with the shard.
"""

import asyncio
from collections.abc import Callable, Sequence

from mainstem.model.errors import MainstemError
from mainstem.queues.api_types import Delivery
from mainstem.queues.context import QueuesContext
from mainstem.queues.engine.effects import Deliver
from mainstem.queues.engine.settling import Settlement, SettlementOutcome
from mainstem.queues.facts import RemovalReason
from mainstem.queues.shards.subscription_driver import DeliveryHolder, QueueSubscription

# How often held deliveries are tried again.
HELD_RETRY_S = 0.05

_TRIMMED = Settlement(SettlementOutcome.REJECT, reason=RemovalReason.TRIMMED)


class ShardDeliveries:
    """Delivers messages to the subscriptions of one shard."""

    def __init__(self, context: QueuesContext, lapse: Callable[[], MainstemError | None]) -> None:
        self._clock, self._bodies, self._counts = context
        self._lapse = lapse
        # Limited by the windows of the consumers and by the messages of the queues.
        self._held: list[Deliver] = []
        self._retry: asyncio.TimerHandle | None = None
        self._subscriptions: dict[str, QueueSubscription] = {}

    def subscribe(self, subscription: QueueSubscription) -> None:
        """Add the subscription of a new consumer."""
        self._subscriptions[subscription.id] = subscription

    def remove(self, consumer: str) -> QueueSubscription | None:
        """Remove and return the subscription of a consumer, if it had one."""
        return self._subscriptions.pop(consumer, None)

    def end_all(self, error: MainstemError) -> None:
        """End all subscriptions."""
        self._held = []
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        ended, self._subscriptions = self._subscriptions, {}
        for subscription in ended.values():
            subscription.end(error)

    def deliver(self, deliveries: Sequence[Deliver]) -> None:
        """Deliver messages, those of one consumer in one call; held back without a valid lease."""
        if self._lapse() is not None:
            self._held += deliveries
            if self._retry is None:
                loop = asyncio.get_running_loop()
                self._retry = loop.call_later(HELD_RETRY_S, self._try_again)
            return
        if self._held:
            deliveries = [*self._held, *deliveries]
            self._held = []
        groups: dict[str, list[Delivery]] = {}
        subscriptions = self._subscriptions
        counts = self._counts
        now_ms, waited_ms = self._clock.now_ms(), 0
        group: list[Delivery] | None
        for each in deliveries:
            consumer = each.consumer
            subscription = subscriptions.get(consumer)
            delivery = None if subscription is None else self.delivery(subscription, each)
            if delivery is None:
                continue
            if each.attempt > 1:
                counts.redelivered += 1
            else:
                waited_ms += max(0, now_ms - delivery.message.timestamp_ms)
            group = groups.get(consumer)
            if group is None:
                group = groups[consumer] = []
            group.append(delivery)
        counts.delivery_ms += waited_ms
        for consumer, group in groups.items():
            counts.delivered += len(group)
            subscriptions[consumer].deliver(group)

    def take_held(self, consumer: str) -> list[int]:
        """Remove the held deliveries of a consumer; returns their numbers."""
        numbers = [each.number for each in self._held if each.consumer == consumer]
        if numbers:
            self._held = [each for each in self._held if each.consumer != consumer]
        return numbers

    def _try_again(self) -> None:
        self._retry = None
        if self._held:
            self.deliver(())

    def delivery(self, holder: DeliveryHolder, each: Deliver) -> Delivery | None:
        """A delivery with its message; None if that can no longer be read."""
        published = self._bodies.read_published(each.stream, each.pointer.offset)
        if published is None:
            # The records were deleted although the queue needs them.
            holder.settle([each.number], _TRIMMED)
            return None
        message, exchange = published
        return Delivery(
            holder, each.number, message, exchange,
            each.attempt, each.failures, each.sequence,
        )  # fmt: skip
