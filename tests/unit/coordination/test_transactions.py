"""Stories of transactional ids: who owns them, how transactions begin and end."""

import pytest
from msgspec.structs import replace
from tests.kit.simulation.coordination.transaction_simulator import TransactionSimulator

from mainstem.coordination.transactions.facts import TransactionSaved
from mainstem.coordination.transactions.requests import (
    EndRequest,
    InitAnswer,
    InitRequest,
    TransactionFilter,
)
from mainstem.coordination.transactions.settings import TransactionSettings
from mainstem.coordination.transactions.state import (
    EPOCH_EXHAUSTED,
    NO_TIMEOUT_MS,
    NOBODY,
    ProducerIdentity,
    TransactionState,
)
from mainstem.model.errors import ErrorCode, MainstemError

T = "t"
A, B = ("a", 0), ("b", 1)
MINUTE_MS = 60_000
OLD, NEW = 0, 2
State = TransactionState


def begin(sim: TransactionSimulator, expected: ProducerIdentity = NOBODY) -> ProducerIdentity:
    request = InitRequest(transactional_id=T, timeout_ms=MINUTE_MS, expected=expected)
    return sim.init(request).producer


def end(
    sim: TransactionSimulator,
    producer: ProducerIdentity,
    *,
    commit: bool = True,
    version: int = NEW,
) -> ProducerIdentity:
    return sim.end(
        EndRequest(transactional_id=T, producer=producer, commit=commit, client_version=version)
    )


def keep(sim: TransactionSimulator, *, two_phase: bool = True) -> InitAnswer:
    return sim.init(
        InitRequest(
            transactional_id=T, timeout_ms=MINUTE_MS, two_phase=two_phase, keep_prepared=True
        )
    )


def refused(code: ErrorCode) -> "pytest.RaisesExc[MainstemError]":
    return pytest.RaisesExc(MainstemError, check=lambda error: error.code is code)


def use_up_epochs(sim: TransactionSimulator) -> ProducerIdentity:
    """Let the present producer have the last epoch that clients are given."""
    sim.shard.replay(TransactionSaved(replace(sim.known(T), epoch=EPOCH_EXHAUSTED)))
    return sim.known(T).client


@pytest.fixture
def sim() -> TransactionSimulator:
    return TransactionSimulator(TransactionSettings())


def test_a_new_id_gets_a_producer_of_epoch_zero(sim: TransactionSimulator) -> None:
    assert begin(sim).epoch == 0
    assert sim.known(T).state is State.EMPTY


def test_a_second_instance_gets_the_next_epoch_and_fences_the_first(
    sim: TransactionSimulator,
) -> None:
    first = begin(sim)

    second = begin(sim)

    assert second == (first.producer_id, first.epoch + 1)
    with refused(ErrorCode.FENCED_PRODUCER):
        sim.add(T, first, [A])


def test_a_transaction_begins_with_its_first_partition(sim: TransactionSimulator) -> None:
    producer = begin(sim)

    sim.add(T, producer, [A])
    sim.now_ms += 10
    sim.add(T, producer, [B, A])

    known = sim.known(T)
    assert known.state is State.ONGOING
    assert known.partitions == frozenset({A, B})
    assert known.start_ms == sim.now_ms - 10


def test_partitions_that_are_in_already_are_not_stored_again(sim: TransactionSimulator) -> None:
    producer = begin(sim)
    sim.add(T, producer, [A, B])
    stored = len(sim.stored)

    sim.add(T, producer, [B])

    assert len(sim.stored) == stored


@pytest.mark.parametrize("commit", [True, False])
def test_an_outcome_is_decided_before_any_marker_is_written(
    sim: TransactionSimulator, *, commit: bool
) -> None:
    producer = begin(sim)
    sim.write(T, producer, A, adds=True)

    end(sim, producer, commit=commit)

    assert sim.known(T).state is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
    assert [record.is_committed for record in sim.partitions[A].records] == [None]
    sim.settle()
    assert sim.known(T).state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert [record.is_committed for record in sim.partitions[A].records] == [commit]


