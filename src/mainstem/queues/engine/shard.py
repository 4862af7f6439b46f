"""The queues whose names hash to one internal stream: declare, find, delete, timers.

    on_declare ─┐                           ┌─▶ Queue ─▶ QueueEffects ─▶ after(queue) ─▶ alarms
    on_delete   ├─▶ QueueStateTable (facts) ┤                                        └─▶ memory
    need(name) ─┘                           └─▶ on_time: queues that are due, expired, unused

The node that writes the stream owns its queues. Queues that are exclusive or not durable are in
the table as well but are not stored as facts: they are lost with the node.
"""

from collections.abc import Iterator
from typing import NamedTuple

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import QUEUES_PER_SHARD_MAX
from mainstem.queues.admission.watermarks import Pressure, Watermarks
from mainstem.queues.declaration import OnDifference, merged_settings
from mainstem.queues.engine.effects import ConsumerCancelled, QueueEffects, QueueGone
from mainstem.queues.engine.queue_machine import Queue
from mainstem.queues.engine.timers import Timers
from mainstem.queues.facts import QueueChanged, QueueDeclared, QueueDeleted, QueueFact
from mainstem.queues.settings import QueueName, QueueSettings, check_name, check_settings
from mainstem.queues.storage.queue_state import QueueStateTable

# Memory that a message costs its queue's owner: pointer, item, table entries. Measured.
ITEM_BYTES = 500


class DeclareResult(NamedTuple):
    """The answer to a declaration."""

    queue: int
    messages: int
    consumers: int
    is_new: bool


