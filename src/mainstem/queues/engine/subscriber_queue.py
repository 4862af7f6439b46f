"""The current state of one lane: ready messages, delayed messages, and consumers.

ready ──take──▶ leased ──▶ settled                 the ledger has the messages of the lane;
  ▲               │                                the lane has the state of each of them
  └── delayed ◀───┴── put back (at its position)   and is rebuilt after a restart
"""

from collections.abc import Sequence
from enum import IntEnum

from mainstem.queues.engine.consumers import Consumers
from mainstem.queues.engine.ready_order import ReadyOrder
from mainstem.queues.engine.timers import Timers
from mainstem.queues.settings import QueueSettings
from mainstem.queues.storage.ledger import QueuedItem, SubscriberLedger


class MessageState(IntEnum):
    """The state of a message in a lane."""

    READY = 0
    DELAYED = 1
    LEASED = 2
    DYING = 3


class SubscriberQueue:
    """Holds the ready and delayed messages of one lane."""

    __slots__ = (
        "absent_since_ms", "consumers", "delayed", "dying", "ledger", "ready", "waiting_bytes",
    )  # fmt: skip

    def __init__(self, ledger: SubscriberLedger, settings: QueueSettings, now_ms: int) -> None:
        self.ledger = ledger
        self.ready = ReadyOrder(settings.top_priority)
        self.delayed: Timers[int] = Timers()
        self.consumers = Consumers(is_single_active=settings.single_active)
        self.waiting_bytes = 0
        self.absent_since_ms = now_ms
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
        """How many messages are not leased."""
        return len(self.ready) + len(self.delayed)

    def admit(self, item: QueuedItem, now_ms: int) -> None:
        """Add a message behind all others, or delay it."""
        self.waiting_bytes += item.pointer.size_bytes
        if item.visible_ms > now_ms:
            self._delay(item)
        else:
            item.place = MessageState.READY
            self.ready.append(item.sequence, item.pointer.priority)

    def admit_all(self, items: Sequence[QueuedItem], now_ms: int) -> None:
        """Add new messages, in the order of their sequences, behind all others."""
        if any(item.visible_ms or item.pointer.priority for item in items):
            for item in items:
                self.admit(item, now_ms)
            return
        self.waiting_bytes += sum([item.pointer.size_bytes for item in items])
        self.ready.extend(range(items[0].sequence, items[-1].sequence + 1))

    def put_back(self, item: QueuedItem, now_ms: int) -> None:
        """Return a message to its position, now or after its delay."""
        self.waiting_bytes += item.pointer.size_bytes
        if item.visible_ms > now_ms:
            self._delay(item)
        else:
            item.place = MessageState.READY
            self.ready.put_back(item.sequence, item.pointer.priority)

    def take(self) -> QueuedItem | None:
        """Remove and return the next ready message."""
        sequence = self.ready.pop()
        if sequence is None:
            return None
        item = self.ledger.items[sequence]
        self.waiting_bytes -= item.pointer.size_bytes
        return item

    def withdraw(self, item: QueuedItem) -> None:
        """Remove a ready or delayed message; a leased one is not affected."""
        if item.sequence in self.delayed:
            self.delayed.cancel(item.sequence)
        elif not self.ready.discard(item.sequence):
            return
        self.waiting_bytes -= item.pointer.size_bytes

    def wake(self, now_ms: int, limit: int) -> None:
        """Make delayed messages ready whose time has come."""
        for sequence in self.delayed.due(now_ms, limit):
            item = self.ledger.items[sequence]
            item.place = MessageState.READY
            self.ready.put_back(sequence, item.pointer.priority)

    def _delay(self, item: QueuedItem) -> None:
        item.place = MessageState.DELAYED
        self.delayed.set(item.sequence, item.visible_ms)
