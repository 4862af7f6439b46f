"""The checker is right about sound histories and notices each anomaly that is put into one."""

import time
from bisect import bisect_left
from dataclasses import replace
from enum import StrEnum

import pytest
from tests.chaos import history as log
from tests.chaos.history import Anomaly, Outcome, Stream
from tests.chaos.transaction_history import Kind, check
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

PARTITIONS = 3
GROUP = "chain-group"
IN, OUT = "in", "out"


class CorrectServer:
    """A server that does everything right, and the history of its clients."""

    def __init__(self) -> None:
        self.now = 0.0
        self.history = TransactionHistory(chains={GROUP: (IN, OUT)})
        self.ends: dict[Stream, int] = {
            (topic, number): 0 for topic in (IN, OUT) for number in range(PARTITIONS)
        }
        self.history.final = {stream: [] for stream in self.ends}
        self.incarnations: dict[str, int] = {}
        self.numbers: dict[str, int] = {}
        self.position: dict[Stream, int] = {}
        self.read_until = dict.fromkeys(self.ends, 0)

    def tick(self) -> float:
        self.now += 1
        return self.now

    def incarnation(self, producer: str) -> int:
        number = self.incarnations[producer] = self.incarnations.get(producer, -1) + 1
        self.history.incarnations.append(Incarnation(producer, number, self.tick()))
        return number

    def begin(self, producer: str, incarnation: int) -> Transaction:
        number = self.numbers[producer] = self.numbers.get(producer, -1) + 1
        made = Transaction(producer, incarnation, number)
        self.history.transactions.append(made)
        return made

    def send(
        self,
        transaction: Transaction,
        stream: Stream,
        source: tuple[Stream, int] | None = None,
    ) -> None:
        value = f"{transaction.name}:{len(transaction.sends)}"
        started = self.tick()
        offset = self.ends[stream]
        self.ends[stream] += 1
        send = Send(stream, value, started, Outcome.OK, offset, self.tick(), source)
        transaction.sends.append(send)

    def end(self, transaction: Transaction, wish: Wish, outcome: Outcome = Outcome.OK) -> None:
        transaction.wish = wish
        transaction.decided = self.tick()
        for stream in {send.stream for send in transaction.sends}:
            self.ends[stream] += 1  # the marker
        if wish is Wish.COMMIT and outcome is not Outcome.REFUSED:
            for send in transaction.sends:
                assert send.offset is not None
                self.history.final[send.stream].append((send.offset, send.value))
            for position in transaction.positions:
                self.position[position.stream] = position.offset
        transaction.outcome = outcome
        transaction.ended = self.tick()

    def write(self, producer: str, incarnation: int, wish: Wish, count: int = 6) -> Transaction:
        transaction = self.begin(producer, incarnation)
        for number in range(count):
            self.send(transaction, (IN, number % PARTITIONS))
        self.end(transaction, wish)
        return transaction

    def process(self, incarnation: int, wish: Wish = Wish.COMMIT) -> Transaction:
        transaction = self.begin("chain", incarnation)
        for stream in [(IN, number) for number in range(PARTITIONS)]:
            start = self.position.get(stream, 0)
            records = self.history.final[stream]
            found = records[bisect_left(records, (start, "")) :]
            for offset, value in found:
                transaction.inputs.append((stream, offset, value))
                self.send(transaction, (OUT, stream[1]), source=(stream, offset))
            if found:
                until = found[-1][0] + 1
                transaction.positions.append(Position(GROUP, stream, until, Outcome.OK))
        self.end(transaction, wish)
        return transaction

    def read(self) -> None:
        """A reader asks for the stable ends and reads up to them."""
        started = self.tick()
        stable = dict(self.ends)
        ended = self.tick()
        for stream, records in self.history.final.items():
            for offset, value in records[bisect_left(records, (self.read_until[stream], "")) :]:
                read = TimedRead("reader", 0, stream, offset, value, self.tick())
                self.history.reads.append(read)
            self.read_until[stream] = stable[stream]
        self.history.snapshots.append(Snapshot("reader", started, ended, stable))

    def observe(self) -> None:
        started = self.tick()
        for number in range(PARTITIONS):
            stream = (IN, number)
            offset = self.position.get(stream, NO_POSITION)
            self.history.observed.append(Observed(GROUP, stream, offset, started, started + 0.5))


def sound(rounds: int = 4) -> TransactionHistory:
    """Two producers, one of them replaced in every round, a chain and a reader."""
    server = CorrectServer()
    steady = server.incarnation("steady")
    server.observe()
    for _ in range(rounds):
        fresh = server.incarnation("fresh")
        chain = server.incarnation("chain")
        server.write("fresh", fresh, Wish.COMMIT)
        server.write("fresh", fresh, Wish.ABORT)
        server.write("steady", steady, Wish.COMMIT, count=2)
        server.read()
        server.process(chain, Wish.ABORT)
        server.observe()
        server.process(chain)
        server.observe()
        server.read()
    history = server.history
    history.ends = {stream: (until, until) for stream, until in server.ends.items()}
    return history


