"""Decides where a batch ends in the WAL: at the end of a transaction, within its limits.

Incremental snapshots alternate with the stream: the batch of a chunk ends exactly at the position
in the log that the chunk saw. Signals are applied before Spark gets an offset after them, so that
none is lost.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from mainstem.pipelines.cdc import snapshot_stamps as stamping
from mainstem.pipelines.cdc.postgres.incremental_snapshot import PostgresIncrementalSnapshot
from mainstem.pipelines.cdc.postgres.message_spool import MessageSpool
from mainstem.pipelines.cdc.postgres.offset import PostgresOffset
from mainstem.pipelines.cdc.postgres.pgoutput import COMMIT, MESSAGE, parse
from mainstem.pipelines.cdc.postgres.pgoutput import Commit as CommitMessage
from mainstem.pipelines.cdc.postgres.server import PostgresCdcServer, PublishedTable, refusals
from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig
from mainstem.pipelines.cdc.postgres.signals import signals_in
from mainstem.pipelines.cdc.postgres.slot import SlotMonitor
from mainstem.pipelines.cdc.table_selection import is_selected

ROWS_PER_BATCH: Final = 200_000
IDLE_WAL_BYTES: Final = 16 << 20
BRACKETS: Final = 10_000
FLUSH_POLL_S: Final = 0.01
CHANGES_MAX: Final = (1 << 31) - 1


class PostgresBatchPlanner:
    """Decides where batches end in the log; one object per run of a query."""

    def __init__(
        self,
        config: PostgresCdcConfig,
        folder: Path,
        server: PostgresCdcServer,
        increment: PostgresIncrementalSnapshot,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._server = server
        self._increment = increment
        self._now = now
        self._watch = SlotMonitor(config, folder, now)
        self._spool = MessageSpool(folder)
        self._done_until = 0
        self._signal_table: int | None = None
        self._messages_seen = 0
        self._beat_at = now()

    def next(self, start: PostgresOffset, rows_max: int | None, cap: int | None) -> PostgresOffset:
        """The end of the batch after ``start``; ``start`` itself when there is nothing new."""
        self._watch.look(self._server)
        until = _stamped_until(start)
        end = None if until >= start.lsn else self._chunk(start, rows_max)
        if end is None:
            end = self._streamed(start, rows_max or ROWS_PER_BATCH, cap)
        # The only new message may have been a signal. While the log may contain changes that a
        # snapshot already has, chunks wait: such changes would be in neither of them.
        if end == start and self._increment.is_due and self._server.flushed_lsn() >= until:
            end = self._chunk(start, rows_max) or end
        return end

    def read_again(self, names: tuple[str, ...]) -> None:
        """Add tables to the incremental snapshot."""
        tables = captured_tables(self._server.tables(), self._config)
        self._increment.enqueue([each.shape for each in tables], names)

    def _streamed(self, start: PostgresOffset, rows_max: int, cap: int | None) -> PostgresOffset:
        server = self._server
        until = server.flushed_lsn()
        if cap is not None:
            until = min(until, cap)
        if until <= start.lsn:
            return self._idle(start, start.lsn, cap)
        self._done(start.lsn)
        # Ends of transactions are messages too; small transactions have one for every row or two.
        asked = rows_max + min(2 * rows_max, BRACKETS) + self._messages_seen
        while True:
            signal_oid = self._signal_oid()
            with server.peeked(until, min(asked, CHANGES_MAX)) as blocks:
                found = self._spool.fill(blocks, signal_oid)
            end, seen = _cut(found, start.lsn, until, rows_max)
            if end > start.lsn:
                self._spool.keep(start.lsn, end, seen)
                self._handle_signals(found, end)
                self._messages_seen = seen
                self._beat_at = self._now()
                return self._moved(start, end)
            if not found or found[-1][0] < asked:
                return self._idle(start, until, cap)
            asked *= 4  # messages of earlier batches, still in the slot, filled the result

    def _done(self, lsn: int) -> None:
        """Release everything up to ``lsn``: a request for what follows means that it is processed.

        The slot is advanced at once, and not when Spark commits in the middle of the next batch:
        the server would decode everything from the start of the last batch again.
        """
        if lsn != self._done_until:
            self._server.advance(lsn)
            self._spool.forget(lsn)
            self._done_until = lsn

    def _chunk(self, start: PostgresOffset, rows_max: int | None) -> PostgresOffset | None:
        """Read a chunk of an incremental snapshot; its batch ends at the chunk's log position."""
        if not self._increment.is_due:
            return None
        found_signals = self._increment.chunk(self._server.tables(), start.file, rows_max)
        if found_signals is None:
            return None
        server = self._server
        end = max(found_signals.lsn, start.lsn)
        while server.flushed_lsn() < end:
            time.sleep(FLUSH_POLL_S)
        self._handle_signals(server.boundaries(end, CHANGES_MAX, self._signal_oid()), end)
        return msgspec.structs.replace(self._moved(start, end), file=start.file + 1)

    def _signal_oid(self) -> int:
        if self._signal_table is None:
            wanted = self._config.signal_table
            oids = [each.oid for each in self._server.tables() if each.shape.full_name == wanted]
            self._signal_table = oids[0] if oids else 0
        return self._signal_table

    def _handle_signals(self, found: Sequence[tuple[int, int, bytes]], end: int) -> None:
        """Apply signals up to a position; their effect is stored before Spark gets the position."""
        found_signals = list(signals_in(found, self._increment.handled_until, end))
        if found_signals:
            tables = captured_tables(self._server.tables(), self._config)
            self._increment.handle_signals(found_signals, [each.shape for each in tables], end)

    def _moved(self, start: PostgresOffset, lsn: int, *, beats: int = 0) -> PostgresOffset:
        kept = "" if _stamped_until(start) < start.lsn else start.stamps
        return msgspec.structs.replace(
            start, lsn=lsn, at_ms=int(self._now() * 1000), beat=start.beat + beats, stamps=kept
        )

    def _idle(self, start: PostgresOffset, until: int, cap: int | None) -> PostgresOffset:
        """Handle a log without captured changes: advance the slot if other changes are large."""
        if cap is not None:
            return start
        interval_s = self._config.heartbeat_interval_ms / 1000
        if interval_s and self._now() - self._beat_at >= interval_s:
            self._beat_at = self._now()
            if self._config.heartbeat_query is not None:
                with refusals(self._config):
                    self._server.session.execute(self._config.heartbeat_query.encode())
            return self._moved(start, until, beats=1)
        if until - start.lsn >= IDLE_WAL_BYTES:
            return self._moved(start, until)
        return start


def captured_tables(
    tables: list[PublishedTable], config: PostgresCdcConfig
) -> list[PublishedTable]:
    """The tables without a signal table that is not selected itself."""
    return [
        each
        for each in tables
        if is_selected(each.shape.schema, each.shape.name, config.tables, config.exclude_tables)
    ]


def _stamped_until(start: PostgresOffset) -> int:
    """The position up to which a snapshot may already contain changes."""
    return stamping.Stamps(stamping.decode(start.stamps)).until if start.stamps else -1


def _cut(
    found: Sequence[tuple[int, int, bytes]], start: int, until: int, rows_max: int
) -> tuple[int, int]:
    """The last boundary within the limits, and the number of its message."""
    end, seen, base, brackets = start, 0, 0, 0
    for number, lsn, data in found:
        if data[0] == COMMIT:
            message = parse(data)
            assert isinstance(message, CommitMessage)
            at = message.end_lsn
        elif data[0] != MESSAGE or data[1] & 1:  # within a transaction, whose end follows
            continue
        else:
            at = lsn
        if at <= start:
            base = number
            continue
        brackets += 2 if data[0] == COMMIT else 0
        if at > until or (end > start and number - base - brackets > rows_max):
            break
        end, seen = at, number
    return end, seen
