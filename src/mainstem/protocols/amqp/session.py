"""One AMQP connection: dispatches frames, and handles handshake, heartbeats and close.

Pure: asynchronous work is passed to the runner. A client that violates the protocol gets
``connection.close`` where possible; before the login only small frames are accepted, and nothing
is buffered.
"""

import logging
from enum import IntEnum, auto
from typing import Any, Final

from mainstem.broker.api.security import Rights
from mainstem.model.errors import MainstemError
from mainstem.model.limits import CLOSE_DRAIN_MS
from mainstem.protocols.amqp import handshake
from mainstem.protocols.amqp.channel_link import AmqpService
from mainstem.protocols.amqp.connection import ACK_BYTES, AmqpConnection, ConnectionTerms
from mainstem.protocols.amqp.entities_service import enter
from mainstem.protocols.amqp.errors import (
    ACCESS_REFUSED,
    COMMAND_INVALID,
    CONNECTION_FORCED,
    FRAME_ERROR,
    INTERNAL_ERROR,
    NOT_IMPLEMENTED,
    SYNTAX_ERROR,
    UNEXPECTED_FRAME,
    AmqpError,
    ConnectionRefusal,
    translated,
)
from mainstem.protocols.amqp.heartbeat import Heartbeat
from mainstem.protocols.amqp.login_service import AmqpLogin
from mainstem.protocols.amqp.outgoing import AmqpOutgoing
from mainstem.protocols.listener_policy import IncomingConnection, ListenerPolicy
from mainstem.protocols.login_expiry import LoginExpiry
from mainstem.protocols.runner import Runner
from mainstem.protocols.sasl_login_service import LoginStep
from mainstem.protocols.send_batch import SendBatch
from mainstem.protocols.session import DrainingSender
from mainstem.security.principals import NOBODY, Identity
from mainstem.wire.amqp import connection_methods as methods
from mainstem.wire.amqp.fields import Malformed
from mainstem.wire.amqp.frames import (
    END,
    HEAD,
    HEAD_BYTES,
    HEARTBEAT,
    METHOD,
    OVERHEAD_BYTES,
    PROTOCOL_HEADER,
)
from mainstem.wire.amqp.method import Method
from mainstem.wire.amqp.method_codec import UnknownMethod, decode_method

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_MS: Final = 10_000
LEAVE_CHECK_MS: Final = 50
_head_at = HEAD.unpack_from


class AmqpConnectionState(IntEnum):
    """The state of a connection."""

    HEADER = auto()
    START = auto()
    CHECKING = auto()
    SECURE = auto()
    TUNE = auto()
    OPEN = auto()
    OPENING = auto()
    RUNNING = auto()
    CLOSING = auto()
    DONE = auto()


