"""The durable state of a queue: its messages and their delivery history.

Only ``replay`` changes it, so the ledger after a crash equals the ledger before, without the facts
that were not stored. A message that is offered again from its stream, because its router did not
learn that it was stored, is recognised by its offset: ``sources`` has the progress of each stream.

In a fan-out a message stays while any lane has it. Copies in the lanes are settled one by one. A
message that no lane has and no subscriber has settled waits for the next subscriber.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, convert
from msgspec.structs import replace

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.ids import StreamId
from mainstem.model.limits import QUEUE_SOURCES_MAX
from mainstem.queues.facts import (
    ALL_LANES,
    ONLY_LANE,
    Acquired,
    Condemned,
    LaneClosed,
    LaneOpened,
    Pointer,
    PointersAdded,
    PointersMoved,
    QueueFact,
    RemovalReason,
    Returned,
    Settled,
    SourcesPassed,
    Spans,
)

_PART_ITEMS = 1_000


# There are as many as there are messages, and none is part of a reference cycle: the garbage
# collector need not visit them.
class QueuedItem(Struct, gc=False, eq=False):
    """A message in a lane. ``place`` is its current state, which is not stored."""

    sequence: int
    stream: StreamId
    pointer: Pointer
    visible_ms: int
    acquired: int = 0
    failures: int = 0
    reason: RemovalReason | None = None
    reason_ms: int = 0
    place: int = 0

    def kept(self) -> tuple[Any, ...]:
        """The fields of the item in a snapshot."""
        pointer = self.pointer
        return (
            self.sequence, tuple(self.stream),
            (pointer.offset, pointer.size_bytes, pointer.priority, pointer.expires_ms,
             pointer.visible_ms),
            self.acquired, self.failures, self.visible_ms, self.reason, self.reason_ms,
        )  # fmt: skip


class FanoutMessage(QueuedItem, gc=False, eq=False):
    """A message of a fan-out: how many lanes have it, and whether one has settled it."""

    pending_lanes: int = 0
    is_handled: bool = False

    def kept(self) -> tuple[Any, ...]:
        """The fields in a snapshot; ``pending_lanes`` follows from the lanes."""
        return (*super().kept(), self.is_handled)


class SubscriberLedger:
    """One lane: its subscriber and its messages."""

    __slots__ = ("id", "is_named", "items", "subscriber")

    def __init__(self, lane: int, subscriber: str, *, is_named: bool) -> None:
        self.id = lane
        self.subscriber = subscriber
        self.is_named = is_named
        self.items: dict[int, QueuedItem] = {}


class QueueLedger:
    """Holds the durable state of the messages of a queue."""

    def __init__(self, *, is_fanout: bool) -> None:
        self.is_fanout = is_fanout
        self.next_sequence = 0
        self.next_lane = ONLY_LANE
        self.sources: dict[StreamId, int] = {}
        self.lanes: dict[int, SubscriberLedger] = {}
        self.messages: dict[int, FanoutMessage] = {}
        self.total_bytes = 0
        if not is_fanout:
            self._open(ONLY_LANE, "", is_named=True)

    def __len__(self) -> int:
        return len(self.messages) if self.is_fanout else len(self.lanes[ONLY_LANE].items)

    def new(self, stream: StreamId, pointers: tuple[Pointer, ...]) -> tuple[Pointer, ...]:
        """The pointers that were not added before.

        Raises:
            InvalidRequest: the queue has messages from too many streams.
        """
        taken = self.sources.get(stream)
        if taken is None:
            if len(self.sources) >= QUEUE_SOURCES_MAX:
                raise InvalidRequest(
                    ErrorCode.LIMIT_REACHED, f"a queue has at most {QUEUE_SOURCES_MAX} sources"
                )
            return pointers
        if pointers[0].offset >= taken:
            return pointers
        return tuple(pointer for pointer in pointers if pointer.offset >= taken)

    def oldest_offsets(self) -> dict[StreamId, int]:
        """For each stream the first offset whose body is still needed."""
        oldest: dict[StreamId, int] = {}
        items = self.messages if self.is_fanout else self.lanes[ONLY_LANE].items
        for item in items.values():
            offset = item.pointer.offset
            if oldest.setdefault(item.stream, offset) > offset:
                oldest[item.stream] = offset
        return oldest

    def replay(self, fact: QueueFact) -> None:
        """Apply a stored fact."""
        match fact:
            case SourcesPassed(_, sources):
                self.sources.update(sources)
            case PointersAdded():
                self._add(fact)
            case PointersMoved(_, stream, places):
                self._move(stream, places)
            case Acquired():
                self._acquire(fact)
            case Returned():
                self._give_back(fact)
            case Condemned(_, lane, spans, reason, at_ms):
                self._condemn(lane, spans, reason, at_ms)
            case Settled(_, lane, spans, _):
                self._settle(lane, spans)
            case LaneOpened(_, lane, subscriber, is_named):
                self._open(lane, subscriber, is_named=is_named)
            case LaneClosed(_, lane):
                self._close(lane)
            case _:
                raise AssertionError(f"{type(fact).__name__} is not about messages")

    def parts(self) -> Iterator[dict[str, Any]]:
        """The whole ledger in parts of a limited size, for ``restored``."""
        yield {
            "is_fanout": self.is_fanout,
            "next_sequence": self.next_sequence,
            "next_lane": self.next_lane,
            "sources": [(tuple(stream), until) for stream, until in self.sources.items()],
        }
        yield from _pieces("messages", None, self.messages.values())
        for lane in self.lanes.values():
            yield {"lane": (lane.id, lane.subscriber, lane.is_named)}
            yield from _pieces("items", lane.id, lane.items.values())

    @classmethod
    def restored(cls, parts: list[dict[str, Any]]) -> "QueueLedger":
        """Restore a ledger from its parts."""
        head = parts[0]
        ledger = cls(is_fanout=head["is_fanout"])
        ledger.next_sequence = head["next_sequence"]
        ledger.sources = {_stream(stream): until for stream, until in head["sources"]}
        for part in parts[1:]:
            if "lane" in part:
                lane, subscriber, is_named = part["lane"]
                ledger.lanes[lane] = SubscriberLedger(lane, subscriber, is_named=is_named)
            elif "messages" in part:
                for kept in part["messages"]:
                    message = FanoutMessage(*_placed(kept))
                    _restore(message, kept)
                    message.is_handled = kept[8]
                    ledger.messages[message.sequence] = message
                    ledger.total_bytes += message.pointer.size_bytes
            else:
                ledger._restore_items(part)
        ledger.next_lane = head["next_lane"]
        return ledger

    def _restore_items(self, part: dict[str, Any]) -> None:
        items = self.lanes[part["of"]].items
        for kept in part["items"]:
            item = QueuedItem(*_placed(kept))
            _restore(item, kept)
            items[item.sequence] = item
            if self.is_fanout:
                self.messages[item.sequence].pending_lanes += 1
            else:
                self.total_bytes += item.pointer.size_bytes

    def _add(self, fact: PointersAdded) -> None:
        stream = fact.stream
        sequence = fact.start
        lanes = [lane.items for lane in self.lanes.values()]
        is_fanout = self.is_fanout
        for pointer in fact.pointers:
            visible_ms = pointer.visible_ms
            for items in lanes:
                items[sequence] = QueuedItem(sequence, stream, pointer, visible_ms)
            if is_fanout:
                message = self.messages[sequence] = FanoutMessage(
                    sequence, stream, pointer, visible_ms
                )
                message.pending_lanes = len(lanes)
            self.total_bytes += pointer.size_bytes
            sequence += 1
        self.next_sequence = sequence
        self.sources[stream] = fact.pointers[-1].offset + 1

    def _move(self, stream: StreamId, places: tuple[tuple[int, int], ...]) -> None:
        held: list[dict[int, Any]] = [self.messages, *(each.items for each in self.lanes.values())]
        for sequence, offset in places:
            for items in held:
                item = items.get(sequence)
                if item is not None:
                    item.stream = stream
                    item.pointer = replace(item.pointer, offset=offset)

    def _acquire(self, fact: Acquired) -> None:
        for item in self._each(fact.lane, fact.spans):
            item.acquired += 1

    def _give_back(self, fact: Returned) -> None:
        for item in self._each(fact.lane, fact.spans):
            item.failures += fact.is_failure
            item.visible_ms = fact.visible_ms

    def _each(self, lane: int, spans: Spans) -> Iterator[QueuedItem]:
        items: dict[int, Any] = self.messages if lane == ALL_LANES else self.lanes[lane].items
        for start, until in spans:
            for sequence in range(start, until):
                yield items[sequence]

    def _condemn(self, lane: int, spans: Spans, reason: RemovalReason, at_ms: int) -> None:
        for item in self._each(lane, spans):
            item.reason = reason
            item.reason_ms = at_ms
            if lane == ALL_LANES:
                self._release(item.sequence)

    def _release(self, sequence: int) -> None:
        """Remove the message from all lanes."""
        for lane in self.lanes.values():
            lane.items.pop(sequence, None)
        self.messages[sequence].pending_lanes = 0

    def _settle(self, lane: int, spans: Spans) -> None:
        if lane == ALL_LANES:
            for item in list(self._each(lane, spans)):
                self._release(item.sequence)
                self._gone(item.sequence)
            return
        items = self.lanes[lane].items
        for start, until in spans:
            for sequence in range(start, until):
                item = items.pop(sequence)
                if not self.is_fanout:
                    self.total_bytes -= item.pointer.size_bytes
                    continue
                message = self.messages[sequence]
                message.pending_lanes -= 1
                message.is_handled = True
                if not message.pending_lanes:
                    self._gone(sequence)

    def _gone(self, sequence: int) -> None:
        self.total_bytes -= self.messages.pop(sequence).pointer.size_bytes

    def _open(self, lane: int, subscriber: str, *, is_named: bool) -> None:
        opened = self.lanes[lane] = SubscriberLedger(lane, subscriber, is_named=is_named)
        self.next_lane = lane + 1
        for message in self.messages.values():
            if not message.pending_lanes and message.reason is None:
                self._claim(opened, message)

    def _close(self, lane: int) -> None:
        closed = self.lanes.pop(lane)
        for sequence in closed.items:
            message = self.messages[sequence]
            message.pending_lanes -= 1
            if message.pending_lanes:
                continue
            if message.is_handled:
                self._gone(sequence)
                continue
            # Not settled by any subscriber: the remaining ones get it, or the next new one.
            for other in self.lanes.values():
                self._claim(other, message)

    def _claim(self, lane: SubscriberLedger, message: FanoutMessage) -> None:
        pointer = message.pointer
        item = QueuedItem(message.sequence, message.stream, pointer, pointer.visible_ms)
        lane.items[message.sequence] = item
        message.pending_lanes += 1


def _pieces(name: str, lane: int | None, items: Any) -> Iterator[dict[str, Any]]:
    kept: list[Any] = []
    for item in items:
        kept.append(item.kept())
        if len(kept) == _PART_ITEMS:
            yield {name: kept, "of": lane}
            kept = []
    if kept:
        yield {name: kept, "of": lane}


def _stream(kept: Any) -> StreamId:
    topic, partition = kept
    return StreamId(topic, partition)


def _placed(kept: Any) -> tuple[int, StreamId, Pointer, int]:
    return kept[0], _stream(kept[1]), convert(kept[2], Pointer), kept[5]


def _restore(item: QueuedItem, kept: Any) -> None:
    item.acquired, item.failures, item.visible_ms = kept[3:6]
    item.reason = None if kept[6] is None else RemovalReason(kept[6])
    item.reason_ms = kept[7]
