"""One native connection: frames, login, dispatch of requests, heartbeats, close.

    connect ─▶ (challenge ─ respond)* ─▶ connected ─▶ publish, subscribe, … ─▶ goodbye

Pure: asynchronous work is passed to the runner. Before login a client may send only small frames,
and nothing is buffered for it. A malformed frame ends the connection, with a ``goodbye`` that has
the reason; an invalid body is answered with an error, since the next frame can still be read.
"""

import logging
from enum import IntEnum, auto
from typing import Any, Final

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.protocols.backpressure import Backpressure
from mainstem.protocols.listener_policy import IncomingConnection, ListenerPolicy
from mainstem.protocols.login_expiry import LoginExpiry
from mainstem.protocols.native.errors import error_of
from mainstem.protocols.native.link import NativeConnectionLink, NativeService
from mainstem.protocols.native.login_service import NativeLogin
from mainstem.protocols.native.outgoing import NativeOutgoing
from mainstem.protocols.native.publish_shape import PublishShape, shape_of
from mainstem.protocols.native.request_dispatch import RequestDispatcher
from mainstem.protocols.permissions import ClientPermissions
from mainstem.protocols.runner import Runner
from mainstem.protocols.sasl_login_service import LoginStep
from mainstem.protocols.send_batch import SendBatch
from mainstem.protocols.session import BufferingSender
from mainstem.security.principals import NOBODY, Identity
from mainstem.wire.native.answers import Challenge, Connected, Goodbye
from mainstem.wire.native.frames import (
    COMPRESSIONS,
    COUNTED_BYTES,
    HEAD,
    HEAD_BYTES,
    LENGTH_BYTES,
    LOGIN_FRAME_BYTES_MAX,
    NONE,
    PROTOCOL_VERSION,
    MalformedFrame,
    check_length,
    plain_body,
)
from mainstem.wire.native.requests import Connect, Publish, Respond, read_request
from mainstem.wire.native.words import NotAWord, Word

log = logging.getLogger(__name__)

HEARTBEAT_MS_MIN: Final = 1_000
HEARTBEAT_MS_MAX: Final = 600_000
MISSED_MAX: Final = 2
_head_at = HEAD.unpack_from


class NativeConnectionState(IntEnum):
    """The state of a connection."""

    NEW = auto()
    CHECKING = auto()
    ASKED = auto()
    OPENING = auto()
    RUNNING = auto()
    DONE = auto()


