"""Gathers the messages published to a stream into batches: accepted, refused, or parked.

publish ─▶ route ─▶ space?─▶ burst ─▶ stage (one batch) ─▶ flush ─▶ check
                      ├─ no: refused, possibly dead-lettered
                      └─ no: parked, if a queue blocks its publishers
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import Offset
from mainstem.model.limits import KIB, ROUTES_REMEMBERED_MAX
from mainstem.model.message import Message
from mainstem.model.records.batch import NO_TIMESTAMP
from mainstem.model.records.record import RecordFields, build_batch
from mainstem.queues.admission.credit import Credit
from mainstem.queues.api_types import Routing
from mainstem.queues.context import QueuesContext
from mainstem.queues.publishing.publish_flush_driver import PublishFlusher
from mainstem.queues.publishing.publisher_driver import QueuePublisher
from mainstem.queues.routing.exchange import DEFAULT_EXCHANGE, Exchange, ExchangeKind
from mainstem.queues.routing.message_routing import VISIBLE_HEADER, delay_of, visible_of
from mainstem.queues.routing.router import RouteDecision, Router
from mainstem.queues.settings import Overflow
from mainstem.streams.writer.stream_driver import StreamWriter

BATCH_BYTES = 512 * KIB
PARKED_MAX = 10_000
# Size of a record without its value.
_RECORD_BYTES = 100


class PublishRequest(NamedTuple):
    """A message to be published."""

    publisher: QueuePublisher
    message: Message
    routing: Routing
    token: int


class PublishBatch:
    """Messages of one batch."""

    __slots__ = (
        "base", "messages", "pointers", "publishers", "records", "routes", "size_bytes", "tokens",
        "until",
    )  # fmt: skip

    def __init__(self) -> None:
        self.records: list[RecordFields] = []
        self.messages: list[Message] = []
        # Size, priority, expiry and visibility time of each.
        self.pointers: list[tuple[int, int, int, int]] = []
        self.routes: list[RouteDecision] = []
        # The publisher of each, and its token.
        self.publishers: list[QueuePublisher] = []
        self.tokens: list[int] = []
        self.size_bytes = 0
        self.base = 0
        self.until = 0

    def refuse(self, error: MainstemError) -> None:
        """Refuse all messages: nothing is stored."""
        for publisher, tokens in self._by_publisher().items():
            publisher.refuse(tokens, error)

    def give_up(self, error: MainstemError) -> None:
        """Report an unknown outcome: the next writer decides whether the batch is kept."""
        for publisher, tokens in self._by_publisher().items():
            publisher.give_up(tokens, error)

    def _by_publisher(self) -> dict[QueuePublisher, list[int]]:
        found: dict[QueuePublisher, list[int]] = {}
        for publisher, token in zip(self.publishers, self.tokens, strict=True):
            found.setdefault(publisher, []).append(token)
        return found


class PublishAdmission(Protocol):
    """Requests to the virtual host before a message is accepted."""

    # Queues that refuse or block when they are full: they are checked for each message.
    refusing: set[str]
    # Counts up with every change of queues, exchanges and bindings.
    revision: int

    def lend(self, queue: str, router: str, wanted: Credit) -> tuple[Overflow, Credit]:
        """Request credit from a queue that refuses."""
        ...

    def refused(self, queue: str, message: Message, routing: Routing) -> None:
        """Dead-letter a message that a full queue refused."""
        ...


class PublishBatcher:
    """Gathers published messages into batches."""

    def __init__(
        self,
        exchange: str,
        writer: StreamWriter,
        router: Router,
        context: QueuesContext,
        flusher: PublishFlusher,
        admission: PublishAdmission,
    ) -> None:
        self.exchange = exchange
        self.writer = writer
        self.router = router
        self.label = f"{writer.topic}-{writer.id.partition}"
        # Messages may have a delay; set if the exchange was declared so.
        self.is_delayed = False
        # Cached routes by key, valid until a declaration, binding or deletion.
        self._is_by_key = True
        self._revision = -1
        self._routes: dict[str, RouteDecision] = {}
        self._bodies = context.bodies
        self._clock = context.clock
        self._flusher = flusher
        self._gathered: list[PublishBatch] = []
        self._parked: deque[PublishRequest] = deque()
        self.unconfirmed: deque[PublishBatch] = deque()
        self.unrouted: deque[PublishBatch] = deque()
        self._admission = admission

    def described(self, exchange: Exchange) -> None:
        """Apply the properties of the declared exchange."""
        self.is_delayed = exchange.delayed
        self._is_by_key = exchange.kind is not ExchangeKind.HEADERS
        self._routes.clear()

    def publish(
        self, publisher: QueuePublisher, message: Message, routing: Routing, token: int
    ) -> None:
        """Accept one message of a publisher, refuse it, or park it."""
        keys = routing.keys
        if (
            len(keys) == 1
            and self._revision == self._admission.revision
            and self.router.is_plain
            and not publisher.is_forced
            and not publisher.parked
        ):
            # The fast path of nearly all messages: the route is cached, and no queue refuses.
            route = self._routes.get(keys[0])
            if route is not None and route.queues:
                self._add(publisher, message, routing, token, route)
                return
        request = PublishRequest(publisher, message, routing, token)
        must_wait = publisher.parked and not publisher.is_forced
        if must_wait or not self._take(request):
            self._park(request)

    def publish_many(
        self, publisher: QueuePublisher, messages: Sequence[Message], routing: Routing, first: int
    ) -> bool:
        """Accept messages with the same routing; False if they have to be published one by one.

        They have no headers, individual timestamps, and tokens that count up from ``first``.
        """
        if (
            self._revision != self._admission.revision
            or not self.router.is_plain
            or publisher.is_forced
            or publisher.parked
        ):
            return False
        route = self._routes.get(routing.keys[0])
        if route is None or not route.queues:
            return False
        sizes = [len(message.value or b"") for message in messages]
        added = sum(sizes) + len(sizes) * _RECORD_BYTES
        bursts = self._gathered
        if not bursts or bursts[-1].size_bytes + added > BATCH_BYTES:
            if added > BATCH_BYTES:
                return False
            if not bursts:
                self._flusher.flush_soon(self)
            bursts.append(PublishBatch())
        burst, count = bursts[-1], len(messages)
        _, _, priority, expires_ms, visible_ms = routing
        burst.records += [(0, time, key, value, ()) for key, value, _, time in messages]
        burst.messages += messages
        burst.pointers += [(size, priority, expires_ms, visible_ms) for size in sizes]
        burst.routes += [route] * count
        burst.publishers += [publisher] * count
        burst.tokens += range(first, first + count)
        burst.size_bytes += added
        return True

    def _take(self, request: PublishRequest) -> bool:
        """Accept or refuse a message; False if it has to wait."""
        publisher, message, routing, token = request
        size_bytes = len(message.value or b"")
        try:
            route = self._route(routing, size_bytes, is_forced=publisher.is_forced)
        except Unavailable as error:
            publisher.refuse((token,), error)
            return True
        if not route.is_free and not publisher.is_forced:
            return self._turn_away(route, request)
        if not route.queues and self.exchange == DEFAULT_EXCHANGE:
            publisher.unrouted(token)
            return True
        if route.is_free:
            self.router.reserve(route, size_bytes)
        self._add(publisher, message, routing, token, route)
        return True

    def _route(self, routing: Routing, size_bytes: int, *, is_forced: bool) -> RouteDecision:
        router = self.router
        if is_forced:
            return router.matched(self.exchange, routing.keys, routing.headers)
        keys = routing.keys
        is_known = len(keys) == 1 and self._is_by_key and router.is_plain
        if is_known:
            if self._revision != self._admission.revision:
                self._revision = self._admission.revision
                self._routes.clear()
            known = self._routes.get(keys[0])
            if known is not None:
                return known
        route = router.route(self.exchange, keys, routing.headers, size_bytes)
        refusing = self._admission.refusing
        if refusing and not refusing.isdisjoint(route.queues):
            return self._admitted(route, routing, size_bytes)
        if is_known and len(self._routes) < ROUTES_REMEMBERED_MAX:
            self._routes[keys[0]] = route
        return route

    def _admitted(self, route: RouteDecision, routing: Routing, size_bytes: int) -> RouteDecision:
        """Route again after requesting credit from queues that refuse."""
        router = self.router
        for queue in route.queues:
            if queue in self._admission.refusing and router.grants.lacks(queue, size_bytes):
                lent = self._admission.lend(queue, self.label, Credit(1, size_bytes))
                router.on_credit(queue, *lent)
        return router.route(self.exchange, routing.keys, routing.headers, size_bytes)

    def _turn_away(self, route: RouteDecision, request: PublishRequest) -> bool:
        if route.blocked_by and not route.refused_by:
            return False
        for queue in route.dead_letters:
            self._admission.refused(queue, request.message, request.routing)
        full = ", ".join(route.refused_by)
        error = Unavailable(ErrorCode.OVERLOADED, f"queue '{full}' is full", subject=full)
        request.publisher.refuse((request.token,), error)
        return True

    def _park(self, request: PublishRequest) -> None:
        if len(self._parked) >= PARKED_MAX:
            error = Unavailable(ErrorCode.OVERLOADED, f"{PARKED_MAX} messages already wait")
            request.publisher.refuse((request.token,), error)
            return
        self._parked.append(request)
        request.publisher.park()

    def on_space(self) -> None:
        """Retry parked messages after a queue got space, in order per publisher."""
        waiting, self._parked = self._parked, deque()
        held: set[QueuePublisher] = set()
        for request in waiting:
            if request.publisher in held or not self._take(request):
                held.add(request.publisher)
                self._parked.append(request)
            else:
                request.publisher.unpark()

    def _add(
        self,
        publisher: QueuePublisher,
        message: Message,
        routing: Routing,
        token: int,
        route: RouteDecision,
    ) -> None:
        key, value, headers, timestamp_ms = message
        size_bytes = 0 if value is None else len(value)
        bursts = self._gathered
        if not bursts:
            self._flusher.flush_soon(self)
            bursts.append(PublishBatch())
        elif bursts[-1].size_bytes + size_bytes > BATCH_BYTES:
            bursts.append(PublishBatch())
        burst = bursts[-1]
        if timestamp_ms == NO_TIMESTAMP:
            timestamp_ms = self._clock.now_ms()
        _, routed_by, priority, expires_ms, visible_ms = routing
        if VISIBLE_HEADER in routed_by and not visible_ms:
            visible_ms = visible_of(routed_by)
        if self.is_delayed and not visible_ms:
            delay_ms = delay_of(routed_by)
            visible_ms = self._clock.now_ms() + delay_ms if delay_ms else 0
        burst.records.append((0, timestamp_ms, key, value, headers))
        burst.messages.append(message)
        burst.pointers.append((size_bytes, priority, expires_ms, visible_ms))
        burst.routes.append(route)
        burst.publishers.append(publisher)
        burst.tokens.append(token)
        burst.size_bytes += size_bytes + _RECORD_BYTES

    def stage(self) -> list[PublishBatch]:
        """Stage the gathered batches in the stream; the following flush writes them."""
        bursts, self._gathered = self._gathered, []
        staged: list[PublishBatch] = []
        for burst in bursts:
            batch = build_batch(burst.records)
            try:
                burst.base = self.writer.stage(memoryview(batch), 0, len(batch))
            except MainstemError as error:
                burst.refuse(error)
                continue
            burst.until = burst.base + len(burst.records)
            self.unconfirmed.append(burst)
            self.unrouted.append(burst)
            self._bodies.keep(self.writer.id, burst.base, burst.messages)
            staged.append(burst)
        return staged

    def check(self, staged: Sequence[PublishBatch]) -> None:
        """Refuse batches that the flush could not write."""
        for burst in staged:
            failure = self.writer.failure(Offset(burst.base))
            if failure is not None:
                self.unconfirmed.remove(burst)
                self.unrouted.remove(burst)
                burst.refuse(failure)

    def give_up(self, error: MainstemError) -> None:
        """Report unconfirmed batches as unknown, and refuse those that were not written."""
        written, gathered = [*self.unconfirmed], self._gathered
        self.unconfirmed.clear()
        self.unrouted.clear()
        self._gathered = []
        for burst in written:
            burst.give_up(error)
        for burst in gathered:
            burst.refuse(error)
        self.refuse_waiting(error)

    def refuse_waiting(self, error: MainstemError) -> None:
        """Refuse all parked messages."""
        parked, self._parked = self._parked, deque()
        for request in parked:
            request.publisher.refuse((request.token,), error)
            request.publisher.unpark()
