"""Retention: old and excess records are deleted, idle producers and segments are closed.

A pass walks all streams, yields to other work after each, and trims through the catalogue, so
that a stream's start is durable before a file is deleted. A floor may protect records that a reader
still needs; by default everything that is committed may go.
"""

import asyncio
from collections.abc import Callable

from mainstem.log.cleaning.retention import RetentionPiece, RetentionSettings, retention_start
from mainstem.log.range_log import RangeLog
from mainstem.log.store import LogStore
from mainstem.model.clock import Clock
from mainstem.model.errors import StorageMayRefuse, Unavailable
from mainstem.streams.service import StreamService
from mainstem.streams.storage_retry_driver import refusal_of
from mainstem.streams.writer.flusher import Flusher
from mainstem.streams.writer.segment_settings import segment_age_ms
from mainstem.streams.writer.stream_driver import StreamWriter
from mainstem.telemetry import logs

Floor = Callable[[StreamWriter], int]

PRODUCER_EXPIRY_MS = 24 * 3600 * 1000

log = logs.logger("streams")


class RetentionDriver:
    """Walks all streams periodically."""

    def __init__(
        self,
        streams: StreamService,
        store: LogStore,
        flusher: Flusher,
        clock: Clock,
        floor: Floor = lambda stream: stream.committed,
    ) -> None:
        self._streams = streams
        self._store = store
        self._flusher = flusher
        self._clock = clock
        self._floor = floor

    async def run(self, interval_ms: int) -> None:
        """Run passes without end."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self.run_once()

    async def sweep(self, interval_ms: int) -> None:
        """Remove the files of what was dropped, a few at a time, without end."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                for _ in iter(self._store.sweep, False):  # noqa: FBT003 - the value that ends it
                    await asyncio.sleep(0)
            except OSError as error:
                refusal = refusal_of(error)
                if refusal is None:
                    raise
                log.warning("deleted files are removed later: %s", refusal)

    async def run_once(self) -> None:
        """One pass over all streams."""
        for stream in self._streams.table.all():
            if stream.closed is None:
                await self._maintain(stream)
            await asyncio.sleep(0)
        with StorageMayRefuse(log, "the checkpoint is left to the next pass"):
            self._store.write_checkpoint()

    async def _maintain(self, stream: StreamWriter) -> None:
        now_ms = self._clock.wall_ms()
        name = f"{stream.topic}-{stream.id.partition}"
        postponed = f"the segment of {name} is left to the next pass"
        stream.state.expire(now_ms, PRODUCER_EXPIRY_MS)
        with StorageMayRefuse(log, postponed):
            self._close_idle(stream, now_ms)
        settings = stream.settings
        if not settings.delete:
            return
        start = retention_start(
            _pieces(stream),
            RetentionSettings(settings.retention_ms, settings.retention_bytes),
            now_ms=now_ms,
            floor=min(self._floor(stream), stream.committed),
            spare_last=False,
        )
        if start is None or start <= stream.start_offset:
            return
        if start == stream.log.written_end:
            # The next append starts a new file, and the old one can go.
            with StorageMayRefuse(log, postponed):
                stream.log.roll()
        try:
            await self._streams.ranges.trim(stream, start)
        except Unavailable as error:
            log.warning("%s is not trimmed: %s", name, error)

    def _close_idle(self, stream: StreamWriter, now_ms: int) -> None:
        """A segment that is old enough is closed even when nothing more arrives."""
        open_range = stream.log
        if not open_range.segments or not open_range.segments[-1].size:
            return
        age_ms = now_ms - open_range.segments[-1].created_ms
        settings = stream.settings
        most_ms = segment_age_ms(settings, stream.id)
        if settings.compact and age_ms >= min(most_ms, settings.max_compaction_lag_ms):
            self._flusher.roll(stream)
        elif age_ms >= most_ms:
            open_range.roll()


def _pieces(stream: StreamWriter) -> list[RetentionPiece]:
    """The segments of a stream that are not wholly below its start."""
    return [
        piece
        for held in stream.ranges
        for piece in _segments(held)
        if piece.until > stream.start_offset
    ]


def _segments(held: RangeLog) -> list[RetentionPiece]:
    return [
        RetentionPiece(
            segment.base_offset, segment.until_offset, segment.size, segment.max_timestamp
        )
        for segment in held.segments
    ]
