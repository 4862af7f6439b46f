"""The window of in-flight records, as contiguous runs of records with the same state.

A window covers its offsets without gaps; cutting it changes no record, tidying it removes finished
runs at its start. Pure.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

NOBODY: Final = ""


class ShareRecordState(IntEnum):
    """State of a record; the numbers are Kafka's and are stored."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


DONE: Final = frozenset({ShareRecordState.ACKNOWLEDGED, ShareRecordState.ARCHIVED})


@dataclass(slots=True)
class RecordRun:
    """Contiguous records with the same state."""

    start: int
    until: int
    state: ShareRecordState
    deliveries: int = 0
    member: str = NOBODY
    deadline_ms: int = 0


class RecordWindow:
    """The runs from ``start`` on, without gaps."""

    __slots__ = ("_runs", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self._runs: list[RecordRun] = []

    def __iter__(self) -> Iterator[RecordRun]:
        return iter(self._runs)

    @property
    def until(self) -> int:
        """The offset after the last record."""
        return self._runs[-1].until if self._runs else self.start

    @property
    def locks(self) -> int:
        """Number of records in the window without archived ones, which may not exist in the log."""
        return sum(
            run.until - run.start
            for run in self._runs
            if run.state is not ShareRecordState.ARCHIVED
        )

    def append(self, until: int, state: ShareRecordState, deliveries: int = 0) -> RecordRun:
        """Append a run up to ``until``."""
        assert until > self.until, "a run holds records"
        run = RecordRun(self.until, until, state, deliveries)
        self._runs.append(run)
        return run

    def restart(self, start: int) -> None:
        """Empty the window and start it at that offset."""
        self._runs.clear()
        self.start = start

    def first(self, state: ShareRecordState) -> RecordRun | None:
        """The first run in that state."""
        return next((run for run in self._runs if run.state is state), None)

    def held(self) -> list[RecordRun]:
        """The runs that members have acquired."""
        return [run for run in self._runs if run.state is ShareRecordState.ACQUIRED]

    def inside(self, start: int, until: int) -> list[RecordRun]:
        """The runs that overlap [start, until), not cut."""
        found = []
        for run in self._runs[self._index(start) :]:
            if run.start >= until:
                break
            found.append(run)
        return found

    def cut(self, start: int, until: int) -> list[RecordRun]:
        """The runs in [start, until), cut at both ends."""
        if start >= until or not self._runs:
            return []
        found = []
        at = self._index(start)
        while at < len(self._runs) and self._runs[at].start < until:
            run = self._runs[at]
            for edge in (start, until):
                if run.start < edge < run.until:
                    self._runs.insert(at + 1, replace(run, start=edge))
                    run.until = edge
                    break
            if run.start >= start:
                found.append(run)
            at += 1
        return found

    def tidy(self) -> None:
        """Remove finished runs at the start, and merge neighbours with the same state."""
        done = 0
        while done < len(self._runs) and self._runs[done].state in DONE:
            done += 1
        if done:
            self.start = self._runs[done - 1].until
            del self._runs[:done]
        joined: list[RecordRun] = []
        for run in self._runs:
            if joined and _is_alike(joined[-1], run):
                joined[-1].until = run.until
            else:
                joined.append(run)
        self._runs = joined

    def _index(self, offset: int) -> int:
        """Index of the run that contains an offset."""
        return max(bisect_right(self._runs, offset, key=_start_of) - 1, 0)


def _start_of(run: RecordRun) -> int:
    return run.start


def _is_alike(one: RecordRun, other: RecordRun) -> bool:
    return (
        one.state is other.state
        and one.deliveries == other.deliveries
        and one.member == other.member
        and (one.state is not ShareRecordState.ACQUIRED or one.deadline_ms == other.deadline_ms)
    )