def test_every_transaction_of_a_newer_client_has_its_own_epoch(sim: TransactionSimulator) -> None:
    producer = begin(sim)
    sim.write(T, producer, A, adds=True)

    after = end(sim, producer)

    assert after == (producer.producer_id, producer.epoch + 1)
    sim.settle()
    with refused(ErrorCode.FENCED_PRODUCER):
        sim.partitions[A].write(producer, "late")
    sim.write(T, after, A, adds=True)


def test_an_older_client_keeps_its_epoch(sim: TransactionSimulator) -> None:
    producer = begin(sim)
    sim.add(T, producer, [A])

    assert end(sim, producer, version=OLD) == producer

    sim.settle()
    sim.add(T, producer, [A])


def test_an_older_client_must_add_a_partition_before_it_writes(sim: TransactionSimulator) -> None:
    producer = begin(sim)
    sim.add(T, producer, [A])

    with refused(ErrorCode.TRANSACTION_ABORTABLE):
        sim.write(T, producer, B, adds=False)
    sim.write(T, producer, A, adds=False)


def test_nothing_joins_a_transaction_whose_outcome_is_decided(sim: TransactionSimulator) -> None:
    producer = begin(sim)
    sim.add(T, producer, [A])
    after = end(sim, producer)

    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        sim.add(T, after, [B])
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        sim.shard.holds(T, after, [A])
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        begin(sim)


@pytest.mark.parametrize("settled", [False, True])
def test_an_end_whose_answer_got_lost_may_be_asked_for_again(
    sim: TransactionSimulator, *, settled: bool
) -> None:
    producer = begin(sim)
    sim.add(T, producer, [A])
    after = end(sim, producer)
    if settled:
        sim.settle()
        assert end(sim, producer) == after
    else:
        with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
            end(sim, producer)

    with refused(ErrorCode.INVALID_TXN_STATE):
        end(sim, producer, commit=False)


def test_a_commit_without_a_transaction_is_refused(sim: TransactionSimulator) -> None:
    producer = begin(sim)

    with refused(ErrorCode.INVALID_TXN_STATE):
        end(sim, producer)
    with refused(ErrorCode.INVALID_TXN_STATE):
        end(sim, producer, commit=False, version=OLD)


def test_an_abort_without_a_transaction_fences_what_may_be_late(sim: TransactionSimulator) -> None:
    producer = begin(sim)

    after = end(sim, producer, commit=False)

    assert after.epoch == producer.epoch + 1
    sim.settle()
    assert sim.known(T).state is State.COMPLETE_ABORT
    with refused(ErrorCode.FENCED_PRODUCER):
        sim.write(T, producer, A, adds=True)


def test_a_second_instance_aborts_what_the_first_left_open(sim: TransactionSimulator) -> None:
    first = begin(sim)
    sim.write(T, first, A, adds=True)

    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        begin(sim)
    sim.settle()
    second = begin(sim)

    assert [record.is_committed for record in sim.partitions[A].records] == [False]
    assert second.epoch > first.epoch + 1
    with refused(ErrorCode.FENCED_PRODUCER):
        end(sim, first)
    with refused(ErrorCode.FENCED_PRODUCER):
        end(sim, first, commit=False)


def test_a_producer_that_recovers_from_an_error_goes_on(sim: TransactionSimulator) -> None:
    producer = begin(sim)

    recovered = begin(sim, expected=producer)

    assert recovered == (producer.producer_id, producer.epoch + 1)
    assert begin(sim, expected=producer) == recovered


def test_a_producer_that_recovers_aborts_its_own_transaction(sim: TransactionSimulator) -> None:
    producer = begin(sim)
    sim.write(T, producer, A, adds=True)

    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        begin(sim, expected=producer)
    with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
        begin(sim, expected=producer)
    sim.settle()

    assert begin(sim, expected=producer).epoch > producer.epoch


def test_a_producer_that_was_replaced_cannot_recover(sim: TransactionSimulator) -> None:
    first = begin(sim)
    begin(sim)

    with refused(ErrorCode.FENCED_PRODUCER):
        begin(sim, expected=first)


