"""Interface of a replicated state machine: it decides, its driver stores, it replays.

    request ──▶ machine ──▶ MachineEffects(facts, then, answers, wake_ms)
                   ▲            │ store the facts
                   └── replay ──┤ answer, once they are committed
                                └ call again at ``wake_ms``

Effects are carried out in that order. A fact that could not be stored changed nothing; if
something waits for it (``then``), the machine is notified and decides again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from mainstem.model.errors import MainstemError
from mainstem.streams.producers.transaction_markers import TransactionMarker

FactT = TypeVar("FactT")
ThenT = TypeVar("ThenT")
AnswerT = TypeVar("AnswerT")


class Instant(NamedTuple):
    """Time on both clocks: monotonic for durations, wall clock for timestamps."""

    monotonic_ms: int
    wall_ms: int


@dataclass
class MachineEffects(Generic[FactT, ThenT, AnswerT]):
    """Effects that a machine requests from its driver."""

    facts: list[FactT] = field(default_factory=list)
    then: ThenT | None = None
    answers: list[tuple[int, AnswerT | MainstemError]] = field(default_factory=list)
    wake_ms: int | None = None

    def answer(self, ticket: int | None, answer: AnswerT | MainstemError) -> None:
        """Answer the request parked under ``ticket``, if there is one."""
        if ticket is not None:
            self.answers.append((ticket, answer))

    def wake_at(self, monotonic_ms: int) -> None:
        """Request a call at that time; the earliest time wins."""
        if self.wake_ms is None or monotonic_ms < self.wake_ms:
            self.wake_ms = monotonic_ms


class ReplicatedState(Protocol):
    """Replicated state, changed only by facts."""

    def replay(self, fact: Any) -> None:
        """Apply a stored fact."""
        ...


class StoredBatches(Protocol):
    """Complete batches in a file."""

    def read(self) -> bytes:
        """The bytes of the batches."""
        ...


class InternalStream(Protocol):
    """The stream that stores a shard's facts; this node is its writer."""

    @property
    def start_offset(self) -> int:
        """The first offset of the stream."""
        ...

    @property
    def epoch(self) -> int:
        """The epoch under which this node writes."""
        ...

    @property
    def committed(self) -> int:
        """The offset after the last committed record."""
        ...

    @property
    def lapsed(self) -> Callable[[], MainstemError | None] | None:
        """Why another node may be the writer by now; None while none can."""
        ...

    def append(self, batch: bytearray) -> int:
        """Append a batch; returns the offset after it. If it raises, nothing was written."""
        ...

    def write_marker(self, producer_id: int, epoch: int, marker: TransactionMarker) -> int:
        """Write a producer's transaction marker; returns the offset after it."""
        ...

    def when_committed(self, until: int, settled: Callable[[MainstemError | None], None]) -> bool:
        """Whether the records before ``until`` are committed; else ``settled`` is called later."""
        ...

    def read(
        self, offset: int, *, max_bytes: int, committed_only: bool, min_one: bool
    ) -> StoredBatches | None:
        """Batches starting with the one that contains ``offset``; None if there are none yet."""
        ...
