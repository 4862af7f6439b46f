"""Names of transactions of MariaDB and MySQL, and what they leave behind them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.model.errors import Corrupt, InvalidRequest
from mainstem.pipelines.cdc.mysql.gtid import GtidState, unpacked

FIRST = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
SECOND = "279a4bc5-e100-11f1-bf66-02fc00000001"


def test_mariadb_names_the_last_transaction_of_each_domain() -> None:
    state = GtidState("0-1-270,1-2-15")

    state.add("0-3-271")

    assert state.text == "0-3-271,1-2-15"


def test_mysql_names_all_transactions_of_each_server() -> None:
    state = GtidState(f"{FIRST.upper()}:1-5:7,\n{SECOND}:3")

    state.add(f"{FIRST}:6")
    state.add(f"{SECOND}:5")

    assert state.text == f"{SECOND}:3:5,{FIRST}:1-7"


def test_a_set_is_packed_as_replicas_send_it() -> None:
    state = GtidState(f"{SECOND}:1-5:7")

    packed = bytes.fromhex(
        "0100000000000000" + SECOND.replace("-", "") + "0200000000000000"
        "01000000000000000600000000000000" + "07000000000000000800000000000000"
    )

    assert state.packed == packed
    assert unpacked(packed) == state.text


@given(
    names=st.lists(
        st.tuples(st.sampled_from([FIRST, SECOND]), st.integers(1, 40), st.integers(0, 5)),
        max_size=30,
    )
)
def test_a_set_holds_what_was_added_in_whatever_order(names: list[tuple[str, int, int]]) -> None:
    state = GtidState()
    for server, first, more in names:
        state.add(f"{server}:{first}-{first + more}")

    held = {
        (server, number)
        for server, *spans in (each.split(":") for each in state.text.split(",") if each)
        for span in spans
        for first, _, last in [span.partition("-")]
        for number in range(int(first), int(last or first) + 1)
    }

    expected = {
        (server, n) for server, first, more in names for n in range(first, first + more + 1)
    }
    assert held == expected
    assert unpacked(state.packed) == state.text == GtidState(state.text).text


def test_names_with_tags_are_refused_with_the_remedy() -> None:
    with pytest.raises(InvalidRequest) as refused:
        GtidState(f"{FIRST}:blue:1-5")

    assert "AUTOMATIC" in refused.value.remedy
    with pytest.raises(InvalidRequest, match="tagged"):
        unpacked(b"\1\0\0\0\0\0\0\1")


@pytest.mark.parametrize("data", [b"", b"\1" + b"\0" * 7, b"\1" + b"\0" * 7 + b"x" * 20])
def test_a_set_that_ends_too_early_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        unpacked(data)
