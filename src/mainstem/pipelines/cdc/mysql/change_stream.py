"""Captures one MySQL or MariaDB server: decides, in the driver, where micro-batches end.

    start ──▶ snapshot: spool files ──▶ stream: spans of the log that end where transactions end

Guarantees: an offset that was returned can be read again, by this process or another, until
``commit`` gets a later one; a log that does not reach back that far is reported at once, with the
remedy, and rows are never silently read again unless ``when_needed`` is set. After a failover to
another server, the stream continues at the position with the same GTID set.
"""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.pipelines.cdc.mysql.batch_planner import MysqlBatchPlanner
from mainstem.pipelines.cdc.mysql.binlog_stream import locate
from mainstem.pipelines.cdc.mysql.incremental_snapshot import MysqlIncrementalSnapshot
from mainstem.pipelines.cdc.mysql.offset import BinlogPosition, MysqlOffset
from mainstem.pipelines.cdc.mysql.server import MysqlCdcServer, lost_log
from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql.snapshot import (
    MysqlSnapshot,
    MysqlSnapshotState,
    load_state,
    read_spool,
)
from mainstem.pipelines.cdc.spool import forget_spool, save_state, spooled_until, write_safely
from mainstem.pipelines.connector.progress import SourceProgress, write_progress
from mainstem.pipelines.connector.shapes import TableRoute

REACHED_NAME: Final = "reached.json"
ROWS_PER_BATCH: Final = 200_000

_log = logging.getLogger(__name__)


