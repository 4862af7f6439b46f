"""The shape of a replicated machine: it decides, its driver stores, it replays.

    request ──▶ machine ──▶ Effects(facts, then, answers, wake_ms)
                   ▲            │ store the facts
                   └── replay ──┤ answer, once they are committed
                                └ come back at ``wake_ms``

Effects are carried out in that order. A fact that could not be stored changed nothing; if
something waits for it (``then``), the machine is told so and decides anew.
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
    """One reading of both clocks: durations need the first, dates the second."""

    monotonic_ms: int
    wall_ms: int


@dataclass
class Effects(Generic[FactT, ThenT, AnswerT]):
    """What a machine wants done."""

    facts: list[FactT] = field(default_factory=list)
    then: ThenT | None = None
    answers: list[tuple[int, AnswerT | MainstemError]] = field(default_factory=list)
    wake_ms: int | None = None

    def answer(self, ticket: int | None, answer: AnswerT | MainstemError) -> None:
        """Answer the request that was parked under ``ticket``, if one was."""
        if ticket is not None:
            self.answers.append((ticket, answer))

    def wake_at(self, monotonic_ms: int) -> None:
        """Ask to be called back then; the earliest time wins."""
        if self.wake_ms is None or monotonic_ms < self.wake_ms:
            self.wake_ms = monotonic_ms


class ReplicatedState(Protocol):
    """Replicated state: facts change it, nothing else."""

    def replay(self, fact: Any) -> None:
        """Take a stored fact in."""
        ...


class StoredBatches(Protocol):
    """Whole batches in a file."""

    def read(self) -> bytes:
        """The bytes of the batches."""
        ...


class InternalStream(Protocol):
    """The stream that keeps a shard's facts; this node is its writer."""

    @property
    def start_offset(self) -> int:
        """The first offset that is kept."""
        ...

    @property
    def epoch(self) -> int:
        """The epoch under which this node writes."""
        ...

    @property
    def committed(self) -> int:
        """The offset after the last one that is safe."""
        ...

    @property
    def lapsed(self) -> Callable[[], MainstemError | None] | None:
        """Why another node may write the stream by now; None as long as none can."""
        ...

    def append(self, batch: bytearray) -> int:
        """Write a batch at once; the offset after it. Raises with nothing written."""
        ...

    def write_marker(self, producer_id: int, epoch: int, marker: TransactionMarker) -> int:
        """End a producer's transaction here; the offset after the marker."""
        ...

    def when_committed(self, until: int, settled: Callable[[MainstemError | None], None]) -> bool:
        """Whether all before ``until`` is committed; if not, ``settled`` is called once it is."""
        ...

    def read(
        self, offset: int, *, max_bytes: int, committed_only: bool, min_one: bool
    ) -> StoredBatches | None:
        """Batches from the one that contains ``offset`` on; None where there is nothing yet."""
        ...
