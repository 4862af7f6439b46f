"""The turns of a shard of queues: what verbs wanted done is done once per turn of the loop.

    Effects ─▶ store the facts ─▶ deliver ─▶ bury dead letters ─▶ tell ─▶ set the timer

Promises: facts are written before what rests on them goes out, all facts of a turn in one append;
routers are told that pointers are stored once their facts are committed. Where facts cannot be
stored the shard is ahead of its stream: it ends every subscription and is loaded anew.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from mainstem.coordination.shard_runtime import LiveShard
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import StreamId
from mainstem.queues.bodies_runtime import Bodies
from mainstem.queues.counts import QueueCounts
from mainstem.queues.effects import (
    AdmissionChanged,
    ConsumerCancelled,
    DeadLetter,
    Deliver,
    Effects,
    QueueGone,
)
from mainstem.queues.exchange import DEFAULT_EXCHANGE
from mainstem.queues.facts import Reason
from mainstem.queues.queue_shard import QueueShard, merge
from mainstem.queues.routing import is_moved, unmoved
from mainstem.queues.settings import QueueName
from mainstem.queues.settling import Outcome, Settlement
from mainstem.queues.shard_book import ShardBook, ShardFact
from mainstem.queues.steady_clock import SteadyClock
from mainstem.queues.subscription_runtime import Holder, LiveSubscription
from mainstem.queues.vocabulary import Delivery
from mainstem.queues.watermarks import Watermarks

LiveBook = LiveShard[ShardBook, ShardFact]
_TRIMMED = Settlement(Outcome.REJECT, reason=Reason.TRIMMED)


class OfferSource(Protocol):
    """The stream whose router made an offer."""

    label: str

    def on_stored(self, queue: str, until: int) -> None:
        """All offers to a queue up to an offset are kept."""
        ...


class TurnSurroundings(Protocol):
    """What the turns of a shard ask of the rest of the room."""

    clock: SteadyClock
    bodies: Bodies
    counts: QueueCounts

    def exchange_of(self, stream: StreamId) -> str:
        """The exchange that a stream belongs to."""
        ...

    def queue_gone(self, name: QueueName) -> None:
        """A queue was deleted."""
        ...

    def admission_changed(self, name: QueueName, *, is_open: bool) -> None:
        """A queue takes messages, or takes none."""
        ...

    def pressure_changed(self) -> None:
        """Publishers are to be treated otherwise."""
        ...


class ShardTurns(ABC):
    """See the module."""

    def __init__(self, live: LiveBook, around: TurnSurroundings, watermarks: Watermarks) -> None:
        self.live = live
        self.around = around
        self._clock = around.clock
        self.shard = QueueShard(live.shard.queues, watermarks, around.clock.now_ms())
        self._loop = asyncio.get_running_loop()
        self.effects = Effects()
        self._space_facts: list[ShardFact] = []
        self.stored: list[tuple[OfferSource, str, int]] = []
        self.subscriptions: dict[str, LiveSubscription] = {}
        self._turn: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._pressure = self.shard.pressure
        self.facts_since_snapshot = 0
        self.is_open = True

    @abstractmethod
    def settle_all(self) -> None:
        """Tell queues what holders said about their deliveries since the last turn."""

    @abstractmethod
    def bury(self, letters: Sequence[DeadLetter]) -> None:
        """Append dead letters, then settle the originals."""

    @abstractmethod
    def failed(self, error: MainstemError) -> None:
        """Facts could not be stored."""

    def now_ms(self) -> int:
        """The time of queues."""
        return self._clock.now_ms()

    def carry_out(self, effects: Effects) -> None:
        """Do what a verb of the shard wants done, in this turn of the loop."""
        for notice in effects.notices:
            # At once: a queue of the same name may be declared in this very turn.
            if isinstance(notice, QueueGone):
                self.around.queue_gone(notice.name)
        merge(self.effects, effects)
        self.schedule()

    def store(self, fact: ShardFact) -> None:
        """Keep a fact of a namespace, in this turn."""
        self._space_facts.append(fact)
        self.schedule()

    def schedule(self) -> None:
        """There is something to do."""
        if self._turn is None and self.is_open:
            self._turn = self._loop.call_soon(self.run_turn)

    def run_turn(self) -> None:
        """Do all that came since the last turn."""
        if not self.is_open:
            return
        self.settle_all()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        effects, self.effects = self.effects, Effects()
        facts: list[ShardFact] = [*effects.facts, *self._space_facts]
        self._space_facts = []
        if not self._write(facts):
            return
        self._tell_routers()
        if effects.deliveries:
            self._deliver(effects.deliveries)
        if effects.dead_letters:
            self.bury(effects.dead_letters)
        self._tell(effects)
        self._set_timer()

    def _write(self, facts: list[ShardFact]) -> bool:
        if not facts:
            return True
        try:
            for _ in self.live.append(facts, self._clock.now_ms()):
                self.facts_since_snapshot += 1
        except MainstemError as error:
            self.fail(error)
            return False
        return True

    def _tell_routers(self) -> None:
        """Routers learn that pointers are kept once the facts are committed."""
        if not self.stored:
            return
        stored, self.stored = self.stored, []

        def committed(error: MainstemError | None) -> None:
            if error is None:
                for source, queue, until in stored:
                    source.on_stored(queue, until)

        if self.live.when_safe(committed):
            committed(None)

    def _deliver(self, deliveries: list[Deliver]) -> None:
        groups: dict[str, list[Delivery]] = {}
        subscriptions = self.subscriptions
        counts = self.around.counts
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

    def delivery(self, holder: Holder, each: Deliver) -> Delivery | None:
        """A delivery with its message; None where that cannot be read any more."""
        message = self.around.bodies.read(each.stream, each.pointer.offset)
        if message is None:
            # Somebody removed the records from under the queue.
            holder.settle([each.number], _TRIMMED)
            return None
        exchange = self.around.exchange_of(each.stream)
        if exchange == DEFAULT_EXCHANGE and is_moved(message.headers):
            message, exchange = unmoved(message)
        return Delivery(
            holder, each.number, message, exchange,
            each.attempt, each.failures, each.sequence,
        )  # fmt: skip

    def _tell(self, effects: Effects) -> None:
        around = self.around
        for dropped in effects.dropped:
            around.counts.dropped[dropped.reason] += dropped.messages
        for notice in effects.notices:
            if isinstance(notice, ConsumerCancelled):
                subscription = self.subscriptions.pop(notice.consumer, None)
                if subscription is not None:
                    subscription.end(None)
            elif isinstance(notice, AdmissionChanged):
                name = self._name(notice.queue)
                if name is not None:
                    around.admission_changed(name, is_open=notice.is_open)
        if self.shard.pressure is not self._pressure:
            self._pressure = self.shard.pressure
            around.pressure_changed()

    def _name(self, number: int) -> QueueName | None:
        entry = self.live.shard.queues.entries.get(number)
        return None if entry is None else entry.name

    def _set_timer(self) -> None:
        due_ms = self.shard.next_ms()
        if due_ms is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_ms = due_ms
        wait_s = max(0, due_ms - self.now_ms()) / 1000
        self._timer = self._loop.call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self.is_open:
            self.carry_out(self.shard.on_time(self.now_ms()))

    def fail(self, error: MainstemError) -> None:
        """The shard is ahead of its stream: nobody may rely on it any more."""
        if self.is_open:
            self.close(error)
            self.failed(error)

    def close(self, error: MainstemError) -> None:
        """Do nothing more; those who consume are told."""
        self.is_open = False
        for handle in (self._turn, self._timer):
            if handle is not None:
                handle.cancel()
        self._turn = self._timer = None
        ended, self.subscriptions = self.subscriptions, {}
        for subscription in ended.values():
            subscription.end(error)

    async def safe(self) -> None:
        """Write what is to be written and wait until it is committed."""
        self.run_turn()
        if not self.is_open:
            raise Unavailable(ErrorCode.COORDINATOR_UNAVAILABLE, "queues are being loaded anew")
        await self.live.safe()
