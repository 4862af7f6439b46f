"""One native connection: bytes in, the login, words to whom they concern, silence, the end.

    connect ─▶ (challenge ─ respond)* ─▶ connected ─▶ publish, subscribe, … ─▶ goodbye

Pure: whatever takes time is handed to the runner. Before it is in, a client may send small frames
only, and nothing is kept for it. A frame that is none ends the connection, with a word why; a body
that is not understood is answered as such, since the next frame may well be.
"""

import logging
from collections.abc import Callable
from enum import IntEnum, auto
from typing import Any, Final

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.protocols.entrance import Arrival, Entrance
from mainstem.protocols.native.brake import Brake
from mainstem.protocols.native.conversation import Conversation
from mainstem.protocols.native.errors import error_of
from mainstem.protocols.native.link import Link, NativeService
from mainstem.protocols.native.login_service import Login, LoginStep
from mainstem.protocols.native.outgoing import Outgoing
from mainstem.protocols.native.permissions import Permissions
from mainstem.protocols.native.runner import Runner
from mainstem.protocols.native.runs import Shape, shape_of
from mainstem.protocols.session import Sender
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
    Malformed,
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


class State(IntEnum):
    """How far a connection is."""

    NEW = auto()
    CHECKING = auto()
    ASKED = auto()
    OPENING = auto()
    RUNNING = auto()
    DONE = auto()


