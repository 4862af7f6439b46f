"""One stream of an exchange: appends messages in batches, and routes committed ones to queues.

    publish ─ publish ─ publish ──▶ flush: one batch ──▶ committed ──▶ confirmed, routed, offered
      Kafka client ─────────────── its own batch ────────┘  (read from the stream, then routed)

Offsets are routed in order, independent of the writer: messages of this package are routed by the
decision made at publish time; records of other protocols are read and routed. Guarantees: a publish
is confirmed once its message is committed; a committed message reaches every queue that it matched,
also after a crash (the cursor); uncommitted and aborted messages are not delivered.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from mainstem.model.errors import MainstemError
from mainstem.model.message import Message
from mainstem.model.records.record import Record
from mainstem.queues.facts import Pointer
from mainstem.queues.publishing.publish_batch_driver import PublishBatch, PublishBatcher
from mainstem.queues.routing.message_routing import delay_of, is_moved, routing_of, visible_of
from mainstem.queues.routing.router import Offer
from mainstem.queues.storage.message_body_driver import records_between

if TYPE_CHECKING:
    from mainstem.queues.publishing.publisher_driver import QueuePublisher

# Records of other protocols that are routed before other drivers have their turn.
_FOREIGN_OFFSETS = 2_000

_log = logging.getLogger(__name__)


class OfferTarget(Protocol):
    """The queues that a stream is routed to."""

    def offer(self, stream: "ExchangeStream", offer: Offer) -> None:
        """Offer messages to a queue."""
        ...


class MovedCursors(Protocol):
    """Stores how far streams are routed."""

    def moved(self, stream: "ExchangeStream") -> None:
        """Note that the cursor of the stream moved."""
        ...


class ExchangeStream:
    """Confirms committed messages and routes them to queues; ``batcher`` appends them."""

    def __init__(self, batcher: PublishBatcher, queues: OfferTarget, cursors: MovedCursors) -> None:
        self.batcher = batcher
        self.exchange = batcher.exchange
        self.writer = batcher.writer
        self.router = batcher.router
        self.label = batcher.label
        self.routed = self.router.cursor
        self._queues = queues
        self._cursors = cursors
        self._is_catching_up = False
        self.writer.add_waiter(self._on_committed)

    def close(self, error: MainstemError | None = None) -> None:
        """Stop routing; with an error, uncommitted messages are refused."""
        self.writer.remove_waiter(self._on_committed)
        if error is not None:
            self.batcher.give_up(error)

    def _on_committed(self) -> None:
        closed = self.writer.closed
        if closed is not None:
            self.batcher.give_up(closed)
            return
        self._confirm(self.writer.committed)
        self.route_committed()

    def _confirm(self, committed: int) -> None:
        unconfirmed = self.batcher.unconfirmed
        confirmed: dict[QueuePublisher, None] = {}
        while unconfirmed and unconfirmed[0].until <= committed:
            burst = unconfirmed.popleft()
            publishers, routes, tokens = burst.publishers, burst.routes, burst.tokens
            publisher, route, count = publishers[0], routes[0], len(tokens)
            if publishers.count(publisher) == routes.count(route) == count and min(tokens) >= 0:
                publisher.note(tokens, is_routed=bool(route.queues))
                confirmed[publisher] = None
                continue
            for publisher, token, route in zip(publishers, tokens, routes, strict=True):
                if token >= 0:
                    publisher.note((token,), is_routed=bool(route.queues))
                    confirmed[publisher] = None
        for publisher in confirmed:
            publisher.notify()

    def route_committed(self) -> None:
        """Route committed messages that are not routed yet."""
        until = self.writer.last_stable
        unrouted = self.batcher.unrouted
        while self.routed < until:
            if unrouted and unrouted[0].base <= self.routed:
                if unrouted[0].until > until:
                    return
                self._route_own(unrouted.popleft())
            elif self._is_catching_up:
                return
            else:
                self._route_foreign(min(until, unrouted[0].base if unrouted else until))

    def _route_own(self, burst: PublishBatch) -> None:
        base = burst.base
        pointers = [Pointer(base + at, *facts) for at, facts in enumerate(burst.pointers)]
        self.routed = burst.until
        self._offer(self.router.on_appended(pointers, burst.routes))

    def _route_foreign(self, until: int) -> None:
        """Route records of other protocols; many of them in several turns of the loop."""
        start = max(self.routed, self.writer.start_offset)
        piece = min(until, start + _FOREIGN_OFFSETS)
        try:
            for record in records_between(self.writer, start, piece):
                if record.offset >= piece:
                    break
                if not is_moved(record.headers):
                    self._route_record(record)
        except MainstemError as error:
            # Damaged records cannot be routed; those after them still are.
            _log.error("records before %d of %s are not routed: %s", piece, self.label, error)
        self.routed = piece
        self.router.on_passed(piece)
        if piece < until:
            self._is_catching_up = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_catching_up = False
        self.route_committed()

    def _route_record(self, record: Record) -> None:
        message = Message.of_record(record)
        routing = routing_of(message)
        visible_ms = 0
        if routing.headers:
            visible_ms = visible_of(routing.headers)
        if self.batcher.is_delayed and not visible_ms:
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
            self._queues.offer(self, offer)
        if not offers:
            self._advance()

    def on_stored(self, queue: str, until: int) -> None:
        """Note that all offers to a queue up to an offset are stored, or the queue is gone."""
        if self.router.on_stored(queue, until) is not None:
            self._cursors.moved(self)

    def _advance(self) -> None:
        if self.router.advance() is not None:
            self._cursors.moved(self)