class MysqlChangeStream:
    """Decides where batches end; one object per run of a query."""

    def __init__(self, config: MysqlCdcConfig, folder: Path, routes: Sequence[TableRoute]) -> None:
        self._config = config
        self._folder = folder
        self._routes = routes
        self._server: MysqlCdcServer | None = None
        self._state: MysqlSnapshotState | None = None
        self._snapshot: MysqlSnapshot | None = None
        self._log: MysqlBatchPlanner | None = None
        self._moved_to: MysqlOffset | None = None
        self._is_new = True
        self._reads_again = False

    @property
    def _streams(self) -> bool:
        return self._config.snapshot_mode != "initial_only"

    def end_of_log(self) -> BinlogPosition:
        """Where the log ends now."""
        try:
            return self._asked().end_of_log()
        except Unavailable:
            self.close()
            raise

    def next(
        self, start: MysqlOffset, rows_max: int | None, cap: BinlogPosition | None = None
    ) -> MysqlOffset:
        """The end of the batch after ``start``; ``start`` itself when there is nothing new.

        Raises:
            InvalidRequest: changes are lost.
            MainstemError: the server does not answer.
        """
        try:
            return self._next(start, rows_max, cap)
        except Unavailable:
            self.close()  # the next call opens new sessions
            raise
        except InvalidRequest as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or not self._may_begin_anew:
                raise
            _log.warning("%s: starting a new snapshot", error.cause)
            self.close()
            self._begin(start, rows_max)
            return self._next(start, rows_max, cap)

    @property
    def _may_begin_anew(self) -> bool:
        return self._config.snapshot_mode == "when_needed"

    def _next(
        self, start: MysqlOffset, rows_max: int | None, cap: BinlogPosition | None
    ) -> MysqlOffset:
        if self._state is None:
            self._open(start, rows_max)
        state = self._state
        assert state is not None
        until = self._spooled(state, start.file, rows_max or ROWS_PER_BATCH)
        is_included = state.number <= start.epoch and bool(start.spot.file)
        # A session that found no more rows still adds a stamp.
        is_stamped = start.spot != state.spot or start.stamps == state.coded_stamps
        if until > start.file or not is_included or not is_stamped:
            return self._after_files(start, state, until)
        if not self._streams:
            return start
        if self._log is None:
            self._log = self._planner(start)
        if self._moved_to is not None:
            moved, self._moved_to = self._moved_to, None
            return moved
        return self._log.next(start, rows_max, cap)

    def commit(self, end: MysqlOffset) -> None:
        """Release everything before ``end``: Spark will not request it again."""
        forget_spool(self._folder, end.file)
        if end.spot.file:
            write_safely(self._folder / REACHED_NAME, msgspec.json.encode(end))

    def close(self) -> None:
        """Close all sessions."""
        for each in (self._server, self._snapshot):
            if each is not None:
                each.close()
        self._server = self._snapshot = self._log = self._state = None

    # Start.

    def _asked(self) -> MysqlCdcServer:
        if self._server is None:
            self._server = MysqlCdcServer(self._config)
        return self._server

    def _open(self, start: MysqlOffset, rows_max: int | None) -> None:
        state = load_state(self._folder)
        if state is not None and not state.is_complete and state.server != self._asked().identity:
            raise lost_log(
                str(state.spot), "the server was replaced before the snapshot was complete"
            )
        if state is None and start.spot.file:
            # The folder was lost, but not the checkpoint: no new snapshot.
            state = MysqlSnapshotState(
                spot=start.spot, server=start.server, gtid=start.gtid, tables=[], is_complete=True
            )
            state.number, state.next_file, state.shown_until = start.epoch, start.file, start.file
            save_state(self._folder, state)
        if state is None:
            self._begin(start, rows_max)
            return
        if self._is_new and state.is_complete:
            self._reads_again = self._config.snapshot_mode == "always"
        self._is_new = False
        if not state.is_complete:
            # Files that Spark has not been given are written again.
            state.next_file = state.shown_until
            self._snapshot = self._reading(state, rows_max)
        self._state = state

    def _begin(self, start: MysqlOffset, rows_max: int | None) -> None:
        """Start a new snapshot; the stream starts at its position in the log."""
        self._is_new = False
        self._snapshot = self._reading(None, rows_max)
        state = self._snapshot.state
        state.number = start.epoch + 1
        state.next_file = state.shown_until = start.file
        if self._config.snapshot_mode == "no_data":
            state.tables, state.is_complete = [], True
            self._snapshot.close()
            self._snapshot = None
        save_state(self._folder, state)
        self._state = state

    def _reading(self, state: MysqlSnapshotState | None, rows_max: int | None) -> MysqlSnapshot:
        per_file = min(self._config.snapshot_rows_per_file, rows_max or ROWS_PER_BATCH)
        return MysqlSnapshot(self._config, self._folder, self._routes, state, per_file)

    def _planner(self, start: MysqlOffset) -> MysqlBatchPlanner:
        """The planner of the stream; the position is looked up by GTID after a failover."""
        config, server = self._config, self._asked()
        increment = MysqlIncrementalSnapshot(config, self._folder, self._routes, start.file)
        spot = locate(server, start)
        identity = server.identity
        if (spot, identity) != (start.spot, start.server):
            if start.stamps:
                raise lost_log(
                    str(start.spot), "the server was replaced after an interrupted snapshot"
                )
            _log.warning("%s continues at %s of server %s", start.gtid, spot, identity)
            increment.handle_signals(
                (), (), 0
            )  # positions of signals were those of the other server
            self._moved_to = msgspec.structs.replace(
                start, spot=spot, server=identity, epoch=start.epoch + 1, at_ms=_now_ms()
            )
        if self._reads_again:
            self._reads_again = False
            increment.enqueue(server.tables(config.chosen, config.exclude_tables), ())
        return MysqlBatchPlanner(config, self._folder, self._routes, self._asked, increment)

    # The snapshot.

    def _spooled(self, state: MysqlSnapshotState, start: int, rows_max: int) -> int:
        """The end of the spool files of the next batch; writes files as needed."""
        until = spooled_until(
            state, start, rows_max, rows_of=self._rows_of, more=lambda: self._more(state)
        )
        if state.is_complete and self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None
        return until

    def _rows_of(self, number: int) -> int:
        return sum(batch.num_rows for batch in read_spool(self._folder, number))

    def _more(self, state: MysqlSnapshotState) -> None:
        assert self._snapshot is not None
        self._snapshot.more()
        estimate = self._snapshot.rows_estimate
        total = state.rows if state.is_complete else max(state.rows + 1, estimate)
        what = f"snapshot of {len(state.tables)} tables of {self._config.database}"
        write_progress(self._folder, SourceProgress(what=what, done=state.rows, total=total))

    def _after_files(
        self, start: MysqlOffset, state: MysqlSnapshotState, until: int
    ) -> MysqlOffset:
        return MysqlOffset(
            file=until,
            spot=state.spot,
            server=state.server,
            gtid=state.gtid,
            epoch=state.number,
            beat=start.beat,
            at_ms=_now_ms(),
            stamps=state.coded_stamps,
        )


def load_reached(folder: Path) -> MysqlOffset | None:
    """The last offset that was committed; None if none was."""
    try:
        return msgspec.json.decode((folder / REACHED_NAME).read_bytes(), type=MysqlOffset)
    except FileNotFoundError:
        return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