class NativeSession:
    """Serves one native connection: login, requests, heartbeats, close."""

    def __init__(
        self,
        sender: BufferingSender,
        incoming: IncomingConnection,
        policy: ListenerPolicy,
        service: NativeService,
        runner: Runner,
    ) -> None:
        self._sender = sender
        self._incoming = incoming
        self._policy = policy
        self._service = service
        self._runner = runner
        self._out = NativeOutgoing(SendBatch(sender, runner.soon))
        self._login = NativeLogin(policy.security, incoming)
        self._state = NativeConnectionState.NEW
        self._limit_bytes = LOGIN_FRAME_BYTES_MAX
        self._compression = NONE
        self._connect = Connect()
        self._number = 0
        self._conversation: RequestDispatcher | None = None
        self._backpressure = Backpressure(sender, runner)
        self._has_received = True
        self._silent = 0
        self._shape: PublishShape | None = None  # of consecutive publishes
        self._heartbeat_ms = service.limits.heartbeat_ms

    @property
    def is_logged_in(self) -> bool:
        """Whether the client has logged in."""
        return self._state >= NativeConnectionState.RUNNING

    @property
    def is_busy(self) -> bool:
        """Whether a response is pending."""
        return self._conversation is not None and self._conversation.is_busy

    # Bytes

    def receive(self, buf: bytearray, view: memoryview, start: int, until: int) -> tuple[int, int]:
        """Serve whole frames of ``buf[start:until]``; (position, bytes the next frame needs)."""
        self._has_received = True
        need = HEAD_BYTES
        try:
            start, need = self._frames(buf, view, start, until)
        except MalformedFrame as error:
            self._service.metrics.malformed_frames += 1
            self.end(InvalidRequest(ErrorCode.INVALID_REQUEST, str(error)))
        self._out.flush()
        return (until, HEAD_BYTES) if self._state is NativeConnectionState.DONE else (start, need)

    def _frames(self, buf: bytearray, view: memoryview, start: int, until: int) -> tuple[int, int]:
        last = 0
        while until - start >= HEAD_BYTES and self._state is not NativeConnectionState.DONE:
            length, flags, number = _head_at(buf, start)
            shape = self._shape
            if shape is not None and length == shape.length:
                taken = self._take_run(shape, buf, view, start, until)
                if taken:
                    start += taken
                    continue
            if not COUNTED_BYTES <= length <= self._limit_bytes:
                check_length(length, self._limit_bytes)
            end = start + LENGTH_BYTES + length
            if end > until:
                return start, LENGTH_BYTES + length
            body = view[start + HEAD_BYTES : end]
            if flags:
                body = plain_body(flags, body, self._compression, self._limit_bytes)
            try:
                word = read_request(body)
            except NotAWord as error:
                self._not_understood(number, str(error))
            else:
                self._serve(number, word)
                if length == last and type(word) is Publish and not flags:
                    # The second publish of this length: more are likely to follow.
                    self._shape = shape_of(length, body, word)
            start, last = end, length
        return start, HEAD_BYTES

    def _take_run(
        self, shape: PublishShape, buf: bytearray, view: memoryview, start: int, until: int
    ) -> int:
        """Publish a run of frames of one shape; returns their size in bytes."""
        numbers, values = shape.take(buf, view, start, until)
        if numbers and self._conversation is not None:
            self._conversation.publish_run(shape.word, numbers, values)
            return shape.bytes_of(len(numbers))
        return 0

    def _not_understood(self, number: int, cause: str) -> None:
        error = InvalidRequest(ErrorCode.INVALID_REQUEST, f"invalid request: {cause}")
        if self._state is NativeConnectionState.RUNNING:
            self._out.send(number, error_of(error))
        else:
            self.end(error)

    def _serve(self, number: int, word: Word) -> None:
        if self._conversation is not None:
            self._conversation.serve(number, word)
        elif self._state is NativeConnectionState.NEW and isinstance(word, Connect):
            self._greet(number, word)
        elif self._state is NativeConnectionState.ASKED and isinstance(word, Respond):
            self._number = number
            self._check(self._login.respond(word.data))
        else:
            self.end(
                InvalidRequest(ErrorCode.ILLEGAL_LOGIN_STATE, "the first request must be connect")
            )

    # Login

    def _greet(self, number: int, word: Connect) -> None:
        if word.version < PROTOCOL_VERSION:
            self.end(
                InvalidRequest(
                    ErrorCode.UNSUPPORTED_VERSION, f"version {PROTOCOL_VERSION} is required"
                )
            )
            return
        self._connect, self._number = word, number
        self._check(self._login.begin(word.mechanism, word.response))

    def _check(self, work: Any) -> None:
        self._state = NativeConnectionState.CHECKING
        self._runner.run(work, self._checked)

    def _checked(self, step: LoginStep | None, error: BaseException | None) -> None:
        if self._state is not NativeConnectionState.CHECKING:
            return
        if error is not None or step is None:
            self._refuse(error)
        elif step.identity is None:
            self._state = NativeConnectionState.ASKED
            self._out.send(self._number, Challenge(data=step.data))
        else:
            self._open(step.identity, step.data)

    def _open(self, identity: Identity, data: bytes) -> None:
        """Wait until the queues are loaded, then accept requests."""
        self._state = NativeConnectionState.OPENING

        def ready(_: object, error: BaseException | None) -> None:
            if self._state is not NativeConnectionState.OPENING:
                return
            if error is not None:
                self._refuse(error)
            else:
                self._let_in(identity, data)

        self._runner.run(self._service.broker.queues.ready(), ready)

    def _let_in(self, identity: Identity, data: bytes) -> None:
        service, word = self._service, self._connect
        chosen = next((name for name in word.compression if name in COMPRESSIONS), "none")
        if word.heartbeat_ms:
            asked = max(HEARTBEAT_MS_MIN, min(word.heartbeat_ms, HEARTBEAT_MS_MAX))
            self._heartbeat_ms = asked
        self._limit_bytes = service.limits.frame_bytes_max
        self._compression = COMPRESSIONS[chosen]
        self._conversation = RequestDispatcher(self._link(identity), service)
        self._state = NativeConnectionState.RUNNING
        self._out.send(
            self._number,
            Connected(
                version=PROTOCOL_VERSION,
                server=f"mainstem {service.version}",
                cluster=service.cluster_name,
                node=service.broker.node.id,
                user="" if identity is NOBODY else identity.principal.name,
                compression=chosen,
                frame_bytes_max=self._limit_bytes,
                heartbeat_ms=self._heartbeat_ms,
                data=data,
            ),
        )
        # The message that announces the compression is itself not compressed.
        self._out.compression = self._compression
        self._runner.later(self._heartbeat_ms, self._listen)
        over = InvalidRequest(ErrorCode.TOKEN_EXPIRED, "the login has expired")
        LoginExpiry(self._runner, service.clock, lambda: self.end(over)).note(identity)

    def _link(self, identity: Identity) -> NativeConnectionLink:
        incoming, word, security = self._incoming, self._connect, self._policy.security
        meter = security.quotas.meter(identity.principal.name, word.client, incoming.address)
        rights = self._policy.rights(identity, incoming.address)
        return NativeConnectionLink(
            namespace=word.namespace,
            connection=self._service.new_name(),
            permissions=ClientPermissions(rights, word.namespace),
            runner=self._runner,
            send=self._out.send,
            send_body=self._out.send_body,
            send_to_all=self._out.send_to_all,
            unsent_bytes=self._out.unsent_bytes,
            is_limited=lambda: security.quotas.limited,
            charge=meter.charge,
            backpressure=self._backpressure,
        )

    def _refuse(self, error: BaseException | None) -> None:
        """Refuse the login with an error and close the connection."""
        self._out.send(self._number, error_of(error))
        self._finish()

    # Heartbeats and close

    def _listen(self) -> None:
        """End the connection if the client has sent nothing for too long."""
        if self._state is not NativeConnectionState.RUNNING:
            return
        self._silent = 0 if self._has_received or self._backpressure.is_on else self._silent + 1
        self._has_received = False
        if self._silent >= MISSED_MAX:
            self.end(Unavailable(ErrorCode.TIMED_OUT, "no heartbeat from the client"))
        else:
            self._runner.later(self._heartbeat_ms, self._listen)

    def send_goodbye(self, grace_ms: int) -> None:
        """Notify the client that the node stops soon, so that it can finish."""
        if self._state is NativeConnectionState.RUNNING:
            leaving = Unavailable(
                ErrorCode.SHUTTING_DOWN, "the node is shutting down", remedy="connect again"
            )
            self._out.send(0, Goodbye(error=error_of(leaving), grace_ms=grace_ms))
            self._out.flush()

    def end(self, error: MainstemError) -> None:
        """Send the reason to the client and close the connection."""
        if self._state is NativeConnectionState.DONE:
            return
        peer = self._incoming
        log.info("native connection %s:%d closed: %s", peer.address, peer.port, error.cause)
        self._out.send(0, Goodbye(error=error_of(error)))
        self._finish()

    def closed(self) -> None:
        """Return unsettled deliveries and delete exclusive queues: the connection is closed."""
        self._state = NativeConnectionState.DONE
        if self._conversation is not None:
            conversation, self._conversation = self._conversation, None
            conversation.close()

    def _finish(self) -> None:
        self.closed()
        self._out.flush()
        self._sender.close()