def kinds(anomalies: list[Anomaly]) -> set[StrEnum]:
    return {anomaly.kind for anomaly in anomalies}


def found(history: TransactionHistory) -> set[StrEnum]:
    return kinds(check(history))


def committed(history: TransactionHistory, producer: str = "fresh") -> Transaction:
    """A transaction in the middle of the history that was confirmed."""
    return [
        one
        for one in history.transactions
        if one.producer == producer and one.wish is Wish.COMMIT and one.sends
    ][1]


def aborted(history: TransactionHistory, producer: str = "fresh") -> Transaction:
    return [
        one for one in history.transactions if one.producer == producer and one.wish is Wish.ABORT
    ][1]


def show(history: TransactionHistory, sends: list[Send]) -> None:
    """Put records into the last reading, where they belong."""
    for send in sends:
        assert send.offset is not None
        history.final[send.stream].append((send.offset, send.value))
        history.final[send.stream].sort()


def hide(history: TransactionHistory, sends: list[Send]) -> None:
    """Take records out of all readings."""
    gone = {(send.stream, send.value) for send in sends}
    history.reads = [one for one in history.reads if (one.stream, one.value) not in gone]
    for stream, records in history.final.items():
        history.final[stream] = [one for one in records if (stream, one[1]) not in gone]


def test_a_sound_history_has_no_anomaly() -> None:
    history = sound()
    assert check(history) == []
    assert len(history.reads) > 50
    assert len(history.observed) > 20


def test_a_commit_without_an_answer_may_have_happened() -> None:
    history = sound()
    committed(history).outcome = Outcome.UNKNOWN
    assert found(history) == set()


def test_a_commit_without_an_answer_may_not_have_happened() -> None:
    history = sound()
    transaction = history.transactions[-2]
    assert transaction.producer == "chain"
    server = CorrectServer()
    incarnation = server.incarnation("p")
    lost = server.begin("p", incarnation)
    server.send(lost, (IN, 0))
    server.send(lost, (IN, 1))
    lost.wish, lost.decided = Wish.COMMIT, server.tick()
    assert found(server.history) == set()


def test_a_commit_without_an_answer_is_whole_or_not_at_all() -> None:
    history = sound()
    transaction = committed(history)
    transaction.outcome = Outcome.UNKNOWN
    hide(history, transaction.sends[:1])
    assert Kind.TORN in found(history)


def test_a_lost_write_is_reported() -> None:
    history = sound()
    hide(history, committed(history).sends)
    assert log.Kind.LOST in found(history)
    assert Kind.TORN not in found(history)


def test_a_transaction_visible_in_one_partition_only_is_torn() -> None:
    history = sound()
    transaction = committed(history)
    hide(history, [send for send in transaction.sends if send.stream[1] != 0])
    assert {Kind.TORN, log.Kind.LOST} <= found(history)


def test_a_duplicate_is_reported() -> None:
    history = sound()
    stream = (IN, 0)
    until = history.ends[stream][1]
    history.final[stream].append((until, history.final[stream][0][1]))
    assert log.Kind.DUPLICATE in found(history)


def test_an_aborted_read_is_reported() -> None:
    history = sound()
    transaction = aborted(history)
    send = transaction.sends[0]
    assert send.offset is not None
    at = len(history.reads)
    history.reads.insert(
        at, TimedRead("other", 0, send.stream, send.offset, send.value, transaction.ended + 1)
    )
    assert Kind.ABORTED_READ in found(history)


@pytest.mark.parametrize("outcome", Outcome)
def test_an_aborted_transaction_that_stays_is_reported_whatever_was_answered(
    outcome: Outcome,
) -> None:
    history = sound()
    transaction = aborted(history)
    transaction.outcome = outcome
    show(history, transaction.sends)
    assert Kind.ABORTED_READ in found(history)


def test_a_transaction_that_was_never_to_end_and_is_visible_is_reported() -> None:
    history = sound()
    transaction = committed(history)
    transaction.wish = None
    assert Kind.ABORTED_READ in found(history)


def test_a_transaction_that_could_not_begin_and_is_visible_is_reported() -> None:
    history = sound()
    committed(history).begun = Outcome.REFUSED
    assert {Kind.ABORTED_READ, Kind.DELAYED_END} & found(history)


def test_a_refused_commit_that_takes_effect_later_is_reported() -> None:
    history = sound()
    committed(history).outcome = Outcome.REFUSED
    assert Kind.DELAYED_END in found(history)
    assert Kind.ABORTED_READ not in found(history)


