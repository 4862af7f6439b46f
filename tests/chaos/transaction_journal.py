"""What a client process writes down as it goes, and the history that its journals amount to.

A line is written before an act and another after it, so that the journal of a killed process still
says what it had begun. Promises: a line is handed to the system at once; whatever has no second
line stays unknown; a journal that ends in the middle of a line is read up to there.
"""

import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.chaos.history import Outcome, Stream
from tests.chaos.transaction_ops import (
    NO_POSITION,
    Incarnation,
    Observed,
    Position,
    Send,
    Snapshot,
    TimedRead,
    Transaction,
    TransactionHistory,
    Wish,
)

Entry = tuple[Stream, int, str]
FENCED = "fenced"


class Journal:
    """Writes lines that outlive their process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def note(self, what: str, *facts: object) -> None:
        """Write a line down with the time."""
        line = json.dumps([what, time.monotonic(), *facts], separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")


def lines_of(path: Path) -> list[list[Any]]:
    """The whole lines of a journal; none where the process died before it had opened it."""
    data = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


class Fold:
    """Takes the lines of one client into a history.

    Args:
        history: where everything goes.
        client: the transactional id, or the reader's name.
        incarnation: which process of that client wrote the journal.
        disturbed: whether an answer may have got lost between two times, so that a request was
            sent again and the answer is that to the second one.
    """

    def __init__(
        self,
        history: TransactionHistory,
        client: str,
        incarnation: int,
        disturbed: Callable[[float, float], bool],
    ) -> None:
        self._history = history
        self._client = client
        self._incarnation = incarnation
        self._disturbed = disturbed
        self._transactions: dict[int, Transaction] = {}

    def take(self, lines: Iterable[list[Any]]) -> None:
        """Take in everything that the client wrote."""
        for what, at, *facts in lines:
            getattr(self, f"_on_{what}")(at, *facts)

    def _on_ready(self, at: float) -> None:
        self._history.incarnations.append(Incarnation(self._client, self._incarnation, at))

    def _on_begin(self, _: float, number: int) -> None:
        made = Transaction(self._client, self._incarnation, number)
        self._transactions[number] = made
        self._history.transactions.append(made)

    def _on_inputs(self, _: float, number: int, inputs: list[list[Any]]) -> None:
        self._transactions[number].inputs = [_entry(one) for one in inputs]

    def _on_send(
        self,
        at: float,
        number: int,
        place: tuple[str, int],
        value: str,
        source: tuple[str, int, int] | None,
    ) -> None:
        topic, partition = place
        origin = None if source is None else ((source[0], source[1]), source[2])
        send = Send((topic, partition), value, at, source=origin)
        self._transactions[number].sends.append(send)

    def _on_sent(self, at: float, number: int, index: int, offset: int) -> None:
        send = self._transactions[number].sends[index]
        send.outcome, send.ended = Outcome.OK, at
        send.offset = offset if offset >= 0 else None

    def _on_unsent(self, at: float, number: int, index: int, _: str) -> None:
        # It may have been stored all the same; what counts is the fate of the transaction.
        self._transactions[number].sends[index].ended = at

    def _on_positions(
        self, _: float, number: int, group: str, positions: list[tuple[str, int, int]]
    ) -> None:
        self._transactions[number].positions = [
            Position(group, (topic, partition), offset) for topic, partition, offset in positions
        ]

    def _on_positioned(self, _: float, number: int) -> None:
        for position in self._transactions[number].positions:
            position.outcome = Outcome.OK

    def _on_wish(self, at: float, number: int, wish: str) -> None:
        transaction = self._transactions[number]
        transaction.wish, transaction.decided = Wish(wish), at

    def _on_ended(self, at: float, number: int, answer: str, _: str) -> None:
        transaction = self._transactions[number]
        transaction.ended = at
        if answer == FENCED:
            # Said of a repeated request, it does not tell what became of the first one.
            lost = self._disturbed(transaction.decided, at)
            answer = Outcome.UNKNOWN if lost else Outcome.REFUSED
        transaction.outcome = Outcome(answer)

    def _on_reads(self, at: float, session: int, records: list[list[Any]]) -> None:
        reader = f"{self._client}.{self._incarnation}"
        for stream, offset, value in map(_entry, records):
            self._history.reads.append(TimedRead(reader, session, stream, offset, value, at))

    def _on_snapshot(
        self, _: float, started: float, ended: float, stable: list[tuple[str, int, int]]
    ) -> None:
        ends = {(topic, partition): end for topic, partition, end in stable}
        reader = f"{self._client}.{self._incarnation}"
        self._history.snapshots.append(Snapshot(reader, started, ended, ends))

    def _on_observed(
        self, at: float, group: str, started: float, positions: list[tuple[str, int, int]]
    ) -> None:
        for topic, partition, offset in positions:
            known = offset if offset >= 0 else NO_POSITION
            self._history.observed.append(Observed(group, (topic, partition), known, started, at))

    def _on_gone(self, _: float, reason: str) -> None:
        """The process ended by itself; its last transaction says the rest."""


def _entry(record: list[Any]) -> Entry:
    topic, partition, offset, value = record
    return (topic, partition), offset, value