def test_a_request_under_another_producer_id_is_told_to_begin_anew(
    sim: TransactionSimulator,
) -> None:
    producer = begin(sim)
    stranger = ProducerIdentity(producer.producer_id + 1, producer.epoch)

    for act in (lambda: sim.add(T, stranger, [A]), lambda: end(sim, stranger)):
        with refused(ErrorCode.INVALID_PRODUCER_MAPPING):
            act()
    with refused(ErrorCode.INVALID_PRODUCER_MAPPING):
        sim.add("unknown", producer, [A])


def test_a_transaction_that_lasts_too_long_is_aborted(sim: TransactionSimulator) -> None:
    producer = begin(sim)
    sim.write(T, producer, A, adds=True)

    assert sim.advance(MINUTE_MS - 1) == []
    assert sim.advance(1) == [T]
    sim.settle()

    assert [record.is_committed for record in sim.partitions[A].records] == [False]
    with refused(ErrorCode.INVALID_TXN_STATE):
        end(sim, producer)
    again = end(sim, producer, commit=False)
    sim.write(T, again, A, adds=True)


def test_time_outs_are_bounded(sim: TransactionSimulator) -> None:
    for timeout_ms in (0, -1, 15 * MINUTE_MS + 1):
        with refused(ErrorCode.INVALID_TXN_TIMEOUT):
            sim.init(InitRequest(transactional_id=T, timeout_ms=timeout_ms))


def test_a_producer_whose_epochs_are_used_up_gets_another_id(sim: TransactionSimulator) -> None:
    first = begin(sim)
    use_up_epochs(sim)

    second = begin(sim)

    assert second.producer_id != first.producer_id
    assert second.epoch == 0


def test_the_last_epoch_of_an_id_is_ended_with_another_id(sim: TransactionSimulator) -> None:
    begin(sim)
    last = use_up_epochs(sim)
    sim.write(T, last, A, adds=True)

    after = end(sim, last)

    assert (after.producer_id != last.producer_id, after.epoch) == (True, 0)
    assert sim.known(T).producer_id == last.producer_id
    sim.settle()
    assert end(sim, last) == after
    sim.write(T, after, A, adds=True)


def test_a_time_out_in_the_last_epoch_leads_to_another_id(sim: TransactionSimulator) -> None:
    begin(sim)
    last = use_up_epochs(sim)
    sim.write(T, last, A, adds=True)
    sim.advance(MINUTE_MS)
    sim.settle()

    after = end(sim, last, commit=False)

    assert (after.producer_id != last.producer_id, after.epoch) == (True, 0)


def test_a_prepared_transaction_waits_however_long(sim: TransactionSimulator) -> None:
    producer = sim.init(InitRequest(transactional_id=T, timeout_ms=0, two_phase=True)).producer
    sim.write(T, producer, A, adds=True)

    assert sim.advance(1_000 * MINUTE_MS) == []

    assert sim.known(T).timeout_ms == NO_TIMEOUT_MS


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_later_incarnation_ends_the_transaction_it_finds(
    sim: TransactionSimulator, *, commit: bool, version: int
) -> None:
    first = sim.init(InitRequest(transactional_id=T, timeout_ms=0, two_phase=True)).producer
    sim.write(T, first, A, adds=True)

    found = keep(sim)

    assert found.ongoing == first
    assert found.producer != first
    sim.restart()
    again = keep(sim)
    assert again.ongoing == first
    with refused(ErrorCode.FENCED_PRODUCER):
        end(sim, found.producer)
    after = end(sim, again.producer, commit=commit, version=version)
    sim.settle()
    assert [record.is_committed for record in sim.partitions[A].records] == [commit]
    sim.write(T, after, A, adds=True)


def test_the_end_of_a_kept_transaction_may_be_asked_for_again(sim: TransactionSimulator) -> None:
    first = begin(sim)
    sim.write(T, first, A, adds=True)
    found = keep(sim, two_phase=False)
    after = end(sim, found.producer)
    sim.settle()

    assert end(sim, found.producer) == after


