"""The subscribers of a fan-out: each has its own lane.

A *named* subscriber is kept until the queue is deleted, connected or not. An unnamed one that is
absent for longer than the queue allows is removed. Without acknowledgements absent subscribers are
removed at once. Dead letters of a subscriber are appended before its lane is closed.
"""

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import QUEUE_SUBSCRIBERS_MAX
from mainstem.queues.engine.consumer_registry import ConsumerRegistry
from mainstem.queues.engine.effects import QueueEffects
from mainstem.queues.engine.queue_operations import QueueOperations
from mainstem.queues.engine.subscriber_queue import SubscriberQueue
from mainstem.queues.facts import ALL_LANES, ONLY_LANE, LaneClosed, LaneOpened
from mainstem.queues.settings import DeliveryMode


def lane_for(
    body: QueueOperations, subscriber: str, now_ms: int, effects: QueueEffects, *, is_named: bool
) -> SubscriberQueue:
    """The lane of a consumer; a fan-out opens one for a new subscriber."""
    if not body.ledger.is_fanout:
        return body.lanes[ONLY_LANE]
    for lane in body.lanes.values():
        if lane.ledger.subscriber == subscriber:
            return lane
    if len(body.lanes) >= QUEUE_SUBSCRIBERS_MAX:
        raise InvalidRequest(
            ErrorCode.LIMIT_REACHED, f"a fan-out has at most {QUEUE_SUBSCRIBERS_MAX} subscribers"
        )
    number = body.ledger.next_lane
    body.record(LaneOpened(body.id, number, subscriber, is_named), effects)
    return body.add_lane(number, now_ms)


def close_lane(
    body: QueueOperations, lane: SubscriberQueue, now_ms: int, effects: QueueEffects
) -> None:
    """Remove a subscriber; messages that only it had go to the remaining ones."""
    del body.lanes[lane.id]
    for sequence in lane.ledger.items:
        body.expiry.cancel((lane.id, sequence))
    known = {other.id: set(other.ledger.items) for other in body.lanes.values()}
    body.record(LaneClosed(body.id, lane.id), effects)
    for sequence in lane.ledger.items:
        message = body.ledger.messages.get(sequence)
        if message is not None and not message.pending_lanes:
            body.time(ALL_LANES, message)
    for other in body.lanes.values():
        for sequence in sorted(other.ledger.items.keys() - known[other.id]):
            item = other.ledger.items[sequence]
            other.put_back(item, now_ms)
            body.time(other.id, item)


def leave(
    body: QueueOperations, consumer_registry: ConsumerRegistry, consumer_id: str, now_ms: int
) -> None:
    """Remove a consumer from its lane, if it exists; its leases are not affected."""
    consumer = consumer_registry.remove(consumer_id, now_ms)
    lane = None if consumer is None else body.lanes.get(consumer.lane)
    if lane is not None:
        lane.consumers.remove(consumer_id)
        lane.absent_since_ms = now_ms


def absent_until_ms(body: QueueOperations, lane: SubscriberQueue) -> int | None:
    """When a lane closes because it has no consumer; None if it does not."""
    if not body.ledger.is_fanout or lane.consumers or lane.dying:
        return None
    if body.settings.mode is DeliveryMode.FANOUT:
        return lane.absent_since_ms
    return None if lane.ledger.is_named else lane.absent_since_ms + body.settings.absence_ms


def close_absent(body: QueueOperations, now_ms: int, effects: QueueEffects) -> None:
    """Close the lanes of subscribers that were absent for too long."""
    for lane in list(body.lanes.values()):
        until_ms = absent_until_ms(body, lane)
        if until_ms is not None and until_ms <= now_ms:
            close_lane(body, lane, now_ms, effects)
