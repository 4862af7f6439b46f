"""Leases: unsettled messages, their holders, and how long they may keep them.

Deliveries of a queue are numbered; a consumer settles by number. The *holder* of a message is a
consumer, also after it was cancelled, or a session that requested single messages.
"""

from collections.abc import Iterator

from msgspec import Struct

from mainstem.queues.engine.consumers import Consumer
from mainstem.queues.engine.subscriber_queue import SubscriberQueue
from mainstem.queues.engine.timers import Timers
from mainstem.queues.storage.ledger import QueuedItem


class Lease(Struct, gc=False, eq=False):
    """One unsettled message and its holder."""

    number: int
    holder: str
    lane: SubscriberQueue
    item: QueuedItem
    consumer: Consumer | None


class Leases:
    """All leases of a queue."""

    def __init__(self) -> None:
        self._held: dict[str, dict[int, Lease]] = {}
        self._deadlines: Timers[tuple[int, str]] = Timers()
        self._next = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Lease]:
        return (lease for held in self._held.values() for lease in held.values())

    def number(self) -> int:
        """The number of the next delivery."""
        self._next += 1
        return self._next

    def grant(
        self,
        holder: str,
        lane: SubscriberQueue,
        item: QueuedItem,
        consumer: Consumer | None,
        until_ms: int | None,
    ) -> int:
        """Lease a message until a time, or without limit; returns the number of the delivery."""
        self._next = number = self._next + 1
        held = self._held.get(holder)
        if held is None:
            held = self._held[holder] = {}
        held[number] = Lease(number, holder, lane, item, consumer)
        self._count += 1
        if until_ms is not None:
            self._deadlines.set((number, holder), until_ms)
        return number

    def end(self, holder: str, number: int) -> Lease | None:
        """End the lease of a holder, if it has it."""
        held = self._held.get(holder)
        lease = None if held is None else held.pop(number, None)
        if held is None or lease is None:
            return None
        if not held:
            del self._held[holder]
        self._count -= 1
        if self._deadlines:
            self._deadlines.cancel((number, holder))
        return lease

    def up_to(self, holder: str, number: int) -> list[int]:
        """The numbers of a holder's leases up to a delivery."""
        return [each for each in self._held.get(holder, ()) if each <= number]

    def of(self, holder: str) -> list[int]:
        """The numbers of all leases of a holder."""
        return list(self._held.get(holder, ()))

    def next_ms(self) -> int | None:
        """When the first lease expires."""
        return self._deadlines.next_ms()

    def overdue(self, now_ms: int, limit: int) -> list[Lease]:
        """End and return expired leases."""
        found = (self.end(holder, number) for number, holder in self._deadlines.due(now_ms, limit))
        return [lease for lease in found if lease is not None]
