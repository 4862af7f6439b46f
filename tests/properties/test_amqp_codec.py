"""AMQP's codec: what is written is read again, and no bytes do harm."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.wire.amqp.fields import DEPTH_MAX, Malformed, Timestamp, read_table, table_bytes
from mainstem.wire.amqp.method_codec import METHODS, decode_method, encode_method
from mainstem.wire.amqp.properties import decode_properties, encode_properties

NAMES = st.text(max_size=60).filter(lambda name: len(name.encode()) <= 255)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.integers(0, 2**64 - 1).map(Timestamp)
    | st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 20)).map(
        lambda drawn: Decimal(drawn[0]).scaleb(-drawn[1])
    )
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4)
)
TABLES = st.dictionaries(NAMES, VALUES, max_size=6)


@given(TABLES, st.binary(max_size=9), st.binary(max_size=9))
def test_a_table_survives_among_neighbours(
    table: dict[str, Any], before: bytes, after: bytes
) -> None:
    raw = table_bytes(table)

    found, end = read_table(before + raw + after, len(before), len(before) + len(raw))

    assert found == table
    assert end == len(before) + len(raw)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_table_or_malformed(data: bytes) -> None:
    try:
        table, _ = read_table(data, 0, len(data))
        raw = table_bytes(table)
    except Malformed:
        return
    # What is not a number equals nothing, itself included.
    assert repr(read_table(raw, 0, len(raw))[0]) == repr(table)


@given(st.sampled_from(sorted(METHODS)), st.binary(max_size=100))
def test_any_bytes_are_a_method_or_malformed(numbers: tuple[int, int], data: bytes) -> None:
    payload = b"".join(number.to_bytes(2, "big") for number in numbers) + data
    try:
        method = decode_method(payload, 0, len(payload))
        again = encode_method(method)
    except Malformed:
        return
    assert repr(decode_method(again, 0, len(again))) == repr(method)


@given(st.binary(max_size=200))
def test_any_bytes_are_properties_or_malformed(data: bytes) -> None:
    try:
        found = decode_properties(data, 0, len(data))
        raw = encode_properties(found)
    except Malformed:
        return
    assert repr(decode_properties(raw, 0, len(raw))) == repr(found)


@given(st.integers(DEPTH_MAX + 2, 5_000))
def test_tables_within_tables_have_an_end(depth: int) -> None:
    data = b""
    for _ in range(depth):
        data = b"\x01tF" + len(data).to_bytes(4, "big") + data
    raw = len(data).to_bytes(4, "big") + data
    with pytest.raises(Malformed, match="nested"):
        read_table(raw, 0, len(raw))
