"""Transactions as one stream sees them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.stream_writer import SingleStream

from mainstem.model.errors import Corrupt, ErrorCode, Fenced, InvalidRequest
from mainstem.model.records.batch import TRANSACTIONAL_MASK
from mainstem.model.records.record import ProducerStamp, Record, build_batch
from mainstem.streams.producers.stream_state import StreamState
from mainstem.streams.producers.transaction_markers import (
    TransactionMarker,
    marker_batch,
    marker_of,
)
from mainstem.streams.producers.transactions import StreamTransactions

COMMIT = TransactionMarker(commit=True, coordinator_epoch=4)
ABORT = TransactionMarker(commit=False, coordinator_epoch=4)


def write(
    stream: SingleStream, producer: int, sequence: int, *, epoch: int = 0, verified: bool = False
) -> int:
    batch = build_batch(
        [Record(0, 1, b"k", b"v")],
        flags=TRANSACTIONAL_MASK,
        producer=ProducerStamp(producer, epoch, sequence),
    )
    base = stream.writer.stage(memoryview(batch), 0, len(batch), verified=verified)
    stream.flusher.flush()
    return base


@pytest.fixture
def stream(tmp_path: Path) -> SingleStream:
    return SingleStream(tmp_path, {"flush.policy": "written"})


def test_an_open_transaction_holds_the_last_stable_offset(stream: SingleStream) -> None:
    stream.write(b"plain")
    write(stream, 7, 0, verified=True)
    stream.write(b"after")
    assert (stream.writer.last_stable, stream.writer.committed) == (1, 3)

    stream.writer.write_marker(7, 0, COMMIT)

    assert (stream.writer.last_stable, stream.writer.committed) == (4, 4)


def test_a_reader_of_committed_records_stops_at_the_last_stable_offset(
    stream: SingleStream,
) -> None:
    stream.write(b"plain")
    write(stream, 7, 0, verified=True)

    part = stream.writer.read(0, max_bytes=10**6, committed_only=True, min_one=True)

    assert part is not None
    assert part.until_offset == 1


def test_the_house_writes_for_a_transaction_without_a_sequence(stream: SingleStream) -> None:
    own = build_batch(
        [Record(0, 1, b"k", b"v")], flags=TRANSACTIONAL_MASK, producer=ProducerStamp(7, 3, -1)
    )

    assert stream.writer.append(own) == 1
    assert stream.writer.append(own) == 2

    assert stream.writer.has_transaction(7, 3)
    assert stream.writer.last_stable == 0
    stream.writer.write_marker(7, 4, ABORT)
    assert stream.writer.aborted_transactions(0, 3) == [(7, 0)]
    with pytest.raises(Fenced):
        stream.writer.append(own)


def test_the_first_batch_of_a_transaction_needs_somebody_to_vouch_for_it(
    stream: SingleStream,
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        write(stream, 7, 0)
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE

    write(stream, 7, 0, verified=True)
    write(stream, 7, 1)


def test_a_plain_batch_inside_a_transaction_is_refused(stream: SingleStream) -> None:
    write(stream, 7, 0, verified=True)

    with pytest.raises(InvalidRequest) as caught:
        stream.write(b"plain", producer=ProducerStamp(7, 0, 1))
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE


def test_aborted_transactions_are_named_where_they_have_records(stream: SingleStream) -> None:
    write(stream, 7, 0, verified=True)  # offset 0
    write(stream, 8, 0, verified=True)  # offset 1
    stream.writer.write_marker(7, 0, ABORT)  # offset 2
    stream.writer.write_marker(8, 0, COMMIT)  # offset 3
    stream.write(b"after")  # offset 4

    aborted = stream.writer.aborted_transactions
    assert aborted(0, 5) == [(7, 0)]
    assert aborted(2, 5) == [(7, 0)]
    assert aborted(3, 5) == []
    assert aborted(0, 0) == []


def test_a_marker_of_a_newer_epoch_fences_the_older_one(stream: SingleStream) -> None:
    write(stream, 7, 0, verified=True)
    stream.writer.write_marker(7, 1, ABORT)

    with pytest.raises(Fenced):
        write(stream, 7, 1, verified=True)
    assert write(stream, 7, 0, epoch=1, verified=True) == 2


def test_a_marker_of_an_older_epoch_is_refused(stream: SingleStream) -> None:
    write(stream, 7, 0, epoch=3, verified=True)

    with pytest.raises(Fenced):
        stream.writer.write_marker(7, 2, COMMIT)
    assert stream.writer.has_transaction(7, 3)


def test_a_late_marker_of_a_coordinator_that_was_replaced_is_refused(stream: SingleStream) -> None:
    """The producer has kept its epoch: only the coordinator's tells whose transaction is meant."""
    write(stream, 7, 0, verified=True)
    stream.writer.write_marker(7, 0, TransactionMarker(commit=True, coordinator_epoch=5))
    write(stream, 7, 1, verified=True)

    with pytest.raises(Fenced) as refusal:
        stream.writer.write_marker(7, 0, TransactionMarker(commit=True, coordinator_epoch=4))

    assert refusal.value.code is ErrorCode.FENCED_COORDINATOR
    assert stream.writer.last_stable == 2, "the next transaction is still open"
    stream.writer.write_marker(7, 0, TransactionMarker(commit=False, coordinator_epoch=5))
    assert stream.writer.aborted_transactions(0, 9) == [(7, 2)]


