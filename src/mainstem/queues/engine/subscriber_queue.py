"""One line of delivery just now: what waits, what waits for its time, and who is there to get it.

ready ──take──▶ leased ──▶ settled                 the ledger knows which messages there are;
  ▲               │                                a lane knows where each of them stands
  └── delayed ◀───┴── put back (in its place)      and is built anew after a restart
"""

from collections.abc import Sequence
from enum import IntEnum

from mainstem.queues.engine.consumers import Consumers
from mainstem.queues.engine.ready_order import ReadyOrder
from mainstem.queues.engine.timers import Timers
from mainstem.queues.settings import QueueSettings
from mainstem.queues.storage.ledger import QueuedItem, SubscriberLedger


class MessageState(IntEnum):
    """Where a message of a lane stands."""

    READY = 0
    DELAYED = 1
    LEASED = 2
    DYING = 3


class SubscriberQueue:
    """Holds the ready and delayed messages of one line of delivery."""

    __slots__ = (
        "absent_since_ms", "consumers", "delayed", "dying", "is_leaving", "ledger", "ready",
        "waiting_bytes",
    )  # fmt: skip

    def __init__(self, ledger: SubscriberLedger, settings: QueueSettings, now_ms: int) -> None:
        self.ledger = ledger
        self.ready = ReadyOrder(settings.top_priority)
        self.delayed: Timers[int] = Timers()
        self.consumers = Consumers(is_single_active=settings.single_active)
        self.waiting_bytes = 0
        self.absent_since_ms = now_ms
        # Its subscriber unsubscribed, but dead letters of its own are still on their way.
        self.is_leaving = False
        self.dying = 0
        for _, item in sorted(ledger.items.items()):
            if item.reason is None:
                self.admit(item, now_ms)
            else:
                item.place = MessageState.DYING
                self.dying += 1

    @property
    def id(self) -> int:
        """The number of the lane in its queue."""
        return self.ledger.id

    @property
    def waiting(self) -> int:
        """How many messages are in nobody's hands."""
        return len(self.ready) + len(self.delayed)

    def admit(self, item: QueuedItem, now_ms: int) -> None:
        """A message joins behind all others, or waits for its time."""
        self.waiting_bytes += item.pointer.size_bytes
        if item.visible_ms > now_ms:
            self._delay(item)
        else:
            item.place = MessageState.READY
            self.ready.append(item.sequence, item.pointer.priority)

    def admit_all(self, items: Sequence[QueuedItem], now_ms: int) -> None:
        """New messages, in the order of their sequences, join behind all others."""
        if any(item.visible_ms or item.pointer.priority for item in items):
            for item in items:
                self.admit(item, now_ms)
            return
        self.waiting_bytes += sum([item.pointer.size_bytes for item in items])
        self.ready.extend(range(items[0].sequence, items[-1].sequence + 1))

    def put_back(self, item: QueuedItem, now_ms: int) -> None:
        """A message returns to its place, now or when its time has come."""
        self.waiting_bytes += item.pointer.size_bytes
        if item.visible_ms > now_ms:
            self._delay(item)
        else:
            item.place = MessageState.READY
            self.ready.put_back(item.sequence, item.pointer.priority)

    def take(self) -> QueuedItem | None:
        """The message whose turn it is leaves the line."""
        sequence = self.ready.pop()
        if sequence is None:
            return None
        item = self.ledger.items[sequence]
        self.waiting_bytes -= item.pointer.size_bytes
        return item

    def withdraw(self, item: QueuedItem) -> None:
        """A message leaves the line from wherever it waits; one that does not wait stays."""
        if item.sequence in self.delayed:
            self.delayed.cancel(item.sequence)
        elif not self.ready.discard(item.sequence):
            return
        self.waiting_bytes -= item.pointer.size_bytes

    def wake(self, now_ms: int, limit: int) -> None:
        """Messages whose time has come join the line in their place."""
        for sequence in self.delayed.due(now_ms, limit):
            item = self.ledger.items[sequence]
            item.place = MessageState.READY
            self.ready.put_back(sequence, item.pointer.priority)

    def _delay(self, item: QueuedItem) -> None:
        item.place = MessageState.DELAYED
        self.delayed.set(item.sequence, item.visible_ms)
