"""All queues of one internal stream as rebuilt from facts: names, settings, ledgers.

A snapshot is the state as a sequence of facts, in parts. A queue's snapshot is valid once its last
part is there; one that a crash cut short is ignored, and the facts before it stay valid. Facts
before a complete snapshot of all queues may be trimmed.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import convert, to_builtins

from mainstem.queues.facts import (
    QueueChanged,
    QueueDeclared,
    QueueDeleted,
    QueueFact,
    QueuesCounted,
    SnapshotPart,
)
from mainstem.queues.settings import QueueName, QueueSettings
from mainstem.queues.storage.ledger import QueueLedger


class QueueState:
    """The state of one queue."""

    __slots__ = ("ledger", "name", "queue", "settings")

    def __init__(
        self, queue: int, name: QueueName, settings: QueueSettings, ledger: QueueLedger
    ) -> None:
        self.queue = queue
        self.name = name
        self.settings = settings
        self.ledger = ledger


class QueueStateTable:
    """Holds names, settings and ledgers of the queues of one internal partition.

    Only ``replay`` changes it.
    """

    def __init__(self) -> None:
        self.entries: dict[int, QueueState] = {}
        self.names: dict[QueueName, int] = {}
        self.next_queue = 0
        self._partial: dict[int, list[dict[str, Any]]] = {}

    def replay(self, fact: QueueFact) -> None:
        """Apply a stored fact; facts about deleted queues are ignored."""
        match fact:
            case QueueDeclared(queue, name, settings):
                ledger = QueueLedger(is_fanout=settings.mode.is_fanout)
                self._enter(QueueState(queue, name, settings, ledger))
            case QueueChanged(queue, settings):
                self.entries[queue].settings = settings
            case QueueDeleted(queue):
                entry = self.entries.pop(queue, None)
                if entry is not None:
                    del self.names[entry.name]
            case QueuesCounted(queue):
                self.next_queue = max(self.next_queue, queue)
            case SnapshotPart():
                self._take_part(fact)
            case _:
                entry = self.entries.get(fact.queue)
                if entry is not None:
                    entry.ledger.replay(fact)

    def snapshot(self) -> Iterator[QueueFact]:
        """Facts that rebuild this table from an empty one; only durable queues are included."""
        yield QueuesCounted(self.next_queue)
        for entry in self.entries.values():
            if not entry.settings.is_kept:
                continue
            head = {"name": tuple(entry.name), "settings": to_builtins(entry.settings)}
            bodies = [head, *entry.ledger.parts()]
            for part, body in enumerate(bodies, start=1):
                is_last = part == len(bodies)
                yield SnapshotPart(entry.queue, part - 1, is_last=is_last, body=body)

    def _take_part(self, fact: SnapshotPart) -> None:
        if fact.part == 0:
            self._partial[fact.queue] = []
        parts = self._partial.get(fact.queue)
        if parts is None or len(parts) != fact.part:
            return
        parts.append(fact.body)
        if not fact.is_last:
            return
        del self._partial[fact.queue]
        settings = convert(parts[0]["settings"], QueueSettings)
        namespace, name = parts[0]["name"]
        ledger = QueueLedger.restored(parts[1:])
        self._enter(QueueState(fact.queue, QueueName(namespace, name), settings, ledger))

    def _enter(self, entry: QueueState) -> None:
        self.entries[entry.queue] = entry
        self.names[entry.name] = entry.queue
        self.next_queue = max(self.next_queue, entry.queue + 1)
