"""What transactional clients did and saw: the vocabulary of ``transaction_history``.

Each transaction has a fate that its client can tell: it *committed* (the commit was confirmed), it
*ended in nothing* (a commit was never asked for, or was refused), or either (nobody answered).
Times are one clock for all clients.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from tests.chaos.history import Outcome, Read, Stream

NEVER = float("inf")
NO_POSITION = -1


class Wish(StrEnum):
    """How a client asks for a transaction to end."""

    COMMIT = "commit"
    ABORT = "abort"


class Fate(StrEnum):
    """What became of a transaction, as far as its client can tell."""

    COMMITTED = "committed"
    NOTHING = "nothing"
    EITHER = "either"


@dataclass(slots=True)
class Send:
    """A record written in a transaction; ``source`` is the input that it was made from."""

    stream: Stream
    value: str
    started: float
    outcome: Outcome = Outcome.UNKNOWN
    offset: int | None = None
    ended: float = NEVER
    source: tuple[Stream, int] | None = None


@dataclass(slots=True)
class Position:
    """Where a group shall go on if the transaction commits."""

    group: str
    stream: Stream
    offset: int
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(slots=True)
class Transaction:
    """One transaction as its client knows it; ``outcome`` is the answer to its ``wish``.

    ``decided`` is when the wish was expressed, ``ended`` when it was answered.
    """

    producer: str
    incarnation: int
    number: int
    begun: Outcome = Outcome.OK
    inputs: list[tuple[Stream, int, str]] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)
    wish: Wish | None = None
    outcome: Outcome = Outcome.UNKNOWN
    decided: float = NEVER
    ended: float = NEVER

    @property
    def name(self) -> str:
        return f"{self.producer}.{self.incarnation}.{self.number}"

    @property
    def fate(self) -> Fate:
        if self.wish is not Wish.COMMIT or self.begun is Outcome.REFUSED:
            return Fate.NOTHING
        if self.outcome is Outcome.OK:
            return Fate.COMMITTED
        return Fate.NOTHING if self.outcome is Outcome.REFUSED else Fate.EITHER


@dataclass(frozen=True, slots=True)
class Incarnation:
    """A producer took a transactional id over; whoever had it is fenced once it is ``ready``."""

    producer: str
    number: int
    ready: float


@dataclass(frozen=True, slots=True)
class TimedRead(Read):
    """A record that a read-committed reader had received by ``time``."""

    time: float = NEVER


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A reader asked for the stable ends, then read everything below them."""

    reader: str
    started: float
    ended: float
    stable: dict[Stream, int]


@dataclass(frozen=True, slots=True)
class Observed:
    """A group's stable position as somebody saw it; ``NO_POSITION`` where it has none."""

    group: str
    stream: Stream
    offset: int
    started: float
    ended: float


@dataclass(slots=True)
class TransactionHistory:
    """What clients did and saw."""

    incarnations: list[Incarnation] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    reads: list[TimedRead] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    observed: list[Observed] = field(default_factory=list)
    # Group to the topics of the chain that it reads and writes exactly once.
    chains: dict[str, tuple[str, str]] = field(default_factory=dict)
    # The last read-committed reading of every stream, when every transaction has ended.
    final: dict[Stream, list[tuple[int, str]]] = field(default_factory=dict)
    # Stable end and end of every stream at that time.
    ends: dict[Stream, tuple[int, int]] = field(default_factory=dict)
