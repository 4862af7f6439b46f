"""Were transactions atomic, in order and exactly once? Judged from what clients did and saw.

What holds for every log (``history``) holds for what transactions wrote; the rules here come on
top. They follow Jepsen's Kafka workload, and every one is a look-up: offsets give the order.

Promises: reported are a record of a transaction that ended in nothing, whether its commit was never
asked for or refused; one that was read before its commit was asked for; a transaction visible in
part; a stable end that splits a transaction, passes an open one or goes back; a record that appears
behind readers; whatever a fenced producer still achieved; records of an id that are not in the
order of its incarnations; transactions that read each other; a group's position that no committed
transaction gave it; an input that is processed twice or not at all; a stream that stays unstable.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from itertools import accumulate

from tests.chaos import history as log
from tests.chaos.history import Anomaly, History, Outcome, Sent, Stream
from tests.chaos.transaction_ops import (
    NEVER,
    NO_POSITION,
    Fate,
    Observed,
    Position,
    Send,
    Transaction,
    TransactionHistory,
    Wish,
)


class Kind(StrEnum):
    """What can be wrong with transactions, beyond what can be wrong with a log."""

    ABORTED_READ = "a record was read whose transaction was never to commit"
    DELAYED_END = "a transaction whose commit was refused became visible"
    PRECOMMITTED = "a record was read before its transaction was asked to commit"
    TORN = "a transaction is visible in part"
    SPLIT = "the stable end lies within a transaction"
    UNSTABLE = "the stable end passed an open transaction or went back"
    APPEARED = "a record appeared behind a reader"
    FENCED_COMMIT = "a fenced producer's commit was confirmed"
    FENCED_SEND = "a fenced producer's record was taken"
    OVERTAKEN = "records of a transactional id are not in the order in which they were sent"
    CYCLE = "transactions read each other"
    ABORTED_POSITION = "a group's position comes from a transaction that never committed"
    PRECOMMITTED_POSITION = "a group's position was visible before its transaction was to commit"
    FOREIGN_POSITION = "a group's position is one that nobody committed"
    BEYOND = "a group's position lies beyond what the group received"
    LOST_POSITION = "a group's committed position was forgotten"
    PROCESSED_TWICE = "an input is in the output twice"
    UNPROCESSED = "an input below the group's position is not in the output"
    HANGING = "a stream stays unstable although every transaction has ended"


Owners = dict[tuple[Stream, str], tuple[Transaction, Send]]


def check(history: TransactionHistory) -> list[Anomaly]:
    """Every broken rule."""
    owners: Owners = {
        (send.stream, send.value): (transaction, send)
        for transaction in history.transactions
        for send in transaction.sends
    }
    return [
        *_as_log(history, owners),
        *_reused_offsets(history),
        *_precommitted(history, owners),
        *_torn(history),
        *_stable_ends(history),
        *_passed_open(history),
        *_appeared(history),
        *_fenced(history),
        *_overtaken(history, owners),
        *_cycles(history, owners),
        *_positions(history),
        *_processed_once(history),
        *_hanging(history),
    ]


def _as_log(history: TransactionHistory, owners: Owners) -> Iterable[Anomaly]:
    """The rules of every log: what committed is acknowledged, what ended in nothing is refused."""
    outcomes = {
        Fate.COMMITTED: Outcome.OK,
        Fate.NOTHING: Outcome.REFUSED,
        Fate.EITHER: Outcome.UNKNOWN,
    }
    sent = [
        Sent(
            transaction.producer,
            send.stream,
            send.value,
            send.started,
            outcomes[transaction.fate],
            send.offset,
            send.ended,
        )
        for transaction in _in_order(history)
        for send in transaction.sends
    ]
    producers = {transaction.producer for transaction in history.transactions}
    plain = History(sent=sent, reads=list(history.reads), final=history.final)
    for anomaly in log.check(plain, once=producers):
        if anomaly.kind is not log.Kind.REFUSED_READ:
            yield anomaly
            continue
        transaction, _ = owners[anomaly.stream, anomaly.detail]
        refused = transaction.wish is Wish.COMMIT
        kind = Kind.DELAYED_END if refused else Kind.ABORTED_READ
        yield Anomaly(kind, anomaly.stream, f"{anomaly.detail} of {transaction.name}")


def _in_order(history: TransactionHistory) -> list[Transaction]:
    return sorted(history.transactions, key=lambda one: (one.producer, one.incarnation, one.number))


def _reused_offsets(history: TransactionHistory) -> Iterable[Anomaly]:
    """Records without effect have places of their own, too; ``_as_log`` knows the others'."""
    values = {(read.stream, read.offset): read.value for read in history.reads}
    for stream, records in history.final.items():
        values.update({(stream, offset): value for offset, value in records})
    for transaction in history.transactions:
        for send in transaction.sends:
            if send.outcome is not Outcome.OK or send.offset is None:
                continue
            other = values.setdefault((send.stream, send.offset), send.value)
            if other != send.value and transaction.fate is not Fate.COMMITTED:
                detail = f"{send.offset}: {sorted((other, send.value))}"
                yield Anomaly(log.Kind.DIVERGENT, send.stream, detail)


