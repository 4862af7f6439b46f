"""Was anything lost, doubled or reordered? Judged from what clients saw, in one pass over it.

Offsets give a log its order, so no search is needed: every rule is a look-up. The rules follow
Jepsen's Kafka workload; values are unique per stream by construction of the load.

Promises: an acknowledged record that the last reading does not show is reported, as is a value at
two offsets, an offset with two values, a record nobody sent, a record that was refused, a reader
that went back or skipped, an order of acknowledgements that contradicts time, and a group that
resumed anywhere but where it committed, and an end offset that hides an acknowledged record.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

Stream = tuple[str, int]


class Outcome(StrEnum):
    """What the producer knows of a record it sent."""

    OK = "ok"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Kind(StrEnum):
    """What can be wrong with a history."""

    LOST = "an acknowledged record is missing"
    VANISHED = "a record that was read before is missing"
    DUPLICATE = "a record is stored twice"
    DIVERGENT = "an offset held two values"
    MOVED = "a record is not where its acknowledgement said"
    PHANTOM = "a record was read that nobody sent"
    REFUSED_READ = "a record was read that had been refused"
    BACKWARD = "a reader went back"
    SKIPPED = "a reader skipped a record"
    REORDERED = "a producer's records changed their order"
    INVERTED = "a record acknowledged earlier lies behind one sent later"
    RESUMED_ELSEWHERE = "a group did not resume where it committed"
    STALE = "an end offset was answered that lies below an acknowledged record"


@dataclass(slots=True)
class Sent:
    """A record given to a producer; times are the caller's monotonic clock."""

    producer: str
    stream: Stream
    value: str
    started: float
    outcome: Outcome = Outcome.UNKNOWN
    offset: int | None = None
    ended: float = 0.0


@dataclass(frozen=True, slots=True)
class Read:
    """A record that a reader received; a new ``session`` may begin anywhere."""

    reader: str
    session: int
    stream: Stream
    offset: int
    value: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a group began to read again, and where it may have: its last commits."""

    group: str
    stream: Stream
    offset: int
    allowed: frozenset[int]


@dataclass(frozen=True, slots=True)
class EndRead:
    """The end of a stream as a client was answered, and when it began to ask."""

    stream: Stream
    started: float
    end: int


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One broken rule, of this or another list of them."""

    kind: StrEnum
    stream: Stream
    detail: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.stream[0]}/{self.stream[1]} {self.detail}"


@dataclass(slots=True)
class History:
    """What clients did and saw, in the order in which they noticed it."""

    sent: list[Sent] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    resumed: list[Resumed] = field(default_factory=list)
    ends: list[EndRead] = field(default_factory=list)
    # The last reading of every stream from its start to its end, when all is quiet again.
    final: dict[Stream, list[tuple[int, str]]] = field(default_factory=dict)


def check(history: History, *, once: Iterable[str] = ()) -> list[Anomaly]:
    """Every broken rule. ``once`` names the idempotent producers: no duplicate, order kept."""
    places = _Places(history)
    return [
        *_missing(history, places),
        *_misplaced(history, places, frozenset(once)),
        *_unsent(history, places),
        *_unordered_reads(history),
        *_unordered_sends(history, frozenset(once)),
        *_resumed_elsewhere(history),
        *_stale(history),
    ]


class _Places:
    """What every offset ever held, and which values were read."""

    def __init__(self, history: History) -> None:
        self.values_at: dict[tuple[Stream, int], set[str]] = defaultdict(set)
        self.read: set[tuple[Stream, str]] = set()
        self.final: set[tuple[Stream, str]] = set()
        for sent in history.sent:
            if sent.outcome is Outcome.OK and sent.offset is not None:
                self._seen(sent.stream, sent.offset, sent.value)
        for read in history.reads:
            self._seen(read.stream, read.offset, read.value)
            self.read.add((read.stream, read.value))
        for stream, records in history.final.items():
            for offset, value in records:
                self._seen(stream, offset, value)
                self.final.add((stream, value))

    def _seen(self, stream: Stream, offset: int, value: str) -> None:
        self.values_at[stream, offset].add(value)


def _missing(history: History, places: _Places) -> Iterable[Anomaly]:
    for sent in history.sent:
        if sent.outcome is Outcome.OK and (sent.stream, sent.value) not in places.final:
            yield Anomaly(Kind.LOST, sent.stream, f"{sent.value} at {sent.offset}")
    for stream, value in places.read - places.final:
        yield Anomaly(Kind.VANISHED, stream, value)