def test_a_kept_transaction_takes_no_more_partitions(sim: TransactionSimulator) -> None:
    first = begin(sim)
    sim.add(T, first, [A])
    found = keep(sim)

    with refused(ErrorCode.INVALID_TXN_STATE):
        sim.add(T, found.producer, [B])


@pytest.mark.parametrize("adds", [True, False])
def test_a_kept_transaction_takes_no_more_records(sim: TransactionSimulator, *, adds: bool) -> None:
    first = begin(sim)
    sim.write(T, first, A, adds=True)
    found = keep(sim)

    with refused(ErrorCode.INVALID_TXN_STATE):
        sim.write(T, found.producer, A, adds=adds)

    end(sim, found.producer, version=OLD)
    sim.settle()
    assert [record.is_committed for record in sim.partitions[A].records] == [True]


def test_without_a_transaction_there_is_nothing_to_keep(sim: TransactionSimulator) -> None:
    begin(sim)

    assert keep(sim).ongoing == NOBODY


def test_a_kept_transaction_that_may_time_out_does(sim: TransactionSimulator) -> None:
    first = begin(sim)
    sim.write(T, first, A, adds=True)
    found = keep(sim, two_phase=False)

    sim.advance(MINUTE_MS)
    sim.settle()

    assert [record.is_committed for record in sim.partitions[A].records] == [False]
    assert end(sim, found.producer, commit=False).epoch > found.producer.epoch


def test_two_phase_transactions_can_be_switched_off() -> None:
    sim = TransactionSimulator(TransactionSettings(two_phase_enabled=False))

    with refused(ErrorCode.TRANSACTIONAL_ID_NOT_AUTHORIZED):
        sim.init(InitRequest(transactional_id=T, timeout_ms=1, two_phase=True))


def test_an_unused_id_is_forgotten_but_never_an_open_transaction(sim: TransactionSimulator) -> None:
    producer = begin(sim)
    sim.now_ms += 7 * 24 * 60 * MINUTE_MS
    assert sim.expire() == 1
    assert sim.shard.get(T) is None

    producer = begin(sim)
    sim.add(T, producer, [A])
    sim.now_ms += 7 * 24 * 60 * MINUTE_MS
    assert sim.expire() == 0


@pytest.mark.parametrize("marked", [0, 1, 2])
def test_a_restart_finishes_what_was_decided(sim: TransactionSimulator, marked: int) -> None:
    producer = begin(sim)
    for place in (A, B):
        sim.write(T, producer, place, adds=True)
    end(sim, producer)
    for place in (A, B)[:marked]:
        sim.mark(T, place)

    sim.restart()
    sim.settle()

    assert [r.is_committed for place in (A, B) for r in sim.partitions[place].records] == [True] * 2
    assert sim.known(T).state is State.COMPLETE_COMMIT


def test_lists_are_filtered_by_state_producer_duration_and_name(sim: TransactionSimulator) -> None:
    for name in ("x-1", "x-2", "y"):
        sim.init(InitRequest(transactional_id=name, timeout_ms=MINUTE_MS))
    busy = sim.known("x-2").client
    sim.add("x-2", busy, [A])
    sim.now_ms += 10

    def names(**wanted: object) -> list[str]:
        found = sim.shard.list(TransactionFilter(**wanted), sim.now_ms)  # type: ignore[arg-type]
        return [line.transactional_id for line in found]

    assert names() == ["x-1", "x-2", "y"]
    assert names(states=frozenset({"Ongoing"})) == ["x-2"]
    assert names(producer_ids=frozenset({busy.producer_id})) == ["x-2"]
    assert names(duration_ms=9) == ["x-2"]
    assert names(duration_ms=10) == []
    assert names(pattern="x-.*") == ["x-1", "x-2"]
    with refused(ErrorCode.INVALID_PATTERN):
        names(pattern="(")


def test_a_description_names_the_partitions(sim: TransactionSimulator) -> None:
    producer = begin(sim)
    sim.add(T, producer, [B, A])

    found = sim.shard.describe(T)

    assert (found.state, found.producer, found.partitions) == ("Ongoing", producer, [A, B])
    with refused(ErrorCode.UNKNOWN_TRANSACTION):
        sim.shard.describe("unknown")
