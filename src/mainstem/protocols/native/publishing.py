"""Publishing on one connection: one response for each batch.

    publish ─▶ rights ─▶ Publisher ──settled──▶ published: how many are stored, which are not

A batch is answered as soon as its last message is settled, not necessarily in order. When a queue
makes its publishers wait, the client gets ``flow``; it may continue to consume and settle, and what
it still publishes waits within the limit of the queue.
"""

from collections.abc import Sequence
from typing import Final

from mainstem.broker.api.queues import DEFAULT_EXCHANGE, NO_HEADERS, PublishStatus, Routing
from mainstem.broker.api.queues import Published as Settled
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.message import Message
from mainstem.protocols.native.convert import message_of, routing_of, size_of
from mainstem.protocols.native.errors import error_of
from mainstem.protocols.native.link import NativeConnectionLink, NativeService
from mainstem.security.quotas import PRODUCE_BYTES
from mainstem.wire.native.answers import Flow, Published, RefusedMessage
from mainstem.wire.native.requests import Publish
from mainstem.wire.native.words import MESSAGES_PER_FRAME_MAX, WireMessage, encode

NOT_CONFIRMED: Final = -1
REASON: Final = "publishes"
_KEY_BYTES_MAX: Final = 255
_ALL_STORED: Final = [
    encode(Published(stored=count)) for count in range(MESSAGES_PER_FRAME_MAX + 1)
]


class _Batch:
    """One publish that is not answered yet."""

    __slots__ = ("first", "left", "number", "refused", "stored", "unrouted")

    def __init__(self, number: int, first: int, count: int) -> None:
        self.number = number
        self.first = first
        self.left = count
        self.stored = 0
        # Most batches have neither; empty lists would cost garbage collection.
        self.unrouted: list[int] | None = None
        self.refused: list[RefusedMessage] | None = None

    def answer(self) -> bytes:
        """The encoded response."""
        if self.unrouted is None and self.refused is None:
            return _ALL_STORED[self.stored]
        answer = Published(
            stored=self.stored, unrouted=self.unrouted or [], refused=self.refused or []
        )
        return encode(answer)

    def refuse(self, place: int, error: MainstemError | None) -> None:
        """Record that a message was not stored."""
        if self.refused is None:
            self.refused = []
        self.refused.append(RefusedMessage(place, error_of(error)))

    def mark_unrouted(self, place: int) -> None:
        """Record that a message was routed to no queue."""
        if self.unrouted is None:
            self.unrouted = []
        self.unrouted.append(place)


