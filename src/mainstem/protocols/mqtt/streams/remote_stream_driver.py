"""A stream that another node writes, read from that node ahead of local readers.

    writer ──(waits for more)──▶ RemoteStream ──wake──▶ Tail reads what is in memory
                                    ▲  └ a missing piece: requested, and available later

Guarantees: same records and order as at the writer; a node that cannot be reached is asked again
until the stream is closed; only a few pieces are kept in memory.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from mainstem.broker.api.broker import StableStreamReader
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import StreamId
from mainstem.model.limits import KIB

log = logging.getLogger(__name__)

PIECE_BYTES: Final = 256 * KIB
PIECES_MAX: Final = 16
WAIT_MS: Final = 2_000
RETRY_PAUSE_S: Final = 0.05


class Piece(Protocol):
    """Whole batches, and the aborted transactions among them."""

    @property
    def data(self) -> bytes:
        """The batches."""
        ...

    @property
    def until_offset(self) -> int:
        """The offset after the last batch."""
        ...

    @property
    def aborted(self) -> list[tuple[int, int]]:
        """(producer id, first offset)."""
        ...


# Arguments: topic, partition, offset, maximum bytes, maximum wait; returns bounds and batches.
Follow = Callable[[str, int, int, int, int], Awaitable[tuple[StableStreamReader, Piece | None]]]


class RemotePiece:
    """Whole batches from another node."""

    __slots__ = ("aborted", "data", "start_offset", "until_offset")

    def __init__(
        self, start_offset: int, until_offset: int, data: bytes, aborted: list[tuple[int, int]]
    ) -> None:
        self.start_offset = start_offset
        self.until_offset = until_offset
        self.aborted = aborted
        self.data = data

    def read(self) -> bytes:
        """The bytes of the batches."""
        return self.data


class RemoteStream:
    """Reads ahead in a stream that another node writes; ``opened`` once its bounds are known."""

    def __init__(self, stream: StreamId, topic: str, follow: Follow) -> None:
        self.id = stream
        self.topic = topic
        self.closed: MainstemError | None = None
        self.start_offset = 0
        self.last_stable = 0
        self.opened = asyncio.Event()
        self._follow = follow
        self._pieces: dict[int, RemotePiece] = {}
        self._asked: dict[int, asyncio.Task[None]] = {}
        self._waiters: dict[Callable[[], None], None] = {}
        self._following = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Stop reading."""
        self.closed = Unavailable(ErrorCode.NOT_WRITER, "the stream is no longer read here")
        for task in (self._following, *self._asked.values()):
            task.cancel()

    def add_waiter(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` whenever there is more to read."""
        self._waiters[wake] = None

    def remove_waiter(self, wake: Callable[[], None]) -> None:
        """Remove ``wake``."""
        self._waiters.pop(wake, None)

    def read(
        self, offset: int, *, max_bytes: int, committed_only: bool, min_one: bool
    ) -> RemotePiece | None:
        """The piece in memory that contains ``offset``; None: not yet."""
        del max_bytes, committed_only, min_one  # the size of a piece is fixed
        if offset >= self.last_stable:
            return None
        found = self._at(offset)
        if found is None and offset not in self._asked and len(self._asked) < PIECES_MAX:
            task = asyncio.get_running_loop().create_task(self._ask(offset))
            self._asked[offset] = task
        return found

    def aborted_transactions(self, start: int, until: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions in a piece that was read."""
        del until
        found = self._at(start)
        return [] if found is None else found.aborted

    def _at(self, offset: int) -> RemotePiece | None:
        for piece in reversed(self._pieces.values()):
            if piece.start_offset <= offset < piece.until_offset:
                return piece
        return None

    async def _run(self) -> None:
        """Wait for more records until the stream is closed."""
        while True:
            try:
                await self._take(self.last_stable, WAIT_MS if self.opened.is_set() else 0)
            except MainstemError as error:
                log.debug("%s-%d cannot be read now: %s", self.topic, self.id.partition, error)
                await asyncio.sleep(RETRY_PAUSE_S)

    async def _ask(self, offset: int) -> None:
        try:
            with contextlib.suppress(MainstemError):  # the reader asks again
                await self._take(offset, 0)
        finally:
            self._asked.pop(offset, None)

    async def _take(self, offset: int, wait_ms: int) -> None:
        # Until the bounds are known, only they are needed.
        max_bytes = PIECE_BYTES if self.opened.is_set() else 1
        bounds, piece = await self._follow(
            self.topic, self.id.partition, offset, max_bytes, wait_ms
        )
        is_new = bounds.last_stable > self.last_stable
        self.start_offset = max(self.start_offset, bounds.start_offset)
        self.last_stable = max(self.last_stable, bounds.last_stable)
        if not self.opened.is_set():
            self.opened.set()
        elif piece is not None:
            self._keep(RemotePiece(offset, piece.until_offset, piece.data, piece.aborted))
            is_new = True
        elif offset < bounds.last_stable:
            # No records are left up to the end: removed by compaction.
            self._keep(RemotePiece(offset, bounds.last_stable, b"", []))
            is_new = True
        if is_new:
            for wake in tuple(self._waiters):
                wake()

    def _keep(self, piece: RemotePiece) -> None:
        self._pieces.pop(piece.start_offset, None)
        self._pieces[piece.start_offset] = piece
        while len(self._pieces) > PIECES_MAX:
            del self._pieces[next(iter(self._pieces))]