def _precommitted(history: TransactionHistory, owners: Owners) -> Iterable[Anomaly]:
    for read in history.reads:
        transaction, _ = owners.get((read.stream, read.value), (None, None))
        if transaction is None or transaction.fate is Fate.NOTHING:
            continue  # reported as such
        if read.time < transaction.decided:
            yield Anomaly(Kind.PRECOMMITTED, read.stream, f"{read.value} of {transaction.name}")


def _torn(history: TransactionHistory) -> Iterable[Anomaly]:
    """At the end a transaction is there or not, in all its streams."""
    final = {(stream, value) for stream, records in history.final.items() for _, value in records}
    for transaction in history.transactions:
        there = [(send.stream, send.value) in final for send in transaction.sends]
        if any(there) and not all(there):
            missing = transaction.sends[there.index(False)]
            detail = f"{transaction.name} without {missing.value}"
            yield Anomaly(Kind.TORN, missing.stream, detail)


def _spans(history: TransactionHistory) -> Iterable[tuple[Transaction, Stream, list[int]]]:
    """The places of each transaction's visible records, by stream."""
    places = {
        (stream, value): offset
        for stream, records in history.final.items()
        for offset, value in records
    }
    for transaction in history.transactions:
        spans: dict[Stream, list[int]] = defaultdict(list)
        for send in transaction.sends:
            if (send.stream, send.value) in places:
                spans[send.stream].append(places[send.stream, send.value])
        for stream, offsets in spans.items():
            yield transaction, stream, offsets


def _stable_ends(history: TransactionHistory) -> Iterable[Anomaly]:
    """In one stream a transaction becomes visible at once, and stays so."""
    ends: dict[Stream, set[int]] = defaultdict(set)
    last: dict[Stream, tuple[float, int]] = {}
    for snapshot in sorted(history.snapshots, key=lambda one: one.started):
        for stream, stable in snapshot.stable.items():
            ends[stream].add(stable)
            before, reached = last.get(stream, (0.0, 0))
            if before <= snapshot.started and stable < reached:
                yield Anomaly(Kind.UNSTABLE, stream, f"{reached}, then {stable}")
            last[stream] = (max(before, snapshot.ended), max(reached, stable))
    for transaction, stream, offsets in _spans(history):
        # Others may begin in its midst and hold the rest back; it does not do so itself.
        split = ends[stream].intersection(sorted(offsets)[1:])
        if split:
            detail = f"{transaction.name} at {sorted(offsets)}, stable until {min(split)}"
            yield Anomaly(Kind.SPLIT, stream, detail)


def _passed_open(history: TransactionHistory) -> Iterable[Anomaly]:
    """Nothing is stable behind a record whose transaction commits only later."""
    by_time = sorted(history.snapshots, key=lambda one: one.started)
    times = [snapshot.started for snapshot in by_time]
    for transaction in history.transactions:
        if transaction.fate is not Fate.COMMITTED:
            continue  # others may have ended at any time, without their client
        for send in transaction.sends:
            if send.outcome is not Outcome.OK or send.offset is None:
                continue
            first = bisect_left(times, send.ended)
            for snapshot in by_time[first : bisect_left(times, transaction.decided)]:
                stable = snapshot.stable.get(send.stream, 0)
                if snapshot.ended < transaction.decided and stable > send.offset:
                    detail = f"{transaction.name} at {send.offset}, stable until {stable}"
                    yield Anomaly(Kind.UNSTABLE, send.stream, detail)