def test_a_read_before_the_commit_was_asked_for_is_reported() -> None:
    history = sound()
    transaction = committed(history)
    at = next(
        index
        for index, read in enumerate(history.reads)
        if read.value == transaction.sends[0].value
    )
    history.reads[at] = replace(history.reads[at], time=transaction.decided - 0.5)
    assert found(history) == {Kind.PRECOMMITTED}


def test_a_reader_that_goes_back_is_reported() -> None:
    history = sound()
    history.reads.append(replace(history.reads[0], time=history.reads[-1].time))
    assert log.Kind.BACKWARD in found(history)


def test_a_reader_that_skips_is_reported() -> None:
    history = sound()
    of_stream = [read for read in history.reads if read.stream == (IN, 0)]
    history.reads.remove(of_stream[3])
    assert {log.Kind.SKIPPED, Kind.APPEARED} <= found(history)


def test_a_record_that_appears_behind_a_reader_is_reported() -> None:
    """The end of a transaction that came late: readers had gone on without it."""
    history = sound()
    last = {read.stream: read for read in history.reads}
    history.reads.remove(last[IN, 1])
    assert found(history) == {Kind.APPEARED}


def test_sends_that_change_their_order_are_reported() -> None:
    history = sound()
    transaction = committed(history)
    first, second = (send for send in transaction.sends if send.stream == (IN, 0))
    first.value, second.value = second.value, first.value
    assert {Kind.OVERTAKEN} <= found(history)


def test_a_zombies_record_behind_one_of_its_successor_is_reported() -> None:
    history = sound()
    older, newer = (
        one
        for one in history.transactions
        if one.producer == "fresh" and one.wish is Wish.COMMIT and one.incarnation in (1, 2)
    )
    # The older one was sent in time, and nobody knows its outcome; it was stored too late.
    for mine, theirs in zip(older.sends, newer.sends, strict=True):
        mine.value, theirs.value = theirs.value, mine.value
    assert Kind.OVERTAKEN in found(history)


def test_an_inversion_of_time_is_reported() -> None:
    history = sound()
    transaction = committed(history)
    other = committed(history, "steady")
    mine, theirs = transaction.sends[0], other.sends[0]
    assert mine.stream == theirs.stream
    mine.started, mine.ended = theirs.ended + 1, theirs.ended + 2
    assert log.Kind.INVERTED in found(history)


@pytest.mark.parametrize("fate", ["committed", "aborted"])
def test_an_offset_that_is_given_out_twice_is_reported(fate: str) -> None:
    history = sound()
    transaction = committed(history) if fate == "committed" else aborted(history)
    send = transaction.sends[0]
    send.offset = history.final[send.stream][0][0]
    assert log.Kind.DIVERGENT in found(history)


def test_a_record_that_nobody_sent_is_reported() -> None:
    history = sound()
    history.final[IN, 0].append((history.ends[IN, 0][1], "from nowhere"))
    assert log.Kind.PHANTOM in found(history)


def test_a_stable_end_within_a_transaction_is_reported() -> None:
    history = sound()
    transaction = committed(history)
    first, second = (send for send in transaction.sends if send.stream == (IN, 0))
    assert second.offset is not None
    at = transaction.ended + 0.1
    history.snapshots.append(Snapshot("other", at, at, {first.stream: second.offset}))
    history.reads.clear()
    assert Kind.SPLIT in found(history)


def test_a_transaction_may_be_held_back_by_another_one_in_its_midst() -> None:
    server = CorrectServer()
    first, second = server.incarnation("first"), server.incarnation("second")
    outer = server.begin("first", first)
    inner = server.begin("second", second)
    server.send(outer, (IN, 0))
    server.send(inner, (IN, 0))
    server.send(outer, (IN, 0))
    server.end(outer, Wish.COMMIT)
    at = server.tick()
    server.history.snapshots.append(Snapshot("reader", at, at, {(IN, 0): 1}))
    server.end(inner, Wish.COMMIT)
    server.history.final[IN, 0].sort()
    server.read()
    assert found(server.history) == set()


def test_a_stable_end_that_goes_back_is_reported() -> None:
    history = sound()
    last = history.snapshots[-1]
    history.snapshots.append(Snapshot("reader", last.ended + 1, last.ended + 2, {(IN, 0): 0}))
    assert found(history) == {Kind.UNSTABLE}


def test_a_stable_end_behind_an_open_transaction_is_reported() -> None:
    history = sound()
    transaction = committed(history)
    send = transaction.sends[0]
    assert send.offset is not None
    at = (send.ended + transaction.decided) / 2
    history.snapshots.append(Snapshot("other", at, at, {send.stream: send.offset + 100}))
    assert Kind.UNSTABLE in found(history)


