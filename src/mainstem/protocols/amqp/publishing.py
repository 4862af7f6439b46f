"""Publishing on one channel: plain, confirmed, or in transactions.

    content ─▶ checks ─▶ Publisher ──settled──▶ basic.return (mandatory and not routed)
                                               ─▶ PublisherConfirms: basic.ack or basic.nack

Every result is reported to this module, confirmed or not: methods that count messages wait for
earlier publishes on the same channel. In a transaction, contents are buffered until the commit,
limited by ``WAITING_BYTES_MAX``.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Final

from mainstem.broker.api.queues import Published, PublishStatus
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.limits import KIB, MIB
from mainstem.protocols.amqp.channel_link import AmqpService, ChannelLink
from mainstem.protocols.amqp.content_assembly import Content
from mainstem.protocols.amqp.convert import Parsed, message_of
from mainstem.protocols.amqp.direct_reply import PREFIX, REPLY_TO
from mainstem.protocols.amqp.disk_space_wait import DiskSpaceWait
from mainstem.protocols.amqp.errors import (
    CONNECTION_FORCED,
    NO_ROUTE,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    RESOURCE_ERROR,
    AmqpError,
    ChannelRefusal,
    ConnectionRefusal,
    translated,
)
from mainstem.protocols.amqp.publisher_confirms import PublisherConfirms
from mainstem.protocols.permissions import ClientPermissions
from mainstem.security.quotas import PRODUCE_BYTES
from mainstem.wire.amqp.basic_methods import BasicPublish, BasicReturn
from mainstem.wire.amqp.frames import content_frames
from mainstem.wire.amqp.method_codec import encode_method
from mainstem.wire.amqp.properties import decode_properties, encode_properties

WAITING_BYTES_MAX: Final = 256 * MIB
# Limits of published but not yet stored messages of a channel, beyond which reading stops.
IN_FLIGHT_MAX: Final = 8_192
LARGE_BYTES: Final = 16 * KIB
LARGE_IN_FLIGHT_BYTES_MAX: Final = 32 * MIB


class Mode(Enum):
    """The acknowledgement mode of a channel."""

    NORMAL = "none"
    CONFIRM = "confirm"
    TX = "tx"


class AmqpPublishing:
    """Publishes the messages of one channel: plain, confirmed or transacted.

    ``reply_name`` is the reply name of this channel, if it consumes direct replies.
    """

    def __init__(
        self, channel: int, link: ChannelLink, service: AmqpService, permissions: ClientPermissions
    ) -> None:
        self._channel = channel
        self._link = link
        self._service = service
        self._permissions = permissions
        self._publisher = service.queues.publisher(link.namespace, self._settled, self._flow)
        self._token = 0
        self._in_flight = 0
        self._large: dict[int, int] = {}  # token to size in bytes
        self._large_bytes = 0
        self._is_overloaded = False
        self._waiters: list[Callable[[], None]] = []
        self._mandatory: dict[int, Content] = {}
        self._confirms = PublisherConfirms(partial(link.method, channel))
        self._waiting: list[Content] = []
        self._waiting_bytes = 0
        self._uncommitted: set[int] = set()
        self._has_failed = False
        self._committed: Callable[[bool], None] | None = None
        self._is_closed = False
        self._is_held = False
        self.space = DiskSpaceWait(channel, link, service, self._publish_again)
        self.mode = Mode.NORMAL
        self.reply_name = ""

    def select(self, mode: Mode) -> None:
        """Switch from normal to confirm or transaction mode."""
        if self.mode not in (Mode.NORMAL, mode):
            raise ChannelRefusal(
                PRECONDITION_FAILED, f"cannot switch from {self.mode.value} to {mode.value} mode"
            )
        if mode is Mode.CONFIRM and self.mode is not mode:
            self._confirms.select(self._token)
        self.mode = mode

    def publish(self, content: Content) -> None:
        """Publish a message, or buffer it in a transaction."""
        publish = content.publish
        if publish.immediate:
            raise ConnectionRefusal(NOT_IMPLEMENTED, "immediate=true")
        if self.mode is Mode.NORMAL:
            if self.space.is_waiting or not self._service.has_space():
                self._token += 1
                self._in_flight += 1
                self.space.wait(self._token, content)
                return
            self._publish(content, is_kept=True)
            return
        if self.mode is Mode.CONFIRM:
            self._publish(content)
            return
        self._waiting.append(content)
        self._waiting_bytes += content.size_bytes
        has_space = self._service.memory.add(content.size_bytes)
        if not has_space or self._waiting_bytes > WAITING_BYTES_MAX:
            raise ConnectionRefusal(RESOURCE_ERROR, "transaction too large")

    def commit(self, committed: Callable[[bool], None]) -> None:
        """Publish the buffered messages; calls ``committed`` with whether all were stored."""
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
        """Discard the buffered messages."""
        self._service.memory.give_back(self._waiting_bytes)
        self._waiting, self._waiting_bytes = [], 0

    def close(self) -> None:
        """Close the channel; messages already published are still stored."""
        self._is_closed = True
        if self._is_overloaded:
            self._link.overload_changed(-1)
        self._mandatory.clear()
        self.rollback()
        self.space.close()
        self._publisher.close()

    def _publish(self, content: Content, *, is_kept: bool = False) -> None:
        """Publish; ``is_kept``: refusals are not reported, so the message is kept until stored."""
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
        if is_kept:
            self.space.sent(token, content)
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
            self._check_overload(token, size)
        wait_ms = link.charge(PRODUCE_BYTES, size)
        if wait_ms:
            until = service.clock.monotonic() + wait_ms / 1_000
            link.blocked("a quota", lambda: service.clock.monotonic() < until)

    def _flow(self, may_publish: bool) -> None:  # noqa: FBT001 - a callback
        """A queue blocks its publishers, or no longer does."""
        self._is_held = not may_publish
        if self._is_held and not self._is_closed:
            self._link.blocked(
                f"a queue that channel {self._channel} publishes to is full",
                lambda: self._is_held and not self._is_closed,
            )

    def _publish_again(self, contents: Sequence[Content]) -> None:
        """Publish messages that waited for disk space."""
        self._in_flight -= len(contents)
        for content in contents:
            try:
                self._publish(content, is_kept=True)
            except AmqpError as refusal:  # the exchange was deleted, or the permission revoked
                self._link.refuse(self._channel, refusal, BasicPublish.ID)
                return

    def _without_waiting(self, tokens: Sequence[int], refused: Published) -> Sequence[int]:
        """Of messages refused by a full disk, return those that do not wait for space.

        Unconfirmed messages wait; for the others the publisher gets a refusal.
        """
        if refused.error is None or refused.error.code is not ErrorCode.DISK_FULL:
            return tokens
        try:
            held = set(self.space.refused(tokens))
        except AmqpError as refusal:
            self._link.refuse(self._channel, refusal, BasicPublish.ID)
            return ()
        self.space.block()
        for token in held if self._mandatory else ():
            self._mandatory.pop(token, None)
        self._release(list(held))
        return [token for token in tokens if token not in held]

    def _check_overload(self, token: int, size: int) -> None:
        """Stop reading from a publisher that is faster than the disk."""
        if size > LARGE_BYTES:
            self._large[token] = size
            self._large_bytes += size
        is_full = self._in_flight > IN_FLIGHT_MAX or self._large_bytes > LARGE_IN_FLIGHT_BYTES_MAX
        if is_full and not self._is_overloaded:
            self._is_overloaded = True
            self._link.overload_changed(1)

    def _release(self, tokens: Sequence[int]) -> None:
        """Resume reading once the messages in flight have fallen to half the limit."""
        if not self._is_overloaded and not self._large:
            return
        for token in tokens if self._large else ():
            self._large_bytes -= self._large.pop(token, 0)
        is_half = (
            self._in_flight <= IN_FLIGHT_MAX // 2
            and self._large_bytes <= LARGE_IN_FLIGHT_BYTES_MAX // 2
        )
        if self._is_overloaded and is_half:
            self._is_overloaded = False
            self._link.overload_changed(-1)

    def _with_reply_name(self, parsed: Parsed) -> Parsed:
        """Replace the pseudo reply queue in a request by the reply name of this channel."""
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
        status = PublishStatus.STORED if is_there else PublishStatus.NOBODY
        # Deferred, because earlier publishes may settle in the same turn.
        self._link.runner.soon(partial(self._settled, [token], Published(status, is_there)))

    def when_settled(self, call: Callable[[], None]) -> None:
        """Call back once everything published so far is in its queues, or refused."""
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
        if published.status is PublishStatus.UNKNOWN and self.mode is not Mode.NORMAL:
            # Neither ack nor nack would be certain; a closed connection leaves the outcome open.
            _end_connection(self._link, self._channel, published.error)
            return
        is_refused = published.status is PublishStatus.REFUSED
        if is_refused:
            tokens = self._without_waiting(tokens, published)
            if not tokens:
                return
        self.space.settled(tokens)
        self._in_flight -= len(tokens)
        self._release(tokens)
        if self._mandatory:
            self._return_unrouted(tokens, is_unrouted=not (published.is_routed or is_refused))
        if self.mode is Mode.CONFIRM:
            self._confirms.settled(tokens, is_refused=is_refused)
        elif self.mode is Mode.TX:
            self._uncommitted.difference_update(tokens)
            self._has_failed |= is_refused
            self._check_committed()
        if self._waiters and not self._in_flight:
            waiters, self._waiters = self._waiters, []
            _call_all(waiters)
        _leave_if_moved(self._link, self._channel, published.error)

    def _return_unrouted(self, tokens: Sequence[int], *, is_unrouted: bool) -> None:
        for token in tokens:
            content = self._mandatory.pop(token, None)
            if content is not None and is_unrouted:
                _return(self._link, self._channel, content)

    def _check_committed(self) -> None:
        if self._committed is not None and not self._uncommitted:
            committed, self._committed = self._committed, None
            committed(not self._has_failed)


def _call_all(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


def _return(link: ChannelLink, channel: int, content: Content) -> None:
    exchange, key, _, _ = content.publish
    method = BasicReturn(
        reply_code=NO_ROUTE, reply_text="NO_ROUTE", exchange=exchange, routing_key=key
    )
    frames = content_frames(
        channel, encode_method(method), content.properties, content.body, link.frame_max
    )
    link.write(frames)


def _leave_if_moved(link: ChannelLink, channel: int, error: MainstemError | None) -> None:
    """Close the connection if another node serves queues: a new one is forwarded to that node.

    A client that only publishes has no consumer that would be cancelled, and would be refused for
    as long as it stays connected here.
    """
    if error is not None and error.code is ErrorCode.NOT_COORDINATOR:
        _end_connection(link, channel, error)


def _end_connection(link: ChannelLink, channel: int, error: MainstemError | None) -> None:
    cause = "" if error is None else error.cause
    refusal = ConnectionRefusal(CONNECTION_FORCED, cause or "queues are served by another node")
    link.refuse(channel, refusal, BasicPublish.ID)
