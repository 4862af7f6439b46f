"""The driver of one shard of queues: carries out the effects of its queues once per turn.

    offer, consume, settle, … ─▶ QueueShard ─▶ QueueEffects
    QueueEffects ─▶ store the facts ─▶ deliver ─▶ dead-letter ─▶ notify ─▶ set the timer

Guarantees: facts are written before dependent effects are carried out, all facts of a turn in one
append; routers learn that pointers are stored once their facts are committed. If facts cannot be
stored, the shard is ahead of its stream: it ends every subscription and is loaded again. While
another node may own the shard, facts are still written, but nothing is delivered.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from mainstem.coordination.shards.persistence_driver import LiveShard
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.queues.admission.watermarks import Watermarks
from mainstem.queues.context import QueuesContext
from mainstem.queues.engine.effects import (
    AdmissionChanged,
    ConsumerCancelled,
    DeadLetter,
    QueueEffects,
    QueueGone,
)
from mainstem.queues.engine.shard import QueueShard, merge
from mainstem.queues.facts import RemovalReason
from mainstem.queues.routing.router import Offer
from mainstem.queues.settings import QueueName
from mainstem.queues.shards.delivery_driver import ShardDeliveries
from mainstem.queues.shards.settlement_driver import PendingSettlements
from mainstem.queues.shards.shard_timer_driver import ShardTimer
from mainstem.queues.shards.shared_window_driver import SharedWindows
from mainstem.queues.shards.subscription_driver import DeliveryHolder
from mainstem.queues.storage.shard_state import ShardFact, ShardState

LiveShardState = LiveShard[ShardState, ShardFact]

_log = logging.getLogger(__name__)


class OfferSource(Protocol):
    """The stream whose router made an offer."""

    label: str

    def on_stored(self, queue: str, until: int) -> None:
        """Note that all offers to a queue up to an offset are stored."""
        ...


class QueueListener(Protocol):
    """The virtual hosts, which find queues by name."""

    def queue_gone(self, name: QueueName) -> None:
        """Remove a deleted queue."""
        ...

    def admission_changed(self, name: QueueName, *, is_open: bool) -> None:
        """Notify routers that a queue accepts messages, or no longer does."""
        ...

    def pressure_changed(self) -> None:
        """Notify publishers of changed memory pressure."""
        ...


class ShardContext(NamedTuple):
    """The other drivers that a shard uses.

    Args:
        queues: the state that all queue drivers share.
        hosts: notified of changes of queues.
        windows: notified when a channel may have space.
        dead_letter: appends dead letters, then notifies the shard.
        failed: called when facts could not be stored.
    """

    queues: QueuesContext
    hosts: QueueListener
    windows: SharedWindows
    dead_letter: Callable[["QueueShardDriver", Sequence[DeadLetter]], None]
    failed: Callable[["QueueShardDriver", MainstemError], None]


class QueueShardDriver:
    """Carries out the effects of one shard of queues, once per turn of the loop."""

    def __init__(self, live: LiveShardState, context: ShardContext, watermarks: Watermarks) -> None:
        self.live = live
        self._context = context
        self.shard = QueueShard(live.shard.queues, watermarks, self.now_ms())
        self.deliveries = ShardDeliveries(context.queues, lambda: live.lapse)
        self.settlements = PendingSettlements(self.shard, context.queues.counts, context.windows)
        self._timer = ShardTimer(self._on_time)
        self._effects = QueueEffects()
        self._host_facts: list[ShardFact] = []
        self._stored: list[tuple[OfferSource, str, int]] = []
        self._turn: asyncio.Handle | None = None
        self._pressure = self.shard.pressure
        self.facts_since_snapshot = 0
        self.is_open = True

    def now_ms(self) -> int:
        """The time of the queue clock."""
        return self._context.queues.clock.now_ms()

    def take(self, number: int, effects: QueueEffects) -> QueueEffects:
        """Carry out the effects of a request to a queue in this turn."""
        self.shard.after(number, effects, self.now_ms())
        self.carry_out(effects)
        return effects

    def offer(self, number: int, offer: Offer, source: OfferSource) -> None:
        """Offer messages of a stream to a queue."""
        queue = self.shard.queue(number)
        until = offer.pointers[-1].offset + 1
        if queue is None:
            source.on_stored(offer.queue, until)
            return
        try:
            effects = queue.on_offered(offer.stream, offer.pointers, self.now_ms(), source.label)
        except InvalidRequest as error:
            _log.warning("queue '%s' refuses messages of %s: %s", offer.queue, source.label, error)
            self._context.queues.counts.dropped[RemovalReason.OVERFLOW] += len(offer.pointers)
            source.on_stored(offer.queue, until)
            return
        if queue.body.settings.is_kept:
            self._stored.append((source, offer.queue, until))
        else:
            source.on_stored(offer.queue, until)
        self.take(number, effects)

    def settle_soon(self, holder: DeliveryHolder) -> None:
        """Apply the settlements of a holder in this turn."""
        self.settlements.add(holder)
        self._schedule()

    def settle_all(self) -> None:
        """Apply all settlements since the last turn to their queues."""
        self.settlements.apply_all(self)

    def carry_out(self, effects: QueueEffects) -> None:
        """Carry out effects in this turn of the loop."""
        for notice in effects.notices:
            # Immediately: a queue of the same name may be declared in this turn.
            if isinstance(notice, QueueGone):
                self._context.hosts.queue_gone(notice.name)
        merge(self._effects, effects)
        self._schedule()

    def store(self, fact: ShardFact) -> None:
        """Store a fact of a virtual host in this turn."""
        self._host_facts.append(fact)
        self._schedule()

    def run_turn(self) -> None:
        """Carry out all effects since the last turn."""
        if not self.is_open:
            return
        self.settle_all()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        effects, self._effects = self._effects, QueueEffects()
        facts: list[ShardFact] = [*effects.facts, *self._host_facts]
        self._host_facts = []
        if not self._write(facts):
            return
        self._notify_routers()
        if effects.deliveries:
            self.deliveries.deliver(effects.deliveries)
        if effects.dead_letters:
            self._context.dead_letter(self, effects.dead_letters)
        self._notify(effects)
        self._timer.set(self.shard.next_ms(), self.now_ms())

    def close(self, error: MainstemError) -> None:
        """Stop; all consumers get the error."""
        self.is_open = False
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self._timer.cancel()
        self.deliveries.end_all(error)

    async def safe(self) -> None:
        """Write pending facts and wait until they are committed."""
        self.run_turn()
        if not self.is_open:
            raise Unavailable(ErrorCode.COORDINATOR_UNAVAILABLE, "queues are being reloaded")
        await self.live.safe()

    def _schedule(self) -> None:
        if self._turn is None and self.is_open:
            self._turn = asyncio.get_running_loop().call_soon(self.run_turn)

    def _write(self, facts: list[ShardFact]) -> bool:
        if not facts:
            return True
        try:
            for _ in self.live.append(facts, self.now_ms()):
                self.facts_since_snapshot += 1
        except MainstemError as error:
            # The shard is ahead of its stream and must not be used any longer.
            self.close(error)
            self._context.failed(self, error)
            return False
        return True

    def _notify_routers(self) -> None:
        """Notify routers of stored pointers once the facts are committed."""
        if not self._stored:
            return
        stored, self._stored = self._stored, []

        def committed(error: MainstemError | None) -> None:
            if error is None:
                for source, queue, until in stored:
                    source.on_stored(queue, until)

        if self.live.when_safe(committed):
            committed(None)

    def _notify(self, effects: QueueEffects) -> None:
        hosts, counts = self._context.hosts, self._context.queues.counts
        for dropped in effects.dropped:
            counts.dropped[dropped.reason] += dropped.messages
        for notice in effects.notices:
            if isinstance(notice, ConsumerCancelled):
                subscription = self.deliveries.remove(notice.consumer)
                if subscription is not None:
                    subscription.end(None)
            elif isinstance(notice, AdmissionChanged):
                entry = self.live.shard.queues.entries.get(notice.queue)
                if entry is not None:
                    hosts.admission_changed(entry.name, is_open=notice.is_open)
        if self.shard.pressure is not self._pressure:
            self._pressure = self.shard.pressure
            hosts.pressure_changed()

    def _on_time(self) -> None:
        if self.is_open:
            self.carry_out(self.shard.on_time(self.now_ms()))
