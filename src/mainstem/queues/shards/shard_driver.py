"""One shard of queues in service: what its queues want done is done once per turn of the loop.

    offer, consume, settle, … ─▶ QueueShard ─▶ Effects
    Effects ─▶ store the facts ─▶ deliver ─▶ dead-letter ─▶ notify ─▶ set the timer

Promises: facts are written before what rests on them goes out, all facts of a turn in one append;
routers are told that pointers are stored once their facts are committed. Where facts cannot be
stored the shard is ahead of its stream: it ends every subscription and is loaded anew. While
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
    Effects,
    QueueGone,
)
from mainstem.queues.engine.shard import QueueShard, merge
from mainstem.queues.facts import Reason
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
        """All offers to a queue up to an offset are kept."""
        ...


class QueueListener(Protocol):
    """The virtual hosts, which know queues by name."""

    def queue_gone(self, name: QueueName) -> None:
        """A queue was deleted."""
        ...

    def admission_changed(self, name: QueueName, *, is_open: bool) -> None:
        """A queue takes messages, or takes none."""
        ...

    def pressure_changed(self) -> None:
        """Publishers are to be treated otherwise."""
        ...


class ShardContext(NamedTuple):
    """What a shard needs of the other drivers.

    Args:
        queues: what all drivers of queues share.
        hosts: learn what became of queues.
        windows: learn that a channel may have space.
        dead_letter: appends dead letters, then tells the shard.
        failed: facts could not be stored.
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
        self._effects = Effects()
        self._space_facts: list[ShardFact] = []
        self._stored: list[tuple[OfferSource, str, int]] = []
        self._turn: asyncio.Handle | None = None
        self._pressure = self.shard.pressure
        self.facts_since_snapshot = 0
        self.is_open = True

    def now_ms(self) -> int:
        """The time of queues."""
        return self._context.queues.clock.now_ms()

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
            self._context.queues.counts.dropped[Reason.OVERFLOW] += len(offer.pointers)
            source.on_stored(offer.queue, until)
            return
        if queue.body.settings.is_kept:
            self._stored.append((source, offer.queue, until))
        else:
            source.on_stored(offer.queue, until)
        self.take(number, effects)

    def settle_soon(self, holder: DeliveryHolder) -> None:
        """A holder has something to say about its deliveries."""
        self.settlements.add(holder)
        self._schedule()

    def settle_all(self) -> None:
        """Tell queues what holders said about their deliveries since the last turn."""
        self.settlements.apply_all(self)

    def carry_out(self, effects: Effects) -> None:
        """Do what a verb of the shard wants done, in this turn of the loop."""
        for notice in effects.notices:
            # At once: a queue of the same name may be declared in this very turn.
            if isinstance(notice, QueueGone):
                self._context.hosts.queue_gone(notice.name)
        merge(self._effects, effects)
        self._schedule()

    def store(self, fact: ShardFact) -> None:
        """Keep a fact of a namespace, in this turn."""
        self._space_facts.append(fact)
        self._schedule()

    def run_turn(self) -> None:
        """Do all that came since the last turn."""
        if not self.is_open:
            return
        self.settle_all()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        effects, self._effects = self._effects, Effects()
        facts: list[ShardFact] = [*effects.facts, *self._space_facts]
        self._space_facts = []
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
        """Do nothing more; those who consume are told."""
        self.is_open = False
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        self._timer.cancel()
        self.deliveries.end_all(error)

    async def safe(self) -> None:
        """Write what is to be written and wait until it is committed."""
        self.run_turn()
        if not self.is_open:
            raise Unavailable(ErrorCode.COORDINATOR_UNAVAILABLE, "queues are being loaded anew")
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
            # The shard is ahead of its stream: nobody may rely on it any more.
            self.close(error)
            self._context.failed(self, error)
            return False
        return True

    def _notify_routers(self) -> None:
        """Routers learn that pointers are kept once the facts are committed."""
        if not self._stored:
            return
        stored, self._stored = self._stored, []

        def committed(error: MainstemError | None) -> None:
            if error is None:
                for source, queue, until in stored:
                    source.on_stored(queue, until)

        if self.live.when_safe(committed):
            committed(None)

    def _notify(self, effects: Effects) -> None:
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
