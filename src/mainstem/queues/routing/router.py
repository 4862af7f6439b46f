"""One router per exchange stream: matches each message once and offers pointers to queues.

    publish ─▶ route ─▶ refused? ─▶ append ─▶ on_appended ─▶ Offer per queue ─▶ owners
                                       ▲                                          │
                        cursor (durable) ◀──────────── on_stored ◀────────────────┘

Routing is decided before the append, so that "unroutable" or "full" is reported without storing.
The cursor is at the first message whose offers are not all stored; after a crash the messages
behind it are routed again by the topology that was valid for them, and owners recognise repeated
offers by the offset. At most ``ROUTED_UNSTORED_MAX`` messages wait between append and cursor.
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
    """The target queues of a message, or why it is not accepted.

    ``refused_by`` lists queues that are full: the publisher gets a refusal, nothing is appended,
    except to the dead letter exchange of those in ``dead_letters``. ``blocked_by`` lists queues
    that block the publisher.
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
    """All messages before this offset are in their queues; ``version`` is valid from there on."""

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
        # Credit of queues that may refuse.
        self.grants = RouterCredits()
        self._unstored: deque[_Unstored] = deque()
        self._unstored_messages = 0
        # Offset from which each version of the topology is valid; never empty.
        first = topology.version if version is None else version
        self._marks: deque[tuple[int, int]] = deque([(cursor, first)])
        self.pressure = Pressure.ACCEPT

    @property
    def is_plain(self) -> bool:
        """Whether keys and headers alone decide: nothing is short, and no queue refuses."""
        return (
            self.grants.is_plain
            and self.pressure < Pressure.REFUSE
            and self._unstored_messages < ROUTED_UNSTORED_MAX
        )

    def matched(
        self, exchange: str, keys: Sequence[str], headers: Mapping[str, Any]
    ) -> RouteDecision:
        """The target queues of a message that cannot be refused: a dead letter."""
        queues = self._topology.live.route(exchange, keys, headers)
        return RouteDecision(without_excluded(queues, headers))

    def route(
        self, exchange: str, keys: Sequence[str], headers: Mapping[str, Any], size_bytes: int
    ) -> RouteDecision:
        """Route a message that is about to be appended. ``reserve`` deducts the credit.

        Raises:
            InvalidRequest: the exchange does not exist, or is internal.
            Unavailable: memory is short, or too many messages wait to be stored.
        """
        table = self._topology.live
        if table.exchange(exchange).internal:
            raise InvalidRequest(
                ErrorCode.RESERVED_NAME, f"exchange '{exchange}' is internal", subject=exchange
            )
        if self.pressure >= Pressure.REFUSE or self._unstored_messages >= ROUTED_UNSTORED_MAX:
            raise Unavailable(ErrorCode.OVERLOADED, "queues accept no more messages for now")
        queues = table.route(exchange, keys, headers)
        if self.grants.is_plain:
            return RouteDecision(queues)
        return RouteDecision(queues, *self.grants.weighed(queues, size_bytes))

    def reserve(self, route: RouteDecision, size_bytes: int) -> None:
        """Deduct the credit for a message that will be appended."""
        assert route.is_free, "a refused message is not appended"
        self.grants.pay(route.queues, size_bytes)

    def on_appended(
        self, pointers: Sequence[Pointer], routes: Sequence[RouteDecision]
    ) -> list[Offer]:
        """Create the offers of appended messages, one pointer and one route each.

        Unroutable messages move the cursor, too: see ``advance``.
        """
        assert self._marks[-1][1] == self._topology.version, "a topology version was not noted"
        return self._offers(pointers, [route.queues for route in routes])

    def on_topology(self, next_offset: int) -> VersionTaken | None:
        """Route messages from ``next_offset`` on by the changed topology.

        The fact is stored before the change is confirmed. Routing and appending a message happen in
        one turn of the loop, so no message falls between two versions.
        """
        version = self._topology.version
        if self._marks[-1][1] == version:
            return None
        if next_offset == self.cursor:
            # No message has to be routed by the previous version.
            self._marks.clear()
        self._mark(next_offset, version)
        return VersionTaken(self.stream, next_offset, version)

    def version_at(self, offset: int) -> int:
        """The version of the topology that was valid when a message was appended."""
        held = self._marks[0][1]
        for start, version in self._marks:
            if start > offset:
                break
            held = version
        return held

    def on_replayed(
        self, pointer: Pointer, exchange: str, keys: Sequence[str], headers: Mapping[str, Any]
    ) -> list[Offer]:
        """Route a message behind the cursor again, as it was the first time."""
        table = self._topology.table(self.version_at(pointer.offset))
        queues = table.route(exchange, keys, headers) if exchange in table else ()
        queues = without_excluded(queues, headers)
        return self._offers([pointer], [queues])

    def on_passed(self, until: int) -> CursorMoved | None:
        """Note that all messages before an offset were routed, including unroutable ones."""
        last = self._unstored[-1].until if self._unstored else self.cursor
        if until > last:
            self._unstored.append(_Unstored(until, 0, set()))
        return self.advance()

    def replay(self, fact: "RouterFact") -> None:
        """Apply a stored fact."""
        if isinstance(fact, VersionTaken):
            self._marks.append((fact.offset, fact.version))
            return
        self.cursor = fact.until
        self._forget_marks()

    def on_stored(self, queue: str, until: int) -> CursorMoved | None:
        """Note that an owner has stored all offers up to an offset, or the queue is gone."""
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
        """Add credit that the owner of a queue lent.

        The first loan, possibly of nothing, precedes the first binding to such a queue: it marks
        the queue as one that needs credit.
        """
        self.grants.put(queue, overflow, credit)

    def on_admission(self, queue: str, *, is_open: bool) -> None:
        """Note that a queue without credit is full, or no longer."""
        self.grants.set_open(queue, is_open=is_open)

    def on_queue_gone(self, queue: str) -> CursorMoved | None:
        """Remove a deleted queue and its pending offers."""
        self.grants.forget(queue)
        for unstored in self._unstored:
            unstored.waiting_for.discard(queue)
        return self.advance()

    def _offers(
        self, pointers: Sequence[Pointer], queues: Sequence[tuple[str, ...]]
    ) -> list[Offer]:
        by_queue: dict[str, Sequence[Pointer]] = {}
        if queues.count(queues[0]) == len(pointers):
            # All messages go to the same queues, as in most bursts.
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
        """Move the cursor as far as offers are stored; None if it stays."""
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
            raise Unavailable(ErrorCode.OVERLOADED, "too many topology changes await routing")
        self._marks.append((offset, version))

    def _forget_marks(self) -> None:
        while len(self._marks) > 1 and self._marks[1][0] <= self.cursor:
            self._marks.popleft()


RouterFact = VersionTaken | CursorMoved