class NativeSession:
    """See the module's text."""

    def __init__(
        self,
        sender: Sender,
        arrival: Arrival,
        entrance: Entrance,
        service: NativeService,
        runner: Runner,
        unsent: Callable[[], int],
    ) -> None:
        self._sender = sender
        self._arrival = arrival
        self._entrance = entrance
        self._service = service
        self._runner = runner
        self._out = Outgoing(sender, runner, unsent)
        self._login = Login(entrance.security, arrival)
        self._state = State.NEW
        self._limit_bytes = LOGIN_FRAME_BYTES_MAX
        self._compression = NONE
        self._connect = Connect()
        self._number = 0
        self._conversation: Conversation | None = None
        self._brake = Brake(sender, runner)
        self._heard = True
        self._silent = 0
        self._shape: Shape | None = None  # of publishes that come one after the other
        self._heartbeat_ms = service.limits.heartbeat_ms

    @property
    def is_in(self) -> bool:
        """Whether the client is through with the login."""
        return self._state >= State.RUNNING

    @property
    def is_busy(self) -> bool:
        """Whether an answer is owed."""
        return self._conversation is not None and self._conversation.is_busy

    # Bytes

    def receive(self, buf: bytearray, view: memoryview, start: int, until: int) -> tuple[int, int]:
        """Serve the whole frames in ``buf[start:until]``; how far, and what the next one needs."""
        self._heard = True
        need = HEAD_BYTES
        try:
            start, need = self._frames(buf, view, start, until)
        except Malformed as error:
            self._service.metrics.malformed_frames += 1
            self.end(InvalidRequest(ErrorCode.INVALID_REQUEST, str(error)))
        self._out.flush()
        return (until, HEAD_BYTES) if self._state is State.DONE else (start, need)

    def _frames(self, buf: bytearray, view: memoryview, start: int, until: int) -> tuple[int, int]:
        last = 0
        while until - start >= HEAD_BYTES and self._state is not State.DONE:
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
                    # The second of one length: more of them may follow.
                    self._shape = shape_of(length, body, word)
            start, last = end, length
        return start, HEAD_BYTES

    def _take_run(
        self, shape: Shape, buf: bytearray, view: memoryview, start: int, until: int
    ) -> int:
        """Publish what comes in frames of one shape; how many bytes they took."""
        numbers, values = shape.take(buf, view, start, until)
        if numbers and self._conversation is not None:
            self._conversation.publish_run(shape.word, numbers, values)
            return shape.bytes_of(len(numbers))
        return 0

    def _not_understood(self, number: int, cause: str) -> None:
        error = InvalidRequest(ErrorCode.INVALID_REQUEST, f"not understood: {cause}")
        if self._state is State.RUNNING:
            self._out.say(number, error_of(error))
        else:
            self.end(error)

    def _serve(self, number: int, word: Word) -> None:
        if self._conversation is not None:
            self._conversation.serve(number, word)
        elif self._state is State.NEW and isinstance(word, Connect):
            self._greet(number, word)
        elif self._state is State.ASKED and isinstance(word, Respond):
            self._number = number
            self._check(self._login.go_on(word.data))
        else:
            self.end(InvalidRequest(ErrorCode.ILLEGAL_LOGIN_STATE, "the first word is connect"))

    # Coming in

    def _greet(self, number: int, word: Connect) -> None:
        if word.version < PROTOCOL_VERSION:
            self.end(
                InvalidRequest(
                    ErrorCode.UNSUPPORTED_VERSION, f"version {PROTOCOL_VERSION} is spoken here"
                )
            )
            return
        self._connect, self._number = word, number
        self._check(self._login.begin(word.mechanism, word.response))

    def _check(self, work: Any) -> None:
        self._state = State.CHECKING
        self._runner.run(work, self._checked)

    def _checked(self, step: LoginStep | None, error: BaseException | None) -> None:
        if self._state is not State.CHECKING:
            return
        if error is not None or step is None:
            self._refuse(error)
        elif step.identity is None:
            self._state = State.ASKED
            self._out.say(self._number, Challenge(data=step.data))
        else:
            self._open(step.identity, step.data)

    def _open(self, identity: Identity, data: bytes) -> None:
        """Queues may have to be loaded before anybody can use them."""
        self._state = State.OPENING

        def ready(_: object, error: BaseException | None) -> None:
            if self._state is not State.OPENING:
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
        self._conversation = Conversation(self._link(identity), service)
        self._state = State.RUNNING
        self._out.say(
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
        # The word that tells about compression is itself not compressed.
        self._out.compression = self._compression
        self._runner.later(self._heartbeat_ms, self._listen)
        if identity.until_ms is not None:
            left_ms = max(0, identity.until_ms - service.clock.wall_ms())
            over = InvalidRequest(ErrorCode.TOKEN_EXPIRED, "the login is over")
            self._runner.later(left_ms, lambda: self.end(over))

    def _link(self, identity: Identity) -> Link:
        arrival, word, security = self._arrival, self._connect, self._entrance.security
        meter = security.quotas.meter(identity.principal.name, word.client, arrival.address)
        rights = self._entrance.rights(identity, arrival)
        return Link(
            namespace=word.namespace,
            connection=self._service.new_name(),
            permissions=Permissions(rights, word.namespace),
            runner=self._runner,
            say=self._out.say,
            say_body=self._out.say_body,
            say_to_all=self._out.say_to_all,
            unsent_bytes=self._out.unsent_bytes,
            is_limited=lambda: security.quotas.limited,
            charge=meter.charge,
            brake=self._brake,
        )

    def _refuse(self, error: BaseException | None) -> None:
        """No way in; the client learns why, and the connection ends."""
        self._out.say(self._number, error_of(error))
        self._finish()

    # Silence, waiting, the end

    def _listen(self) -> None:
        """Find out whether the client is still there."""
        if self._state is not State.RUNNING:
            return
        self._silent = 0 if self._heard or self._brake.is_on else self._silent + 1
        self._heard = False
        if self._silent >= MISSED_MAX:
            self.end(Unavailable(ErrorCode.TIMED_OUT, "nothing was heard of the client"))
        else:
            self._runner.later(self._heartbeat_ms, self._listen)

    def say_goodbye(self, grace_ms: int) -> None:
        """The node stops soon: the client is told, and may finish."""
        if self._state is State.RUNNING:
            leaving = Unavailable(
                ErrorCode.SHUTTING_DOWN, "the node is shutting down", remedy="connect again"
            )
            self._out.say(0, Goodbye(error=error_of(leaving), grace_ms=grace_ms))
            self._out.flush()

    def end(self, error: MainstemError) -> None:
        """Tell the client why, and end the connection."""
        if self._state is State.DONE:
            return
        peer = self._arrival
        log.info("native connection %s:%d ends: %s", peer.address, peer.port, error.cause)
        self._out.say(0, Goodbye(error=error_of(error)))
        self._finish()

    def closed(self) -> None:
        """The connection is gone: its deliveries return, its exclusive queues go."""
        self._state = State.DONE
        if self._conversation is not None:
            conversation, self._conversation = self._conversation, None
            conversation.close()

    def _finish(self) -> None:
        self.closed()
        self._out.flush()
        self._sender.close()
