"""Decides where a batch ends in the binlog: at the end of a transaction, within its limits.

The driver scans the log ahead of the tasks (``binlog_scanner``); tables that are not captured cause
no batches. Incremental snapshots alternate with the stream: the batch of a chunk ends exactly where
the log ended after the chunk was read. Signals are applied before Spark gets an offset after
them, so that none is lost.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.pipelines.cdc import snapshot_stamps as stamping
from mainstem.pipelines.cdc.envelope import ChangeRecord
from mainstem.pipelines.cdc.mysql.binlog_scanner import BinlogScanner
from mainstem.pipelines.cdc.mysql.binlog_stream import events
from mainstem.pipelines.cdc.mysql.change_decoder import (
    MysqlCatalogue,
    MysqlChangeDecoder,
    MysqlLogSpan,
)
from mainstem.pipelines.cdc.mysql.incremental_snapshot import MysqlIncrementalSnapshot, Watch
from mainstem.pipelines.cdc.mysql.offset import BinlogPosition, MysqlOffset
from mainstem.pipelines.cdc.mysql.server import MysqlCdcServer
from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig
from mainstem.pipelines.connector.gauges import write_gauges
from mainstem.pipelines.connector.shapes import TableRoute

SPAN_BYTES: Final = 256 << 20
IDLE_LOG_BYTES: Final = 16 << 20
WATCH_EVERY_S: Final = 10.0
_NO_BOUND: Final = 1 << 62


class _Quiet(Struct, frozen=True):
    """A position up to which the log has no captured changes since ``start``."""

    start: BinlogPosition
    spot: BinlogPosition
    gtid: str
    passed_bytes: int = 0


class MysqlBatchPlanner:
    """Decides where batches end in the log; one object per run of a query."""

    def __init__(
        self,
        config: MysqlCdcConfig,
        folder: Path,
        routes: Sequence[TableRoute],
        asked: Callable[[], MysqlCdcServer],
        increment: MysqlIncrementalSnapshot,
    ) -> None:
        self._config = config
        self._folder = folder
        self._routes = routes
        self._asked = asked
        self._increment = increment
        self._origin: MysqlCatalogue = asked().origin()
        self._quiet = _Quiet(BinlogPosition(), BinlogPosition(), "")
        self._watched_at = float("-inf")

    def next(
        self, start: MysqlOffset, rows_max: int | None, cap: BinlogPosition | None
    ) -> MysqlOffset:
        """The end of the batch after ``start``; ``start`` itself when there is nothing new."""
        self._watch(start)
        end = self._chunk(start, rows_max) or self._streamed(start, rows_max, cap)
        if end == start:  # the only new event may have been a signal
            end = self._chunk(start, rows_max) or end
        return end

    def _watch(self, start: MysqlOffset) -> None:
        """Report at intervals how much of the log is still to be read."""
        if time.monotonic() - self._watched_at < WATCH_EVERY_S:
            return
        self._watched_at = time.monotonic()
        number = BinlogPosition(start.spot.file).order
        sizes = self._asked().files().items()
        kept = sum(size for file, size in sizes if BinlogPosition(file).order >= number)
        write_gauges(self._folder, {"log_behind_bytes": max(0, kept - start.spot.position)})

    def _chunk(self, start: MysqlOffset, rows_max: int | None) -> MysqlOffset | None:
        """Read a chunk of an incremental snapshot; its batch ends where the log ended then."""

        def walk(until: BinlogPosition, watch: Watch) -> BinlogScanner:
            walker = self._walker(start, start.spot, start.gtid)
            self._walk(walker, until, watch, rows_max=None, bytes_max=_NO_BOUND)
            return walker

        if not self._increment.is_due:
            return None
        # Changes that a snapshot already contains would be in neither the chunk nor the log.
        passed = self._quiet.spot if self._quiet.start == start.spot else start.spot
        if _stamped_until(start) > passed.order:
            return None
        chunk = self._increment.chunk(self._asked(), start, rows_max, walk)
        if chunk is None or chunk.is_void:
            return None
        self._handle_signals(chunk.walker)
        moved = self._moved(start, chunk.walker.spot, chunk.walker.gtid)
        return msgspec.structs.replace(moved, file=start.file + 1)

    def _streamed(
        self, start: MysqlOffset, rows_max: int | None, cap: BinlogPosition | None
    ) -> MysqlOffset:
        server = self._asked()
        until = server.end_of_log()
        if cap is not None and cap.order < until.order:
            until = cap
        server.require(start.spot)
        while True:
            quiet = self._quiet
            if quiet.start != start.spot:
                quiet = _Quiet(start.spot, start.spot, start.gtid)
            if until.order <= quiet.spot.order:
                return self._idle(start, quiet, cap)
            walker = self._walker(start, quiet.spot, quiet.gtid)
            self._walk(walker, until, self._counter(quiet.spot, rows_max), rows_max, SPAN_BYTES)
            self._handle_signals(walker)
            if walker.is_touched:
                return self._moved(start, walker.spot, walker.gtid)
            passed = quiet.passed_bytes + walker.passed_bytes
            self._quiet = _Quiet(start.spot, walker.spot, walker.gtid, passed)
            if walker.spot.order <= quiet.spot.order:
                return self._idle(start, quiet, cap)

    def _walker(self, start: MysqlOffset, spot: BinlogPosition, gtid: str) -> BinlogScanner:
        return BinlogScanner(
            self._config, self._origin, MysqlLogSpan(spot, _now_ms(), start.stamps), gtid
        )

    def _counter(self, spot: BinlogPosition, rows_max: int | None) -> Watch:
        """Counts the records of events if the number of rows is limited."""
        if rows_max is None:
            return lambda event: 0
        decoder = MysqlChangeDecoder(self._config, self._routes, self._origin, MysqlLogSpan(spot))
        return lambda event: sum(1 for _ in decoder.decode(event))

    def _walk(
        self,
        walker: BinlogScanner,
        until: BinlogPosition,
        watch: Watch,
        rows_max: int | None,
        bytes_max: int,
    ) -> None:
        """Scan to the end of the last transaction within the limits, or of the first if none is."""
        if until.order <= walker.spot.order:
            return
        rows_max = _NO_BOUND if rows_max is None else rows_max
        rows = 0
        server = MysqlCdcServer(self._config)
        try:
            for event in events(server, walker.start):
                rows += watch(event)
                if not walker.passes(event):
                    continue
                if rows > rows_max and walker.spot != walker.start:
                    return
                walker.settle()
                is_full = rows >= rows_max or walker.passed_bytes >= bytes_max
                if is_full or walker.spot.order >= until.order:
                    return
        finally:
            server.close()

    def _handle_signals(self, walker: BinlogScanner) -> None:
        """Apply signals; their effect is stored before Spark gets an offset after them."""
        end, handled = walker.spot.order, self._increment.handled_until
        signals = [signal for place, signal in walker.signals if handled < place <= end]
        emptied = tuple(name for place, name in walker.emptied if place < end)
        if not signals and not emptied:
            return
        tables = self._asked().tables(self._config.chosen, self._config.exclude_tables)
        if emptied:
            self._increment.enqueue(tables, emptied)
        self._increment.handle_signals(signals, tables, end)

    def _moved(
        self, start: MysqlOffset, spot: BinlogPosition, gtid: str, *, beats: int = 0
    ) -> MysqlOffset:
        kept = start.stamps if _stamped_until(start) > start.spot.order else ""
        return msgspec.structs.replace(
            start, spot=spot, gtid=gtid, at_ms=_now_ms(), beat=start.beat + beats, stamps=kept
        )

    def _idle(self, start: MysqlOffset, quiet: _Quiet, cap: BinlogPosition | None) -> MysqlOffset:
        """Handle a log without captured changes: advance past files that are no longer needed."""
        if cap is not None:
            return start
        interval_ms = self._config.heartbeat_interval_ms
        if interval_ms and _now_ms() - start.at_ms >= interval_ms:
            if self._config.heartbeat_query is not None:
                self._asked().run(self._config.heartbeat_query)
            return self._moved(start, quiet.spot, quiet.gtid, beats=1)
        if quiet.passed_bytes >= IDLE_LOG_BYTES or quiet.spot.file != start.spot.file:
            return self._moved(start, quiet.spot, quiet.gtid)
        return start


def log_records(
    config: MysqlCdcConfig, routes: Sequence[TableRoute], begun: MysqlOffset, until: MysqlOffset
) -> Iterator[ChangeRecord]:
    """The changes between two positions of the log.

    Raises:
        Unavailable: the log ended before ``until``.
    """
    server = MysqlCdcServer(config)
    try:
        span = MysqlLogSpan(begun.spot, until.at_ms, until.stamps)
        decoder = MysqlChangeDecoder(config, routes, server.origin(), span)
        goal = until.spot.order
        for event in events(server, begun.spot):
            yield from decoder.decode(event)
            if decoder.spot.order >= goal:
                return
        raise Unavailable(
            ErrorCode.COORDINATOR_UNAVAILABLE,
            f"the binary log ended early, at {decoder.spot}",
            subject=str(until.spot),
            remedy="if the server was restored, remove the pipeline's state folder",
        )
    finally:
        server.close()


def _stamped_until(start: MysqlOffset) -> int:
    """The position up to which a snapshot may already contain changes."""
    return stamping.Stamps(stamping.decode(start.stamps)).until if start.stamps else 0


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
