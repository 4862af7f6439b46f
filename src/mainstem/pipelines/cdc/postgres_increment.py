"""Tables read again while their changes stream on: chunk by chunk, in the order of their keys.

Each chunk is read by a transaction of its own, which also says what it saw and how far the log was.
Its batch tells the chunk first, without the keys that the log up to that point changes (the log
tells those), then the log (the idea is DBLog's; no marks are written, because the server can say
what a transaction saw). So readers see each key's events in order, deletions included.
"""

import logging
import time
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from mainstem.pipelines.cdc import signals
from mainstem.pipelines.cdc.pgoutput import lsn_number
from mainstem.pipelines.cdc.postgres_server import PublishedTable, connect, refusals
from mainstem.pipelines.cdc.postgres_settings import PostgresCdcConfig
from mainstem.pipelines.cdc.postgres_snapshot import (
    SpoolFile,
    copy_query,
    row_key,
    spool,
    spool_path,
    write_safely,
)
from mainstem.pipelines.cdc.selection import matches

STATE_NAME: Final = "increment.json"
MARK: Final = "incremental"
CHUNK_ROWS: Final = 20_000

_log = logging.getLogger(__name__)


class IncrementState(Struct, kw_only=True):
    """What is left to read; survives the process.

    ``before`` is the state as it was before file ``file`` was read: a chunk that Spark was never
    told of is read again.
    """

    queue: list[str] = []
    after: list[str] | None = None
    is_paused: bool = False
    heeded_until: int = 0
    file: int = -1
    before: "IncrementState | None" = None


class Increment:
    """Reads the tables that signals ask for."""

    def __init__(self, config: PostgresCdcConfig, folder: Path, start_file: int) -> None:
        self._config = config
        self._folder = folder
        self._state = self._load()
        if self._state.file >= start_file and self._state.before is not None:
            self._state = self._state.before

    @property
    def is_due(self) -> bool:
        """Whether there is a chunk to read."""
        return bool(self._state.queue) and not self._state.is_paused

    @property
    def heeded_until(self) -> int:
        """The place in the log up to which signals were heeded."""
        return self._state.heeded_until

    def heed(self, told: list[signals.Signal], tables: list[PublishedTable], until: int) -> None:
        """Do what signals up to a place in the log say, once."""
        for signal in told:
            self._obey(signal, tables)
        self._state.heeded_until = until
        self._save()

    def _obey(self, signal: signals.Signal, tables: list[PublishedTable]) -> None:
        state = self._state
        if signal.type == signals.EXECUTE:
            self.enqueue(tables, signal.tables)
        elif signal.type == signals.STOP:
            self._forget(signal.tables)
        else:
            state.is_paused = signal.type == signals.PAUSE
        _log.info("signal %s %s: left to read: %s", signal.id, signal.type, state.queue)

    def enqueue(self, tables: list[PublishedTable], patterns: tuple[str, ...]) -> None:
        """Read these tables, after those that are being read."""
        for table in tables:
            name = table.shape.full_name
            if name in self._state.queue or (patterns and not matches(name, patterns)):
                continue
            if not table.shape.key:
                _log.warning("%s has no primary key and cannot be read again", name)
                continue
            self._state.queue.append(name)
        self._save()

    def _forget(self, patterns: tuple[str, ...]) -> None:
        state = self._state
        current = state.queue[:1]
        state.queue = [name for name in state.queue if patterns and not matches(name, patterns)]
        if state.queue[:1] != current:
            state.after = None

    def chunk(
        self, tables: list[PublishedTable], number: int, rows_max: int | None
    ) -> SpoolFile | None:
        """Read the next chunk into file ``number``; None when nothing is left."""
        by_name = {each.shape.full_name: each for each in tables}
        before = msgspec.structs.replace(self._state, before=None, queue=list(self._state.queue))
        while self._state.queue:
            table = by_name.get(self._state.queue[0])
            told = None if table is None else self._read(table, number, rows_max)
            if told is not None:
                self._state.before, self._state.file = before, number
                self._save()
                return told
            del self._state.queue[0]
            self._state.after = None
        self._save()
        return None

    def _read(self, table: PublishedTable, number: int, rows_max: int | None) -> SpoolFile | None:
        state, config = self._state, self._config
        bound = min(CHUNK_ROWS, config.snapshot_rows_per_file, rows_max or CHUNK_ROWS)
        with refusals(config), connect(config) as session:
            run = session.execute
            run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            row = run(
                "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text,"
                " pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
            ).fetchone()
            assert row is not None
            query = copy_query(table, state.after, is_ordered=True, rows_max=bound)
            with session.cursor() as cursor, cursor.copy(query) as copy:
                rows = iter(copy)
                first = next(rows, None)
                if first is None:
                    return None
                path = spool_path(self._folder, number)
                count, last, _ = spool(path, bytes(first), rows, bound)
        state.after = row_key(table.shape, last)
        until = lsn_number(row[1])
        told = SpoolFile(
            table.shape,
            count,
            until,
            row[2] % (1 << 32),
            time.time_ns() // 1000,
            first=MARK,
            last=MARK,
            usual=MARK,
            snapshot=row[0],
        )
        write_safely(path.with_suffix(".json"), msgspec.json.encode(told))
        return told

    def _load(self) -> IncrementState:
        try:
            raw = (self._folder / STATE_NAME).read_bytes()
        except FileNotFoundError:
            return IncrementState()
        return msgspec.json.decode(raw, type=IncrementState)

    def _save(self) -> None:
        write_safely(self._folder / STATE_NAME, msgspec.json.encode(self._state))
