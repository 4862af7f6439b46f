"""One queue: offered messages, consumers, settlements, time. Decides; its driver acts.

    router ──offered──▶ ┌─────────┐ ──Deliver──▶ consumer
                        │  Queue  │ ◀──settled── (acknowledge, return, reject)
       on_time ───────▶ └─────────┘ ──DeadLetter──▶ exchange, then on_dead_lettered

Promises: what was settled never comes back; everything else is delivered again, in the order of its
sequence within its priority; nobody has a message that somebody else has; a message is gone only by
an acknowledgement or for a reason. ``now_ms`` counts milliseconds since 1970 and never goes back
while a node runs: its driver adds what has passed on the monotonic clock to the date it began with.
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.ids import StreamId
from mainstem.model.limits import DELIVERIES_PER_TURN_MAX
from mainstem.queues.engine import overflow, settling, subscribers
from mainstem.queues.engine.consumer_registry import ConsumerRegistry
from mainstem.queues.engine.consumers import Consumer
from mainstem.queues.engine.effects import ActiveChanged, ConsumerCancelled, Effects
from mainstem.queues.engine.queue_admission import QueueAdmission
from mainstem.queues.engine.queue_operations import QueueOperations
from mainstem.queues.engine.settling import Settlement
from mainstem.queues.facts import (
    ALL_LANES,
    AT_ONCE,
    ONLY_LANE,
    Acquired,
    Pointer,
    PointersAdded,
    PointersMoved,
    Reason,
    spans_of,
)
from mainstem.queues.settings import DeliveryMode, QueueSettings
from mainstem.queues.storage.ledger import QueuedItem, QueueLedger


class Queue:
    """Decides for one queue: offers, consumers, settlements, time.

    ``body`` is for those who look, not for those who change.
    """

    def __init__(
        self, queue: int, settings: QueueSettings, now_ms: int, ledger: QueueLedger | None = None
    ) -> None:
        if ledger is None:
            ledger = QueueLedger(is_fanout=settings.mode.is_fanout)
        self.body = QueueOperations(queue, settings, ledger, now_ms)
        self.consumer_registry = ConsumerRegistry(settings, now_ms)
        self.admission = QueueAdmission(self.body)
        self._active: str | None = None

    def next_ms(self) -> int | None:
        """When ``on_time`` is to be called."""
        body = self.body
        if body.has_more:
            return 0
        times = [
            body.leases.next_ms(),
            body.expiry.next_ms(),
            self.consumer_registry.expires_at_ms(),
        ]
        for lane in body.lanes.values():
            times += [lane.delayed.next_ms(), subscribers.absent_until_ms(body, lane)]
        return min((time for time in times if time is not None), default=None)

    def on_recovered(self, now_ms: int) -> Effects:
        """The queue was rebuilt: dead letters that may not have been appended are due again."""
        effects = Effects()
        settling.condemned(self.body, effects)
        return self._done(now_ms, effects)

    def on_changed(self, settings: QueueSettings, now_ms: int) -> Effects:
        """The queue was declared anew with other settings, none of them hard to change."""
        self.body.settings = self.consumer_registry.settings = settings
        return self._done(now_ms, Effects())

    def on_offered(
        self, stream: StreamId, pointers: tuple[Pointer, ...], now_ms: int, router: str = ""
    ) -> Effects:
        """Messages come from a router; those that came before are passed over."""
        effects = Effects()
        body = self.body
        self.admission.used(router, len(pointers), sum([each.size_bytes for each in pointers]))
        fresh = body.ledger.new(stream, pointers)
        effects.count = len(fresh)
        if not fresh:
            return self._done(now_ms, effects)
        is_timed = any(pointer.expires_ms for pointer in fresh)
        if is_timed:
            fresh = tuple(_from_now(pointer, now_ms) for pointer in fresh)
        ttl_ms = body.settings.message_ttl_ms
        if ttl_ms is not None:
            is_timed = True
            fresh = tuple(_limited(pointer, ttl_ms, now_ms) for pointer in fresh)
        start = body.ledger.next_sequence
        body.record(PointersAdded(body.id, start, stream, fresh), effects)
        sequences = range(start, body.ledger.next_sequence)
        for lane in body.lanes.values():
            held = lane.ledger.items
            items = [held[sequence] for sequence in sequences]
            lane.admit_all(items, now_ms)
            for item in items if is_timed else ():
                body.time(lane.id, item)
        if is_timed and not body.lanes:
            for sequence in sequences:
                body.time(ALL_LANES, body.ledger.messages[sequence])
        return self._done(now_ms, effects)

    def on_consume(
        self,
        consumer: Consumer,
        now_ms: int,
        *,
        is_exclusive: bool = False,
        subscriber: str | None = None,
    ) -> Effects:
        """A consumer comes; a named subscriber of a fan-out counts from now on.

        Raises:
            InvalidRequest: somebody is there alone, or wants to be; the name is taken.
        """
        effects = Effects()
        body = self.body
        self.consumer_registry.check(consumer.id, is_exclusive=is_exclusive)
        if body.settings.mode is DeliveryMode.FANOUT:
            consumer.no_ack = True
        name = consumer.id if subscriber is None else subscriber
        is_named = subscriber is not None
        lane = subscribers.lane_for(body, name, now_ms, effects, is_named=is_named)
        consumer.lane = lane.id
        self.consumer_registry.add(consumer, is_exclusive=is_exclusive)
        lane.consumers.add(consumer)
        return self._done(now_ms, effects)

    def on_cancelled(self, consumer_id: str, now_ms: int) -> Effects:
        """A consumer wants no more; what it has stays in its hands."""
        subscribers.leave(self.body, self.consumer_registry, consumer_id, now_ms)
        return self._done(now_ms, Effects())

    def on_gone(self, holder: str, now_ms: int) -> Effects:
        """A consumer, or a session, is lost; what it had returns to its place."""
        effects = Effects()
        subscribers.leave(self.body, self.consumer_registry, holder, now_ms)
        settling.release(self.body, holder, now_ms, effects)
        return self._done(now_ms, effects)

    def on_unsubscribed(self, subscriber: str, now_ms: int) -> Effects:
        """A named subscriber of a fan-out counts no longer."""
        effects = Effects()
        body = self.body
        lanes = [each for each in body.lanes.values() if each.ledger.subscriber == subscriber]
        for lane in lanes if body.ledger.is_fanout else ():
            for consumer in list(lane.consumers):
                subscribers.leave(body, self.consumer_registry, consumer.id, now_ms)
                settling.release(body, consumer.id, now_ms, effects)
                effects.notices.append(ConsumerCancelled(body.id, consumer.id))
            lane.is_leaving = True
            lane.absent_since_ms = now_ms
        return self._done(now_ms, effects)

    def on_window(self, consumer_id: str, now_ms: int) -> Effects:
        """The window of a consumer, or one that it shares, was changed by its session."""
        consumer = self.consumer_registry.get(consumer_id)
        if consumer is not None:
            self.body.lanes[consumer.lane].consumers.mark_ready(consumer)
        return self._done(now_ms, Effects())

    def on_get(self, holder: str, now_ms: int, *, no_ack: bool = False) -> Effects:
        """Somebody asks for one message; ``count`` tells how many are left.

        Raises:
            InvalidRequest: a fan-out has no message that is anybody's.
        """
        body = self.body
        if body.ledger.is_fanout:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST, "messages of a fan-out are for its subscribers"
            )
        effects = Effects()
        self.consumer_registry.used(now_ms)
        lane = body.lanes[ONLY_LANE]
        lane.wake(now_ms, DELIVERIES_PER_TURN_MAX)
        expired: list[QueuedItem] = []
        item = body.next_item(lane, now_ms, expired)
        body.condemn(lane, expired, Reason.EXPIRED, now_ms, effects)
        if item is not None and no_ack:
            effects.deliveries.append(body.delivery(holder, body.leases.number(), item))
            body.settle(lane, [item], None, effects)
        elif item is not None:
            number = body.lease(holder, lane, item, None, now_ms)
            effects.deliveries.append(body.delivery(holder, number, item))
            body.record(Acquired(body.id, lane.id, spans_of([item.sequence])), effects)
        effects.count = len(lane.ready)
        return self._done(now_ms, effects)

    def on_settled(
        self,
        holder: str,
        numbers: Iterable[int],
        how: Settlement,
        now_ms: int,
        *,
        multiple: bool = False,
    ) -> Effects:
        """A consumer settles deliveries; with ``multiple`` all that it has up to the last one.

        ``count`` tells how many were settled, ``unknown`` which were not its own.
        """
        effects = Effects()
        settled = list(numbers)
        if multiple and settled:
            settled = self.body.leases.up_to(holder, max(settled))
        settling.settle(self.body, holder, settled, how, now_ms, effects)
        return self._done(now_ms, effects)

    def on_dead_lettered(self, lane_id: int, sequences: Iterable[int], now_ms: int) -> Effects:
        """Dead letters were appended, or nobody wanted them: the originals go."""
        effects = Effects()
        settling.dead_letter(self.body, lane_id, sequences, effects)
        return self._done(now_ms, effects)

    def on_purged(self, now_ms: int, moved: Collection[int] | None = None) -> Effects:
        """All that is in nobody's hands goes, or what of it was moved; ``count``: how many."""
        effects = Effects()
        overflow.purge(self.body, now_ms, effects, moved)
        return self._done(now_ms, effects)

    def on_moved(self, stream: StreamId, offsets: Mapping[int, int], now_ms: int) -> Effects:
        """Bodies that only this queue still needs were appended elsewhere: sequence to offset."""
        effects = Effects()
        if offsets:
            places = tuple(sorted(offsets.items()))
            self.body.record(PointersMoved(self.body.id, stream, places), effects)
        return self._done(now_ms, effects)

    def on_pressure(self, messages: int, now_ms: int) -> Effects:
        """Memory runs out: drop the oldest messages; queues that refuse lose nothing."""
        effects = Effects()
        if not self.body.settings.overflow.needs_credit:
            overflow.drop_oldest(self.body, messages, 0, now_ms, effects)
        return self._done(now_ms, effects)

    def on_time(self, now_ms: int) -> Effects:
        """Time has passed, or a turn was too short for all that was to be delivered."""
        effects = Effects()
        settling.take_back(self.body, now_ms, DELIVERIES_PER_TURN_MAX, effects)
        return self._done(now_ms, effects)

    def _done(self, now_ms: int, effects: Effects) -> Effects:
        """What follows from any change: deliver, expire, keep within limits, tell."""
        body = self.body
        body.has_more = False
        if body.ledger.is_fanout:
            subscribers.close_absent(body, now_ms, effects)
        for lane in body.lanes.values():
            if lane.delayed:
                lane.wake(now_ms, DELIVERIES_PER_TURN_MAX)
            if lane.ready and lane.consumers:
                body.dispatch(lane, now_ms, effects)
        if body.expiry:
            overflow.expire(body, now_ms, DELIVERIES_PER_TURN_MAX, effects)
        overflow.enforce_limits(body, now_ms, effects)
        self.admission.notify(effects)
        if body.settings.single_active:
            active = body.lanes[ONLY_LANE].consumers.active
            name = None if active is None else active.id
            if name != self._active:
                self._active = name
                effects.notices.append(ActiveChanged(body.id, name))
        return effects


def _from_now(pointer: Pointer, now_ms: int) -> Pointer:
    """The pointer of a message that goes to a consumer that waits for it, or expires."""
    return replace(pointer, expires_ms=now_ms) if pointer.expires_ms == AT_ONCE else pointer


def _limited(pointer: Pointer, ttl_ms: int, now_ms: int) -> Pointer:
    """The pointer with the queue's own limit on its life; what waits begins to age afterwards."""
    expires_ms = max(now_ms, pointer.visible_ms) + ttl_ms
    if 0 < pointer.expires_ms <= expires_ms:
        return pointer
    return replace(pointer, expires_ms=expires_ms)
