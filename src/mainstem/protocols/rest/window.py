"""Reads a window of messages: only the batches that contain it are decoded, within limits.

Damaged data ends a window: messages before it are returned, and a window that starts at the damage
is an error. Decoding yields to other tasks of the node every few hundred records.
"""

import asyncio
from collections.abc import Iterator

from msgspec import Struct

from mainstem.broker.api.broker import StableStreamReader
from mainstem.model.errors import Corrupt, ErrorCode, Unavailable
from mainstem.model.limits import MIB
from mainstem.model.records.record import Record, batches_of, records_of
from mainstem.protocols.visibility import Visibility

MESSAGES_MAX = 10_000
ANSWER_BYTES_MAX = 8 * MIB
BATCH_PLAIN_BYTES_MAX = 32 * MIB
WINDOWS_AT_ONCE_MAX = 4
WINDOWS_WAITING_MAX = 64
READ_BYTES = 1 * MIB
_RECORDS_BETWEEN_PAUSES = 256
_RECORD_OVERHEAD_BYTES = 160  # the names of the fields in JSON


class MessageWindow(Struct):
    """The messages of a window, and where the next window starts."""

    records: list[Record]
    next_offset: int
    damage: Corrupt | None = None


class WindowReader:
    """Reads windows, a few at a time, so that many readers cannot fill memory or block the node."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(WINDOWS_AT_ONCE_MAX)
        self._waiting = 0

    async def window(self, reader: StableStreamReader, start: int, *, limit: int) -> MessageWindow:
        """Up to ``limit`` committed messages from ``start`` on."""
        if self._waiting >= WINDOWS_WAITING_MAX:
            raise Unavailable(ErrorCode.OVERLOADED, f"{self._waiting} other readers are waiting")
        self._waiting += 1
        try:
            async with self._turn:
                return await _Reading(reader, start, limit).run()
        finally:
            self._waiting -= 1


class _Reading:
    """One window being read."""

    def __init__(self, reader: StableStreamReader, start: int, limit: int) -> None:
        self._reader = reader
        self._limit = limit
        self._left_bytes = ANSWER_BYTES_MAX
        self._window = MessageWindow([], start)

    async def run(self) -> MessageWindow:
        """Read until the window is full, the byte limit is reached or the stream ends."""
        window = self._window
        try:
            while await self._read_on():
                pass
        except Corrupt as damage:
            if not window.records:
                raise
            window.damage = damage
        return window

    async def _read_on(self) -> bool:
        """Read one more piece of the log; whether the window needs more."""
        window = self._window
        asked = window.next_offset
        # A small limit reads less at once; a batch is read whole anyway.
        found = await self._reader.piece(asked, min(READ_BYTES, self._left_bytes))
        if found is None:
            return False
        visibility = Visibility(found.aborted)
        for header, batch in batches_of(found.data):
            if header.until_offset <= window.next_offset:
                continue
            if visibility.shows(header, batch) and not await self._decode(batch):
                return False
            window.next_offset = header.until_offset
        if window.next_offset == asked:
            raise Corrupt(f"no batch at offset {asked} where the log has one")
        return True

    async def _decode(self, batch: memoryview) -> bool:
        """Decode the records of one batch; False when the window is full."""
        window = self._window
        records = records_of(batch, limit_bytes=BATCH_PLAIN_BYTES_MAX)
        # The first step checks and decompresses the whole batch, which can run in a thread.
        record = await asyncio.to_thread(_first, records)
        seen = 0
        while record is not None:
            if record.offset >= window.next_offset:
                if not self._take(record):
                    return False
                window.next_offset = record.offset + 1
                if len(window.records) >= self._limit:
                    return False
            seen += 1
            if seen % _RECORDS_BETWEEN_PAUSES == 0:
                await asyncio.sleep(0)
            record = next(records, None)
        return True

    def _take(self, record: Record) -> bool:
        """Add a record unless the response would be too long; the first one always fits."""
        window = self._window
        size = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(value or b"") + 40 for name, value in record.headers)
        if window.records and size > self._left_bytes:
            return False
        self._left_bytes = max(0, self._left_bytes - size)
        window.records.append(record)
        return True


def _first(records: Iterator[Record]) -> Record | None:
    return next(records, None)
