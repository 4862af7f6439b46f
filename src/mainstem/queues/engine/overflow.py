"""Removal of waiting messages: overflow, expiry, purge, or a missing body.

A queue that drops its head drops the oldest message of the lowest priority, so messages of higher
priority are kept. In a fan-out the message is removed for all subscribers at once.
"""

from collections.abc import Collection

from mainstem.model.limits import DELIVERIES_PER_TURN_MAX
from mainstem.queues.engine.effects import QueueEffects
from mainstem.queues.engine.queue_operations import QueueOperations
from mainstem.queues.engine.subscriber_queue import SubscriberQueue
from mainstem.queues.facts import ALL_LANES, ONLY_LANE, Condemned, RemovalReason, Settled, spans_of
from mainstem.queues.storage.ledger import FanoutMessage, QueuedItem


def enforce_limits(body: QueueOperations, now_ms: int, effects: QueueEffects) -> None:
    """Drop messages that exceed the limits from the head; queues that refuse do so beforehand."""
    settings = body.settings
    if not settings.is_limited or settings.overflow.needs_credit:
        return
    free = body.free
    if free.messages >= 0 and (free.size_bytes is None or free.size_bytes >= 0):
        return
    # A lowered limit may be far exceeded; one turn drops as many as one turn delivers.
    too_many = min(-free.messages, DELIVERIES_PER_TURN_MAX)
    drop_oldest(body, too_many, -(free.size_bytes or 0), now_ms, effects)
    left = body.free
    body.has_more |= left.messages < 0 or (left.size_bytes or 0) < 0


def drop_oldest(
    body: QueueOperations, messages: int, size_bytes: int, now_ms: int, effects: QueueEffects
) -> None:
    """Drop that many messages and bytes from the head, at most as many as a turn allows."""
    if body.ledger.is_fanout:
        whole: list[FanoutMessage] = []
        for message in body.ledger.messages.values():
            is_enough = len(whole) >= messages and size_bytes <= 0
            if is_enough or len(whole) >= DELIVERIES_PER_TURN_MAX:
                break
            if message.reason is None:
                whole.append(message)
                size_bytes -= message.pointer.size_bytes
        drop_messages(body, whole, RemovalReason.OVERFLOW, now_ms, effects)
        return
    lane = body.lanes[ONLY_LANE]
    victims: list[QueuedItem] = []
    while len(victims) < DELIVERIES_PER_TURN_MAX and (len(victims) < messages or size_bytes > 0):
        item = _least(lane)
        if item is None:
            break
        lane.withdraw(item)
        victims.append(item)
        size_bytes -= item.pointer.size_bytes
    body.condemn(lane, victims, RemovalReason.OVERFLOW, now_ms, effects)


def drop_messages(
    body: QueueOperations,
    messages: list[FanoutMessage],
    reason: RemovalReason,
    now_ms: int,
    effects: QueueEffects,
) -> None:
    """Remove messages of a fan-out for all subscribers, including unsettled deliveries."""
    if not messages:
        return
    for message in messages:
        body.expiry.cancel((ALL_LANES, message.sequence))
        for lane in body.lanes.values():
            copy = lane.ledger.items.get(message.sequence)
            if copy is not None:
                lane.withdraw(copy)
                lane.dying -= copy.reason is not None
                body.expiry.cancel((lane.id, message.sequence))
    spans = spans_of(message.sequence for message in messages)
    if body.settings.dead_letter_exchange is None or reason is RemovalReason.PURGED:
        body.record(Settled(body.id, ALL_LANES, spans, reason), effects)
        body.note_dropped(list(messages), reason, effects)
        return
    body.record(Condemned(body.id, ALL_LANES, spans, reason, now_ms), effects)
    for message in messages:
        body.count_dying(message, 1)
        effects.dead_letters.append(body.dead_letter(ALL_LANES, message))


def expire(body: QueueOperations, now_ms: int, limit: int, effects: QueueEffects) -> None:
    """Remove expired messages that are not leased."""
    by_lane: dict[int, list[QueuedItem]] = {}
    for lane_id, sequence in body.expiry.due(now_ms, limit):
        lane = body.lanes.get(lane_id)
        if lane_id == ALL_LANES:
            message = body.ledger.messages.get(sequence)
            if message is not None and not message.pending_lanes:
                by_lane.setdefault(ALL_LANES, []).append(message)
        elif lane is not None and (sequence in lane.ready or sequence in lane.delayed):
            by_lane.setdefault(lane_id, []).append(lane.ledger.items[sequence])
    whole = by_lane.pop(ALL_LANES, [])
    drop_messages(
        body,
        [each for each in whole if isinstance(each, FanoutMessage)],
        RemovalReason.EXPIRED,
        now_ms,
        effects,
    )
    for lane_id, items in by_lane.items():
        body.condemn(body.lanes[lane_id], items, RemovalReason.EXPIRED, now_ms, effects)


def purge(
    body: QueueOperations, now_ms: int, effects: QueueEffects, moved: Collection[int] | None = None
) -> None:
    """Remove all messages that are not leased, without dead letters.

    With ``moved`` only these are removed, and count as settled: they are in another queue.
    """
    if body.ledger.is_fanout:
        whole = [message for message in body.ledger.messages.values() if message.reason is None]
        effects.count = len(whole)
        drop_messages(body, whole, RemovalReason.PURGED, now_ms, effects)
        return
    lane = body.lanes[ONLY_LANE]
    items = [
        item for item in lane.ledger.items.values()
        if (item.sequence in lane.ready or item.sequence in lane.delayed)
        and (moved is None or item.sequence in moved)
    ]  # fmt: skip
    for item in items:
        lane.withdraw(item)
    effects.count = len(items)
    body.settle(lane, items, RemovalReason.PURGED if moved is None else None, effects)


def _least(lane: SubscriberQueue) -> QueuedItem | None:
    """The message to drop first: among ready ones, then among delayed ones."""
    sequence = lane.ready.least()
    if sequence is None:
        sequence = lane.delayed.first()
    return None if sequence is None else lane.ledger.items[sequence]
