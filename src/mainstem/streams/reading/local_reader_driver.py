"""Reading a stream on this node, a piece at a time; the same interface reads from other nodes."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from mainstem.model.errors import MainstemError


class ReadableBatches(Protocol):
    """Whole batches that can be read."""

    @property
    def until_offset(self) -> int:
        """The offset after the last of them."""
        ...

    def read(self) -> bytes:
        """The bytes of the batches."""
        ...


class ReadableStream(Protocol):
    """The part of a stream that a reader needs."""

    @property
    def start_offset(self) -> int:
        """Where it starts."""
        ...

    @property
    def last_stable(self) -> int:
        """Where it ends for readers of stable records."""
        ...

    @property
    def closed(self) -> MainstemError | None:
        """Why it no longer returns anything; None while it is open."""
        ...

    @property
    def lapsed(self) -> Callable[[], MainstemError | None] | None:
        """Why the state here may be out of date."""
        ...

    def read(
        self, offset: int, *, max_bytes: int, committed_only: bool, min_one: bool
    ) -> ReadableBatches | None:
        """Batches from the one that contains ``offset`` on; None where there is nothing yet."""
        ...

    def aborted_transactions(self, start: int, until: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions with records in [start, until)."""
        ...

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """First (offset, timestamp, epoch) that is not older than ``timestamp``."""
        ...

    def add_waiter(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` whenever it grows or ends, until it is removed."""
        ...

    def remove_waiter(self, wake: Callable[[], None]) -> None:
        """Forget ``wake``."""
        ...


class StreamPiece(Struct, frozen=True):
    """Whole batches, and which transactions among them were aborted (producer, first offset)."""

    data: bytes
    until_offset: int
    aborted: list[tuple[int, int]]


class LocalReader:
    """Reads a stream that can be read here. Only stable records are visible."""

    def __init__(self, stream: ReadableStream) -> None:
        self._stream = stream
        self._check_fresh()

    @property
    def start_offset(self) -> int:
        """Where the stream starts."""
        return self._stream.start_offset

    @property
    def last_stable(self) -> int:
        """Where it ends for now."""
        return self._stream.last_stable

    async def offset_at(self, timestamp: int) -> int | None:
        """The offset of the first record that is not older."""
        found = self._stream.offset_for_timestamp(timestamp)
        return None if found is None else found[0]

    async def piece(self, offset: int, max_bytes: int) -> StreamPiece | None:
        """Batches from the one that contains ``offset`` on; None where there is nothing yet."""
        stream = self._stream
        part = stream.read(offset, max_bytes=max_bytes, committed_only=True, min_one=True)
        if part is None:
            return None
        aborted = stream.aborted_transactions(offset, part.until_offset)
        return StreamPiece(part.read(), part.until_offset, aborted)

    async def next_piece(self, offset: int, max_bytes: int, wait_ms: int) -> StreamPiece | None:
        """As ``piece``, but waits a while where there is nothing yet.

        Raises:
            MainstemError: the stream was closed here meanwhile, or may continue on another node.
        """
        if wait_ms > 0 and self.last_stable <= offset:
            await self._until_more(offset, wait_ms / 1000)
            if self._stream.closed is not None:
                raise self._stream.closed
            self._check_fresh()
        return await self.piece(offset, max_bytes)

    async def _until_more(self, offset: int, timeout_s: float) -> None:
        stream = self._stream
        moved = asyncio.Event()
        stream.add_waiter(moved.set)
        try:
            async with asyncio.timeout(timeout_s):
                while stream.last_stable <= offset and stream.closed is None:
                    await moved.wait()
                    moved.clear()
        except TimeoutError:
            pass
        finally:
            stream.remove_waiter(moved.set)

    def _check_fresh(self) -> None:
        lapsed = self._stream.lapsed
        if lapsed is not None and (reason := lapsed()) is not None:
            raise reason