def test_a_marker_says_what_was_written() -> None:
    assert marker_of(bytes(marker_batch(7, 2, COMMIT, 5))) == COMMIT
    assert marker_of(bytes(marker_batch(7, 2, ABORT, 5))) == ABORT


def test_other_batches_are_no_markers() -> None:
    with pytest.raises(Corrupt):
        marker_of(bytes(build_batch([Record(0, 1, b"k", b"v")])))


def test_an_open_transaction_survives_producer_expiry() -> None:
    state = StreamState()
    state.producers.record(1, 0, 0, 1, 0, timestamp=1)
    state.producers.record(2, 0, 0, 1, 1, timestamp=1)
    state.transactions.begin(2, 1)

    state.expire(1, idle_ms=10)
    assert state.expire(100, idle_ms=10) == 1
    assert [key for key, _ in state.producers.active()] == [2]


def test_a_damaged_snapshot_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        StreamState.restore(b"\xc1not msgpack")


steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "commit", "abort", "advance", "reopen", "trim"]),
        st.integers(0, 3),
    ),
    max_size=60,
)


@given(steps)
def test_stable_and_aborted_match_a_plain_reading_of_the_log(
    course: list[tuple[str, int]],
) -> None:
    """The model keeps every batch and looks through all of them for each answer."""
    held = StreamTransactions()
    log: list[tuple[str, int]] = []  # (kind, producer) at each offset
    committed = start = 0
    for action, number in course:
        if action == "write":
            if number not in held.ongoing:
                held.begin(number, len(log))
            log.append(("write", number))
        elif action in ("commit", "abort"):
            held.end(number, len(log), commit=action == "commit")
            log.append((action, number))
        elif action == "advance":
            committed = max(committed, len(log) - number)
        elif action == "trim":
            start = max(start, min(committed, number * 3))
            held.trim(start)
        else:
            held = StreamTransactions.restore(held.snapshot())

        assert held.stable_until(committed) == model_stable(log, committed)
        assert sorted(held.aborted(start, len(log))) == model_aborted(log, start)


def transactions(log: list[tuple[str, int]]) -> list[tuple[int, int, int | None, str]]:
    """(producer, first offset, marker offset, outcome) of each transaction."""
    found, open_since = [], dict[int, int]()
    for offset, (kind, producer) in enumerate(log):
        if kind == "write":
            open_since.setdefault(producer, offset)
        elif producer in open_since:
            found.append((producer, open_since.pop(producer), offset, kind))
    return found + [(producer, first, None, "open") for producer, first in open_since.items()]


def model_stable(log: list[tuple[str, int]], committed: int) -> int:
    undecided = [
        first for _, first, marker, _ in transactions(log) if marker is None or marker >= committed
    ]
    return min([committed, *undecided])


def model_aborted(log: list[tuple[str, int]], start: int) -> list[tuple[int, int]]:
    return sorted(
        (producer, first)
        for producer, first, marker, outcome in transactions(log)
        if outcome == "abort" and marker is not None and marker >= start
    )
