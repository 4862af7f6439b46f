"""Settlements of holders since the last turn, applied to their queues."""

from typing import Protocol

from mainstem.queues.counts import QueueCounts
from mainstem.queues.engine.effects import QueueEffects
from mainstem.queues.engine.queue_machine import Queue
from mainstem.queues.engine.settling import SettlementOutcome
from mainstem.queues.engine.shard import QueueShard
from mainstem.queues.shards.shared_window_driver import SharedWindows
from mainstem.queues.shards.subscription_driver import DeliveryHolder, QueueSubscription


class EffectSink(Protocol):
    """The shard that carries out the effects of settlements."""

    def now_ms(self) -> int:
        """The time of the queue clock."""
        ...

    def take(self, number: int, effects: QueueEffects) -> QueueEffects:
        """Carry out the effects of a request to a queue in this turn."""
        ...


class PendingSettlements:
    """Collects holders with settlements and applies them, once per turn."""

    def __init__(self, shard: QueueShard, counts: QueueCounts, windows: SharedWindows) -> None:
        self._shard = shard
        self._counts = counts
        self._windows = windows
        self._holders: dict[DeliveryHolder, None] = {}

    def add(self, holder: DeliveryHolder) -> None:
        """Add a holder with settlements."""
        self._holders[holder] = None

    def remove(self, holder: DeliveryHolder) -> None:
        """Remove a holder whose settlements were applied."""
        self._holders.pop(holder, None)

    def apply_all(self, sink: EffectSink) -> None:
        """Apply all settlements since the last turn to their queues."""
        while self._holders:
            holder = next(iter(self._holders))
            del self._holders[holder]
            queue = self._shard.queue(holder.queue)
            if queue is not None:
                self.apply(holder, queue, sink)

    def apply(self, holder: DeliveryHolder, queue: Queue, sink: EffectSink) -> None:
        """Apply the settlements of one holder to a queue."""
        shared = holder.consumer.shared if isinstance(holder, QueueSubscription) else None
        if shared is None or not shared.is_limited:
            self._settle(holder, queue, sink)
            return
        # The freed space is offered to all consumers of the channel, not to this one first.
        shared.hold()
        self._settle(holder, queue, sink)
        shared.let_go()
        self._windows.changed(shared)

    def _settle(self, holder: DeliveryHolder, queue: Queue, sink: EffectSink) -> None:
        counts = self._counts
        for how, numbers in holder.take_settlements():
            effects = queue.on_settled(holder.id, numbers, how, sink.now_ms())
            if how.outcome is SettlementOutcome.ACKNOWLEDGE:
                counts.acknowledged += effects.count
            elif how.outcome is SettlementOutcome.RETURN:
                counts.returned += effects.count
            else:
                counts.rejected += effects.count
            sink.take(holder.queue, effects)
