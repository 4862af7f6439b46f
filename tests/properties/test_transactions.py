"""Any course of producers, zombies, lost answers, time-outs, full disks and crashes keeps its word.

The oracle knows what each producer was told: a transaction whose commit was confirmed is committed
in every partition it wrote to, one that was aborted in none, and no transaction ends in two ways.
"""

from collections.abc import Callable
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace
from tests.kit.simulation.coordination.transaction_simulator import TransactionSimulator

from mainstem.coordination.transactions.facts import TransactionSaved
from mainstem.coordination.transactions.requests import EndRequest, InitRequest
from mainstem.coordination.transactions.settings import TransactionSettings
from mainstem.coordination.transactions.state import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    NOBODY,
    ProducerIdentity,
    TransactionState,
)
from mainstem.model.errors import ErrorCode, MainstemError

T = TypeVar("T")
IDS = st.sampled_from(["t", "u"])
PARTITIONS = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 1))
# What a client may be told although it did nothing wrong, and what a zombie is told.
RETRY = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_UNAVAILABLE}
GONE = {ErrorCode.FENCED_PRODUCER, ErrorCode.INVALID_PRODUCER_MAPPING}


class Producer:
    """One instance of an application: what it knows of itself and of its transaction."""

    def __init__(self, transactional_id: str, version: int) -> None:
        self.id = transactional_id
        self.version = version
        self.identity = NOBODY
        self.wrote: list[tuple[tuple[str, int], int]] = []  # partition, place in its records
        self.wish: bool | None = None  # commit or abort, once it was asked for


