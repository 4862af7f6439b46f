"""An open connection: its channels, and the state that they share.

Guarantee: however the connection ends, every channel is closed once, its deliveries return to
their queues, and the exclusive queues of the connection are deleted.
"""

import struct
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from mainstem.broker.api.security import Rights
from mainstem.model.errors import MainstemError
from mainstem.model.limits import MIB
from mainstem.protocols.amqp.channel import Channel
from mainstem.protocols.amqp.channel_link import AmqpService
from mainstem.protocols.amqp.content_assembly import Content, Publish, Unfinished, unexpected
from mainstem.protocols.amqp.errors import (
    CHANNEL_ERROR,
    FRAME_ERROR,
    NOT_ALLOWED,
    RESOURCE_ERROR,
    AmqpError,
    ChannelRefusal,
    ConnectionRefusal,
    translated,
)
from mainstem.protocols.amqp.outgoing import AmqpOutgoing
from mainstem.protocols.runner import Runner
from mainstem.security.quotas import QuotaMeter, Quotas
from mainstem.wire.amqp.basic_methods import BasicAck, BasicPublish
from mainstem.wire.amqp.connection_methods import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionUnblocked,
)
from mainstem.wire.amqp.frames import (
    BODY,
    END,
    HEAD,
    HEAD_BYTES,
    HEADER,
    METHOD,
    OVERHEAD_BYTES,
)
from mainstem.wire.amqp.method_codec import decode_method

if TYPE_CHECKING:
    from mainstem.wire.amqp.method import Method

BACKLOG_BYTES_MAX: Final = 8 * MIB
BLOCKED_CHECK_MS: Final = 20
BLOCKED: Final = "connection.blocked"
CLIENT_ID: Final = "amqp"  # the client id by which quotas identify AMQP connections
_PUBLISHES_REMEMBERED_MAX: Final = 1_024
_PUBLISH: Final = struct.pack(">HH", *BasicPublish.ID)
_ACK = struct.Struct(">HHQB")
ACK_BYTES: Final = _ACK.size
_SIZE = struct.Struct(">I").unpack_from
_HEAD = HEAD.unpack_from
# The head of a frame and the content header in it, up to the properties.
_HEADER_BYTES: Final = 19
_HEADER = struct.Struct(">BHIHHQ").unpack_from


class ConnectionTerms(Struct, frozen=True, kw_only=True):
    """The user of a connection and the parameters negotiated with it."""

    connection: str
    namespace: str
    user: str
    rights: Rights
    frame_max: int
    channel_max: int
    capabilities: frozenset[str]
    is_qos_for_channel: bool
    quotas: Quotas
    principal: str
    address: str


