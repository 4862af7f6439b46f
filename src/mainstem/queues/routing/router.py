"""One router per exchange stream: matches each message once and hands pointers to queues.

    publish ─▶ route ─▶ refused? ─▶ append ─▶ on_appended ─▶ Offer per queue ─▶ owners
                                       ▲                                          │
                        cursor (durable) ◀──────────── on_stored ◀────────────────┘

Routing is known before the append, so a publisher is told "nobody" or "full" before it is told
"stored". The cursor stands before the first message whose offers are not all stored; after a crash
the messages behind it are routed again by the topology that held for them, and owners know by the
offset what they have. At most ``ROUTED_UNSTORED_MAX`` messages wait between append and cursor.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.ids import StreamId
from mainstem.model.limits import BINDINGS_ENDED_MAX, ROUTED_UNSTORED_MAX
from mainstem.queues.admission.credit import Credit
from mainstem.queues.admission.router_credit import RouterCredits
from mainstem.queues.admission.watermarks import Pressure
from mainstem.queues.facts import Pointer
from mainstem.queues.routing.message_routing import without_excluded
from mainstem.queues.routing.topology import Topology
from mainstem.queues.settings import Overflow


class RouteDecision(Struct, frozen=True):
    """Where a message goes, or why it does not.

    ``refused_by`` names queues that are full: the publisher is told so, and nothing is appended,
    except to the dead letter exchange of those in ``dead_letters``. ``blocked_by`` names queues
    that want the publisher to wait.
    """

    queues: tuple[str, ...]
    refused_by: tuple[str, ...] = ()
    dead_letters: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()

    @property
    def is_free(self) -> bool:
        """Whether the message may be appended."""
        return not self.refused_by and not self.blocked_by


class Offer(Struct, frozen=True):
    """Pointers for one queue, in the order of their offsets."""

    queue: str
    stream: StreamId
    pointers: tuple[Pointer, ...]


class CursorMoved(Struct, frozen=True, tag="cursor-moved", array_like=True):
    """All messages before this offset are in their queues; ``version`` holds from there on."""

    stream: StreamId
    until: int
    version: int


class VersionTaken(Struct, frozen=True, tag="version-taken", array_like=True):
    """Messages from this offset on are routed by this version of the topology."""

    stream: StreamId
    offset: int
    version: int


class _Unstored(Struct):
    until: int
    messages: int
    waiting_for: set[str]


class Router:
    """Routes each message of an exchange stream to queues."""

    def __init__(
        self, stream: StreamId, topology: Topology, *, cursor: int = 0, version: int | None = None
    ) -> None:
        self.stream = stream
        self.cursor = cursor
        self._topology = topology
        # What queues that may refuse have granted.
        self.grants = RouterCredits()
        self._unstored: deque[_Unstored] = deque()
        self._unstored_messages = 0
        # From which offset on which version of the topology holds; never empty.
        first = topology.version if version is None else version
        self._marks: deque[tuple[int, int]] = deque([(cursor, first)])
        self.pressure = Pressure.ACCEPT

    @property
    def is_plain(self) -> bool:
        """Whether keys and headers alone decide: nothing is short, and nobody refuses."""
        return (
            self.grants.is_plain
            and self.pressure < Pressure.REFUSE
            and self._unstored_messages < ROUTED_UNSTORED_MAX
        )

    def matched(
        self, exchange: str, keys: Sequence[str], headers: Mapping[str, Any]
    ) -> RouteDecision:
        """Where a message goes that nobody may refuse: a dead letter."""
        queues = self._topology.live.route(exchange, keys, headers)
        return RouteDecision(without_excluded(queues, headers))

    def route(
        self, exchange: str, keys: Sequence[str], headers: Mapping[str, Any], size_bytes: int
    ) -> RouteDecision:
        """Where a message that is about to be appended goes. Credit is used up by ``reserve``.

        Raises:
            InvalidRequest: there is no such exchange, or it is not for publishers.
            Unavailable: memory is short, or too much waits to be stored.
        """
        table = self._topology.live
        if table.exchange(exchange).internal:
            raise InvalidRequest(
                ErrorCode.RESERVED_NAME, f"exchange '{exchange}' is internal", subject=exchange
            )
        if self.pressure >= Pressure.REFUSE or self._unstored_messages >= ROUTED_UNSTORED_MAX:
            raise Unavailable(ErrorCode.OVERLOADED, "queues take no more messages for now")
        queues = table.route(exchange, keys, headers)
        if self.grants.is_plain:
            return RouteDecision(queues)
        return RouteDecision(queues, *self.grants.weighed(queues, size_bytes))

    def reserve(self, route: RouteDecision, size_bytes: int) -> None:
        """The message will be appended: it uses up credit."""
        assert route.is_free, "a refused message is not appended"
        self.grants.pay(route.queues, size_bytes)

    def on_appended(
        self, pointers: Sequence[Pointer], routes: Sequence[RouteDecision]
    ) -> list[Offer]:
        """Messages stand in the stream, one pointer and one route each: what goes to whom.

        What goes to nobody moves the cursor, too: ``advance`` tells how far.
        """
        assert self._marks[-1][1] == self._topology.version, "a version was not noted"
        return self._offers(pointers, [route.queues for route in routes])

    def on_topology(self, next_offset: int) -> VersionTaken | None:
        """The topology changed: what is appended from ``next_offset`` on follows it.

        The fact is stored before whoever changed it is answered. Routing and appending a message
        happen in one turn of the loop, so no message falls between two versions.
        """
        version = self._topology.version
        if self._marks[-1][1] == version:
            return None
        if next_offset == self.cursor:
            # Nothing is to be routed by what was before.
            self._marks.clear()
        self._mark(next_offset, version)
        return VersionTaken(self.stream, next_offset, version)

    def version_at(self, offset: int) -> int:
        """The version of the topology that held when a message was appended."""
        held = self._marks[0][1]
        for start, version in self._marks:
            if start > offset:
                break
            held = version
        return held

    def on_replayed(
        self, pointer: Pointer, exchange: str, keys: Sequence[str], headers: Mapping[str, Any]
    ) -> list[Offer]:
        """A message behind the cursor is routed once more, as it was the first time."""
        table = self._topology.table(self.version_at(pointer.offset))
        queues = table.route(exchange, keys, headers) if exchange in table else ()
        queues = without_excluded(queues, headers)
        return self._offers([pointer], [queues])

    def on_passed(self, until: int) -> CursorMoved | None:
        """All before an offset was routed, also what was for nobody at all."""
        last = self._unstored[-1].until if self._unstored else self.cursor
        if until > last:
            self._unstored.append(_Unstored(until, 0, set()))
        return self.advance()

    def replay(self, fact: "RouterFact") -> None:
        """Take a stored fact in."""
        if isinstance(fact, VersionTaken):
            self._marks.append((fact.offset, fact.version))
            return
        self.cursor = fact.until
        self._forget_marks()

    def on_stored(self, queue: str, until: int) -> CursorMoved | None:
        """An owner has stored all offers up to an offset, or the queue is gone."""
        for unstored in self._unstored:
            if unstored.until > until:
                break
            unstored.waiting_for.discard(queue)
        return self.advance()

    @property
    def version(self) -> int:
        """The oldest version of the topology that messages behind the cursor still need."""
        return self._marks[0][1]

    def on_credit(self, queue: str, overflow: Overflow, credit: Credit) -> None:
        """The owner of a queue that refuses lent credit.

        The first loan, be it of nothing, comes before a binding to such a queue counts: from then
        on it is known to need credit.
        """
        self.grants.put(queue, overflow, credit)

    def on_admission(self, queue: str, *, is_open: bool) -> None:
        """A queue that needs no credit is full, or no longer."""
        self.grants.set_open(queue, is_open=is_open)

    def on_queue_gone(self, queue: str) -> CursorMoved | None:
        """A queue was deleted: nothing is owed to it."""
        self.grants.forget(queue)
        for unstored in self._unstored:
            unstored.waiting_for.discard(queue)
        return self.advance()

    def _offers(
        self, pointers: Sequence[Pointer], queues: Sequence[tuple[str, ...]]
    ) -> list[Offer]:
        by_queue: dict[str, Sequence[Pointer]] = {}
        if queues.count(queues[0]) == len(pointers):
            # A burst to one queue, as most are.
            by_queue = dict.fromkeys(queues[0], pointers)
        else:
            found_by: dict[str, list[Pointer]] = {}
            for pointer, names in zip(pointers, queues, strict=True):
                for name in names:
                    found_by.setdefault(name, []).append(pointer)
            by_queue.update(found_by)
        span = _Unstored(pointers[-1].offset + 1, len(pointers), set(by_queue))
        self._unstored.append(span)
        self._unstored_messages += len(pointers)
        return [Offer(name, self.stream, tuple(found)) for name, found in by_queue.items()]

    def advance(self) -> CursorMoved | None:
        """Move the cursor as far as offers are stored; None where it stays."""
        before = self.cursor
        while self._unstored and not self._unstored[0].waiting_for:
            stored = self._unstored.popleft()
            self._unstored_messages -= stored.messages
            self.cursor = stored.until
        if self.cursor == before:
            return None
        self._forget_marks()
        return CursorMoved(self.stream, self.cursor, self._marks[0][1])

    def _mark(self, offset: int, version: int) -> None:
        if len(self._marks) >= BINDINGS_ENDED_MAX:
            raise Unavailable(ErrorCode.OVERLOADED, "too many versions are needed for old messages")
        self._marks.append((offset, version))

    def _forget_marks(self) -> None:
        while len(self._marks) > 1 and self._marks[1][0] <= self.cursor:
            self._marks.popleft()


RouterFact = VersionTaken | CursorMoved
