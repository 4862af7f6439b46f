"""Reads of a stream that another node writes, requested piece by piece.

request   offset, bytes at most, how long to wait for the first of them; or a time
answer    where the stream starts and ends, the offset of the time, [batches]
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from mainstem.broker.api.broker import StableStreamReader
from mainstem.cluster.peers.frames import Chunk
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt
from mainstem.model.limits import MIB
from mainstem.streams.reading.local_reader_driver import StreamPiece

PIECE_BYTES_MAX: Final = 4 * MIB
_LENGTH_BYTES: Final = 4


class RemoteReadRequest(msgspec.Struct, frozen=True, array_like=True):
    """What to read; without an offset and a time only the bounds are returned."""

    offset: int | None = None
    max_bytes: int = 0
    timestamp: int | None = None
    wait_ms: int = 0  # for a record at the offset


class _RemoteReadAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The result of a read; the batches follow unchanged."""

    start_offset: int
    last_stable: int
    at: int | None = None
    until_offset: int | None = None
    aborted: list[tuple[int, int]] = []


_answers = msgspec.msgpack.Decoder(_RemoteReadAnswer)
Ask = Callable[[RemoteReadRequest], Awaitable[memoryview]]


async def answer_remote_read(
    reader: StableStreamReader, question: RemoteReadRequest
) -> Sequence[Chunk]:
    """The answer to another node."""
    at = None if question.timestamp is None else await reader.offset_at(question.timestamp)
    piece = None
    if question.offset is not None:
        piece = await reader.piece(question.offset, min(question.max_bytes, PIECE_BYTES_MAX))
    answer = _RemoteReadAnswer(
        reader.start_offset,
        reader.last_stable,
        at,
        None if piece is None else piece.until_offset,
        [] if piece is None else piece.aborted,
    )
    head = msgspec.msgpack.encode(answer)
    data = b"" if piece is None else piece.data
    return [len(head).to_bytes(_LENGTH_BYTES), head, data]


class RemoteReader:
    """Reads a stream that another node writes.

    ``open`` requests the bounds, which are as of that time.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.start_offset = 0
        self.last_stable = 0

    async def open(self) -> "RemoteReader":
        """Request the bounds of the stream."""
        await self._asked(RemoteReadRequest())
        return self

    async def offset_at(self, timestamp: int) -> int | None:
        """The offset of the first record that is not older."""
        answer, _ = await self._asked(RemoteReadRequest(timestamp=timestamp))
        return answer.at

    async def piece(self, offset: int, max_bytes: int) -> StreamPiece | None:
        """Batches from the one that contains ``offset`` on; None where there is nothing yet."""
        return await self.next_piece(offset, max_bytes, 0)

    async def next_piece(self, offset: int, max_bytes: int, wait_ms: int) -> StreamPiece | None:
        """As ``piece``, but the writer waits a while where there is nothing yet."""
        answer, data = await self._asked(RemoteReadRequest(offset, max_bytes, wait_ms=wait_ms))
        if answer.until_offset is None:
            return None
        return StreamPiece(bytes(data), answer.until_offset, answer.aborted)

    async def _asked(self, question: RemoteReadRequest) -> tuple[_RemoteReadAnswer, memoryview]:
        body = await self._ask(question)
        until = _LENGTH_BYTES + int.from_bytes(body[:_LENGTH_BYTES])
        try:
            answer = _answers.decode(body[_LENGTH_BYTES:until])
        except DECODE_ERRORS as error:
            raise Corrupt(f"malformed answer to a remote read: {error}") from error
        self.start_offset, self.last_stable = answer.start_offset, answer.last_stable
        return answer, body[until:]
