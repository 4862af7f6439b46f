"""One stream of an exchange: messages in, in bursts; pointers out to queues, once committed.

    publish ─ publish ─ publish ──▶ flush: one batch ──▶ committed ──▶ confirmed, routed, offered
      Kafka client ─────────────── its own batch ────────┘  (read from the stream, then routed)

Offsets are routed in order, whoever wrote them: what this room published is routed by what was
known at the time; what came by another way is read again. Promises: a publisher is told once its
message is committed; a message that is committed reaches every queue that it matched, also after a
crash (the cursor); nobody gets a message that is not committed, or that was aborted.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from mainstem.model.errors import MainstemError
from mainstem.model.message import Message
from mainstem.model.record import Record
from mainstem.queues.bodies_runtime import Bodies, records_between
from mainstem.queues.burst_runtime import Admitting, Burst, Bursts
from mainstem.queues.facts import Pointer
from mainstem.queues.router import Offer, Router
from mainstem.queues.routing import delay_of, is_moved, routing_of, visible_of
from mainstem.queues.steady_clock import SteadyClock
from mainstem.streams.writer_driver import StreamWriter

if TYPE_CHECKING:
    from mainstem.queues.publisher_runtime import LivePublisher

# Records of others that are routed before the rest of the room has its turn.
_FOREIGN_OFFSETS = 2_000

_log = logging.getLogger(__name__)


class Neighbourhood(Admitting, Protocol):
    """What a stream asks of its namespace."""

    def offer(self, stream: "ExchangeStream", offer: Offer) -> None:
        """Messages are for a queue."""
        ...

    def later(self, work: Callable[[], None]) -> None:
        """Go on when others had their turn."""
        ...

    def stored(self, stream: "ExchangeStream") -> None:
        """The cursor of the stream moved."""
        ...


class ExchangeStream(Bursts):
    """See the module."""

    def __init__(
        self,
        exchange: str,
        door: StreamWriter,
        router: Router,
        bodies: Bodies,
        clock: SteadyClock,
        around: Neighbourhood,
    ) -> None:
        super().__init__(exchange, door, router, bodies, clock, around)
        self.routed = router.cursor
        self._around = around
        self._is_catching_up = False
        door.add_waiter(self._on_committed)

    def close(self, error: MainstemError | None = None) -> None:
        """Route nothing more; what is not committed yet is refused where an error says why."""
        self.door.remove_waiter(self._on_committed)
        if error is not None:
            self.give_up(error)

    def _on_committed(self) -> None:
        closed = self.door.closed
        if closed is not None:
            self.give_up(closed)
            return
        self._confirm(self.door.committed)
        self.route_committed()

    def _confirm(self, committed: int) -> None:
        unconfirmed = self.unconfirmed
        told: dict[LivePublisher, None] = {}
        while unconfirmed and unconfirmed[0].until <= committed:
            burst = unconfirmed.popleft()
            publishers, routes, tokens = burst.publishers, burst.routes, burst.tokens
            publisher, route, count = publishers[0], routes[0], len(tokens)
            if publishers.count(publisher) == routes.count(route) == count and min(tokens) >= 0:
                publisher.note(tokens, is_routed=bool(route.queues))
                told[publisher] = None
                continue
            for publisher, token, route in zip(publishers, tokens, routes, strict=True):
                if token >= 0:
                    publisher.note((token,), is_routed=bool(route.queues))
                    told[publisher] = None
        for publisher in told:
            publisher.tell()

    def route_committed(self) -> None:
        """Route what is committed and not routed yet."""
        until = self.door.last_stable
        unrouted = self.unrouted
        while self.routed < until:
            if unrouted and unrouted[0].base <= self.routed:
                if unrouted[0].until > until:
                    return
                self._route_own(unrouted.popleft())
            elif self._is_catching_up:
                return
            else:
                self._route_foreign(min(until, unrouted[0].base if unrouted else until))

    def _route_own(self, burst: Burst) -> None:
        base = burst.base
        pointers = [Pointer(base + at, *facts) for at, facts in enumerate(burst.pointers)]
        self.routed = burst.until
        self._offer(self.router.on_appended(pointers, burst.routes))

    def _route_foreign(self, until: int) -> None:
        """Route what others wrote; a long stretch in several turns of the loop."""
        start = max(self.routed, self.door.start_offset)
        piece = min(until, start + _FOREIGN_OFFSETS)
        try:
            for record in records_between(self.door, start, piece):
                if record.offset >= piece:
                    break
                if not is_moved(record.headers):
                    self._route_record(record)
        except MainstemError as error:
            # Damaged records are nobody's; those after them are not to suffer.
            _log.error("records before %d of %s are not routed: %s", piece, self.label, error)
        self.routed = piece
        self.router.on_passed(piece)
        if piece < until:
            self._is_catching_up = True
            self._around.later(self._go_on)

    def _go_on(self) -> None:
        self._is_catching_up = False
        self.route_committed()

    def _route_record(self, record: Record) -> None:
        message = Message.of_record(record)
        routing = routing_of(message)
        visible_ms = 0
        if routing.headers:
            visible_ms = visible_of(routing.headers)
        if self.is_delayed and not visible_ms:
            delay_ms = delay_of(routing.headers)
            visible_ms = record.timestamp + delay_ms if delay_ms else 0
        pointer = Pointer(
            record.offset,
            len(record.value or b""),
            routing.priority,
            routing.expires_ms,
            visible_ms,
        )
        self._offer(self.router.on_replayed(pointer, self.exchange, routing.keys, routing.headers))

    def _offer(self, offers: Sequence[Offer]) -> None:
        for offer in offers:
            self._around.offer(self, offer)
        if not offers:
            self._advance()

    def on_stored(self, queue: str, until: int) -> None:
        """All offers to a queue up to an offset are kept, or nobody is there to keep them."""
        if self.router.on_stored(queue, until) is not None:
            self._around.stored(self)

    def _advance(self) -> None:
        if self.router.advance() is not None:
            self._around.stored(self)
