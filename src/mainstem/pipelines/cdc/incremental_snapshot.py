"""Incremental snapshots: which tables signals requested to read again, and the progress.

The queue is on disk before Spark gets an offset after the signals, so that none is lost; a chunk
whose offset Spark never got is read again.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec import Struct, field

from mainstem.model.versioned_json import FIRST
from mainstem.pipelines.cdc import signals
from mainstem.pipelines.cdc.spool import write_safely
from mainstem.pipelines.cdc.table_selection import matches
from mainstem.pipelines.connector.state_file import read_json

STATE_NAME: Final = "increment.json"
MARK: Final = "incremental"
CHUNK_ROWS: Final = 20_000
Chunk = TypeVar("Chunk")

_log = logging.getLogger(__name__)


class ChunkableTable(Protocol):
    """A table that may be readable in chunks."""

    @property
    def full_name(self) -> str:
        """Its name with schema or database."""

    @property
    def is_chunkable(self) -> bool:
        """Whether its primary key can be used to read it in chunks."""


class IncrementalSnapshotState(Struct, kw_only=True):
    """The tables left to read; survives restarts.

    ``before`` is the state before file ``file`` was read.
    """

    queue: list[str] = []
    after: list[str] | None = None
    is_paused: bool = False
    handled_until: int = field(default=0, name="heeded_until")  # the name in stored files
    file: int = -1
    before: "IncrementalSnapshotState | None" = None
    version: int = FIRST


class IncrementalSnapshotQueue:
    """The queue of tables to read again, one after the other."""

    def __init__(self, folder: Path, start_file: int) -> None:
        self._folder = folder
        self._state = self._load()
        if self._state.file >= start_file and self._state.before is not None:
            self._state = self._state.before

    @property
    def is_due(self) -> bool:
        """Whether there is a chunk to read."""
        return bool(self._state.queue) and not self._state.is_paused

    @property
    def handled_until(self) -> int:
        """The position in the log up to which signals were applied."""
        return self._state.handled_until

    def handle_signals(
        self, signals_given: Sequence[signals.Signal], tables: Sequence[ChunkableTable], until: int
    ) -> None:
        """Apply signals up to a position in the log, once."""
        for signal in signals_given:
            self._apply(signal, tables)
        self._state.handled_until = until
        self._save()

    def _apply(self, signal: signals.Signal, tables: Sequence[ChunkableTable]) -> None:
        state = self._state
        if signal.type == signals.EXECUTE:
            self.enqueue(tables, signal.tables)
        elif signal.type == signals.STOP:
            self._forget(signal.tables)
        else:
            state.is_paused = signal.type == signals.PAUSE
        _log.info("signal %s %s: tables left to read: %s", signal.id, signal.type, state.queue)

    def enqueue(self, tables: Sequence[ChunkableTable], patterns: tuple[str, ...]) -> None:
        """Add tables to the end of the queue."""
        for table in tables:
            name = table.full_name
            if name in self._state.queue or (patterns and not matches(name, patterns)):
                continue
            if not table.is_chunkable:
                _log.warning("%s has no primary key to read it by and is not read again", name)
                continue
            self._state.queue.append(name)
        self._save()

    def _forget(self, patterns: tuple[str, ...]) -> None:
        state = self._state
        current = state.queue[:1]
        state.queue = [name for name in state.queue if patterns and not matches(name, patterns)]
        if state.queue[:1] != current:
            state.after = None

    def take(
        self,
        number: int,
        read: Callable[[str, list[str] | None], tuple[Chunk, list[str] | None] | None],
    ) -> Chunk | None:
        """Read the next chunk, as file ``number``; None when no table is left.

        ``read`` gets a table and the key to continue after; it returns the chunk and its last key,
        or None when the table has no more rows.
        """
        state = self._state
        before = msgspec.structs.replace(state, before=None, queue=list(state.queue))
        while state.queue:
            signals_given = read(state.queue[0], state.after)
            if signals_given is not None:
                chunk, state.after = signals_given
                state.before, state.file = before, number
                self._save()
                return chunk
            del state.queue[0]
            state.after = None
        self._save()
        return None

    def _load(self) -> IncrementalSnapshotState:
        what = "a list of tables to read again"
        found = read_json(self._folder / STATE_NAME, IncrementalSnapshotState, what)
        return found or IncrementalSnapshotState()

    def _save(self) -> None:
        write_safely(self._folder / STATE_NAME, msgspec.json.encode(self._state))