def _appeared(history: TransactionHistory) -> Iterable[Anomaly]:
    """Whoever read all that was stable has read all there will ever be below that end."""
    reached: dict[tuple[str, Stream], int] = {}
    for snapshot in history.snapshots:
        for stream, stable in snapshot.stable.items():
            place = (snapshot.reader, stream)
            reached[place] = max(reached.get(place, 0), stable)
    seen = {(read.reader, read.stream, read.value) for read in history.reads}
    for (reader, stream), stable in reached.items():
        for offset, value in history.final.get(stream, []):
            if offset < stable and (reader, stream, value) not in seen:
                detail = f"{value} at {offset}, {reader} had read until {stable}"
                yield Anomaly(Kind.APPEARED, stream, detail)


def _fenced(history: TransactionHistory) -> Iterable[Anomaly]:
    """From the moment a successor is ready, nothing of its predecessors succeeds."""
    successors: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for one in sorted(history.incarnations, key=lambda one: one.number, reverse=True):
        later = successors[one.producer]
        later.append((-one.number, min(one.ready, later[-1][1] if later else NEVER)))
    for transaction in history.transactions:
        later = successors[transaction.producer]
        at = bisect_left(later, (-transaction.incarnation, 0.0)) - 1
        fenced_at = later[at][1] if at >= 0 else NEVER
        if not transaction.sends:
            continue  # clients end an empty transaction without asking
        confirmed = transaction.wish is Wish.COMMIT and transaction.outcome is Outcome.OK
        if confirmed and transaction.decided > fenced_at:
            stream = transaction.sends[0].stream
            yield Anomaly(Kind.FENCED_COMMIT, stream, transaction.name)
        for send in transaction.sends:
            if send.outcome is Outcome.OK and send.started > fenced_at:
                detail = f"{send.value} of {transaction.name}"
                yield Anomaly(Kind.FENCED_SEND, send.stream, detail)


def _overtaken(history: TransactionHistory, owners: Owners) -> Iterable[Anomaly]:
    """What is left of a transactional id lies in the order in which it was sent."""
    order = {
        (send.stream, send.value): place
        for place, (transaction, send) in enumerate(
            (transaction, send) for transaction in _in_order(history) for send in transaction.sends
        )
    }
    for stream, records in history.final.items():
        last: dict[str, tuple[int, str]] = {}
        for _, value in records:
            if (stream, value) not in owners:
                continue
            producer = owners[stream, value][0].producer
            place = order[stream, value]
            before, earlier = last.get(producer, (-1, ""))
            if place < before:
                yield Anomaly(Kind.OVERTAKEN, stream, f"{value} behind {earlier}")
            last[producer] = max((before, earlier), (place, value))


def _cycles(history: TransactionHistory, owners: Owners) -> Iterable[Anomaly]:
    """Whoever reads a transaction comes after it: what is left without a beginning is a cycle."""
    readers: dict[str, set[str]] = defaultdict(set)
    waits: dict[str, int] = {transaction.name: 0 for transaction in history.transactions}
    for transaction in history.transactions:
        for stream, _, value in transaction.inputs:
            if (stream, value) not in owners:
                continue
            writer = owners[stream, value][0].name
            if transaction.name not in readers[writer]:
                readers[writer].add(transaction.name)
                waits[transaction.name] += 1
    free = [name for name, count in waits.items() if not count]
    while free:
        name = free.pop()
        del waits[name]
        for reader in readers[name]:
            waits[reader] -= 1
            if not waits[reader]:
                free.append(reader)
    if waits:
        first = next(one for one in history.transactions if one.name in waits)
        detail = ", ".join(sorted(waits)[:10])
        yield Anomaly(Kind.CYCLE, first.inputs[0][0], detail)


