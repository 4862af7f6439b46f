"""What every verb of a queue is made of: record, hand out, take back, condemn, settle, limit.

The body keeps three things in step: the ledger (what lasts), the lanes (where each message stands)
and the leases (who has it). Facts are recorded before lanes are told, so that what a lane sees is
what a restart would see.
"""

from collections.abc import Iterable
from itertools import groupby

from mainstem.model.limits import DELIVERIES_PER_TURN_MAX, QUEUE_MESSAGES_MAX
from mainstem.queues.admission.credit import Credit
from mainstem.queues.engine.consumers import Consumer
from mainstem.queues.engine.effects import DeadLetter, Deliver, Dropped, Effects
from mainstem.queues.engine.leases import Lease, Leases
from mainstem.queues.engine.subscriber_queue import MessageState, SubscriberQueue
from mainstem.queues.engine.timers import Timers
from mainstem.queues.facts import (
    ALL_LANES,
    ONLY_LANE,
    Acquired,
    Condemned,
    QueueFact,
    Reason,
    Returned,
    Settled,
    pieces_of,
    spans_of,
)
from mainstem.queues.settings import QueueSettings
from mainstem.queues.storage.ledger import QueuedItem, QueueLedger


class QueueOperations:
    """Provides the operations that all requests to a queue are built from."""

    def __init__(
        self, queue: int, settings: QueueSettings, ledger: QueueLedger, now_ms: int
    ) -> None:
        self.id = queue
        self.settings = settings
        self.ledger = ledger
        self.leases = Leases()
        self.expiry: Timers[tuple[int, int]] = Timers()
        self.lanes: dict[int, SubscriberQueue] = {}
        # A turn ended before all that could be delivered was.
        self.has_more = False
        for lane in ledger.lanes.values():
            self.add_lane(lane.id, now_ms)
        # Messages of a fan-out that are condemned as a whole: they count no more.
        self.dying = Credit(0, 0)
        for message in ledger.messages.values():
            self.time(ALL_LANES, message)
            if message.reason is not None:
                self.count_dying(message, 1)

    @property
    def waiting(self) -> Credit:
        """How many messages, and bytes, count against the limits: those in nobody's hands.

        In a fan-out each message counts until it is gone.
        """
        if not self.ledger.is_fanout:
            lane = self.lanes[ONLY_LANE]
            return Credit(lane.waiting, lane.waiting_bytes)
        gone = self.dying
        return Credit(
            len(self.ledger) - gone.messages, self.ledger.total_bytes - (gone.size_bytes or 0)
        )

    @property
    def ready_count(self) -> int:
        """How many messages could be delivered now, had consumers space."""
        if self.ledger.is_fanout:
            return self.waiting.messages
        return len(self.lanes[ONLY_LANE].ready)

    @property
    def free(self) -> Credit:
        """How much fits in."""
        settings = self.settings
        messages, size_bytes = self.waiting
        free = QUEUE_MESSAGES_MAX - len(self.ledger)
        if settings.max_length is not None:
            free = min(free, settings.max_length - messages)
        if settings.max_length_bytes is None:
            return Credit(free, None)
        return Credit(free, settings.max_length_bytes - (size_bytes or 0))

    def record(self, fact: QueueFact, effects: Effects) -> None:
        """Something happened. Queues that do not outlive their node leave no trace."""
        for piece in pieces_of(fact):
            self.ledger.replay(piece)
            if self.settings.is_kept:
                effects.facts.append(piece)

    def add_lane(self, lane_id: int, now_ms: int) -> SubscriberQueue:
        """A lane that the ledger knows begins to deliver."""
        lane = self.lanes[lane_id] = SubscriberQueue(
            self.ledger.lanes[lane_id], self.settings, now_ms
        )
        for item in lane.ledger.items.values():
            self.time(lane_id, item)
        return lane

    def time(self, lane_id: int, item: QueuedItem) -> None:
        """Note when the message of a lane expires."""
        if item.pointer.expires_ms and item.reason is None:
            self.expiry.set((lane_id, item.sequence), item.pointer.expires_ms)

    def dispatch(self, lane: SubscriberQueue, now_ms: int, effects: Effects) -> None:
        """Hand out what is ready to those who have space."""
        acquired: list[int] = []
        settled: list[QueuedItem] = []
        expired: list[QueuedItem] = []
        ready, deliveries, leases = lane.ready, effects.deliveries, self.leases
        until_ms = _lease_until_ms(self.settings, now_ms)
        while ready and len(deliveries) < DELIVERIES_PER_TURN_MAX:
            consumer = lane.consumers.next()
            if consumer is None:
                break
            item = self.next_item(lane, now_ms, expired)
            if item is None:
                break
            if consumer.no_ack:
                number = leases.number()
                settled.append(item)
            else:
                item.place = MessageState.LEASED
                number = leases.grant(consumer.id, lane, item, consumer, until_ms)
                acquired.append(item.sequence)
            consumer.sent(item.pointer.size_bytes)
            if not consumer.window.is_open:
                lane.consumers.full(consumer)
            deliveries.append(self.delivery(consumer.id, number, item))
        else:
            self.has_more |= bool(ready)
        if acquired:
            self.record(Acquired(self.id, lane.id, spans_of(acquired)), effects)
        self.settle(lane, settled, None, effects)
        self.condemn(lane, expired, Reason.EXPIRED, now_ms, effects)

    def next_item(
        self, lane: SubscriberQueue, now_ms: int, expired: list[QueuedItem]
    ) -> QueuedItem | None:
        """The message whose turn it is; those whose time is over are put aside."""
        while (item := lane.take()) is not None:
            # What expires at once still goes to a consumer that is there.
            if not 0 < item.pointer.expires_ms < now_ms:
                return item
            item.place = MessageState.DYING
            expired.append(item)
        return None

    def lease(
        self,
        holder: str,
        lane: SubscriberQueue,
        item: QueuedItem,
        consumer: Consumer | None,
        now_ms: int,
    ) -> int:
        """Somebody takes a message into its hands."""
        item.place = MessageState.LEASED
        return self.leases.grant(
            holder, lane, item, consumer, _lease_until_ms(self.settings, now_ms)
        )

    def delivery(self, holder: str, number: int, item: QueuedItem) -> Deliver:
        """The delivery of a message to a holder."""
        return Deliver(
            self.id, holder, number, item.sequence, item.stream, item.pointer,
            item.acquired + 1, item.failures,
        )  # fmt: skip

    def end(self, leases: Iterable[Lease]) -> list[Lease]:
        """Leases are over: consumers have space again. Those whose message is still there."""
        live: list[Lease] = []
        # The consumers, in the order in which they let go, and what of each one's.
        freed: dict[Consumer, tuple[SubscriberQueue, list[int]]] = {}
        for lease in leases:
            item, lane, consumer = lease.item, lease.lane, lease.consumer
            if consumer is not None:
                known = freed.get(consumer)
                if known is None:
                    known = freed[consumer] = (lane, [])
                known[1].append(item.pointer.size_bytes)
            ledger = lane.ledger
            if self.lanes.get(ledger.id) is lane and ledger.items.get(item.sequence) is item:
                live.append(lease)
        for consumer, (lane, sizes) in freed.items():
            consumer.settled(sum(sizes), len(sizes))
            lane.consumers.mark_ready(consumer)
        return live

    def give_back(
        self, leases: list[Lease], now_ms: int, effects: Effects, *, is_failure: bool, delay_ms: int
    ) -> None:
        """Messages return to their place, wait, or have been tried often enough.

        ``delay_ms`` below zero stands for the settings' own back-off.
        """
        exhausted: list[Lease] = []
        stale: list[Lease] = []
        waits: dict[tuple[int, int], list[QueuedItem]] = {}
        for lease in leases:
            item = lease.item
            if self._is_exhausted(item, is_failure=is_failure):
                exhausted.append(lease)
            elif 0 < item.pointer.expires_ms <= now_ms:
                stale.append(lease)
            else:
                wait_ms = delay_ms
                if delay_ms < 0:
                    wait_ms = self.settings.retry_delay_ms(item.failures + 1) if is_failure else 0
                visible_ms = now_ms + wait_ms if wait_ms else 0
                waits.setdefault((lease.lane.id, visible_ms), []).append(item)
        for (lane_id, visible_ms), items in waits.items():
            if is_failure or visible_ms:
                spans = spans_of(item.sequence for item in items)
                fact = Returned(self.id, lane_id, spans, is_failure, visible_ms)
                self.record(fact, effects)
            lane = self.lanes[lane_id]
            for item in items:
                lane.put_back(item, now_ms)
        self.condemn_leases(exhausted, Reason.ATTEMPTS, now_ms, effects)
        self.condemn_leases(stale, Reason.EXPIRED, now_ms, effects)

    def condemn_leases(
        self, leases: list[Lease], reason: Reason, now_ms: int, effects: Effects
    ) -> None:
        """Messages that somebody had will not be delivered again."""
        for lane, group in groupby(sorted(leases, key=_by_lane), key=lambda lease: lease.lane):
            self.condemn(lane, [lease.item for lease in group], reason, now_ms, effects)

    def condemn(
        self,
        lane: SubscriberQueue,
        items: list[QueuedItem],
        reason: Reason,
        now_ms: int,
        effects: Effects,
    ) -> None:
        """Messages of a lane will not be delivered again; where there is no exchange, they go."""
        if not items:
            return
        for item in items:
            lane.withdraw(item)
        if self.settings.dead_letter_exchange is None:
            self.settle(lane, items, reason, effects)
            return
        for item in items:
            item.place = MessageState.DYING
            lane.dying += 1
            self.expiry.cancel((lane.id, item.sequence))
        spans = spans_of(item.sequence for item in items)
        self.record(Condemned(self.id, lane.id, spans, reason, now_ms), effects)
        effects.dead_letters += [self.dead_letter(lane.id, item) for item in items]

    def dead_letter(self, lane_id: int, item: QueuedItem) -> DeadLetter:
        """What is appended for a condemned message."""
        assert item.reason is not None, "only what is condemned becomes a dead letter"
        return DeadLetter(
            self.id, lane_id, item.sequence, item.stream, item.pointer,
            item.reason, item.reason_ms, item.failures,
        )  # fmt: skip

    def settle(
        self,
        lane: SubscriberQueue,
        items: list[QueuedItem],
        reason: Reason | None,
        effects: Effects,
    ) -> None:
        """Messages of a lane are gone."""
        if not items:
            return
        if self.expiry:
            for item in items:
                self.expiry.cancel((lane.id, item.sequence))
        sequences = [item.sequence for item in items]
        self.record(Settled(self.id, lane.id, spans_of(sequences), reason), effects)
        if reason is not None:
            self.note_dropped(items, reason, effects)

    def count_dying(self, message: QueuedItem, sign: int) -> None:
        """A message of a fan-out was condemned, or is gone."""
        messages, size_bytes = self.dying
        self.dying = Credit(messages + sign, (size_bytes or 0) + sign * message.pointer.size_bytes)

    def note_dropped(self, items: list[QueuedItem], reason: Reason, effects: Effects) -> None:
        """Tell the metrics."""
        size_bytes = sum(item.pointer.size_bytes for item in items)
        effects.dropped.append(Dropped(self.id, reason, len(items), size_bytes))

    def _is_exhausted(self, item: QueuedItem, *, is_failure: bool) -> bool:
        """Whether the message has been tried often enough."""
        attempts, acquired = self.settings.max_attempts, self.settings.max_acquired
        if is_failure and attempts is not None and item.failures + 1 >= attempts:
            return True
        return acquired is not None and item.acquired >= acquired


def _by_lane(lease: Lease) -> int:
    return lease.lane.id


def _lease_until_ms(settings: QueueSettings, now_ms: int) -> int | None:
    return None if settings.lease_ms is None else now_ms + settings.lease_ms