class AmqpConnection:
    """Serves the channels of an open connection. Implements ``ChannelLink``."""

    def __init__(
        self,
        terms: ConnectionTerms,
        service: AmqpService,
        out: AmqpOutgoing,
        runner: Runner,
        *,
        fail: Callable[[AmqpError, tuple[int, int]], None],
        pause: Callable[[bool], None],
    ) -> None:
        self.namespace = terms.namespace
        self.connection = terms.connection
        self.user = terms.user
        self.rights = terms.rights
        self.frame_max = terms.frame_max
        self.capabilities = terms.capabilities
        self.is_qos_for_channel = terms.is_qos_for_channel
        self.runner = runner
        self.write: Callable[[bytes], object] = out.write
        self.method: Callable[[int, Method], None] = out.method
        self.unsent_bytes: Callable[[], int] = out.unsent_bytes
        self._terms = terms
        self._meter: QuotaMeter | None = None
        self._channel_max = terms.channel_max
        self._service = service
        self._message_bytes_max = service.limits.message_bytes_max
        self._fail = fail
        self._pause = pause
        self._channels: dict[int, Channel] = {}
        # Channels that we closed and that wait for close-ok; True if the client closed it as well.
        self._closing: dict[int, bool] = {}
        self._unfinished = Unfinished(service.memory)
        self._publishes: dict[bytes, Publish] = {}
        self._backlog_bytes = 0
        self._overloaded = 0
        self._blockers: dict[Hashable, Callable[[], bool]] = {}
        self._is_closed = False
        self.is_paused = False

    def frame(self, kind: int, number: int, view: memoryview, start: int, until: int) -> None:
        """Handle a frame of a channel.

        Raises:
            ConnectionRefusal: the connection has to be closed.
            Malformed: the frame does not decode.
        """
        channel = self._channels.get(number)
        if channel is None:
            self._frame_of_none(kind, number, view, start, until)
            return
        try:
            if kind == METHOD:
                self._method(channel, bytes(view[start:until]))
                return
            if kind == HEADER:
                content = channel.assembly.header(view, start, until)
            elif kind == BODY:
                content = channel.assembly.body(view, start, until)
            else:
                raise ConnectionRefusal(FRAME_ERROR, f"unknown frame type {kind}")
            if content is not None:
                channel.take(content)
        except ChannelRefusal as refusal:
            self.refuse(number, refusal, BasicPublish.ID)

    def publish(self, number: int, buf: bytearray, view: memoryview, start: int, until: int) -> int:
        """Take a message that arrived as three whole frames, as nearly all small messages do.

        Returns:
            The end of its last frame; 0 if the bytes are anything else (nothing is consumed then).
        """
        channel = self._channels.get(number)
        end = start + OVERHEAD_BYTES + _SIZE(buf, start + 3)[0]
        if channel is None or channel.assembly.is_open or end + _HEADER_BYTES > until:
            return 0
        publish = self._publishes.get(bytes(view[start + HEAD_BYTES : end - 1]))
        if publish is None:
            return 0
        kind, same, size, content_class, _, body_bytes = _HEADER(buf, end)
        body = end + OVERHEAD_BYTES + size
        whole: int = body + OVERHEAD_BYTES + body_bytes
        if kind != HEADER or same != number or content_class != 60 or size < 14 or whole > until:
            return 0
        if _HEAD(buf, body) != (BODY, number, body_bytes) or body_bytes > self._message_bytes_max:
            return 0
        if not buf[end - 1] == buf[body - 1] == buf[whole - 1] == END:
            return 0
        properties = bytes(view[end + _HEADER_BYTES : body - 1])
        channel.take(Content(publish, properties, bytes(view[body + HEAD_BYTES : whole - 1])))
        return whole

    def acknowledge(self, number: int, buf: bytearray, start: int) -> bool:
        """Handle a frame of ``ACK_BYTES`` if it is ``basic.ack``, as most of that size are."""
        channel = self._channels.get(number)
        class_id, method_id, tag, flags = _ACK.unpack_from(buf, start + HEAD_BYTES)
        if channel is None or channel.assembly.is_open or (class_id, method_id) != BasicAck.ID:
            return False
        channel.acknowledge(tag, multiple=bool(flags & 1))
        return True

    @property
    def waits_for_space(self) -> bool:
        """Whether unstored messages would be lost with the connection, because the disk is full."""
        return any(channel.publishing.space.holds for channel in self._channels.values())

    def close(self) -> None:
        """Close the connection."""
        if self._is_closed:
            return
        self._is_closed = True
        for channel in list(self._channels.values()):
            channel.close()
        self._channels.clear()
        self._blockers.clear()
        self._service.queues.connection_gone(self.connection)

    # Requests of channels (``ChannelLink``)

    def charge(self, kind: str, size_bytes: int) -> int:
        """Charge usage to a quota; returns the time to wait, in milliseconds."""
        terms = self._terms
        if not terms.quotas.limited:
            return 0
        if self._meter is None:
            self._meter = terms.quotas.meter(terms.principal, CLIENT_ID, terms.address)
        return self._meter.charge(kind, size_bytes)

    def refuse(self, channel: int, refusal: AmqpError, numbers: tuple[int, int]) -> None:
        """Close the channel or the connection, and send the reason."""
        found = self._channels.pop(channel, None)
        if found is None:
            return
        has_closed = found.is_to_be_closed
        found.close()
        if not isinstance(refusal, ChannelRefusal):
            self._fail(refusal, numbers)
            return
        self._closing[channel] = has_closed
        self.method(
            channel,
            ChannelClose(
                reply_code=refusal.code,
                reply_text=refusal.reply_text,
                failed_class=numbers[0],
                failed_method=numbers[1],
            ),
        )
        if has_closed:
            self.method(channel, ChannelCloseOk())

    def end(self, channel: int) -> None:
        """Close a channel at the client's request."""
        self._channels.pop(channel).close()
        self.method(channel, ChannelCloseOk())

    def backlog_changed(self, size_bytes: int) -> None:
        """Add to (or subtract from) the bytes that busy channels buffer.

        Raises:
            ConnectionRefusal: the node buffers too much.
        """
        self._backlog_bytes += size_bytes
        if size_bytes < 0:
            self._service.memory.give_back(-size_bytes)
        elif not self._service.memory.add(size_bytes):
            raise ConnectionRefusal(RESOURCE_ERROR, "the memory for buffered frames is used up")
        self._check_pause()

    def overload_changed(self, change: int) -> None:
        """Change the number of overloaded channels by 1 or -1; reading stops while it is not 0."""
        self._overloaded += change
        self._check_pause()

    def blocked(
        self, reason: str, is_blocked: Callable[[], bool], key: Hashable | None = None
    ) -> None:
        """Block or unblock publishers; see ``ChannelLink``."""
        is_first = not self._blockers
        self._blockers[reason if key is None else key] = is_blocked
        if is_first:
            if BLOCKED in self.capabilities:
                self.method(0, ConnectionBlocked(reason=reason))
            self._check_pause()
            self.runner.later(BLOCKED_CHECK_MS, self._check_blocked)

    def _check_blocked(self) -> None:
        self._blockers = {
            key: is_blocked for key, is_blocked in self._blockers.items() if is_blocked()
        }
        if self._blockers:
            self.runner.later(BLOCKED_CHECK_MS, self._check_blocked)
        elif not self._is_closed:
            if BLOCKED in self.capabilities:
                self.method(0, ConnectionUnblocked())
            self._check_pause()

    def _check_pause(self) -> None:
        full = (
            bool(self._blockers) or self._overloaded > 0 or self._backlog_bytes > BACKLOG_BYTES_MAX
        )
        if full != self.is_paused and not self._is_closed:
            self.is_paused = full
            self._pause(full)

    # Methods

    def _method(self, channel: Channel, raw: bytes) -> None:
        if channel.assembly.is_open:
            raise unexpected("a method")
        publish = self._publishes.get(raw)
        if publish is not None:
            channel.assembly.begin(publish)
            return
        if raw.startswith(_PUBLISH):
            channel.assembly.begin(self._read_publish(raw))
            return
        method = decode_method(raw, 0, len(raw))
        if isinstance(method, ChannelOpen):
            raise ConnectionRefusal(CHANNEL_ERROR, "second 'channel.open' seen")
        channel.take(method)

    def _read_publish(self, raw: bytes) -> Publish:
        method = decode_method(raw, 0, len(raw))
        assert isinstance(method, BasicPublish), "checked by its class and method ids"
        publish = Publish(method.exchange, method.routing_key, method.mandatory, method.immediate)
        if len(self._publishes) >= _PUBLISHES_REMEMBERED_MAX:
            self._publishes.clear()
        self._publishes[raw] = publish
        return publish

    def _frame_of_none(
        self, kind: int, number: int, view: memoryview, start: int, until: int
    ) -> None:
        """Handle a frame of a channel that is not open, or whose close-ok is still missing."""
        method: Method | None = None
        if kind == METHOD:
            method = decode_method(view, start, until)
        has_closed = self._closing.get(number)
        if has_closed is False or (has_closed and not isinstance(method, ChannelOpen)):
            self._while_closing(number, method)
            return
        if not isinstance(method, ChannelOpen):
            raise ConnectionRefusal(CHANNEL_ERROR, "expected 'channel.open'")
        if number > self._channel_max:
            raise ConnectionRefusal(
                NOT_ALLOWED,
                f"channel number {number} is above the negotiated maximum ({self._channel_max})",
            )
        try:
            channel = Channel(number, self, self._service, self._unfinished)
        except MainstemError as error:
            found = translated(error, "", "", self.namespace)
            raise ConnectionRefusal(found.code, found.text) from error
        self._closing.pop(number, None)
        self._channels[number] = channel
        self.method(number, ChannelOpenOk())

    def _while_closing(self, number: int, method: "Method | None") -> None:
        """Wait for close-ok; if both sides closed the channel, both send one."""
        if isinstance(method, ChannelClose):
            self._closing[number] = True
            self.method(number, ChannelCloseOk())
        elif isinstance(method, ChannelCloseOk):
            del self._closing[number]
