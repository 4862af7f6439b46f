"""One connection to another node, on a socket: introduces itself, then carries frames both ways.

Promises: nothing but the introduction is sent or taken before the other node is proved; questions
may be many at a time and each gets its own answer; what waits to be sent is bounded, then notes are
dropped and questions refused; when the connection ends, everybody who waits is told.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, cast

from mainstem.cluster.peers.frames import (
    BODY_BYTES_MAX,
    NUMBER_MODULUS,
    Frame,
    FrameCutter,
    Kind,
    Service,
    header,
)
from mainstem.cluster.peers.handshake import Handshake, Hello
from mainstem.cluster.peers.refusals import decode_error, encode_error
from mainstem.cluster.peers.versions import NoCommonVersion
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, Unavailable

ROOM_BYTES: Final = 64 * 1024
# Before the introduction a stranger may make this node keep so much.
HELLO_BYTES_MAX: Final = 4 * 1024
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
QUESTIONS_MAX: Final = 4_096

_log = logging.getLogger(__name__)

Chunk = bytes | bytearray | memoryview
Taken = Callable[["PeerConnection", Frame], None]


class PeerConnection(asyncio.BufferedProtocol):
    """See the module's text.

    Args:
        handshake: how the two nodes introduce themselves; the dialler speaks first.
        take: is given every note and question.
        ended: is told once that the connection is over, and why.
    """

    def __init__(
        self,
        handshake: Handshake,
        *,
        take: Taken,
        ended: Callable[["PeerConnection", MainstemError], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._handshake = handshake
        self._take = take
        self._on_end = ended
        self._cutter = FrameCutter(room_bytes=ROOM_BYTES, body_bytes_max=HELLO_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._is_encrypted = False
        self._answers: dict[int, asyncio.Future[memoryview]] = {}
        self._number = 0
        self._ended: MainstemError | None = None
        self.proved: asyncio.Future[Hello] = self._loop.create_future()

    @property
    def is_open(self) -> bool:
        """Whether the other node is proved and the connection stands."""
        return self._ended is None and self.proved.done()

    @property
    def version(self) -> int:
        """The version of the protocol that both nodes use, once the other one is proved."""
        return self._handshake.version

    def note(self, service: Service, chunks: Sequence[Chunk]) -> bool:
        """Say something that is not answered; False if it could not be sent."""
        if not self.is_open or self._is_full():
            return False
        self._write(Kind.NOTE, service, 0, chunks)
        return True

    async def ask(self, service: Service, chunks: Sequence[Chunk]) -> memoryview:
        """The answer to a question.

        Raises:
            Unavailable: the connection ended: whether the other node has acted is not known.
            MainstemError: what the other node refused it with.
        """
        if not self.is_open:
            raise self._ended or _over("the other node is not proved yet")
        if self._is_full() or len(self._answers) >= QUESTIONS_MAX:
            raise Unavailable(ErrorCode.OVERLOADED, "too much waits to be sent to the node")
        number = self._number = (self._number + 1) % NUMBER_MODULUS
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        self._answers[number] = answer
        self._write(Kind.QUESTION, service, number, chunks)
        try:
            return await answer
        finally:
            self._answers.pop(number, None)

    def answer(self, question: Frame, chunks: Sequence[Chunk]) -> None:
        """Answer a question; too late does no harm."""
        if self.is_open:
            self._write(Kind.ANSWER, question.service, question.number, chunks)

    def refuse(self, question: Frame, error: MainstemError) -> None:
        """Answer a question with an error."""
        if self.is_open:
            self._write(Kind.REFUSAL, question.service, question.number, [encode_error(error)])

    def close(self, error: MainstemError | None = None) -> None:
        """End the connection."""
        self._end(error or _over("the connection was closed"))

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Introduces this node if it dialled."""
        # A cast, since uvloop's transports are not subclasses.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WAITING_BYTES_MAX)
        self._is_encrypted = transport.get_extra_info("sslcontext") is not None
        if self._ended is not None:
            self._transport.abort()
        elif self._handshake.side == "dialler":
            self._write(Kind.HELLO, Service.HANDSHAKE, 0, [self._handshake.begin()])

    def get_buffer(self, sizehint: int) -> memoryview:
        """Says where the next bytes belong."""
        return self._cutter.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Takes what has arrived."""
        was_proved = self.proved.done()
        try:
            for frame in self._cutter.received(nbytes):
                if self._ended is not None:
                    return
                self._received(frame)
            if self.proved.done() and not was_proved:
                self.buffer_updated(0)  # what came right behind the proof, and was too large then
        except NoCommonVersion as error:
            _log.warning("connection to a node closed: %s", error)
            if self._handshake.side == "listener":  # the dialler's log has to name both, too
                self._write(Kind.HELLO, Service.HANDSHAKE, 0, [self._handshake.begin()])
            self._end(error, at_once=False)
        except Corrupt as error:
            _log.warning("connection to a node closed: %s", error)
            self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells everybody who waits."""
        self._end(_over(str(exc) if exc is not None else "the other node closed the connection"))

    # Inside.

    def _received(self, frame: Frame) -> None:
        if not self.proved.done():
            self._introduced(frame)
        elif frame.kind is Kind.ANSWER or frame.kind is Kind.REFUSAL:
            answer = self._answers.pop(frame.number, None)
            if answer is None or answer.done():
                return  # who asked has gone
            if frame.kind is Kind.ANSWER:
                answer.set_result(frame.body)
            else:
                answer.set_exception(decode_error(frame.body))
        elif frame.kind is Kind.HELLO:
            raise Corrupt("a node introduces itself twice")
        else:
            self._take(self, frame)

    def _introduced(self, frame: Frame) -> None:
        if frame.kind is not Kind.HELLO:
            raise Corrupt("a node speaks before it is known")
        for reply in self._handshake.on_message(frame.body):
            self._write(Kind.HELLO, Service.HANDSHAKE, 0, [reply])
        if self._handshake.is_proved:
            assert self._handshake.other is not None, "who is proved has a name"
            self._cutter.body_bytes_max = BODY_BYTES_MAX
            self.proved.set_result(self._handshake.other)

    def _is_full(self) -> bool:
        assert self._transport is not None, "an open connection has a transport"
        return self._transport.get_write_buffer_size() > WAITING_BYTES_MAX

    def _write(self, kind: Kind, service: int, number: int, chunks: Sequence[Chunk]) -> None:
        assert self._transport is not None, "written to after the connection is made"
        size = sum(map(len, chunks))
        pieces = [header(kind, service, number, size), *chunks]
        if self._is_encrypted:  # which may keep what it is given; much of it is only borrowed
            self._transport.write(b"".join(pieces))
        else:
            self._transport.writelines(pieces)

    def _end(self, error: MainstemError, *, at_once: bool = True) -> None:
        if self._ended is not None:
            return
        self._ended = error
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
            self.proved.exception()  # nobody may be waiting
        self._on_end(self, error)


def _over(why: str) -> Unavailable:
    return Unavailable(ErrorCode.WRITER_UNAVAILABLE, f"the connection to the node ended: {why}")
