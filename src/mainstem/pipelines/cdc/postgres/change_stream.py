"""Captures one PostgreSQL database: decides, in the driver, where micro-batches end.

    start ──▶ snapshot: spool files ──▶ stream: spans of the log that end where transactions end

Guarantees: an offset that was returned can be read again, by this process or another, until the
batch after a later one is requested or ``commit`` gets a later one, and the slot advances only
then; a missing slot is reported at once, with the remedy, and never silently replaced unless
``when_needed`` is set.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from psycopg import sql

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.pipelines.cdc.postgres.batch_planner import (
    ROWS_PER_BATCH,
    PostgresBatchPlanner,
    captured_tables,
)
from mainstem.pipelines.cdc.postgres.incremental_snapshot import PostgresIncrementalSnapshot
from mainstem.pipelines.cdc.postgres.message_spool import MessageSpool
from mainstem.pipelines.cdc.postgres.offset import PostgresOffset
from mainstem.pipelines.cdc.postgres.pgoutput import lsn_number
from mainstem.pipelines.cdc.postgres.server import (
    Connection,
    PostgresCdcServer,
    PublishedTable,
    SlotState,
    connect,
    refusals,
)
from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig
from mainstem.pipelines.cdc.postgres.slot import lost_slot
from mainstem.pipelines.cdc.postgres.snapshot import (
    PostgresSnapshot,
    PostgresSnapshotState,
    load_state,
    read_spool_file,
)
from mainstem.pipelines.cdc.spool import forget_spool, save_state, spooled_until
from mainstem.pipelines.connector.progress import SourceProgress, write_progress

_log = logging.getLogger(__name__)


class PostgresChangeStream:
    """Decides where batches end; one object per run of a query."""

    def __init__(
        self,
        config: PostgresCdcConfig,
        folder: Path,
        *,
        rehearsal: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._folder = folder
        self._rehearsal = rehearsal
        self._now = now
        self._server: PostgresCdcServer | None = None
        self._state: PostgresSnapshotState | None = None
        self._snapshot: PostgresSnapshot | None = None
        self._log: PostgresBatchPlanner | None = None
        self._slot_session: Connection | None = None
        self._estimate = 0
        self._is_open = False

    @property
    def _streams(self) -> bool:
        return not self._rehearsal and self._config.snapshot_mode != "initial_only"

    def end_of_log(self) -> int:
        """The position up to which the server's log is flushed."""
        return self._asked().flushed_lsn()

    def next(
        self, start: PostgresOffset, rows_max: int | None, cap: int | None = None
    ) -> PostgresOffset:
        """The end of the batch after ``start``; ``start`` itself when there is nothing new.

        Raises:
            InvalidRequest: the slot is lost, or no table is selected.
            MainstemError: the server does not answer.
        """
        if not self._is_open:
            self._open(start, rows_max)
            self._is_open = True
        state = self._state
        if state is not None:
            until = self._spooled(state, start.file, rows_max or ROWS_PER_BATCH)
            is_included = state.number <= start.epoch and start.lsn > 0
            # A session that found no more rows still adds a stamp.
            is_stamped = start.lsn != state.slot_lsn or start.stamps == state.coded_stamps
            if until > start.file or not is_included or not is_stamped:
                return self._after_files(start, state, until)
        if not self._streams:
            return start
        assert self._log is not None
        return self._log.next(start, rows_max, cap)

    def commit(self, end: PostgresOffset) -> None:
        """Release everything up to ``end``: Spark will not request it again."""
        forget_spool(self._folder, end.file)
        if self._streams and end.lsn:
            self._asked().advance(end.lsn)
            MessageSpool(self._folder).forget(end.lsn)

    def close(self) -> None:
        """Close all sessions."""
        for each in (self._server, self._snapshot, self._slot_session):
            if each is not None:
                each.close()
        self._server = self._snapshot = self._slot_session = None
        self._is_open = False

    # Start.

    def _asked(self) -> PostgresCdcServer:
        if self._server is None:
            self._server = PostgresCdcServer(self._config)
        return self._server

    def _tables(self) -> list[PublishedTable]:
        return chosen_tables(self._asked(), self._config)

    def _open(self, start: PostgresOffset, rows_max: int | None) -> None:
        self._state = load_state(self._folder)
        tables = self._tables()
        slot = None
        if self._streams:
            self._asked().ensure_publication(tables)
            slot = self._asked().slot()
            self._check_slot(start, slot)
        names = [each.shape.full_name for each in captured_tables(tables, self._config)]
        state, exported = self._state, None
        if self._needs_new_slot(start, slot):
            state, exported = self._begin(start, names)
        elif state is None:
            # The slot exists: the stream continues from it, and the rows are read in addition.
            assert slot is not None or not self._streams
            lsn = start.lsn or (slot.confirmed_lsn if slot else self.end_of_log())
            state = self._fresh(start, names, lsn)
            if start.lsn:  # the folder was lost, but not the checkpoint: no new snapshot
                state.is_complete = True
        if self._streams:
            increment = PostgresIncrementalSnapshot(self._config, self._folder, start.file)
            if self._config.snapshot_mode == "always" and start.lsn and state is self._state:
                increment.enqueue(
                    [each.shape for each in captured_tables(tables, self._config)], ()
                )
            self._log = PostgresBatchPlanner(
                self._config, self._folder, self._asked(), increment, now=self._now
            )
        save_state(self._folder, state)
        self._state = state
        if not state.is_complete:
            per_file = min(self._config.snapshot_rows_per_file, rows_max or ROWS_PER_BATCH)
            # Files that Spark has not been given are written again.
            state.next_file = state.shown_until
            self._snapshot = PostgresSnapshot(
                self._config, self._folder, state, exported=exported, rows_per_file=per_file
            )
            self._estimate = sum(each.rows_estimate for each in tables)

    def _fresh(self, start: PostgresOffset, names: list[str], lsn: int) -> PostgresSnapshotState:
        has_rows = self._config.snapshot_mode != "no_data"
        return PostgresSnapshotState(
            slot_lsn=lsn,
            tables=names if has_rows else [],
            next_file=start.file,
            shown_until=start.file,
            is_complete=not has_rows,
            number=self._state.number + 1 if self._state is not None else start.epoch + 1,
        )

    def _needs_new_slot(self, start: PostgresOffset, slot: SlotState | None) -> bool:
        if not self._streams:
            return False
        return slot is None or slot.is_lost or slot.confirmed_lsn > start.lsn > 0

    def _check_slot(self, start: PostgresOffset, slot: SlotState | None) -> None:
        if self._needs_new_slot(start, slot) and start.lsn:
            if self._config.snapshot_mode == "when_needed":
                _log.warning("slot %s is lost: starting a new snapshot", self._config.slot_name)
                return
            raise lost_slot(self._config, slot)

    def _begin(
        self, start: PostgresOffset, names: list[str]
    ) -> tuple[PostgresSnapshotState, str | None]:
        """Create a slot; its exported snapshot contains exactly what its stream does not."""
        server = self._asked()
        if server.slot() is not None:
            server.drop_slot()
        session = connect(self._config, replication=True)
        with refusals(self._config):
            row = session.execute(
                sql.SQL("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput (SNAPSHOT 'export')").format(
                    sql.Identifier(self._config.slot_name)
                )
            ).fetchone()
        assert row is not None
        # The exported snapshot is valid as long as this session does nothing else.
        self._slot_session = session
        return self._fresh(start, names, lsn_number(row[1])), row[2]

    # The snapshot.

    def _spooled(self, state: PostgresSnapshotState, start: int, rows_max: int) -> int:
        """The end of the spool files of the next batch; writes files as needed."""
        until = spooled_until(
            state,
            start,
            rows_max,
            rows_of=lambda number: read_spool_file(self._folder, number).rows,
            more=lambda: self._more(state),
        )
        if state.is_complete and self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None
            if self._slot_session is not None:  # an open session prevents vacuum
                self._slot_session.close()
                self._slot_session = None
        if state.is_complete and state.emptied and self._log is not None:
            self._log.read_again(state.emptied)
            state.emptied = ()
            save_state(self._folder, state)
        return until

    def _more(self, state: PostgresSnapshotState) -> None:
        assert self._snapshot is not None
        self._snapshot.more(self._tables)
        self._report_progress(state)

    def _report_progress(self, state: PostgresSnapshotState) -> None:
        total = state.rows if state.is_complete else max(state.rows + 1, self._estimate)
        what = f"snapshot of {len(state.tables)} tables of {self._config.database}"
        write_progress(self._folder, SourceProgress(what=what, done=state.rows, total=total))

    def _after_files(
        self, start: PostgresOffset, state: PostgresSnapshotState, until: int
    ) -> PostgresOffset:
        return PostgresOffset(
            lsn=state.slot_lsn,
            file=until,
            epoch=state.number,
            beat=start.beat,
            at_ms=int(self._now() * 1000),
            stamps=state.coded_stamps,
        )


def chosen_tables(server: PostgresCdcServer, config: PostgresCdcConfig) -> list[PublishedTable]:
    """The tables to capture.

    Raises:
        InvalidRequest: the settings select none.
    """
    tables = server.tables()
    if not tables:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"no table of {config.database} matches {', '.join(config.tables) or 'public.*'}",
            subject="tables",
            remedy="write schema.table; `discover` lists the tables",
        )
    return tables