class NativePublishing:
    """Publishes the batches of one connection and responds to each."""

    def __init__(self, link: NativeConnectionLink, service: NativeService) -> None:
        self._link = link
        self._clock = service.clock
        queues = service.broker.queues
        self._publisher = queues.publisher(link.namespace, self._settled, self._flow)
        self._token = 0
        # By token; for a message of a run only the number of its frame.
        self._pending: dict[int, _Batch | int] = {}
        self._pending_max = service.limits.published_open_max
        self._is_full = False

    @property
    def is_busy(self) -> bool:
        """Whether a response is pending."""
        return bool(self._pending)

    def publish(self, number: int, word: Publish) -> None:
        """Publish a batch.

        Raises:
            MainstemError: the whole batch is refused, nothing is stored.
        """
        keys = self._keys(word)
        now_ms = self._clock.wall_ms()
        publisher, exchange, pending = self._publisher, word.exchange, self._pending
        is_confirmed = number and word.durability != "none"
        batch = _Batch(number, self._token + 1, len(word.messages))
        self._token += len(word.messages)
        for at, wire in enumerate(word.messages):
            token = NOT_CONFIRMED
            if is_confirmed:
                token = batch.first + at
                pending[token] = batch
            key = keys[at]
            message = message_of(wire, key.encode(), now_ms)
            routing = routing_of(message, key, now_ms + wire.delay_ms if wire.delay_ms else 0)
            try:
                if len(routing.keys) > 1:
                    self._check_copies(exchange, routing)
                publisher.publish(exchange, message, routing, token)
            except MainstemError as error:
                pending.pop(token, None)
                if not at:
                    raise
                self._refuse(batch, at, error, is_confirmed=bool(is_confirmed))
        if self._link.is_limited():
            self._charge(sum(map(size_of, word.messages)))
        if len(pending) >= self._pending_max and not self._is_full:
            self._fill(is_full=True)

    def publish_run(self, word: Publish, numbers: Sequence[int], values: Sequence[bytes]) -> None:
        """Publish a run of frames with one message each that differ only in number and value.

        Raises:
            MainstemError: all of them are refused, nothing is stored.
        """
        key, pending = word.key, self._pending
        assert key is not None, "frames without a key have no shape"
        self._keys(word)
        now_ms = self._clock.wall_ms()
        first = self._token + 1
        self._token += len(numbers)
        tokens = range(first, first + len(numbers))
        pending.update(zip(tokens, numbers, strict=True))
        name = key.encode()
        messages = [Message(name, value, (), now_ms) for value in values]
        routing = Routing((key,), NO_HEADERS, 0, 0, 0)
        try:
            self._publisher.publish_many(word.exchange, messages, routing, first)
        except MainstemError:
            for token in tokens:
                pending.pop(token, None)
            raise
        if self._link.is_limited():
            self._charge(len(numbers) * size_of(word.messages[0]))
        if len(pending) >= self._pending_max and not self._is_full:
            self._fill(is_full=True)

    def close(self) -> None:
        """Stop sending responses; published messages are still stored."""
        self._pending.clear()
        self._publisher.close()

    def _keys(self, word: Publish) -> list[str]:
        """The routing key of each message; raises unless all are allowed."""
        permissions, exchange = self._link.permissions, word.exchange
        key, messages = word.key, word.messages
        if key is not None and not _has_keys(messages):
            permissions.publish(exchange, key)
            if len(key) > _KEY_BYTES_MAX or not key.isascii():
                _check_key(key)
            return [key] * len(messages)
        keys = [_key(wire, word) for wire in word.messages]
        for key in set(keys):
            permissions.publish(exchange, key)
            _check_key(key)
        return keys

    def _charge(self, size_bytes: int) -> None:
        wait_ms = self._link.charge(PRODUCE_BYTES, size_bytes)
        if wait_ms:
            self._link.backpressure.hold(wait_ms)

    def _check_copies(self, exchange: str, routing: Routing) -> None:
        for key in routing.keys[1:]:
            self._link.permissions.publish(exchange, key)

    def _settled(self, tokens: Sequence[int], settled: Settled) -> None:
        pending = self._pending
        is_refused = settled.error is not None
        is_plain = settled.status is PublishStatus.STORED and settled.is_routed
        stored: list[int] = []
        for token in tokens:
            batch = pending.pop(token, None)
            if batch is None:
                continue
            if isinstance(batch, int):
                if is_plain:
                    stored.append(batch)
                    continue
                batch = _Batch(batch, token, 1)
            if is_refused:
                batch.refuse(token - batch.first, settled.error)
            else:
                batch.stored += settled.status is PublishStatus.STORED
                if not settled.is_routed:
                    batch.mark_unrouted(token - batch.first)
            self._check_answered(batch)
        if stored:
            self._link.send_to_all(stored, _ALL_STORED[1])
        if self._is_full and len(pending) <= self._pending_max // 2:
            self._fill(is_full=False)

    def _refuse(self, batch: _Batch, at: int, error: MainstemError, *, is_confirmed: bool) -> None:
        if is_confirmed:
            batch.refuse(at, error)
            self._check_answered(batch)

    def _check_answered(self, batch: _Batch) -> None:
        batch.left -= 1
        if not batch.left:
            self._link.send_body(batch.number, batch.answer())

    def _fill(self, *, is_full: bool) -> None:
        """Pause reading while too many messages are not settled."""
        self._is_full = is_full
        self._link.backpressure.put(REASON, is_on=is_full)

    def _flow(self, may_publish: bool) -> None:  # noqa: FBT001 - a callback
        self._link.send(0, Flow(publish=may_publish))


def _has_keys(messages: Sequence[WireMessage]) -> bool:
    if len(messages) == 1:
        return messages[0].key is not None
    return any(wire.key is not None for wire in messages)


def _key(wire: WireMessage, word: Publish) -> str:
    if wire.key is not None:
        try:
            return wire.key.decode()
        except UnicodeDecodeError:
            raise InvalidRequest(
                ErrorCode.INVALID_ARGUMENT,
                "the key of a published message must be text",
                subject="key",
            ) from None
    if word.key is None and word.exchange == DEFAULT_EXCHANGE:
        raise InvalidRequest(
            ErrorCode.INVALID_ARGUMENT,
            "a message for the default exchange needs the name of a queue as its key",
            subject="key",
            remedy="set key or exchange",
        )
    return word.key or ""


def _check_key(key: str) -> None:
    if len(key.encode()) > _KEY_BYTES_MAX:
        raise InvalidRequest(
            ErrorCode.INVALID_ARGUMENT, f"a key has at most {_KEY_BYTES_MAX} bytes", subject="key"
        )
