"""Which batches of what was read are shared, and which of them are sent."""

from mainstem.broker.services.share_batches import batches_to_share, cut_to
from mainstem.coordination.share.partition import ReadBatch
from mainstem.coordination.share.requests import AcquiredRange
from mainstem.model.records.batch import NO_SEQUENCE, TRANSACTIONAL_MASK, stamp
from mainstem.model.records.record import ProducerStamp, Record, build_batch
from mainstem.streams.producers.transaction_markers import TransactionMarker, marker_batch


def data(base: int, producer_id: int | None = None, records: int = 2) -> bytes:
    rows = [Record(at, 0, None, b"x") for at in range(records)]
    if producer_id is None:
        batch = build_batch(rows)
    else:
        producer = ProducerStamp(producer_id, 0, NO_SEQUENCE)
        batch = build_batch(rows, flags=TRANSACTIONAL_MASK, producer=producer)
    stamp(batch, 0, base, 0)
    return bytes(batch)


def marker(base: int, producer_id: int, *, commit: bool) -> bytes:
    batch = marker_batch(producer_id, 0, TransactionMarker(commit=commit, coordinator_epoch=0), 0)
    stamp(batch, 0, base, 0)
    return bytes(batch)


def test_markers_are_no_records() -> None:
    found = batches_to_share(data(0) + marker(2, 7, commit=True) + data(3), ())
    assert found == [ReadBatch(0, 2), ReadBatch(2, 3, is_dead=True), ReadBatch(3, 5)]


def test_what_was_aborted_is_left_out_and_what_follows_is_not() -> None:
    log = (
        data(0, 7)
        + data(2, 8)
        + data(4)
        + marker(6, 7, commit=False)
        + data(7, 7)
        + marker(9, 7, commit=True)
        + marker(10, 8, commit=True)
    )
    found = batches_to_share(log, [(7, 0)])
    assert [batch.start for batch in found if not batch.is_dead] == [2, 4, 7]


def test_a_transaction_that_began_before_is_left_out_too() -> None:
    found = batches_to_share(data(5, 7) + marker(7, 7, commit=False), [(7, 1)])
    assert all(batch.is_dead for batch in found)


def test_only_batches_with_acquired_records_are_sent() -> None:
    log = data(0) + data(2) + data(4) + data(6)
    acquired = [AcquiredRange(3, 4, 1), AcquiredRange(4, 5, 2)]
    assert cut_to(log, acquired) == data(2) + data(4)
