"""The operations of a queue: record, lease, return, condemn, settle, count against limits.

They keep three things consistent: the ledger (durable state), the lanes (the state of each message)
and the leases (the holders). Facts are recorded before lanes change, so that a lane sees the same
state as after a restart.
"""

from collections.abc import Iterable
from itertools import groupby

from mainstem.model.limits import DELIVERIES_PER_TURN_MAX, QUEUE_MESSAGES_MAX
from mainstem.queues.admission.credit import Credit
from mainstem.queues.engine.consumers import Consumer
from mainstem.queues.engine.effects import DeadLetter, Deliver, Dropped, QueueEffects
from mainstem.queues.engine.leases import Lease, Leases
from mainstem.queues.engine.subscriber_queue import MessageState, SubscriberQueue
from mainstem.queues.engine.timers import Timers
from mainstem.queues.facts import (
    ALL_LANES,
    ONLY_LANE,
    Acquired,
    Condemned,
    QueueFact,
    RemovalReason,
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
        # A turn ended with messages left that could be delivered.
        self.has_more = False
        for lane in ledger.lanes.values():
            self.add_lane(lane.id, now_ms)
        # Messages of a fan-out that are condemned for all subscribers: they count no longer.
        self.dying = Credit(0, 0)
        for message in ledger.messages.values():
            self.time(ALL_LANES, message)
            if message.reason is not None:
                self.count_dying(message, 1)

    @property
    def waiting(self) -> Credit:
        """Messages and bytes that count against the limits: those that are not leased.

        In a fan-out each message counts until it is removed.
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
        """How many messages could be delivered now if consumers had space."""
        if self.ledger.is_fanout:
            return self.waiting.messages
        return len(self.lanes[ONLY_LANE].ready)

    @property
    def free(self) -> Credit:
        """The free space."""
        settings = self.settings
        messages, size_bytes = self.waiting
        free = QUEUE_MESSAGES_MAX - len(self.ledger)
        if settings.max_length is not None:
            free = min(free, settings.max_length - messages)
        if settings.max_length_bytes is None:
            return Credit(free, None)
        return Credit(free, settings.max_length_bytes - (size_bytes or 0))

    def record(self, fact: QueueFact, effects: QueueEffects) -> None:
        """Apply a fact; facts of queues that are not durable are not stored."""
        for piece in pieces_of(fact):
            self.ledger.replay(piece)
            if self.settings.is_kept:
                effects.facts.append(piece)

    def add_lane(self, lane_id: int, now_ms: int) -> SubscriberQueue:
        """Start delivery for a lane of the ledger."""
        lane = self.lanes[lane_id] = SubscriberQueue(
            self.ledger.lanes[lane_id], self.settings, now_ms
        )
        for item in lane.ledger.items.values():
            self.time(lane_id, item)
        return lane

    def time(self, lane_id: int, item: QueuedItem) -> None:
        """Set the expiry timer of a message of a lane."""
        if item.pointer.expires_ms and item.reason is None:
            self.expiry.set((lane_id, item.sequence), item.pointer.expires_ms)

    def dispatch(self, lane: SubscriberQueue, now_ms: int, effects: QueueEffects) -> None:
        """Deliver ready messages to consumers with space."""
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
        self.condemn(lane, expired, RemovalReason.EXPIRED, now_ms, effects)

    def next_item(
        self, lane: SubscriberQueue, now_ms: int, expired: list[QueuedItem]
    ) -> QueuedItem | None:
        """Take the next message; expired ones are collected in ``expired``."""
        while (item := lane.take()) is not None:
            # A message that expires at once is still delivered to a waiting consumer.
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
        """Lease a message to a holder."""
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
        """Free the space of consumers; returns the leases whose message still exists."""
        live: list[Lease] = []
        # Consumers in the order of their leases, with the sizes of their messages.
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
        self,
        leases: list[Lease],
        now_ms: int,
        effects: QueueEffects,
        *,
        is_failure: bool,
        delay_ms: int,
    ) -> None:
        """Return messages to their positions, delay them, or condemn them after the last attempt.

        A negative ``delay_ms`` means the back-off of the settings.
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
        self.condemn_leases(exhausted, RemovalReason.ATTEMPTS, now_ms, effects)
        self.condemn_leases(stale, RemovalReason.EXPIRED, now_ms, effects)

    def condemn_leases(
        self, leases: list[Lease], reason: RemovalReason, now_ms: int, effects: QueueEffects
    ) -> None:
        """Condemn messages of ended leases."""
        for lane, group in groupby(sorted(leases, key=_by_lane), key=lambda lease: lease.lane):
            self.condemn(lane, [lease.item for lease in group], reason, now_ms, effects)

    def condemn(
        self,
        lane: SubscriberQueue,
        items: list[QueuedItem],
        reason: RemovalReason,
        now_ms: int,
        effects: QueueEffects,
    ) -> None:
        """Stop delivering messages of a lane; without a dead letter exchange they are removed."""
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
        """Create the dead letter of a condemned message."""
        assert item.reason is not None, "only condemned messages become dead letters"
        return DeadLetter(
            self.id, lane_id, item.sequence, item.stream, item.pointer,
            item.reason, item.reason_ms, item.failures,
        )  # fmt: skip

    def settle(
        self,
        lane: SubscriberQueue,
        items: list[QueuedItem],
        reason: RemovalReason | None,
        effects: QueueEffects,
    ) -> None:
        """Remove messages of a lane."""
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
        """Count a condemned message of a fan-out, or with -1 a removed one."""
        messages, size_bytes = self.dying
        self.dying = Credit(messages + sign, (size_bytes or 0) + sign * message.pointer.size_bytes)

    def note_dropped(
        self, items: list[QueuedItem], reason: RemovalReason, effects: QueueEffects
    ) -> None:
        """Report removed messages to the metrics."""
        size_bytes = sum(item.pointer.size_bytes for item in items)
        effects.dropped.append(Dropped(self.id, reason, len(items), size_bytes))

    def _is_exhausted(self, item: QueuedItem, *, is_failure: bool) -> bool:
        """Whether the message has reached its limit of attempts."""
        attempts, acquired = self.settings.max_attempts, self.settings.max_acquired
        if is_failure and attempts is not None and item.failures + 1 >= attempts:
            return True
        return acquired is not None and item.acquired >= acquired


def _by_lane(lease: Lease) -> int:
    return lease.lane.id


def _lease_until_ms(settings: QueueSettings, now_ms: int) -> int | None:
    return None if settings.lease_ms is None else now_ms + settings.lease_ms
