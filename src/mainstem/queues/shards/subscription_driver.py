"""Holders of messages: a consumer with its window, or a session that got single messages.

Settlements of one turn of the loop reach the queue as one change, in their order.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mainstem.model.errors import MainstemError
from mainstem.queues.api_types import Delivery
from mainstem.queues.engine.consumers import Consumer
from mainstem.queues.engine.settling import Settlement, SettlementOutcome

if TYPE_CHECKING:
    from mainstem.queues.engine.effects import Deliver
    from mainstem.queues.shards.shard_driver import QueueShardDriver

OnDelivered = Callable[[Sequence[Delivery]], None]
Ended = Callable[[MainstemError | None], None]


_RETURN = Settlement(SettlementOutcome.RETURN)


class DeliveryHolder:
    """A holder of unsettled messages of one queue."""

    def __init__(self, shard: "QueueShardDriver", queue: int, holder_id: str) -> None:
        self.shard = shard
        self.queue = queue
        self.id = holder_id
        self.settlements: list[tuple[Settlement, list[int]]] = []

    def get(self, *, no_ack: bool) -> Delivery | None:
        """Take one message, if one is ready."""
        shard = self.shard
        queue = shard.shard.queue(self.queue)
        if queue is None:
            return None
        effects = queue.on_get(self.id, shard.now_ms(), no_ack=no_ack)
        given: list[Deliver] = []
        others: list[Deliver] = []
        for each in effects.deliveries:
            (given if each.consumer == self.id else others).append(each)
        effects.deliveries = others
        shard.take(self.queue, effects)
        shard.run_turn()
        return shard.deliveries.delivery(self, given[0]) if given else None

    def settle(self, numbers: Sequence[int], how: Settlement) -> None:
        """Settle deliveries; numbers that are no longer held are ignored."""
        settlements = self.settlements
        if settlements and settlements[-1][0] is how:
            settlements[-1][1].extend(numbers)
            return
        if not settlements:
            self.shard.settle_soon(self)
        settlements.append((how, list(numbers)))

    async def settled(self) -> None:
        """Return once all previous settlements are committed."""
        await self.shard.safe()

    def take_settlements(self) -> list[tuple[Settlement, list[int]]]:
        """Remove and return the settlements since the last turn."""
        settlements, self.settlements = self.settlements, []
        return settlements


class QueueSubscription(DeliveryHolder):
    """One consumer of a queue."""

    def __init__(
        self,
        shard: "QueueShardDriver",
        queue: int,
        consumer: Consumer,
        deliver: OnDelivered,
        ended: Ended,
    ) -> None:
        super().__init__(shard, queue, consumer.id)
        self.consumer = consumer
        self.deliver = deliver
        self._ended: Ended | None = ended
        self.is_open = True

    def changed(self) -> None:
        """Continue after the window changed."""
        shard = self.shard
        queue = shard.shard.queue(self.queue)
        if queue is not None and self.is_open:
            shard.take(self.queue, queue.on_window(self.id, shard.now_ms()))

    def credit(self, messages: int) -> None:
        """Grant more deliveries."""
        window = self.consumer.window
        if window.credit is not None:
            window.credit += messages
            self.changed()

    def cancel(self) -> None:
        """Stop deliveries; pending ones are delivered before this returns.

        Delivered messages stay unsettled; those held back without a lease return to the queue.
        """
        if not self.is_open:
            return
        self.is_open = False
        shard = self.shard
        queue = shard.shard.queue(self.queue)
        if queue is not None:
            shard.take(self.queue, queue.on_cancelled(self.id, shard.now_ms()))
            shard.run_turn()
        if held := shard.deliveries.take_held(self.id):
            self.settle(held, _RETURN)
        shard.deliveries.remove(self.id)

    def close(self) -> None:
        """End the session: its settlements still apply, unsettled messages return to the queue."""
        self.is_open = False
        self._ended = None
        shard = self.shard
        queue = shard.shard.queue(self.queue)
        if queue is not None:
            shard.settlements.apply(self, queue, shard)
            shard.take(self.queue, queue.on_gone(self.id, shard.now_ms()))
        shard.settlements.remove(self)
        shard.deliveries.remove(self.id)

    def end(self, error: MainstemError | None) -> None:
        """End the subscription at the request of the queue."""
        self.is_open = False
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(error)