class TransactionMachine(RuleBasedStateMachine):
    """Plays producers against a shard that may stop anywhere."""

    @initialize(
        timeout_ms=st.integers(1, 1_000),
        versions=st.lists(st.sampled_from([0, 2]), min_size=2, max_size=4),
    )
    def begin(self, timeout_ms: int, versions: list[int]) -> None:
        self.sim = TransactionSimulator(TransactionSettings())
        self.timeout_ms = timeout_ms
        self.producers = [
            Producer("tu"[number % 2], version) for number, version in enumerate(versions)
        ]
        # Records by (partition, place): what their producer was told about them.
        self.promised: dict[tuple[tuple[str, int], int], bool] = {}
        self.identities: dict[str, ProducerIdentity] = {}

    def attempt(self, act: Callable[[], T], refusals: set[ErrorCode]) -> T | None:
        try:
            return act()
        except MainstemError as refusal:
            if refusal.code not in refusals:
                raise
            return None

    @rule(number=st.integers(0, 3), recovers=st.booleans(), keeps=st.booleans(), lost=st.booleans())
    def init(self, number: int, *, recovers: bool, keeps: bool, lost: bool) -> None:
        producer = self.producers[number % len(self.producers)]
        request = InitRequest(
            transactional_id=producer.id,
            timeout_ms=self.timeout_ms,
            expected=producer.identity if recovers else NOBODY,
            keep_prepared=keeps,
        )
        answer = self.attempt(lambda: self.sim.init(request), RETRY | GONE)
        if answer is None:
            return
        self.grows(producer.id, answer.producer)
        if not lost:
            producer.identity = answer.producer
            producer.wrote = []
            producer.wish = None

    @rule(number=st.integers(0, 3), partition=PARTITIONS)
    def write(self, number: int, partition: tuple[str, int]) -> None:
        producer = self.producers[number % len(self.producers)]
        if producer.identity == NOBODY or producer.wish is not None:
            return
        if producer.version < 2:
            self.attempt(
                lambda: self.sim.add(producer.id, producer.identity, [partition]),
                RETRY | GONE | {ErrorCode.INVALID_TXN_STATE},
            )

        def act() -> bool:
            self.sim.write(producer.id, producer.identity, partition, adds=producer.version >= 2)
            return True

        refusals = RETRY | GONE | {ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE}
        if self.attempt(act, refusals):
            place = len(self.sim.partitions[partition].records) - 1
            producer.wrote.append((partition, place))

    @rule(number=st.integers(0, 3), commit=st.booleans(), lost=st.booleans())
    def end(self, number: int, *, commit: bool, lost: bool) -> None:
        producer = self.producers[number % len(self.producers)]
        if producer.identity == NOBODY:
            return
        wish = commit if producer.wish is None else producer.wish
        request = EndRequest(
            transactional_id=producer.id,
            producer=producer.identity,
            commit=wish,
            client_version=producer.version,
        )
        refusals = RETRY | GONE | {ErrorCode.INVALID_TXN_STATE}
        after = self.attempt(lambda: self.sim.end(request), refusals)
        producer.wish = wish
        if after is None or lost:
            return
        self.grows(producer.id, after)
        for written in producer.wrote:
            assert self.promised.setdefault(written, wish) is wish
        producer.identity = after
        producer.wrote = []
        producer.wish = None

    @rule(data=st.data())
    @precondition(lambda self: self.sim.unmarked)
    def mark_one(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.sim.unmarked)))
        left = self.sim.unmarked[name]
        if left:
            self.sim.mark(name, data.draw(st.sampled_from(left)))
        elif not self.sim.is_full:
            self.sim.complete(name)

    @rule(by_ms=st.integers(0, 1_500))
    def time_passes(self, by_ms: int) -> None:
        self.sim.advance(by_ms)

    @rule()
    def crash(self) -> None:
        self.sim.restart()

    @rule(full=st.booleans())
    def disk(self, *, full: bool) -> None:
        self.sim.is_full = full

    @rule(name=IDS)
    def epochs_run_out(self, name: str) -> None:
        """As if the producer had ended thirty thousand transactions."""
        known = self.sim.shard.get(name)
        if known is None or known.state is not TransactionState.EMPTY:
            return
        last = replace(known, epoch=max(known.epoch, EPOCH_EXHAUSTED))
        self.sim.shard.replay(TransactionSaved(last))
        self.sim.stored.append(TransactionSaved(last))
        for producer in self.producers:
            if producer.identity == known.client:
                producer.identity = last.client
        self.identities[name] = max(self.identities.get(name, NOBODY), last.client)

    def grows(self, name: str, identity: ProducerIdentity) -> None:
        """Identities of an id never go back; producer ids are handed out in order."""
        assert identity >= self.identities.get(name, NOBODY)
        assert 0 <= identity.epoch <= EPOCH_EXHAUSTED
        self.identities[name] = identity

    @invariant()
    def what_is_stored_is_what_is_known(self) -> None:
        if hasattr(self, "sim"):
            assert list(self.sim.rebuilt()) == list(self.sim.shard)

    @invariant()
    def epochs_fit_their_field(self) -> None:
        if hasattr(self, "sim"):
            for known in self.sim.shard:
                assert known.epoch <= (EPOCH_MAX if known.state.is_prepared else EPOCH_EXHAUSTED)

    @invariant()
    def an_open_partition_is_known_to_the_coordinator(self) -> None:
        if not hasattr(self, "sim"):
            return
        for name, partition in self.sim.partitions.items():
            for producer_id in partition.state.transactions.ongoing:
                assert any(
                    known.producer_id == producer_id and name in known.partitions
                    for known in self.sim.shard
                ), "a transaction hangs"

    @invariant()
    def nobody_is_told_otherwise(self) -> None:
        for (partition, place), promise in getattr(self, "promised", {}).items():
            assert self.sim.partitions[partition].records[place].is_committed in (None, promise)

    def teardown(self) -> None:
        if not hasattr(self, "sim"):
            return
        self.sim.is_full = False
        self.sim.settle()
        self.sim.advance(2_000)
        self.sim.settle()
        for partition in self.sim.partitions.values():
            assert not partition.state.transactions.ongoing, "a partition is left open"
        for (name, place), promise in self.promised.items():
            assert self.sim.partitions[name].records[place].is_committed is promise
        self.check_atomicity()

    def check_atomicity(self) -> None:
        """Records of one transaction share one outcome, wherever they are."""
        outcomes: dict[ProducerIdentity, set[bool | None]] = {}
        versions = {producer.version for producer in self.producers}
        if versions != {2}:
            return  # older clients use one epoch for many transactions
        for partition in self.sim.partitions.values():
            for record in partition.records:
                outcomes.setdefault(record.producer, set()).add(record.is_committed)
        assert all(len(found) == 1 for found in outcomes.values())


TransactionMachine.TestCase.settings = settings(
    max_examples=200, stateful_step_count=50, deadline=None
)
TestTransactions = TransactionMachine.TestCase
