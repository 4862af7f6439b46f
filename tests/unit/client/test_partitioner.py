"""Where records go: explicit, by key, sticky."""

import random

import pytest
from aiokafka.partitioner import murmur2 as oracle
from hypothesis import given
from hypothesis import strategies as st

from mainstem.client.producing.partitioner import STICKY_MS_MAX, STICKY_RECORDS_MAX, Partitioner
from mainstem.model.errors import InvalidRequest


def partitioner(seed: int = 1) -> Partitioner:
    return Partitioner(random.Random(seed).randrange)


def place(
    chooser: Partitioner,
    count: int,
    *,
    key: bytes | None = None,
    wanted: int | None = None,
    now_ms: float = 0,
) -> int:
    return chooser.partition("t", count, key=key, wanted=wanted, now_ms=now_ms)


@given(st.binary(max_size=100), st.integers(1, 1000))
def test_a_key_goes_where_another_client_sends_it(key: bytes, count: int) -> None:
    assert place(partitioner(), count, key=key) == (oracle(key) & 0x7FFFFFFF) % count


@pytest.mark.parametrize("wanted", [0, 4])
def test_an_explicit_partition_beats_the_key(wanted: int) -> None:
    assert place(partitioner(), 5, key=b"k", wanted=wanted) == wanted


@pytest.mark.parametrize("wanted", [-1, 5])
def test_a_partition_that_does_not_exist_is_refused(wanted: int) -> None:
    with pytest.raises(InvalidRequest):
        place(partitioner(), 5, wanted=wanted)


@given(st.integers(0, 1000), st.integers(2, 20))
def test_records_without_a_key_stay_until_there_are_many(seed: int, count: int) -> None:
    chooser = partitioner(seed)
    first = [place(chooser, count) for _ in range(STICKY_RECORDS_MAX)]
    assert len(set(first)) == 1
    assert place(chooser, count) != first[0]


@given(st.integers(0, 1000), st.integers(2, 20))
def test_records_without_a_key_move_on_after_a_while(seed: int, count: int) -> None:
    chooser = partitioner(seed)
    first = place(chooser, count, now_ms=5)
    assert place(chooser, count, now_ms=4 + STICKY_MS_MAX) == first
    assert place(chooser, count, now_ms=5 + STICKY_MS_MAX) != first


def test_one_partition_is_enough() -> None:
    chooser = partitioner()
    assert {place(chooser, 1, now_ms=now * 200) for now in range(10)} == {0}


def test_over_time_every_partition_is_used() -> None:
    chooser = partitioner()
    assert {place(chooser, 8, now_ms=now * 200) for now in range(200)} == set(range(8))


def test_topics_do_not_disturb_each_other() -> None:
    chooser = partitioner()
    first = place(chooser, 8)
    chooser.partition("other", 8, key=None, wanted=None, now_ms=1000)
    assert place(chooser, 8, now_ms=1) == first