def _misplaced(history: History, places: _Places, once: frozenset[str]) -> Iterable[Anomaly]:
    for (stream, offset), values in places.values_at.items():
        if len(values) > 1:
            yield Anomaly(Kind.DIVERGENT, stream, f"{offset}: {sorted(values)}")
    final_offsets: dict[tuple[Stream, str], list[int]] = defaultdict(list)
    for stream, records in history.final.items():
        for offset, value in records:
            final_offsets[stream, value].append(offset)
    for sent in history.sent:
        found = final_offsets.get((sent.stream, sent.value), [])
        if sent.producer in once and len(found) > 1:
            yield Anomaly(Kind.DUPLICATE, sent.stream, f"{sent.value} at {found}")
        acknowledged = sent.outcome is Outcome.OK and sent.offset is not None
        if acknowledged and found and sent.offset not in found:
            yield Anomaly(Kind.MOVED, sent.stream, f"{sent.value}: {sent.offset} became {found}")


def _unsent(history: History, places: _Places) -> Iterable[Anomaly]:
    outcomes = {(sent.stream, sent.value): sent.outcome for sent in history.sent}
    for stream, value in places.read | places.final:
        outcome = outcomes.get((stream, value))
        if outcome is None:
            yield Anomaly(Kind.PHANTOM, stream, value)
        elif outcome is Outcome.REFUSED:
            yield Anomaly(Kind.REFUSED_READ, stream, value)


def _unordered_reads(history: History) -> Iterable[Anomaly]:
    # Offsets may have gaps; the final reading says which offsets exist.
    following: dict[tuple[Stream, int], int] = {}
    for stream, records in history.final.items():
        for (offset, _), (after, _) in pairwise(records):
            following[stream, offset] = after
            if after <= offset:
                yield Anomaly(Kind.BACKWARD, stream, f"the last reading: {offset}, then {after}")
    position: dict[tuple[str, int, Stream], int] = {}
    for read in history.reads:
        place = (read.reader, read.session, read.stream)
        last = position.get(place)
        position[place] = read.offset
        if last is None:
            continue
        if read.offset <= last:
            yield Anomaly(Kind.BACKWARD, read.stream, f"{read.reader}: {last}, then {read.offset}")
        elif read.offset > following.get((read.stream, last), read.offset):
            yield Anomaly(Kind.SKIPPED, read.stream, f"{read.reader}: {last}, then {read.offset}")


def _unordered_sends(history: History, once: frozenset[str]) -> Iterable[Anomaly]:
    acknowledged = [
        (sent, sent.offset)
        for sent in history.sent
        if sent.outcome is Outcome.OK and sent.offset is not None
    ]
    last: dict[tuple[str, Stream], int] = {}
    for sent, offset in acknowledged:
        before = last.get((sent.producer, sent.stream), -1)
        # Without idempotence a retried request may overtake or be overtaken.
        if offset <= before and sent.producer in once:
            yield Anomaly(Kind.REORDERED, sent.stream, f"{sent.value} at {offset} after {before}")
        last[sent.producer, sent.stream] = max(offset, before)
    # Whoever starts after an acknowledgement must land behind the acknowledged record.
    moments = [(sent.started, 1, sent, offset) for sent, offset in acknowledged]
    moments += [(sent.ended, 0, sent, offset) for sent, offset in acknowledged]
    highest: dict[Stream, int] = {}
    for _, starts, sent, offset in sorted(moments, key=lambda moment: moment[:2]):
        reached = highest.get(sent.stream, -1)
        if starts and offset < reached:
            yield Anomaly(Kind.INVERTED, sent.stream, f"{sent.value} at {offset} below {reached}")
        elif not starts:
            highest[sent.stream] = max(offset, reached)


def _resumed_elsewhere(history: History) -> Iterable[Anomaly]:
    for resumed in history.resumed:
        if resumed.offset not in resumed.allowed:
            wanted = sorted(resumed.allowed)
            yield Anomaly(
                Kind.RESUMED_ELSEWHERE,
                resumed.stream,
                f"{resumed.group} at {resumed.offset}, committed {wanted}",
            )


def _stale(history: History) -> Iterable[Anomaly]:
    """Whoever asks for the end after an acknowledgement must be answered with a later offset."""
    moments: list[tuple[float, int, Stream, int]] = [
        (sent.ended, 0, sent.stream, sent.offset)
        for sent in history.sent
        if sent.outcome is Outcome.OK and sent.offset is not None
    ]
    moments += [(read.started, 1, read.stream, read.end) for read in history.ends]
    highest: dict[Stream, int] = {}
    for _, asks, stream, offset in sorted(moments):
        reached = highest.get(stream, -1)
        if not asks:
            highest[stream] = max(offset, reached)
        elif offset <= reached:
            yield Anomaly(Kind.STALE, stream, f"end {offset}, acknowledged {reached}")
