"""Settlement of deliveries: the outcomes, and what happens to the messages."""

from collections.abc import Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING

from msgspec import Struct

from mainstem.queues.engine.effects import LeaseLost, QueueEffects
from mainstem.queues.engine.queue_operations import QueueOperations
from mainstem.queues.facts import ALL_LANES, RemovalReason, Settled, spans_of

if TYPE_CHECKING:
    from mainstem.queues.engine.leases import Lease
    from mainstem.queues.storage.ledger import QueuedItem


class SettlementOutcome(Enum):
    """The outcome of a delivery, as the consumer reports it."""

    ACKNOWLEDGE = auto()
    RETURN = auto()
    REJECT = auto()


class Settlement(Struct, frozen=True):
    """How deliveries are settled. A negative ``delay_ms`` means the delay of the settings."""

    outcome: SettlementOutcome
    is_failure: bool = False
    delay_ms: int = -1
    reason: RemovalReason = RemovalReason.REJECTED


ACKNOWLEDGE = Settlement(SettlementOutcome.ACKNOWLEDGE)
# A failed attempt: AMQP's nack and reject with requeue.
RETURN = Settlement(SettlementOutcome.RETURN, is_failure=True)
# No attempt: AMQP 1.0's released, a consumer that disconnected.
RELEASE = Settlement(SettlementOutcome.RETURN)
REJECT = Settlement(SettlementOutcome.REJECT)


def settle(
    body: QueueOperations,
    holder: str,
    numbers: Iterable[int],
    how: Settlement,
    now_ms: int,
    effects: QueueEffects,
) -> None:
    """Settle deliveries of a holder; those that it does not hold are listed in ``unknown``."""
    ended: list[Lease] = []
    for number in numbers:
        lease = body.leases.end(holder, number)
        if lease is None:
            effects.unknown.append(number)
        else:
            ended.append(lease)
    effects.count += len(ended)
    live = body.end(ended)
    if how.outcome is SettlementOutcome.ACKNOWLEDGE:
        by_lane: dict[int, list[QueuedItem]] = {}
        for lease in live:
            by_lane.setdefault(lease.lane.id, []).append(lease.item)
        for lane_id, items in by_lane.items():
            body.settle(body.lanes[lane_id], items, None, effects)
    elif how.outcome is SettlementOutcome.REJECT:
        body.condemn_leases(live, how.reason, now_ms, effects)
    else:
        body.give_back(live, now_ms, effects, is_failure=how.is_failure, delay_ms=how.delay_ms)


def release(body: QueueOperations, holder: str, now_ms: int, effects: QueueEffects) -> None:
    """Return all messages of a holder to their positions."""
    settle(body, holder, body.leases.of(holder), RELEASE, now_ms, effects)


def take_back(body: QueueOperations, now_ms: int, limit: int, effects: QueueEffects) -> None:
    """End expired leases: the attempt failed, and the message goes to another consumer."""
    overdue = body.leases.overdue(now_ms, limit)
    if not overdue:
        return
    effects.notices += [LeaseLost(body.id, lease.holder, lease.number) for lease in overdue]
    body.give_back(body.end(overdue), now_ms, effects, is_failure=True, delay_ms=-1)


def condemned(body: QueueOperations, effects: QueueEffects) -> None:
    """Make all dead letters due that are not known to have been appended."""
    for lane in body.lanes.values():
        dying = [item for item in lane.ledger.items.values() if item.reason is not None]
        effects.dead_letters += [body.dead_letter(lane.id, item) for item in dying]
    for message in body.ledger.messages.values():
        if message.reason is not None:
            effects.dead_letters.append(body.dead_letter(ALL_LANES, message))


def dead_letter(
    body: QueueOperations, lane_id: int, sequences: Iterable[int], effects: QueueEffects
) -> None:
    """Remove the originals of appended dead letters; repeated calls have no effect."""
    by_reason: dict[RemovalReason, list[int]] = {}
    lane = body.lanes.get(lane_id)
    for sequence in sequences:
        item: QueuedItem | None = None
        if lane is not None:
            item = lane.ledger.items.get(sequence)
        elif lane_id == ALL_LANES:
            item = body.ledger.messages.get(sequence)
        if item is None or item.reason is None:
            continue
        by_reason.setdefault(item.reason, []).append(sequence)
        if lane is None:
            body.count_dying(item, -1)
        else:
            lane.dying -= 1
    for reason, gone in by_reason.items():
        body.record(Settled(body.id, lane_id, spans_of(gone), reason), effects)
