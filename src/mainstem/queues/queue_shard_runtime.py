"""One shard of queues in service: its verbs, for routers, consumers and dead letters.

    offer, consume, settle, … ─▶ QueueShard ─▶ Effects ─▶ ShardTurns

What holders say in one turn of the loop about what they hold is one change of the queue.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from mainstem.model.errors import InvalidRequest, MainstemError
from mainstem.queues.effects import DeadLetter, Deliver, Effects
from mainstem.queues.facts import Reason
from mainstem.queues.queue import Queue
from mainstem.queues.router import Offer
from mainstem.queues.settling import Outcome
from mainstem.queues.shard_turn_runtime import LiveBook, OfferSource, ShardTurns, TurnSurroundings
from mainstem.queues.subscription_runtime import Holder, LiveSubscription
from mainstem.queues.vocabulary import Delivery
from mainstem.queues.watermarks import Watermarks
from mainstem.queues.window import Window

_log = logging.getLogger(__name__)


class Surroundings(TurnSurroundings, Protocol):
    """What a shard asks of the rest of the room."""

    def bury(self, shard: "QueueShardRuntime", letters: Sequence[DeadLetter]) -> None:
        """Append dead letters, then tell the shard."""
        ...

    def shard_failed(self, shard: "QueueShardRuntime", error: MainstemError) -> None:
        """Facts could not be stored."""
        ...

    def shared_changed(self, shared: Window) -> None:
        """The window of a channel may have room for its consumers."""
        ...


class QueueShardRuntime(ShardTurns):
    """See the module."""

    def __init__(self, live: LiveBook, around: Surroundings, watermarks: Watermarks) -> None:
        super().__init__(live, around, watermarks)
        self._house = around
        self._settling: dict[Holder, None] = {}

    def take(self, number: int, effects: Effects) -> Effects:
        """A verb of a queue was carried out: what follows is done in this turn."""
        self.shard.after(number, effects, self.now_ms())
        self.carry_out(effects)
        return effects

    def offer(self, number: int, offer: Offer, source: OfferSource) -> None:
        """Messages of a stream come to a queue."""
        queue = self.shard.queue(number)
        until = offer.pointers[-1].offset + 1
        if queue is None:
            source.on_stored(offer.queue, until)
            return
        try:
            effects = queue.on_offered(offer.stream, offer.pointers, self.now_ms(), source.label)
        except InvalidRequest as error:
            _log.warning("queue '%s' takes nothing from %s: %s", offer.queue, source.label, error)
            self._house.counts.dropped[Reason.OVERFLOW] += len(offer.pointers)
            source.on_stored(offer.queue, until)
            return
        if queue.body.settings.is_kept:
            self.stored.append((source, offer.queue, until))
        else:
            source.on_stored(offer.queue, until)
        self.take(number, effects)

    def subscribe(self, subscription: LiveSubscription) -> None:
        """A consumer was let in: deliveries find it by its name."""
        self.subscriptions[subscription.id] = subscription

    def settle_soon(self, holder: Holder) -> None:
        """A holder has something to say about its deliveries."""
        self._settling[holder] = None
        self.schedule()

    def window_changed(self, subscription: LiveSubscription) -> None:
        """A consumer may have room."""
        queue = self.shard.queue(subscription.queue)
        if queue is not None and subscription.is_open:
            self.take(subscription.queue, queue.on_window(subscription.id, self.now_ms()))

    def cancel(self, subscription: LiveSubscription) -> None:
        """A consumer wants no more; what is on its way to it is delivered before this returns."""
        queue = self.shard.queue(subscription.queue)
        if queue is not None:
            self.take(subscription.queue, queue.on_cancelled(subscription.id, self.now_ms()))
            self.run_turn()
        self.subscriptions.pop(subscription.id, None)

    def release(self, holder: Holder) -> None:
        """A holder is gone: what it said still counts, what it has returns."""
        queue = self.shard.queue(holder.queue)
        if queue is not None:
            self._settle(holder, queue)
            self.take(holder.queue, queue.on_gone(holder.id, self.now_ms()))
        self._settling.pop(holder, None)
        self.subscriptions.pop(holder.id, None)

    def get(self, number: int, queue: Queue, holder: Holder, *, no_ack: bool) -> Delivery | None:
        """One message for somebody who asked."""
        effects = queue.on_get(holder.id, self.now_ms(), no_ack=no_ack)
        given: list[Deliver] = []
        others: list[Deliver] = []
        for each in effects.deliveries:
            (given if each.consumer == holder.id else others).append(each)
        effects.deliveries = others
        self.take(number, effects)
        self.run_turn()
        return self.delivery(holder, given[0]) if given else None

    def settle_all(self) -> None:
        """Tell queues what holders said about their deliveries since the last turn."""
        while self._settling:
            holder = next(iter(self._settling))
            del self._settling[holder]
            queue = self.shard.queue(holder.queue)
            if queue is not None:
                self._settle(holder, queue)

    def _settle(self, holder: Holder, queue: Queue) -> None:
        shared = holder.consumer.shared if isinstance(holder, LiveSubscription) else None
        if shared is None or not shared.is_limited:
            self._apply(holder, queue)
            return
        # The room that this makes is for all consumers of the channel, not for this one first.
        shared.hold()
        self._apply(holder, queue)
        shared.let_go()
        self._house.shared_changed(shared)

    def _apply(self, holder: Holder, queue: Queue) -> None:
        counts = self._house.counts
        for how, numbers in holder.take_wishes():
            effects = queue.on_settled(holder.id, numbers, how, self.now_ms())
            if how.outcome is Outcome.ACKNOWLEDGE:
                counts.acknowledged += effects.count
            elif how.outcome is Outcome.RETURN:
                counts.returned += effects.count
            else:
                counts.rejected += effects.count
            self.take(holder.queue, effects)

    def bury(self, letters: Sequence[DeadLetter]) -> None:
        """Append dead letters, then settle the originals."""
        self._house.bury(self, letters)

    def failed(self, error: MainstemError) -> None:
        """Facts could not be stored."""
        self._house.shard_failed(self, error)
