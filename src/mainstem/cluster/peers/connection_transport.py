"""One connection to another node, on a socket: handshake, then frames in both directions.

Guarantees: nothing but the handshake is sent or accepted before the other node is authenticated;
many requests may be in flight and each gets its own answer; the send buffer is bounded, then notes
are dropped and requests refused; when the connection ends, all pending requests fail.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, cast

from mainstem.cluster.peers.error_codec import decode_error, encode_error
from mainstem.cluster.peers.frames import (
    BODY_BYTES_MAX,
    NUMBER_MODULUS,
    TAG_BYTES,
    Chunk,
    Frame,
    FrameDecoder,
    FrameKind,
    PeerService,
    header,
)
from mainstem.cluster.peers.handshake import Handshake, Hello
from mainstem.cluster.peers.versions import NoCommonVersion
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, MainstemError, Unavailable

if TYPE_CHECKING:
    from mainstem.cluster.peers.protection import FrameProtection

BUFFER_BYTES: Final = 64 * 1024
# Bytes that an unauthenticated peer may make this node buffer.
HELLO_BYTES_MAX: Final = 4 * 1024
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
QUESTIONS_MAX: Final = 4_096

_log = logging.getLogger(__name__)

FrameHandler = Callable[["PeerConnection", Frame], None]


class PeerConnection(asyncio.BufferedProtocol):
    """Carries frames to and from another node over one socket.

    Args:
        handshake: authenticates the two nodes; the dialler sends first.
        take: called with every note and request.
        ended: called once with the reason when the connection ends.
    """

    def __init__(
        self,
        handshake: Handshake,
        *,
        take: FrameHandler,
        ended: Callable[["PeerConnection", MainstemError], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._handshake = handshake
        self._take = take
        self._on_end = ended
        self._cutter = FrameDecoder(buffer_bytes=BUFFER_BYTES, body_bytes_max=HELLO_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._is_tls = False
        self._protection: FrameProtection | None = None
        self._answers: dict[int, asyncio.Future[memoryview]] = {}
        self._number = 0
        self._ended: MainstemError | None = None
        self.proved: asyncio.Future[Hello] = self._loop.create_future()
        self.is_open = False
        """Whether the other node is authenticated and the connection is open."""

    @property
    def version(self) -> int:
        """The protocol version that both nodes use, once the other one is authenticated."""
        return self._handshake.version

    def note(self, service: PeerService, chunks: Sequence[Chunk]) -> bool:
        """Send a note, which is not answered; False if it could not be sent."""
        if not self.is_open or self._is_full():
            return False
        size = sum(map(len, chunks))
        if size > BODY_BYTES_MAX:
            _log.error("a note is not sent: %s", too_large(service, size))
            return False
        self._write(FrameKind.NOTE, service, 0, chunks, size)
        return True

    async def ask(self, service: PeerService, chunks: Sequence[Chunk]) -> memoryview:
        """The answer to a request.

        Raises:
            Unavailable: the connection ended: it is unknown whether the other node has acted.
            InvalidRequest: the request is larger than nodes may send each other.
            MainstemError: the other node's refusal.
        """
        if not self.is_open:
            raise self._ended or _over("the other node is not authenticated yet")
        if self._is_full() or len(self._answers) >= QUESTIONS_MAX:
            raise Unavailable(ErrorCode.OVERLOADED, "too much waits to be sent to the node")
        size = sum(map(len, chunks))
        if size > BODY_BYTES_MAX:
            raise too_large(service, size)
        number = self._number = (self._number + 1) % NUMBER_MODULUS
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        self._answers[number] = answer
        self._write(FrameKind.QUESTION, service, number, chunks, size)
        try:
            return await answer
        finally:
            self._answers.pop(number, None)

    def answer(self, question: Frame, chunks: Sequence[Chunk]) -> None:
        """Answer a request, with a refusal if the answer is too large; ignored after the end."""
        size = sum(map(len, chunks))
        if size > BODY_BYTES_MAX:
            self.refuse(question, too_large(question.service, size))
        elif self.is_open:
            self._write(FrameKind.ANSWER, question.service, question.number, chunks, size)

    def refuse(self, question: Frame, error: MainstemError) -> None:
        """Answer a request with an error."""
        if self.is_open:
            body = encode_error(error)
            self._write(FrameKind.REFUSAL, question.service, question.number, [body], len(body))

    def close(self, error: MainstemError | None = None) -> None:
        """End the connection."""
        self._end(error or _over("the connection was closed"))

    # asyncio callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send this node's hello if it dialled."""
        # A cast, since uvloop's transports are not subclasses.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WAITING_BYTES_MAX)
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        if self._ended is not None:
            self._transport.abort()
            return
        for hello in self._handshake.on_connected(is_private=self._is_tls or _is_local(transport)):
            self._introduce(hello)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes."""
        return self._cutter.free_space()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle received bytes."""
        try:
            # What follows a proof is protected by it: handshakes are decoded frame by frame.
            while not self.is_open and self._ended is None:
                frames = self._cutter.received(nbytes, limit=1)
                nbytes = 0
                if not frames:
                    return
                self._introduced(frames[0])
            for frame in self._cutter.received(nbytes) if self.is_open else ():
                if self.is_open:
                    self._received(frame)
        except NoCommonVersion as error:
            if self._handshake.side == "listener":  # so that the dialler's log names both, too
                self._introduce(self._handshake.hello)
            self._refuse_other(error, at_once=False)
        except Corrupt as error:
            self._refuse_other(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all pending requests."""
        self._end(_over(str(exc) if exc is not None else "the other node closed the connection"))

    # Inside.

    def _received(self, frame: Frame) -> None:
        kind = frame.kind
        if kind is FrameKind.NOTE or kind is FrameKind.QUESTION:
            self._take(self, frame)
        elif kind is FrameKind.HELLO:
            raise Corrupt("a node sent two handshakes")
        else:
            answer = self._answers.pop(frame.number, None)
            if answer is None or answer.done():
                return  # the requester has given up
            if kind is FrameKind.ANSWER:
                answer.set_result(frame.body)
            else:
                answer.set_exception(decode_error(frame.body))

    def _introduce(self, hello: bytes) -> None:
        self._write(FrameKind.HELLO, PeerService.HANDSHAKE, 0, [hello], len(hello))

    def _introduced(self, frame: Frame) -> None:
        if frame.kind is not FrameKind.HELLO:
            raise Corrupt("a node sent a frame before the handshake")
        for reply in self._handshake.on_message(frame.body):
            self._introduce(reply)
        if self._handshake.is_proved:
            assert self._handshake.other is not None, "an authenticated node has an id"
            self._cutter.body_bytes_max = BODY_BYTES_MAX
            self._protect_frames()
            self.is_open = True
            self.proved.set_result(self._handshake.other)

    def _is_full(self) -> bool:
        assert self._transport is not None, "an open connection has a transport"
        return self._transport.get_write_buffer_size() > WAITING_BYTES_MAX

    def _protect_frames(self) -> None:
        keys = self._handshake.keys
        if keys is None:
            return
        # Imported late: its ciphers take 7 MB, which a single node does not need.
        from mainstem.cluster.peers.protection import FrameProtection  # noqa: PLC0415

        send, receive = keys if self._handshake.side == "dialler" else reversed(keys)
        encrypts = self._handshake.encrypts
        self._protection = FrameProtection(send, receive, encrypts=encrypts)
        self._cutter.opener = self._protection.open

    def _write(
        self, kind: FrameKind, service: int, number: int, chunks: Sequence[Chunk], size: int
    ) -> None:
        assert self._transport is not None, "written to after the connection is made"
        protection = self._protection
        pieces: Sequence[Chunk]
        if protection is None:
            pieces = [header(kind, service, number, size), *chunks]
        else:
            head = header(kind, service, number, size + TAG_BYTES)
            pieces = protection.protect(head, chunks)
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        elif self._is_tls:  # the transport may keep the data, and much of it is only borrowed
            self._transport.write(b"".join(pieces))
        else:
            self._transport.writelines(pieces)
        if protection is not None and protection.is_used_up:
            self._end(_over("its keys are used up, the next one has others"), at_once=False)

    def _refuse_other(self, error: Corrupt, *, at_once: bool = True) -> None:
        other, side = self._handshake.other, self._handshake.side
        assert self._transport is not None, "what is refused has arrived"
        address = self._transport.get_extra_info("peername")
        name = "a node" if other is None else f"node {other.node}"
        way = "to" if side == "dialler" else "from"
        _log.warning("connection %s %s at %s closed: %s", way, name, address, error)
        self._end(error, at_once=at_once)

    def _end(self, error: MainstemError, *, at_once: bool = True) -> None:
        if self._ended is not None:
            return
        self._ended = error
        self.is_open = False
        if self._transport is not None:
            if at_once:
                self._transport.abort()
            else:
                self._transport.close()
        waiting, self._answers = self._answers, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(_over(error.cause))
        if not self.proved.done():
            self.proved.set_exception(error)
            self.proved.exception()  # the caller may have given up
        self._on_end(self, error)


def _is_local(transport: asyncio.BaseTransport) -> bool:
    """Whether both ends of a connection are on this machine, as far as addresses show."""
    names = [transport.get_extra_info(name) for name in ("peername", "sockname")]
    return all(name and ip_address(name[0].split("%")[0]).is_loopback for name in names)


def too_large(service: int, size: int, most: int = BODY_BYTES_MAX) -> InvalidRequest:
    """The refusal of a message that is larger than a frame may be."""
    return InvalidRequest(
        ErrorCode.RECORD_TOO_LARGE,
        f"{size} bytes exceed the limit of {most} for a message between nodes",
        subject=f"service {PeerService(service).name}",
        remedy="send smaller batches or requests",
    )


def _over(why: str) -> Unavailable:
    return Unavailable(ErrorCode.WRITER_UNAVAILABLE, f"the connection to the node ended: {why}")