def test_a_confirmed_commit_of_a_fenced_producer_is_reported() -> None:
    history = sound()
    transaction = committed(history)
    ready = transaction.decided - 0.5
    history.incarnations.append(
        Incarnation(transaction.producer, transaction.incarnation + 1, ready)
    )
    assert Kind.FENCED_COMMIT in found(history)


def test_a_record_taken_from_a_fenced_producer_is_reported() -> None:
    history = sound()
    transaction = aborted(history)
    ready = transaction.sends[2].started - 0.5
    history.incarnations.append(
        Incarnation(transaction.producer, transaction.incarnation + 1, ready)
    )
    assert found(history) == {Kind.FENCED_SEND}


def test_transactions_that_read_each_other_are_reported() -> None:
    history = sound()
    chain = committed(history, "chain")
    writer = next(one for one in history.transactions if one.sends[0].value == chain.inputs[0][2])
    send = chain.sends[0]
    assert send.offset is not None
    writer.inputs.append((send.stream, send.offset, send.value))
    assert Kind.CYCLE in found(history)


def observed_after(history: TransactionHistory, transaction: Transaction) -> int:
    """The first look at a group's position that came after a transaction of the group."""
    [stream] = {position.stream for position in transaction.positions if position.stream[1] == 0}
    return next(
        at
        for at, one in enumerate(history.observed)
        if one.started > transaction.ended and one.stream == stream
    )


def test_a_position_of_an_aborted_transaction_is_reported() -> None:
    history = sound()
    transaction = aborted(history, "chain")
    at = observed_after(history, transaction)
    moved = replace(history.observed[at], offset=transaction.positions[0].offset)
    # The same inputs are committed a moment later; only this look is too early for it.
    history.observed[at] = moved
    history.transactions = [
        one
        for one in history.transactions
        if one.producer != "chain" or one.number <= transaction.number
    ]
    assert Kind.ABORTED_POSITION in found(history)


def test_a_position_that_is_visible_before_the_commit_is_reported() -> None:
    history = sound()
    transaction = committed(history, "chain")
    at = observed_after(history, transaction)
    early = transaction.decided - 1
    history.observed[at] = replace(history.observed[at], started=early, ended=early)
    assert found(history) == {Kind.PRECOMMITTED_POSITION}


def test_a_position_that_nobody_committed_is_reported() -> None:
    history = sound()
    last = history.observed[-1]
    transaction = [one for one in history.transactions if one.producer == "chain"][-1]
    [position] = [one for one in transaction.positions if one.stream == last.stream]
    transaction.inputs.append((last.stream, last.offset, "skipped"))
    history.observed[-1] = replace(last, offset=position.offset + 1)
    assert found(history) == {Kind.FOREIGN_POSITION}


def test_a_position_beyond_what_was_received_is_reported() -> None:
    history = sound()
    last = history.observed[-1]
    transaction = [one for one in history.transactions if one.producer == "chain"][-1]
    [position] = [one for one in transaction.positions if one.stream == last.stream]
    position.offset += 10
    history.observed[-1] = replace(last, offset=position.offset)
    assert found(history) == {Kind.BEYOND}


@pytest.mark.parametrize("offset", [NO_POSITION, 1])
def test_a_position_that_was_forgotten_is_reported(offset: int) -> None:
    history = sound()
    history.observed[-1] = replace(history.observed[-1], offset=offset)
    assert found(history) == {Kind.LOST_POSITION}


def test_an_input_that_is_processed_twice_is_reported() -> None:
    history = sound()
    first, second = committed(history, "chain").sends[:2]
    second.source = first.source
    assert {Kind.PROCESSED_TWICE, Kind.UNPROCESSED} <= found(history)


def test_an_input_that_is_passed_over_is_reported() -> None:
    history = sound()
    transaction = committed(history, "chain")
    gone = transaction.sends.pop(1)
    hide(history, [gone])
    assert found(history) == {Kind.UNPROCESSED}


def test_an_input_that_the_group_has_not_come_to_may_wait() -> None:
    history = sound()
    server = CorrectServer()
    incarnation = server.incarnation("p")
    server.write("p", incarnation, Wish.COMMIT)
    server.observe()
    assert found(server.history) == set()
    assert found(history) == set()


def test_a_stream_that_stays_unstable_is_reported() -> None:
    history = sound()
    stable, until = history.ends[OUT, 2]
    history.ends[OUT, 2] = (stable - 1, until)
    assert found(history) == {Kind.HANGING}


def test_ten_thousand_transactions_are_judged_in_seconds() -> None:
    history = sound(2_000)
    assert len(history.transactions) == 10_000
    started = time.process_time()
    assert check(history) == []
    assert time.process_time() - started < 30
