"""One accepted connection: moves its bytes; shared by all TCP protocols.

Reading: all connections share one receive buffer, because one thread reads them one after the other
and a session consumes whole frames at once. Only a connection with an incomplete frame has its own
buffer, which grows as bytes arrive, never by what a length prefix announces.

Writing: plain sockets are written directly, so that file slices can follow by ``sendfile``; what
the socket does not accept waits in a bounded outbox. TLS goes through the transport, which is given
only as much as it can buffer; file slices are read at that point.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Sequence, Sized
from typing import Any, Final, Protocol, cast

from mainstem.model.errors import MainstemError
from mainstem.model.limits import CONNECTION_WRITE_BYTES_HIGH, KIB, MIB
from mainstem.protocols.accept_listener import ListenerAdmission
from mainstem.protocols.closing_listener import ConnectionCloser
from mainstem.protocols.connection_admission import ConnectionRejection, ConnectionSlot
from mainstem.protocols.outbox import FilePiece, Outbox
from mainstem.protocols.receive_buffers import FIRST_OWN_BUFFER_BYTES, Buffers
from mainstem.protocols.session import Overloaded, ProtocolViolation, Session
from mainstem.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

BEFORE_LOGIN_BUFFER_BYTES: Final = 4 * KIB
TLS_WRITE_BYTES: Final = 256 * KIB
TLS_BUFFER_BYTES_HIGH: Final = 1 * MIB


class ConnectionOwner(Protocol):
    """The listener of a connection."""

    buffers: Buffers
    metrics: Metrics
    admission_control: ListenerAdmission
    sends_files: bool
    tick: int

    def joined(self, connection: "Connection") -> None:
        """Register a connection that has a session."""
        ...

    def gone(self, connection: "Connection") -> bool:
        """Remove a closed connection; whether it had a session."""
        ...


class Connection(asyncio.BufferedProtocol):
    """One accepted connection: buffers on the way in, an outbox on the way out."""

    def __init__(
        self,
        listener: ConnectionOwner,
        make_session: "Callable[[Connection], Session]",
        place: ConnectionSlot,
    ) -> None:
        self._listener = listener
        self._place = place
        self._make_session = make_session
        self._buffers = listener.buffers
        self._own: bytearray | None = None
        self._own_view: memoryview | None = None
        self._start = self._until = 0
        self._need = 4
        self._outbox = Outbox()
        self._closing = False
        self._ending = ConnectionCloser()
        self._blocked = False
        self._paused_by_session = False
        self._paused_by_outbox = False
        self.peer: tuple[str, int] = ("", 0)
        self.local: tuple[str, int] = ("", 0)
        self.tls = False
        self.tls_object: Any = None
        self.active_at = listener.tick
        self.session: Session
        self._socket: socket.socket | None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Configure the socket and create the session."""
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()
        self.tls_object = transport.get_extra_info("ssl_object")
        self.tls = self.tls_object is not None
        self.peer = _address(transport.get_extra_info("peername"))
        self.local = _address(transport.get_extra_info("sockname"))
        self._socket = None
        self._transport.set_write_buffer_limits(high=TLS_BUFFER_BYTES_HIGH)
        try:
            if not self.tls and self._listener.sends_files:
                self._socket = _own_socket(transport)
        except OSError as error:
            log.warning("connection %s:%d closed: %s", *self.peer, error)
            self._listener.admission_control.refused(ConnectionRejection.ACCEPT)
            self.abort()
            return
        try:
            self.session = self._place.session = self._make_session(self)
        except BaseException:
            self.abort()
            raise
        self._listener.joined(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the buffers, the outbox and the session."""
        self._closing = True
        self._ending.over()
        if self._socket is not None:
            if self._blocked:
                self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self._socket = None
        self._outbox.clear()
        self._release_own()
        if self._listener.gone(self):
            self.session.closed()

    # Reading

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes."""
        if self._own_view is None:
            return self._buffers.shared_view
        return self._own_view[self._until :]

    def buffer_updated(self, nbytes: int) -> None:
        """Pass received bytes to the session; keep an incomplete frame."""
        self.active_at = self._listener.tick
        if self._closing:
            self._release_own()
            if not self._ending.discard(nbytes):
                self.abort()
            return
        if self._own_view is None or self._own is None:
            buf, view, start, until = self._buffers.shared, self._buffers.shared_view, 0, nbytes
        else:
            buf, view, start = self._own, self._own_view, self._start
            until = self._until = self._until + nbytes
            if until - start < self._need and until < len(buf):
                return
        try:
            start, self._need = self.session.receive(buf, view, start, until)
        except ProtocolViolation as reason:
            log.warning("connection %s:%d closed: %s", *self.peer, reason)
            if not isinstance(reason, Overloaded):
                self._listener.metrics.malformed_frames += 1
            self.abort()
            return
        if start == until:
            self._release_own()
        else:
            self._keep(buf, view, start, until)

    def _keep(self, buf: bytearray, view: memoryview, start: int, until: int) -> None:
        """Keep an incomplete frame in a buffer with space for more of it."""
        have = until - start
        if buf is self._own and len(buf) - start >= self._need:
            self._start = start
            return
        # Before login the buffer grows only with the bytes received.
        first = FIRST_OWN_BUFFER_BYTES if self.session.is_logged_in else BEFORE_LOGIN_BUFFER_BYTES
        size = min(self._need, max(first, 2 * have))
        if buf is self._own and len(buf) >= size:
            view[:have] = view[start:until]
        else:
            own = self._buffers.take(max(size, first))
            if own is None:
                log.warning("connection %s:%d closed: frame memory is used up", *self.peer)
                self.abort()
                return
            own_view = memoryview(own)
            own_view[:have] = view[start:until]
            self._release_own()
            self._own, self._own_view = own, own_view
        self._start, self._until = 0, have

    def _release_own(self) -> None:
        if self._own is not None:
            self._buffers.give_back(self._own)
            self._own = self._own_view = None
        self._start = self._until = 0

    # Writing

    def send(self, chunks: Sequence[Sized]) -> None:
        """Send these in order; what the socket does not accept now is queued."""
        if self._closing and not self._outbox:
            return
        try:
            self._outbox.put(chunks, files=True)
        except (OSError, MainstemError) as error:
            # A file slice cannot be read; the write path decides whether the node can continue.
            # Part of the response is missing, so no error can be sent to this peer.
            log.warning("connection %s:%d closed: %s", *self.peer, error)
            self.abort()
            return
        if self._blocked:
            # Checked here: a peer that reads nothing never makes the socket writable.
            self._watch_outbox()
        elif self._socket is None:
            self._pump_tls()
        else:
            self._pump()

    @property
    def unsent_bytes(self) -> int:
        """Bytes in the outbox; bytes in the socket buffer do not count."""
        return self._outbox.size_bytes

    def _pump_tls(self) -> None:
        """Write until the outbox is empty or the transport calls ``pause_writing``."""
        outbox = self._outbox
        try:
            while not self._blocked and (piece := outbox.next()) is not None:
                data = _next_bytes(piece)
                outbox.sent(len(data))
                self._transport.write(data)
        except OSError as error:
            log.warning("connection %s:%d closed: %s", *self.peer, error)
            self.abort()
            return
        if self._closing and not outbox:
            self._ending.all_sent(self._transport, self._socket)
        self._watch_outbox()

    def _pump(self) -> None:
        """Write until the outbox is empty or the socket is full."""
        sock = self._socket
        if sock is None:
            return
        try:
            self._write_out(sock)
        except BlockingIOError:
            if not self._blocked:
                self._blocked = True
                self._loop.add_writer(sock.fileno(), self._pump)
        except OSError as error:
            if not isinstance(error, ConnectionError):
                log.warning("connection %s:%d closed: %s", *self.peer, error)
            self.abort()
            return
        else:
            if self._blocked:
                self._blocked = False
                self._loop.remove_writer(sock.fileno())
            if self._closing:
                self._ending.all_sent(self._transport, self._socket)
        self._watch_outbox()

    def _write_out(self, sock: socket.socket) -> None:
        outbox = self._outbox
        while (piece := outbox.next()) is not None:
            if isinstance(piece, FilePiece):
                count = os.sendfile(sock.fileno(), piece.fd, piece.position, piece.remaining)
                if count == 0:
                    raise OSError("the file ended before its slice")
            else:
                count = sock.send(piece, socket.MSG_MORE if outbox.more_follows else 0)
            outbox.sent(count)
            self.active_at = self._listener.tick

    def _watch_outbox(self) -> None:
        """Pause reading from a peer that does not read its responses."""
        full = self._outbox.size_bytes > CONNECTION_WRITE_BYTES_HIGH
        if full != self._paused_by_outbox:
            self._paused_by_outbox = full
            self._apply_pause()

    def pause_writing(self) -> None:
        """Stop writing: the buffer of the TLS transport is full."""
        self._blocked = True

    def resume_writing(self) -> None:
        """Continue writing: the TLS transport has space again."""
        self._blocked = False
        self.active_at = self._listener.tick
        self._pump_tls()

    def pause(self) -> None:
        """Pause reading: the session has too many unanswered requests."""
        self._paused_by_session = True
        self._apply_pause()

    def resume(self) -> None:
        """Resume reading: the session accepts requests again."""
        self._paused_by_session = False
        self._apply_pause()

    def _apply_pause(self) -> None:
        if self._closing:
            return
        if self._paused_by_session or self._paused_by_outbox:
            if self._transport.is_reading():
                self._transport.pause_reading()
        elif not self._transport.is_reading():
            self._transport.resume_reading()

    def close(self, *, drain_ms: int = 0) -> None:
        """Send what is queued, then close; see ``closing_listener`` for ``drain_ms``."""
        if self._ending.is_draining:
            return
        self._closing = True
        if drain_ms:
            self._ending.drain(self._transport, drain_ms, self.abort)
        if not self._outbox:
            self._ending.all_sent(self._transport, self._socket)

    def abort(self) -> None:
        """Close at once; unsent data is dropped."""
        self._closing = True
        self._outbox.clear()
        self._transport.abort()


def _next_bytes(piece: memoryview | FilePiece) -> bytes | memoryview:
    """As much of a piece as is passed to TLS at once."""
    if not isinstance(piece, FilePiece):
        return piece[:TLS_WRITE_BYTES]
    data = os.pread(piece.fd, min(TLS_WRITE_BYTES, piece.remaining), piece.position)
    if not data:
        raise OSError("the file ended before its slice")
    return data


def _address(name: Any) -> tuple[str, int]:
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else (str(name or ""), 0)


def _own_socket(transport: asyncio.BaseTransport) -> socket.socket | None:
    """A duplicate of the connection's socket, for writing without the transport."""
    found = transport.get_extra_info("socket")
    if found is None:
        return None
    own = socket.socket(fileno=os.dup(found.fileno()))
    own.setblocking(False)  # noqa: FBT003 - the standard library's own signature
    with contextlib.suppress(OSError):
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return own