class _Moves:
    """How transactions would move one group in one stream."""

    def __init__(self) -> None:
        self.received = 0
        self.givers: dict[int, list[Transaction]] = defaultdict(list)
        self._confirmed: list[tuple[float, int]] = []

    def add(self, transaction: Transaction, position: Position) -> None:
        self.givers[position.offset].append(transaction)
        if transaction.fate is Fate.COMMITTED:
            insort(self._confirmed, (transaction.ended, position.offset))
        for stream, offset, _ in transaction.inputs:
            if stream == position.stream:
                self.received = max(self.received, offset + 1)

    def settle(self) -> None:
        """All are known: at each time, the furthest that was confirmed by then."""
        times = [time for time, _ in self._confirmed]
        furthest = accumulate((offset for _, offset in self._confirmed), max)
        self._confirmed = list(zip(times, furthest, strict=True))

    def confirmed_at(self, time: float) -> int:
        at = bisect_right(self._confirmed, (time, 1 << 63))
        return self._confirmed[at - 1][1] if at else NO_POSITION


def _positions(history: TransactionHistory) -> Iterable[Anomaly]:
    """A group stands where the last committed transaction put it."""
    moves: dict[tuple[str, Stream], _Moves] = defaultdict(_Moves)
    for transaction in history.transactions:
        for position in transaction.positions:
            moves[position.group, position.stream].add(transaction, position)
    for each in moves.values():
        each.settle()
    for observed in history.observed:
        known = moves[observed.group, observed.stream]
        detail = f"{observed.group} at {observed.offset}"
        if observed.offset > known.received:
            yield Anomaly(Kind.BEYOND, observed.stream, f"{detail} of {known.received}")
        kind = _misplaced(observed, known)
        if kind is not None:
            yield Anomaly(kind, observed.stream, detail)


def _misplaced(observed: Observed, moves: _Moves) -> Kind | None:
    if observed.offset < moves.confirmed_at(observed.started):
        return Kind.LOST_POSITION
    if observed.offset == NO_POSITION:
        return None
    givers = moves.givers.get(observed.offset, [])
    if not givers:
        return Kind.FOREIGN_POSITION
    givers = [transaction for transaction in givers if transaction.fate is not Fate.NOTHING]
    if not givers:
        return Kind.ABORTED_POSITION
    if all(transaction.decided > observed.ended for transaction in givers):
        return Kind.PRECOMMITTED_POSITION
    return None


def _processed_once(history: TransactionHistory) -> Iterable[Anomaly]:
    """Every input of a chain is in its output once; those it has not come to yet are not."""
    sources = {
        (send.stream, send.value): send.source
        for transaction in history.transactions
        for send in transaction.sends
        if send.source is not None
    }
    reached: dict[tuple[str, Stream], int] = {}
    for observed in history.observed:
        place = (observed.group, observed.stream)
        reached[place] = max(reached.get(place, NO_POSITION), observed.offset)
    for group, (read, written) in history.chains.items():
        made: dict[tuple[Stream, int], list[str]] = defaultdict(list)
        for stream, _, value in _records_of(history, written):
            if (stream, value) in sources:
                made[sources[stream, value]].append(value)
        for (stream, offset), values in made.items():
            if len(values) > 1:
                yield Anomaly(Kind.PROCESSED_TWICE, stream, f"{offset}: {sorted(values)}")
        for stream, offset, value in _records_of(history, read):
            if offset < reached.get((group, stream), 0) and (stream, offset) not in made:
                yield Anomaly(Kind.UNPROCESSED, stream, f"{value} at {offset}, {group}")


def _records_of(history: TransactionHistory, topic: str) -> Iterable[tuple[Stream, int, str]]:
    for stream, records in history.final.items():
        if stream[0] == topic:
            for offset, value in records:
                yield stream, offset, value


def _hanging(history: TransactionHistory) -> Iterable[Anomaly]:
    for stream, (stable, until) in history.ends.items():
        if stable < until:
            yield Anomaly(Kind.HANGING, stream, f"stable until {stable} of {until}")
