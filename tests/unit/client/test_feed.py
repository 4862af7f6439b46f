"""What a reader sees of a partition: positions, gaps, transactions, damage."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.client.consuming.fetch_buffer import FetchBuffer
from mainstem.client.values import TopicPartition
from mainstem.model.errors import Corrupt, InvalidRequest
from mainstem.model.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK, read_header, stamp
from mainstem.model.records.record import ProducerStamp, Record, build_batch, write_header

PARTITION = TopicPartition("t", 3)
COMMIT, ABORT = 1, 0


def batch(
    base: int, count: int, *, producer: int = -1, codec: int = 0, transactional: bool = False
) -> bytes:
    records = [Record(0, 5, None, b"%d" % (base + n)) for n in range(count)]
    data = build_batch(
        records,
        codec=codec,
        flags=TRANSACTIONAL_MASK if transactional else 0,
        producer=ProducerStamp(producer, 0, 0 if producer >= 0 else -1),
    )
    stamp(data, 0, base, 1)
    return bytes(data)


def marker(base: int, producer: int, kind: int) -> bytes:
    record = Record(0, 5, struct.pack(">hh", 0, kind), b"")
    data = build_batch(
        [record], flags=TRANSACTIONAL_MASK | CONTROL_MASK, producer=ProducerStamp(producer, 0, -1)
    )
    stamp(data, 0, base, 1)
    return bytes(data)


def feed_at(
    position: int, *batches: bytes, aborted: list[tuple[int, int]] | None = None
) -> FetchBuffer:
    feed = FetchBuffer(PARTITION)
    feed.move(position)
    feed.accept(b"".join(batches), aborted)
    return feed


def offsets(feed: FetchBuffer, count: int = 1000) -> list[int]:
    return [record.offset for record in feed.take(count)]


def test_records_below_the_position_are_passed_over() -> None:
    feed = feed_at(7, batch(5, 5), batch(10, 2))
    assert offsets(feed) == [7, 8, 9, 10, 11]
    assert (feed.position, feed.is_empty) == (12, True)


def test_taking_little_leaves_the_rest() -> None:
    feed = feed_at(0, batch(0, 5), batch(5, 5))
    assert offsets(feed, 3) == [0, 1, 2]
    assert (feed.position, feed.is_empty) == (3, False)
    assert offsets(feed, 4) == [3, 4, 5, 6]
    assert offsets(feed) == [7, 8, 9]


def test_a_cut_batch_at_the_end_is_left_out() -> None:
    assert offsets(feed_at(0, batch(0, 3), batch(3, 3)[:-1])) == [0, 1, 2]


def test_an_answer_without_a_whole_batch_is_an_error() -> None:
    with pytest.raises(InvalidRequest):
        feed_at(0, batch(0, 3)[:-1])


def test_an_empty_answer_is_fine() -> None:
    feed = feed_at(4)
    assert offsets(feed) == []
    assert feed.position == 4


def test_offsets_that_compaction_removed_from_the_end_of_a_batch_are_passed() -> None:
    compacted = bytearray(batch(10, 2))
    write_header(compacted, read_header(compacted)._replace(last_offset_delta=9))
    feed = feed_at(10, bytes(compacted))
    assert offsets(feed) == [10, 11]
    assert feed.position == 20


def test_a_seek_drops_what_was_fetched() -> None:
    feed = feed_at(0, batch(0, 5))
    serial = feed.serial
    assert offsets(feed, 1) == [0]
    feed.move(100)
    assert feed.is_empty
    assert feed.serial != serial
    assert feed.position == 100


def test_control_records_are_never_shown_but_passed() -> None:
    feed = feed_at(0, batch(0, 2, producer=9, transactional=True), marker(2, 9, COMMIT))
    assert offsets(feed) == [0, 1]
    assert feed.position == 3


def test_aborted_records_are_hidden() -> None:
    feed = feed_at(
        0,
        batch(0, 2, producer=9, transactional=True),
        batch(2, 1),
        batch(3, 1, producer=8, transactional=True),
        marker(4, 9, ABORT),
        marker(5, 8, COMMIT),
        batch(6, 2, producer=9, transactional=True),
        marker(8, 9, COMMIT),
        aborted=[(0, 9)],
    )
    assert offsets(feed) == [2, 3, 6, 7]
    assert feed.position == 9


def test_a_producer_may_abort_twice() -> None:
    feed = feed_at(
        0,
        batch(0, 1, producer=9, transactional=True),
        marker(1, 9, ABORT),
        batch(2, 1, producer=9, transactional=True),
        marker(3, 9, ABORT),
        batch(4, 1, producer=9, transactional=True),
        aborted=[(2, 9), (0, 9)],
    )
    assert offsets(feed) == [4]


def test_a_damaged_batch_is_an_error_and_the_position_stays_before_it() -> None:
    damaged = bytearray(batch(2, 2))
    damaged[-1] ^= 1
    feed = feed_at(0, batch(0, 2), bytes(damaged))
    assert offsets(feed, 2) == [0, 1]
    with pytest.raises(Corrupt) as caught:
        feed.take(10)
    assert caught.value.subject == "t-3"
    assert feed.position == 2


@pytest.mark.parametrize("state", ["unlocated", "paused", "in flight", "resting", "full"])
def test_a_partition_is_not_fetched_while(state: str) -> None:
    feed = FetchBuffer(PARTITION)
    feed.move(None if state == "unlocated" else 0)
    feed.is_paused = state == "paused"
    feed.is_in_flight = state == "in flight"
    feed.not_before = 9 if state == "resting" else 0
    if state == "full":
        feed.accept(batch(0, 1))
    assert not feed.may_fetch(5)


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3), st.integers(0, 4)), min_size=1),
    st.integers(0, 60),
    st.lists(st.integers(1, 7), min_size=1),
)
def test_every_offset_from_the_position_on_comes_once_and_in_order(
    shape: list[tuple[int, int, int]], position: int, takes: list[int]
) -> None:
    base = 0
    batches: list[bytes] = []
    there: list[int] = []
    for count, gap, codec in shape:
        batches.append(batch(base, count, codec=codec))
        there += range(base, base + count)
        base += count + gap
    feed = feed_at(position, *batches)
    found: list[int] = []
    for take in takes * (1 + len(there)):
        found += offsets(feed, take)
    assert found == [offset for offset in there if offset >= position]
    assert feed.is_empty
