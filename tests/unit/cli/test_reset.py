"""Where a reset moves a group."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.cli.commands.group_offsets import OffsetReset, PartitionBounds, new_offsets
from mainstem.client.values import TopicPartition

P = TopicPartition("t", 0)
GROUND = PartitionBounds(committed={P: 50}, starts={P: 10}, ends={P: 90}, at_moment={P: 70})


@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        (OffsetReset(earliest=True), 10),
        (OffsetReset(latest=True), 90),
        (OffsetReset(offset=33), 33),
        (OffsetReset(offset=0), 10),
        (OffsetReset(offset=1000), 90),
        (OffsetReset(moment_ms=5), 70),
        (OffsetReset(shift=-5), 45),
        (OffsetReset(shift=-100), 10),
        (OffsetReset(shift=100), 90),
    ],
)
def test_a_group_moves_where_it_was_told_but_never_outside(
    reset: OffsetReset, expected: int
) -> None:
    assert new_offsets(reset, GROUND) == {P: expected}


def test_a_moment_after_the_last_record_is_the_end() -> None:
    ground = GROUND._replace(at_moment={P: -1})
    assert new_offsets(OffsetReset(moment_ms=5), ground) == {P: 90}


def test_a_group_without_position_shifts_from_the_start() -> None:
    ground = GROUND._replace(committed={})
    assert new_offsets(OffsetReset(shift=7), ground) == {P: 17}


@given(
    start=st.integers(0, 100),
    length=st.integers(0, 100),
    committed=st.integers(0, 300),
    shift=st.integers(-300, 300),
)
def test_a_shift_stays_between_start_and_end(
    start: int, length: int, committed: int, shift: int
) -> None:
    ground = PartitionBounds({P: committed}, {P: start}, {P: start + length}, {})
    assert start <= new_offsets(OffsetReset(shift=shift), ground)[P] <= start + length
