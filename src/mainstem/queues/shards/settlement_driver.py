"""What holders said about their deliveries since the last turn, applied to their queues."""

from typing import Protocol

from mainstem.queues.counts import QueueCounts
from mainstem.queues.engine.effects import Effects
from mainstem.queues.engine.queue_machine import Queue
from mainstem.queues.engine.settling import SettlementOutcome
from mainstem.queues.engine.shard import QueueShard
from mainstem.queues.shards.shared_window_driver import SharedWindows
from mainstem.queues.shards.subscription_driver import DeliveryHolder, QueueSubscription


class EffectSink(Protocol):
    """The shard that carries out what settlements lead to."""

    def now_ms(self) -> int:
        """The time of queues."""
        ...

    def take(self, number: int, effects: Effects) -> Effects:
        """A verb of a queue was carried out: what follows is done in this turn."""
        ...


class PendingSettlements:
    """Collects holders with something to settle and applies it, once per turn."""

    def __init__(self, shard: QueueShard, counts: QueueCounts, windows: SharedWindows) -> None:
        self._shard = shard
        self._counts = counts
        self._windows = windows
        self._holders: dict[DeliveryHolder, None] = {}

    def add(self, holder: DeliveryHolder) -> None:
        """A holder has something to say about its deliveries."""
        self._holders[holder] = None

    def remove(self, holder: DeliveryHolder) -> None:
        """A holder is gone; what it said was applied."""
        self._holders.pop(holder, None)

    def apply_all(self, sink: EffectSink) -> None:
        """Tell queues what holders said about their deliveries since the last turn."""
        while self._holders:
            holder = next(iter(self._holders))
            del self._holders[holder]
            queue = self._shard.queue(holder.queue)
            if queue is not None:
                self.apply(holder, queue, sink)

    def apply(self, holder: DeliveryHolder, queue: Queue, sink: EffectSink) -> None:
        """Tell a queue what one holder said."""
        shared = holder.consumer.shared if isinstance(holder, QueueSubscription) else None
        if shared is None or not shared.is_limited:
            self._settle(holder, queue, sink)
            return
        # The space that this makes is for all consumers of the channel, not for this one first.
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
