"""What a snapshot holds, the stream does not tell again."""

from hypothesis import given
from hypothesis import strategies as st

from mainstem.pipelines.cdc.snapshot_stamps import Stamp, Stamps, comparable, decode, encode


def holds(stamps: list[Stamp], key: int, xid: int) -> bool:
    return Stamps(stamps).holds("s.t", comparable([f"n{key}"]), xid)


def test_a_transaction_that_the_snapshot_saw_is_held() -> None:
    stamps = [Stamp("s.t", "100:105:102,103", 1)]
    assert holds(stamps, 1, 99)
    assert holds(stamps, 1, 101)
    assert not holds(stamps, 1, 102)
    assert not holds(stamps, 1, 105)


def test_numbers_of_transactions_may_wrap_around() -> None:
    stamps = [Stamp("s.t", f"{(1 << 32) - 2}:{(1 << 32) + 5}:", 1)]
    assert holds(stamps, 1, (1 << 32) - 1)
    assert holds(stamps, 1, 4)
    assert not holds(stamps, 1, 5)


def test_a_stamp_that_goes_by_places_holds_what_stands_before_its_own() -> None:
    stamps = [Stamp("s.t", "", 100, ("n5",))]
    assert holds(stamps, 6, 99)
    assert not holds(stamps, 6, 100)
    assert not holds(stamps, 5, 99)


def test_other_tables_are_not_concerned() -> None:
    stamps = Stamps([Stamp("s.t", "5:5:", 1)])
    assert not stamps.concerns("s.other")
    assert not stamps.holds("s.other", (1,), 1)


@given(
    first=st.integers(0, 100), later=st.integers(0, 100), key=st.integers(0, 200),
    xid=st.integers(3, 300), early_xmax=st.integers(3, 150), late_more=st.integers(0, 150),
)  # fmt: skip
def test_the_snapshot_that_read_the_key_decides(
    first: int, later: int, key: int, xid: int, early_xmax: int, late_more: int
) -> None:
    after_one, after_two = first, first + later
    one = Stamp("s.t", f"3:{early_xmax}:", 1, (f"n{after_one}",))
    two = Stamp("s.t", f"3:{early_xmax + late_more}:", 2, (f"n{after_two}",))
    if key > after_two:
        expected = xid < early_xmax + late_more
    elif key > after_one:
        expected = xid < early_xmax
    else:
        expected = False
    assert holds(decode(encode([one, two])), key, xid) == expected
