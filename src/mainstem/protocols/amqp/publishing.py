"""Publishing on one channel: plain, confirmed, or in transactions.

    content ─▶ checks ─▶ Publisher ──settled──▶ basic.return (mandatory and nobody there)
                                               ─▶ basic.ack, or basic.nack if it was refused

All are told to us, asked for or not: verbs that count messages wait for what was published before
them on the same channel. Confirms follow in the order in which they settle; a run of them without a
gap is one confirm of ``multiple``. In a transaction contents wait for the commit, bounded by
``WAITING_BYTES_MAX``.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Final

from mainstem.broker.queues_api import Fate, Published
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.limits import KIB, MIB
from mainstem.protocols.amqp.contents import Content
from mainstem.protocols.amqp.convert import Parsed, message_of
from mainstem.protocols.amqp.link import AmqpService, Link
from mainstem.protocols.amqp.permissions import Permissions
from mainstem.protocols.amqp.refusal import (
    CONNECTION_FORCED,
    NO_ROUTE,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    RESOURCE_ERROR,
    ChannelRefusal,
    ConnectionRefusal,
    translated,
)
from mainstem.protocols.amqp.replies import PREFIX, REPLY_TO
from mainstem.security.quotas import PRODUCE_BYTES
from mainstem.wire.amqp.basic_methods import BasicAck, BasicNack, BasicPublish, BasicReturn
from mainstem.wire.amqp.frames import content_frames
from mainstem.wire.amqp.method_codec import encode_method
from mainstem.wire.amqp.properties import decode_properties, encode_properties

WAITING_BYTES_MAX: Final = 256 * MIB
# What a channel may have in flight, that is published and not stored, before it is read no further.
IN_FLIGHT_MAX: Final = 8_192
LARGE_BYTES: Final = 16 * KIB
LARGE_IN_FLIGHT_BYTES_MAX: Final = 32 * MIB
NO_SPACE_PAUSE_S: Final = 1.0


class Mode(Enum):
    """What a channel promises its publisher."""

    NORMAL = "none"
    CONFIRM = "confirm"
    TX = "tx"


class Publishing:
    """See the module. ``reply_name`` is where answers to this channel go, if it waits for any."""

    def __init__(
        self, channel: int, link: Link, service: AmqpService, permissions: Permissions
    ) -> None:
        self._channel = channel
        self._link = link
        self._service = service
        self._permissions = permissions
        self._publisher = service.queues.publisher(link.namespace, self._settled, self._flow)
        self._token = 0
        self._in_flight = 0
        self._large: dict[int, int] = {}  # token to bytes
        self._large_bytes = 0
        self._is_crowded = False
        self._waiters: list[Callable[[], None]] = []
        self._mandatory: dict[int, Content] = {}
        self._confirmed_from = 0  # the token before the first one that is confirmed
        self._settled_until = 0
        self._settled_beyond: set[int] = set()
        self._waiting: list[Content] = []
        self._waiting_bytes = 0
        self._uncommitted: set[int] = set()
        self._has_failed = False
        self._committed: Callable[[bool], None] | None = None
        self._is_closed = False
        self._is_held = False
        self.mode = Mode.NORMAL
        self.reply_name = ""

    def select(self, mode: Mode) -> None:
        """The channel changes its mode, once."""
        if self.mode not in (Mode.NORMAL, mode):
            raise ChannelRefusal(
                PRECONDITION_FAILED, f"cannot switch from {self.mode.value} to {mode.value} mode"
            )
        if mode is Mode.CONFIRM and self.mode is not mode:
            self._confirmed_from = self._settled_until = self._token
        self.mode = mode

    def publish(self, content: Content) -> None:
        """A whole message came."""
        publish = content.publish
        if publish.immediate:
            raise ConnectionRefusal(NOT_IMPLEMENTED, "immediate=true")
        if self.mode is not Mode.TX:
            self._publish(content)
            return
        self._waiting.append(content)
        self._waiting_bytes += content.size_bytes
        has_room = self._service.memory.add(content.size_bytes)
        if not has_room or self._waiting_bytes > WAITING_BYTES_MAX:
            raise ConnectionRefusal(RESOURCE_ERROR, "a transaction that is too large")

    def commit(self, committed: Callable[[bool], None]) -> None:
        """Publish all that waits; ``committed`` is told whether all of it was stored."""
        waiting = self._waiting
        self.rollback()
        self._has_failed = False
        self._committed = committed
        first = self._token + 1
        self._uncommitted.update(range(first, first + len(waiting)))
        for content in waiting:
            self._publish(content)
        self._check_committed()

    def rollback(self) -> None:
        """Forget all that waits."""
        self._service.memory.give_back(self._waiting_bytes)
        self._waiting, self._waiting_bytes = [], 0

    def close(self) -> None:
        """The channel ends; what it published goes on."""
        self._is_closed = True
        if self._is_crowded:
            self._link.crowded(-1)
        self._mandatory.clear()
        self.rollback()
        self._publisher.close()

    def _publish(self, content: Content) -> None:
        exchange, key, mandatory, _ = content.publish
        link, service = self._link, self._service
        parsed = service.converter.parsed(content.properties)
        if parsed.user_id is not None and parsed.user_id != link.user:
            raise ChannelRefusal(
                PRECONDITION_FAILED,
                f"user_id property set to '{parsed.user_id}' but authenticated user was "
                f"'{link.user}'",
            )
        if parsed.reply_to == REPLY_TO:
            parsed = self._with_reply_name(parsed)
        self._token += 1
        self._in_flight += 1
        token = self._token
        if not exchange and key.startswith(PREFIX):
            self._answer(content._replace(properties=parsed.properties), token)
            return
        self._permissions.publish(exchange, key)
        if mandatory:
            self._mandatory[token] = content
        message, routing = message_of(parsed, content.body, key, service.clock.wall_ms())
        try:
            self._publisher.publish(exchange, message, routing, token)
        except MainstemError as error:
            raise translated(error, "exchange", exchange, link.namespace) from error
        size = content.size_bytes
        if size > LARGE_BYTES or self._in_flight > IN_FLIGHT_MAX:
            self._check_crowd(token, size)
        wait_ms = link.charge(PRODUCE_BYTES, size)
        if wait_ms:
            until = service.clock.monotonic() + wait_ms / 1_000
            link.blocked("a quota", lambda: service.clock.monotonic() < until)

    def _flow(self, may_publish: bool) -> None:  # noqa: FBT001 - a callback
        """A queue makes its publishers wait, or no longer."""
        self._is_held = not may_publish
        if self._is_held and not self._is_closed:
            self._link.blocked(
                f"a queue that channel {self._channel} publishes to is full",
                lambda: self._is_held and not self._is_closed,
            )

    def _wait_for_space(self, refused: Published) -> None:
        """Where the disk has no room for messages, read no more from the publisher for a while."""
        if refused.error is None or refused.error.code is not ErrorCode.DISK_FULL:
            return
        clock = self._service.clock
        until = clock.monotonic() + NO_SPACE_PAUSE_S
        self._link.blocked("low on disk", lambda: clock.monotonic() < until)

    def _check_crowd(self, token: int, size: int) -> None:
        """Read no more from a publisher that is quicker than the disk."""
        if size > LARGE_BYTES:
            self._large[token] = size
            self._large_bytes += size
        is_full = self._in_flight > IN_FLIGHT_MAX or self._large_bytes > LARGE_IN_FLIGHT_BYTES_MAX
        if is_full and not self._is_crowded:
            self._is_crowded = True
            self._link.crowded(1)

    def _thin_out(self, tokens: Sequence[int]) -> None:
        """Read on once half of what was too much is stored."""
        if not self._is_crowded and not self._large:
            return
        for token in tokens if self._large else ():
            self._large_bytes -= self._large.pop(token, 0)
        is_half = (
            self._in_flight <= IN_FLIGHT_MAX // 2
            and self._large_bytes <= LARGE_IN_FLIGHT_BYTES_MAX // 2
        )
        if self._is_crowded and is_half:
            self._is_crowded = False
            self._link.crowded(-1)

    def _with_reply_name(self, parsed: Parsed) -> Parsed:
        """Let a request say where its answer goes."""
        if not self.reply_name:
            raise ChannelRefusal(PRECONDITION_FAILED, "fast reply consumer does not exist")
        raw = parsed.properties
        found = decode_properties(raw, 0, len(raw), headers_encoded=True)
        found.reply_to = self.reply_name
        return self._service.converter.parsed(encode_properties(found))

    def _answer(self, content: Content, token: int) -> None:
        is_there = self._service.replies.deliver(content)
        if content.publish.mandatory:
            self._mandatory[token] = content
        fate = Fate.STORED if is_there else Fate.NOBODY
        # In its turn: what was published before may be answered in this very moment.
        self._link.runner.soon(partial(self._settled, [token], Published(fate, is_there)))

    def when_settled(self, call: Callable[[], None]) -> None:
        """Call back once everything that was published so far is in its queues, or refused."""
        if self._in_flight:
            self._waiters.append(call)
        else:
            call()

    @property
    def is_settled(self) -> bool:
        """Whether nothing is in flight."""
        return not self._in_flight

    def _settled(self, tokens: Sequence[int], published: Published) -> None:
        if self._is_closed:
            return
        self._in_flight -= len(tokens)
        self._thin_out(tokens)
        is_refused = published.fate is Fate.REFUSED
        if is_refused:
            self._wait_for_space(published)
        if self._mandatory:
            for token in tokens:
                content = self._mandatory.pop(token, None)
                if content is not None and not published.is_routed and not is_refused:
                    self._return(content)
        if self.mode is Mode.CONFIRM:
            self._confirm(tokens, is_refused=is_refused)
        elif self.mode is Mode.TX:
            self._uncommitted.difference_update(tokens)
            self._has_failed |= is_refused
            self._check_committed()
        if self._waiters and not self._in_flight:
            waiters, self._waiters = self._waiters, []
            for call in waiters:
                call()
        _leave_if_moved(self._link, self._channel, published.error)

    def _confirm(self, tokens: Sequence[int], *, is_refused: bool) -> None:
        first, last = tokens[0], tokens[-1]
        in_a_row = first == self._settled_until + 1 and last - first + 1 == len(tokens)
        if in_a_row:
            many = len(tokens) > 1
            self._tell(last, multiple=many, is_refused=is_refused)
            self._settled_until = last
        else:
            for token in tokens:
                self._tell(token, multiple=False, is_refused=is_refused)
            self._settled_beyond.update(tokens)
        while self._settled_until + 1 in self._settled_beyond:
            self._settled_until += 1
            self._settled_beyond.discard(self._settled_until)

    def _tell(self, tag: int, *, multiple: bool, is_refused: bool) -> None:
        kind = BasicNack if is_refused else BasicAck
        tag -= self._confirmed_from
        if tag > 0:
            self._link.method(self._channel, kind(delivery_tag=tag, multiple=multiple))

    def _return(self, content: Content) -> None:
        exchange, key, _, _ = content.publish
        method = BasicReturn(
            reply_code=NO_ROUTE, reply_text="NO_ROUTE", exchange=exchange, routing_key=key
        )
        link = self._link
        link.write(
            content_frames(
                self._channel,
                encode_method(method),
                content.properties,
                content.body,
                link.frame_max,
            )
        )

    def _check_committed(self) -> None:
        if self._committed is not None and not self._uncommitted:
            committed, self._committed = self._committed, None
            committed(not self._has_failed)


def _leave_if_moved(link: Link, channel: int, error: MainstemError | None) -> None:
    """End the connection if another node serves queues: a new one is passed on to it.

    A client that only publishes has no consumer whose end would tell it, and would be refused for
    as long as it stays connected here.
    """
    if error is not None and error.code is ErrorCode.NOT_COORDINATOR:
        refusal = ConnectionRefusal(CONNECTION_FORCED, error.cause or "queues have moved")
        link.refuse(channel, refusal, BasicPublish.ID)
