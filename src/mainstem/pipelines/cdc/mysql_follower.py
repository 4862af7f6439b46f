"""Decides how far each batch goes: through the snapshot's files, then along the server's log.

Batches end where transactions end. A position names a place of the log and the moment it was
chosen at, so that a batch which is told again is told the same.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.pipelines.cdc.envelope import Record
from mainstem.pipelines.cdc.mysql_changes import ChangeTeller
from mainstem.pipelines.cdc.mysql_server import Server
from mainstem.pipelines.cdc.mysql_settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql_snapshot import (
    REACHED_NAME,
    SnapshotState,
    forget_spool,
    load_snapshot,
    save,
    take_snapshot,
)
from mainstem.pipelines.cdc.mysql_table import Spot
from mainstem.pipelines.connector.shapes import TableRoute

FIRST_POSITION: Final = 4
"""Where events begin in every file, behind its mark."""


class Position(Struct, frozen=True):
    """How far a query has come: files of the spool, a place of the log, heartbeat."""

    files: int = 0
    spot: Spot = Spot()
    at_ms: int = 0
    beat: int = 0


class Follower:
    """The driver's side of one query."""

    def __init__(self, config: MysqlCdcConfig, folder: Path, routes: Sequence[TableRoute]) -> None:
        self._config = config
        self._folder = folder
        self._routes = routes
        self._server: Server | None = None

    def close(self) -> None:
        """End the session."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _asked(self) -> Server:
        if self._server is None:
            self._server = Server(self._config)
        return self._server

    def end_of_log(self) -> Spot:
        """Where the log ends now."""
        try:
            return self._asked().end_of_log()
        except Unavailable:
            self.close()  # the next question opens a new session
            raise

    def next(self, begun: Position, rows_max: int | None, cap: Spot | None) -> Position:
        """Where the batch that begins here ends."""
        state, per_file = self._snapshot(rows_max)
        if begun.files < state.files:
            files = state.files if rows_max is None else begun.files + max(1, rows_max // per_file)
            return Position(min(files, state.files), state.spot, state.at_ms, begun.beat)
        if self._config.snapshot_mode == "initial_only":
            return begun
        if not begun.spot.file:  # no row was there: the log begins where the snapshot looked
            return Position(begun.files, state.spot, state.at_ms, begun.beat)
        now_ms = time.time_ns() // 1_000_000
        until = self._along_log(begun.spot, rows_max, cap)
        if until != begun.spot:
            return Position(begun.files, until, now_ms, begun.beat)
        interval_ms = self._config.heartbeat_interval_ms
        if interval_ms and cap is None and now_ms - begun.at_ms >= interval_ms:
            return Position(begun.files, begun.spot, now_ms, begun.beat + 1)
        return begun

    def _snapshot(self, rows_max: int | None) -> tuple[SnapshotState, int]:
        """The snapshot, taken if there is none, and how many rows its files should have."""
        per_file = self._config.snapshot_rows_per_file
        if rows_max is not None:
            per_file = min(per_file, rows_max)
        state = load_snapshot(self._folder)
        if state is None:
            state = take_snapshot(self._config, self._folder, self._routes, per_file)
        return state, per_file

    def _along_log(self, spot: Spot, rows_max: int | None, cap: Spot | None) -> Spot:
        until = self.end_of_log()
        if cap is not None and cap.order < until.order:
            until = cap
        if until.order <= spot.order:
            return spot
        self._asked().require(spot)
        return until if rows_max is None else self._boundary(spot, until, rows_max)

    def _boundary(self, spot: Spot, until: Spot, rows_max: int) -> Spot:
        """The end of the last transaction that still fits, or of the first if none does."""
        server = Server(self._config)
        try:
            teller = ChangeTeller(self._config, self._routes, server.origin(), start=spot, at_ms=0)
            rows, last = 0, spot
            for event in server.events(spot):
                rows += sum(1 for _ in teller.tell(event))
                if not teller.is_between or teller.spot.order <= spot.order:
                    continue
                if rows > rows_max and last != spot:
                    return last
                last = teller.spot
                if rows >= rows_max or last.order >= until.order:
                    return last
            return last
        finally:
            server.close()

    def commit(self, end: Position) -> None:
        """Nothing before this will be asked for again."""
        forget_spool(self._folder, end.files)
        if end.spot.file:
            save(self._folder / REACHED_NAME, end.spot)


def log_records(
    config: MysqlCdcConfig, routes: Sequence[TableRoute], begun: Position, until: Position
) -> Iterator[Record]:
    """The changes between two places of the log.

    Raises:
        Unavailable: the log ended before.
    """
    server = Server(config)
    try:
        origin = server.origin()
        start = begun.spot
        teller = ChangeTeller(config, routes, origin, start=start, at_ms=until.at_ms)
        goal = until.spot.order
        for event in server.events(start):
            yield from teller.tell(event)
            if teller.spot.order >= goal:
                return
        raise Unavailable(
            ErrorCode.COORDINATOR_UNAVAILABLE,
            f"the log ended at {teller.spot.file}:{teller.spot.position}",
            subject=f"{until.spot.file}:{until.spot.position}",
            remedy="if the server was restored, remove the pipeline's state folder",
        )
    finally:
        server.close()