class AmqpSession:
    """Serves one AMQP connection: handshake, frames, heartbeats, close."""

    def __init__(
        self,
        sender: DrainingSender,
        incoming: IncomingConnection,
        policy: ListenerPolicy,
        service: AmqpService,
        runner: Runner,
    ) -> None:
        self._sender = sender
        self._incoming = incoming
        self._policy = policy
        self._service = service
        self._runner = runner
        self._out = AmqpOutgoing(SendBatch(sender, runner.soon))
        self._login = AmqpLogin(policy.security, incoming)
        self._state = AmqpConnectionState.HEADER
        self._payload_max = handshake.LOGIN_FRAME_BYTES_MAX
        self._identity: Identity = NOBODY
        self._capabilities: frozenset[str] = frozenset()
        self._is_qos_for_channel = False
        self._tuned = methods.ConnectionTuneOk()
        self._connected: AmqpConnection | None = None
        expired = ConnectionRefusal(CONNECTION_FORCED, "the login has expired")
        self._expiry = LoginExpiry(runner, service.clock, lambda: self.fail(expired))
        self._heartbeat = Heartbeat(
            self._out.batch,
            runner,
            is_over=lambda: self._state >= AmqpConnectionState.CLOSING,
            is_deaf=lambda: self._connected is not None and self._connected.is_paused,
            missed=self._missed,
        )

    @property
    def is_logged_in(self) -> bool:
        """Whether the handshake is complete."""
        return self._state >= AmqpConnectionState.RUNNING

    def receive(self, buf: bytearray, view: memoryview, start: int, until: int) -> tuple[int, int]:
        """Serve whole frames in ``buf[start:until]``; returns their end and the next size."""
        self._heartbeat.silent_ticks = 0
        need = HEAD_BYTES
        try:
            start, need = self._frames(buf, view, start, until)
        except UnknownMethod as error:
            self.fail(ConnectionRefusal(NOT_IMPLEMENTED, str(error)), error.numbers)
            start = until
        except Malformed as error:
            self.fail(ConnectionRefusal(SYNTAX_ERROR, str(error)))
            start = until
        except ConnectionRefusal as refusal:
            self.fail(refusal)
            start = until
        self._out.flush()
        return (until, HEAD_BYTES) if self._state is AmqpConnectionState.DONE else (start, need)

    def _frames(self, buf: bytearray, view: memoryview, start: int, until: int) -> tuple[int, int]:
        if self._state is AmqpConnectionState.HEADER:
            if until - start < len(PROTOCOL_HEADER):
                return start, len(PROTOCOL_HEADER)
            start = self._greet(bytes(view[start : start + len(PROTOCOL_HEADER)]), start)
        while until - start >= HEAD_BYTES and self._state is not AmqpConnectionState.DONE:
            kind, channel, size = _head_at(buf, start)
            if size > self._payload_max:
                raise ConnectionRefusal(
                    FRAME_ERROR, f"a frame of {size} bytes exceeds the limit {self._payload_max}"
                )
            end = start + OVERHEAD_BYTES + size
            if end > until:
                return start, OVERHEAD_BYTES + size
            if buf[end - 1] != END:
                raise ConnectionRefusal(FRAME_ERROR, "the frame end marker is missing")
            if kind == METHOD and channel and self._state is AmqpConnectionState.RUNNING:
                assert self._connected is not None, "it is running"
                if size == ACK_BYTES and self._connected.acknowledge(channel, buf, start):
                    start = end
                    continue
                taken = self._connected.publish(channel, buf, view, start, until)
                if taken:
                    start = taken
                    continue
            self._frame(kind, channel, view, start + HEAD_BYTES, end - 1)
            start = end
        return start, HEAD_BYTES

    def closed(self) -> None:
        """Clean up after a lost connection: deliveries return, exclusive queues are deleted."""
        self._state = AmqpConnectionState.DONE
        if self._connected is not None:
            self._connected.close()

    def shut_down(self) -> None:
        """Close the connection because the node stops."""
        self.fail(ConnectionRefusal(CONNECTION_FORCED, "the node is shutting down"))
        self._out.flush()

    def fail(self, refusal: AmqpError, numbers: tuple[int, int] = (0, 0)) -> None:
        """Send the reason to the client and close the connection."""
        if self._state >= AmqpConnectionState.CLOSING:
            return
        log.info(
            "closing AMQP connection %s:%d: %s",
            self._incoming.address,
            self._incoming.port,
            refusal.reply_text,
        )
        was_in = self._state >= AmqpConnectionState.RUNNING
        is_sent = (
            refusal.code != ACCESS_REFUSED
            or "authentication_failure_close" in self._capabilities
            or was_in
        )
        if self._connected is not None:
            self._connected.close()
            # Close-ok has to be read even if reading was paused.
            self._sender.resume()
        if is_sent and self._state is not AmqpConnectionState.HEADER:
            self._out.method(
                0,
                methods.ConnectionClose(
                    reply_code=refusal.code,
                    reply_text=refusal.reply_text,
                    failed_class=numbers[0],
                    failed_method=numbers[1],
                ),
            )
        self._state = AmqpConnectionState.CLOSING
        if was_in:
            self._runner.later(CLOSE_TIMEOUT_MS, self._end)
        else:
            self._end()

    def _end(self) -> None:
        """Send nothing more; remaining input is read and discarded."""
        if self._state is not AmqpConnectionState.DONE:
            self._state = AmqpConnectionState.DONE
            self._out.flush()
            self._sender.close(drain_ms=CLOSE_DRAIN_MS)

    def _greet(self, header: bytes, start: int) -> int:
        """Check the protocol header; a client of another protocol gets the supported header."""
        if header != PROTOCOL_HEADER:
            self._out.write(PROTOCOL_HEADER)
            self._end()
            return start
        service = self._service
        offered = self._incoming.mechanisms
        self._out.method(0, handshake.start(offered, service.cluster_name, service.version))
        self._state = AmqpConnectionState.START
        return start + len(PROTOCOL_HEADER)

    def _frame(self, kind: int, channel: int, view: memoryview, start: int, until: int) -> None:
        if kind == HEARTBEAT:
            if channel:
                raise ConnectionRefusal(UNEXPECTED_FRAME, f"a heartbeat on channel {channel}")
            if until != start:
                raise ConnectionRefusal(FRAME_ERROR, "a heartbeat has no payload")
            return
        if channel:
            if self._state is AmqpConnectionState.RUNNING and self._connected is not None:
                self._connected.frame(kind, channel, view, start, until)
            elif self._state is not AmqpConnectionState.CLOSING:
                raise ConnectionRefusal(COMMAND_INVALID, "the connection is not open")
            return
        if kind != METHOD:
            raise ConnectionRefusal(FRAME_ERROR, f"a frame of type {kind} on channel 0")
        self._method(decode_method(view, start, until))

    def _method(self, method: Method) -> None:
        """Handle a method of the connection (channel 0)."""
        if isinstance(method, methods.ConnectionClose):
            self._leave()
            return
        if self._state is AmqpConnectionState.CLOSING:
            if isinstance(method, methods.ConnectionCloseOk):
                self._end()
            return
        match (self._state, method):
            case (AmqpConnectionState.START, methods.ConnectionStartOk()):
                self._capabilities = handshake.capabilities(method.client_properties)
                self._is_qos_for_channel = handshake.is_qos_for_channel(method.client_properties)
                self._check(self._login.begin(method.mechanism, method.response))
            case (AmqpConnectionState.SECURE, methods.ConnectionSecureOk()):
                self._check(self._login.respond(method.response))
            case (AmqpConnectionState.TUNE, methods.ConnectionTuneOk()):
                self._tune(method)
            case (AmqpConnectionState.OPEN, methods.ConnectionOpen()):
                self._open(method.virtual_host)
            case (AmqpConnectionState.RUNNING, methods.ConnectionUpdateSecret()):
                work = self._login.renew(self._identity, method.new_secret)
                self._runner.run(work, self._renewed)
            case _:
                raise ConnectionRefusal(COMMAND_INVALID, f"unexpected {method.NAME}")

    def _leave(self) -> None:
        """Handle the client's close; messages that wait for disk space are stored first."""
        if self._state is AmqpConnectionState.DONE:
            return
        if self._connected is not None:
            if self._connected.waits_for_space:
                self._runner.later(LEAVE_CHECK_MS, self._leave)
                return
            self._connected.close()
        self._out.method(0, methods.ConnectionCloseOk())
        self._end()

    # The handshake

    def _check(self, work: Any) -> None:
        self._state = AmqpConnectionState.CHECKING
        self._runner.run(work, self._checked)

    def _checked(self, step: LoginStep | None, error: BaseException | None) -> None:
        if self._state is not AmqpConnectionState.CHECKING:
            return
        if error is not None or step is None:
            self._fail_with(error)
        elif step.identity is None:
            self._state = AmqpConnectionState.SECURE
            self._out.method(0, methods.ConnectionSecure(challenge=step.data))
        else:
            self._identity = step.identity
            self._expiry.note(step.identity)
            self._state = AmqpConnectionState.TUNE
            self._out.method(0, handshake.tune(self._service.limits))

    def _tune(self, chosen: methods.ConnectionTuneOk) -> None:
        handshake.check_tuned(chosen, self._service.limits)
        self._tuned = chosen
        self._payload_max = chosen.frame_max - OVERHEAD_BYTES
        self._state = AmqpConnectionState.OPEN
        self._heartbeat.start(chosen.heartbeat)

    def _open(self, namespace: str) -> None:
        self._state = AmqpConnectionState.OPENING
        rights = self._policy.rights(self._identity, self._incoming.address)
        anonymous = self._identity is NOBODY
        user = self._login.user if anonymous else self._identity.principal.name

        def ready(_: object, error: BaseException | None) -> None:
            if self._state is not AmqpConnectionState.OPENING:
                return
            if error is not None:
                self._fail_with(error)
                return
            self._connected = self._connect(namespace, rights, user)
            self._state = AmqpConnectionState.RUNNING
            self._out.method(0, methods.ConnectionOpenOk())

        self._runner.run(enter(self._service.queues, namespace, rights, user), ready)

    def _connect(self, namespace: str, rights: Rights, user: str) -> AmqpConnection:
        terms = ConnectionTerms(
            connection=self._service.new_name(),
            namespace=namespace,
            user=user,
            rights=rights,
            frame_max=self._tuned.frame_max,
            channel_max=self._tuned.channel_max,
            capabilities=self._capabilities,
            is_qos_for_channel=self._is_qos_for_channel,
            quotas=self._policy.security.quotas,
            principal=self._identity.principal.name,
            address=self._incoming.address,
        )
        sender = self._sender
        return AmqpConnection(
            terms,
            self._service,
            self._out,
            self._runner,
            fail=self.fail,
            pause=lambda is_paused: sender.pause() if is_paused else sender.resume(),
        )

    def _renewed(self, identity: Identity | None, error: BaseException | None) -> None:
        if error is not None or identity is None:
            self._fail_with(error)
            return
        self._identity = identity
        self._expiry.note(identity)
        self._out.method(0, methods.ConnectionUpdateSecretOk())

    def _fail_with(self, error: BaseException | None) -> None:
        if isinstance(error, MainstemError):
            refusal = translated(error, "", "", "")
            self.fail(ConnectionRefusal(refusal.code, refusal.text))
        elif isinstance(error, AmqpError):
            self.fail(error)
        else:
            self.fail(ConnectionRefusal(INTERNAL_ERROR, "internal error; see the log of the node"))

    # Heartbeats and flow

    def _missed(self) -> None:
        log.warning(
            "closing AMQP connection %s:%d: missed heartbeats",
            self._incoming.address,
            self._incoming.port,
        )
        if self._connected is not None:
            self._connected.close()
        self._state = AmqpConnectionState.DONE
        self._sender.close()
