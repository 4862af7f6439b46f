"""One queue: offered messages, consumers, settlements, time. Decides; its driver acts.

    router ──offered──▶ ┌─────────┐ ──Deliver──▶ consumer
                        │  Queue  │ ◀──settled── (acknowledge, return, reject)
       on_time ───────▶ └─────────┘ ──DeadLetter──▶ exchange, then on_dead_lettered

Guarantees: settled messages never return; all others are delivered again, in the order of their
sequence within their priority; a message has at most one holder at a time; a message is removed
only by an acknowledgement or for a recorded reason. ``now_ms`` counts milliseconds since 1970 and
never goes back while a node runs: the driver adds the monotonic clock to the date at its start.
"""

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.ids import StreamId
from mainstem.model.limits import DELIVERIES_PER_TURN_MAX
from mainstem.queues.engine import overflow, settling, subscribers
from mainstem.queues.engine.consumer_registry import ConsumerRegistry
from mainstem.queues.engine.consumers import Consumer
from mainstem.queues.engine.effects import ActiveChanged, QueueEffects
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
    RemovalReason,
    spans_of,
)
from mainstem.queues.settings import DeliveryMode, QueueSettings
from mainstem.queues.storage.ledger import QueuedItem, QueueLedger


class Queue:
    """Decides for one queue: offers, consumers, settlements, time.

    ``body`` is read-only for other classes.
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
        """When ``on_time`` has to be called."""
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

    def on_recovered(self, now_ms: int) -> QueueEffects:
        """Make dead letters due again that may not have been appended before the restart."""
        effects = QueueEffects()
        settling.condemned(self.body, effects)
        return self._done(now_ms, effects)

    def on_changed(self, settings: QueueSettings, now_ms: int) -> QueueEffects:
        """Apply changed settings, none of them hard to change."""
        self.body.settings = self.consumer_registry.settings = settings
        return self._done(now_ms, QueueEffects())

    def on_offered(
        self, stream: StreamId, pointers: tuple[Pointer, ...], now_ms: int, router: str = ""
    ) -> QueueEffects:
        """Add messages from a router; those that were added before are ignored."""
        effects = QueueEffects()
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
    ) -> QueueEffects:
        """Add a consumer; a named subscriber of a fan-out is registered.

        Raises:
            InvalidRequest: the id is in use, or exclusive access conflicts with other consumers.
        """
        effects = QueueEffects()
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

    def on_cancelled(self, consumer_id: str, now_ms: int) -> QueueEffects:
        """Cancel a consumer; it keeps its unsettled messages."""
        subscribers.leave(self.body, self.consumer_registry, consumer_id, now_ms)
        return self._done(now_ms, QueueEffects())

    def on_gone(self, holder: str, now_ms: int) -> QueueEffects:
        """Remove a consumer or session; its unsettled messages return to their positions."""
        effects = QueueEffects()
        subscribers.leave(self.body, self.consumer_registry, holder, now_ms)
        settling.release(self.body, holder, now_ms, effects)
        return self._done(now_ms, effects)

    def on_window(self, consumer_id: str, now_ms: int) -> QueueEffects:
        """Continue after a session changed the window of a consumer, or its shared one."""
        consumer = self.consumer_registry.get(consumer_id)
        if consumer is not None:
            self.body.lanes[consumer.lane].consumers.mark_ready(consumer)
        return self._done(now_ms, QueueEffects())

    def on_get(self, holder: str, now_ms: int, *, no_ack: bool = False) -> QueueEffects:
        """Deliver one message to a session; ``count`` is the number of messages left.

        Raises:
            InvalidRequest: the queue is a fan-out.
        """
        body = self.body
        if body.ledger.is_fanout:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST, "a fan-out delivers to subscribers only"
            )
        effects = QueueEffects()
        self.consumer_registry.used(now_ms)
        lane = body.lanes[ONLY_LANE]
        lane.wake(now_ms, DELIVERIES_PER_TURN_MAX)
        expired: list[QueuedItem] = []
        item = body.next_item(lane, now_ms, expired)
        body.condemn(lane, expired, RemovalReason.EXPIRED, now_ms, effects)
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
    ) -> QueueEffects:
        """Settle deliveries of a holder; with ``multiple`` all of them up to the last one.

        ``count`` is the number of settled ones, ``unknown`` lists those it does not hold.
        """
        effects = QueueEffects()
        settled = list(numbers)
        if multiple and settled:
            settled = self.body.leases.up_to(holder, max(settled))
        settling.settle(self.body, holder, settled, how, now_ms, effects)
        return self._done(now_ms, effects)

    def on_dead_lettered(self, lane_id: int, sequences: Iterable[int], now_ms: int) -> QueueEffects:
        """Remove originals whose dead letters were appended or have no target."""
        effects = QueueEffects()
        settling.dead_letter(self.body, lane_id, sequences, effects)
        return self._done(now_ms, effects)

    def on_purged(self, now_ms: int, moved: Collection[int] | None = None) -> QueueEffects:
        """Remove messages that are not leased, or ``moved`` ones of them; ``count``: how many."""
        effects = QueueEffects()
        overflow.purge(self.body, now_ms, effects, moved)
        return self._done(now_ms, effects)

    def on_moved(self, stream: StreamId, offsets: Mapping[int, int], now_ms: int) -> QueueEffects:
        """Update the positions of bodies that were appended again: sequence to offset."""
        effects = QueueEffects()
        if offsets:
            places = tuple(sorted(offsets.items()))
            self.body.record(PointersMoved(self.body.id, stream, places), effects)
        return self._done(now_ms, effects)

    def on_pressure(self, messages: int, now_ms: int) -> QueueEffects:
        """Drop the oldest messages to free memory; queues that refuse drop nothing."""
        effects = QueueEffects()
        if not self.body.settings.overflow.needs_credit:
            overflow.drop_oldest(self.body, messages, 0, now_ms, effects)
        return self._done(now_ms, effects)

    def on_time(self, now_ms: int) -> QueueEffects:
        """Handle expired leases and other timers, and work that exceeded the limit of a turn."""
        effects = QueueEffects()
        settling.take_back(self.body, now_ms, DELIVERIES_PER_TURN_MAX, effects)
        return self._done(now_ms, effects)

    def _done(self, now_ms: int, effects: QueueEffects) -> QueueEffects:
        """Finish any change: deliver, expire, enforce limits, notify."""
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
    """Replace ``AT_ONCE`` by the present: the message is delivered at once, or expires."""
    return replace(pointer, expires_ms=now_ms) if pointer.expires_ms == AT_ONCE else pointer


def _limited(pointer: Pointer, ttl_ms: int, now_ms: int) -> Pointer:
    """The pointer with the queue's TTL applied, which starts when the message is visible."""
    expires_ms = max(now_ms, pointer.visible_ms) + ttl_ms
    if 0 < pointer.expires_ms <= expires_ms:
        return pointer
    return replace(pointer, expires_ms=expires_ms)
