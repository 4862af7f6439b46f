"""Readers see what transactions committed, and nothing else."""

from tests.unit.protocols.rest.counter import NOW_MS, Rest

from mainstem.model.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK, read_header
from mainstem.model.records.record import ProducerStamp, Record, build_batch
from mainstem.protocols.visibility import Visibility

ABORT, COMMIT = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"


def batch(
    base: int, producer: int, *, transactional: bool = True, marker: bytes | None = None
) -> bytes:
    """One record at ``base``: a message, or the marker that ends a transaction."""
    flags = TRANSACTIONAL_MASK if transactional else 0
    if marker is not None:
        flags |= CONTROL_MASK
    record = Record(0, NOW_MS, marker or b"k", f"{producer}@{base}".encode())
    built = build_batch([record], flags=flags, producer=ProducerStamp(producer, 0, 0))
    built[0:8] = base.to_bytes(8, "big")
    return bytes(built)


def shown(aborted: list[tuple[int, int]], *batches: bytes) -> list[int]:
    visibility = Visibility(aborted)
    headers = [(read_header(data), memoryview(data)) for data in batches]
    return [header.base_offset for header, data in headers if visibility.shows(header, data)]


def test_an_aborted_transaction_is_hidden_until_its_marker() -> None:
    log = [
        batch(0, 1),
        batch(1, 2),
        batch(2, 1, marker=ABORT),
        batch(3, 1),
        batch(4, 2, marker=COMMIT),
        batch(5, 1, marker=COMMIT),
    ]
    assert shown([(1, 0)], *log) == [1, 3]


def test_a_transaction_that_began_before_the_read_is_hidden_too() -> None:
    log = [batch(7, 1), batch(8, 1, marker=ABORT), batch(9, 1)]
    assert shown([(1, 2)], *log) == [9]


def test_messages_outside_transactions_are_shown_whoever_wrote_them() -> None:
    assert shown([(1, 0)], batch(0, 1), batch(1, 1, transactional=False)) == [1]


def test_one_producer_may_abort_more_than_once() -> None:
    log = [
        batch(0, 1),
        batch(1, 1, marker=ABORT),
        batch(2, 1),
        batch(3, 1, marker=COMMIT),
        batch(4, 1),
        batch(5, 1, marker=ABORT),
    ]
    assert shown([(1, 4), (1, 0)], *log) == [2]


async def test_a_window_leaves_aborted_messages_and_markers_out(rest: Rest) -> None:
    await rest.topic("t")
    stream = rest.counter.partition("t", 0)
    stream.batches = [
        batch(0, 1),
        batch(1, 2),
        batch(2, 1, marker=ABORT),
        batch(3, 2, marker=COMMIT),
    ]
    stream.aborted = [(1, 0)]
    stream.next_offset = stream.committed = stream.last_stable = 4
    answer = await rest.peek("t")
    assert [message["value"] for message in answer.json()] == ["2@1"]
    assert answer.headers["mainstem-next-offset"] == "4"