class QueueShard:
    """Declares, finds and deletes the queues of one internal partition."""

    def __init__(self, state: QueueStateTable, watermarks: Watermarks, now_ms: int) -> None:
        self._state = state
        self._watermarks = watermarks
        self._queues = {
            entry.queue: Queue(entry.queue, entry.settings, now_ms, entry.ledger)
            for entry in state.entries.values()
        }
        self._connections: dict[int, str] = {}
        self._exclusive: dict[str, set[int]] = {}
        self._counts: dict[int, int] = {}
        self._messages = 0
        self._unfreeable = 0
        self._due: Timers[int] = Timers()

    def __iter__(self) -> Iterator[tuple[QueueName, Queue]]:
        return ((entry.name, self._queues[entry.queue]) for entry in self._state.entries.values())

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def pressure(self) -> Pressure:
        """How publishers are treated."""
        return self._watermarks.level

    def queue(self, queue: int) -> Queue | None:
        """The queue with that number, if it exists."""
        return self._queues.get(queue)

    def need(self, name: QueueName, connection: str = "") -> tuple[int, Queue]:
        """The queue with that name.

        Raises:
            InvalidRequest: it does not exist, or belongs to another connection.
        """
        number = self._state.names.get(name)
        if number is None:
            raise InvalidRequest(
                ErrorCode.UNKNOWN_QUEUE, f"no queue '{name.name}'", subject=name.name
            )
        owner = self._connections.get(number)
        if owner is not None and owner != connection:
            raise InvalidRequest(
                ErrorCode.RESOURCE_LOCKED,
                f"queue '{name.name}' is exclusive to another connection",
                subject=name.name,
            )
        return number, self._queues[number]

    def on_recovered(self, now_ms: int) -> QueueEffects:
        """Recover all queues after the shard was rebuilt from its stream."""
        effects = QueueEffects()
        for number, queue in list(self._queues.items()):
            merge(effects, self.after(number, queue.on_recovered(now_ms), now_ms))
        return effects

    def on_declare(
        self,
        name: QueueName,
        settings: QueueSettings,
        now_ms: int,
        *,
        connection: str = "",
        policy: OnDifference = OnDifference.FAIL,
    ) -> tuple[DeclareResult, QueueEffects]:
        """Declare a queue.

        Raises:
            InvalidRequest: it exists and differs, or its settings are invalid.
        """
        effects = QueueEffects()
        known = self._state.names.get(name)
        if known is None:
            return self._create(name, settings, connection, now_ms, effects), effects
        number, queue = self.need(name, connection)
        held = merged_settings(queue.body.settings, settings, policy, name.name)
        if held is not queue.body.settings:
            check_settings(held)
            self._record(QueueChanged(number, held), effects, is_kept=held.is_kept)
            merge(effects, queue.on_changed(held, now_ms))
        queue.consumer_registry.used(now_ms)
        self.after(number, effects, now_ms)
        return self._described(number, is_new=False), effects

    def on_delete(
        self,
        name: QueueName,
        now_ms: int,
        *,
        connection: str = "",
        if_unused: bool = False,
        if_empty: bool = False,
    ) -> QueueEffects:
        """Delete a queue; ``count`` is the number of messages that were ready.

        Raises:
            InvalidRequest: it does not exist, is exclusive to another, is in use, or not empty.
        """
        number, queue = self.need(name, connection)
        if if_unused and len(queue.consumer_registry):
            raise InvalidRequest(
                ErrorCode.RESOURCE_IN_USE, f"queue '{name.name}' in use", subject=name.name
            )
        if if_empty and queue.body.waiting.messages:
            raise InvalidRequest(
                ErrorCode.QUEUE_NOT_EMPTY, f"queue '{name.name}' not empty", subject=name.name
            )
        effects = QueueEffects()
        self._delete(number, effects)
        return effects

    def on_connection_gone(self, connection: str, now_ms: int) -> QueueEffects:
        """Delete the exclusive queues of a closed connection."""
        effects = QueueEffects()
        for number in sorted(self._exclusive.get(connection, ())):
            self._delete(number, effects)
        self._weigh(effects, now_ms)
        return effects

    def on_time(self, now_ms: int) -> QueueEffects:
        """Run the queues that are due, and delete expired ones."""
        effects = QueueEffects()
        for number in self._due.due(now_ms, len(self._due)):
            queue = self._queues[number]
            expires_ms = queue.consumer_registry.expires_at_ms()
            if expires_ms is not None and expires_ms <= now_ms:
                self._delete(number, effects)
            else:
                merge(effects, self.after(number, queue.on_time(now_ms), now_ms))
        return effects

    def next_ms(self) -> int | None:
        """When ``on_time`` has to be called."""
        return self._due.next_ms()

    def after(self, number: int, effects: QueueEffects, now_ms: int) -> QueueEffects:
        """Update timer and memory after a request to a queue, and delete it if it is unused."""
        queue = self._queues.get(number)
        if queue is None:
            return effects
        if queue.consumer_registry.is_unused:
            self._delete(number, effects)
            return effects
        at_ms = queue.next_ms()
        if at_ms is None:
            self._due.cancel(number)
        else:
            self._due.set(number, at_ms)
        count = len(queue.body.ledger)
        self._messages += count - self._counts.get(number, 0)
        self._counts[number] = count
        self._weigh(effects, now_ms)
        return effects

    def snapshot(self) -> Iterator[QueueFact]:
        """Facts from which the shard can be rebuilt without those before."""
        return self._state.snapshot()

    def _create(
        self,
        name: QueueName,
        settings: QueueSettings,
        connection: str,
        now_ms: int,
        effects: QueueEffects,
    ) -> DeclareResult:
        check_name(name.name, "queue")
        check_settings(settings)
        if len(self._queues) >= QUEUES_PER_SHARD_MAX:
            raise InvalidRequest(
                ErrorCode.LIMIT_REACHED, f"a shard has at most {QUEUES_PER_SHARD_MAX} queues"
            )
        number = self._state.next_queue
        declared = QueueDeclared(number, name, settings)
        self._record(declared, effects, is_kept=settings.is_kept)
        ledger = self._state.entries[number].ledger
        self._queues[number] = Queue(number, settings, now_ms, ledger)
        if settings.exclusive:
            self._connections[number] = connection
            self._exclusive.setdefault(connection, set()).add(number)
        self.after(number, effects, now_ms)
        return self._described(number, is_new=True)

    def _delete(self, number: int, effects: QueueEffects) -> None:
        queue = self._queues.pop(number)
        self._due.cancel(number)
        effects.count += queue.body.ready_count
        effects.notices += [
            ConsumerCancelled(number, each) for each in queue.consumer_registry.ids()
        ]
        connection = self._connections.pop(number, None)
        if connection is not None:
            self._exclusive[connection].discard(number)
            if not self._exclusive[connection]:
                del self._exclusive[connection]
        self._messages -= self._counts.pop(number, 0)
        effects.notices.append(QueueGone(number, self._state.entries[number].name))
        self._record(QueueDeleted(number), effects, is_kept=queue.body.settings.is_kept)

    def _described(self, number: int, *, is_new: bool) -> DeclareResult:
        queue = self._queues[number]
        return DeclareResult(number, queue.body.ready_count, len(queue.consumer_registry), is_new)

    def _record(self, fact: QueueFact, effects: QueueEffects, *, is_kept: bool) -> None:
        self._state.replay(fact)
        if is_kept:
            effects.facts.append(fact)

    def _weigh(self, effects: QueueEffects, now_ms: int) -> None:
        """Update the memory pressure; at overflow drop messages of the largest queues."""
        used_bytes = self._messages * ITEM_BYTES
        if self._watermarks.on_used(used_bytes) is not Pressure.OVERFLOW:
            self._unfreeable = 0
            return
        if self._messages <= self._unfreeable:
            return
        excess = self._watermarks.excess_bytes(used_bytes) // ITEM_BYTES
        for number in sorted(self._counts, key=self._counts.__getitem__, reverse=True):
            if excess <= 0:
                break
            queue = self._queues[number]
            merge(effects, queue.on_pressure(excess, now_ms))
            dropped = self._counts[number] - len(queue.body.ledger)
            self._counts[number] -= dropped
            self._messages -= dropped
            excess -= dropped
        # If nothing may be dropped, a repeat helps only once there are more messages.
        self._unfreeable = self._messages
        self._watermarks.on_used(self._messages * ITEM_BYTES)


def merge(effects: QueueEffects, more: QueueEffects) -> None:
    """Append the effects of ``more``, except its count."""
    effects.facts += more.facts
    effects.deliveries += more.deliveries
    effects.dead_letters += more.dead_letters
    effects.dropped += more.dropped
    effects.notices += more.notices
    effects.unknown += more.unknown
