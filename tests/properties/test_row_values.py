"""Rows of a replication stream: the compiled reader and the Python one see the same."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.model.records.columns import COMPILED
from mainstem.pipelines.cdc.postgres.pgoutput import plain_values
from mainstem.pipelines.cdc.row_values import UNCHANGED

pytestmark = pytest.mark.skipif(COMPILED is None, reason="not compiled on this machine")

VALUES = st.lists(st.one_of(st.none(), st.just(UNCHANGED), st.binary(max_size=40)), max_size=20)


def coded(values: list[object]) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif isinstance(value, bytes):
            parts.append(b"t" + struct.pack(">I", len(value)) + value)
        else:
            parts.append(b"u")
    return b"".join(parts)


def told(read: object, data: bytes, at: int) -> object:
    try:
        return read(data, at, UNCHANGED)  # type: ignore[operator]
    except (ValueError, IndexError, struct.error):
        return None


@given(VALUES, st.binary(max_size=8), st.binary(max_size=8))
def test_both_read_what_was_written(values: list[object], before: bytes, after: bytes) -> None:
    data = before + coded(values) + after
    wanted = (values, len(data) - len(after))
    assert COMPILED is not None
    assert COMPILED.row_values(data, len(before), UNCHANGED) == wanted
    assert plain_values(data, len(before), UNCHANGED) == wanted


@given(VALUES, st.data())
def test_both_refuse_the_same_broken_rows(values: list[object], data: st.DataObject) -> None:
    whole = bytearray(coded(values))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    broken = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    at = data.draw(st.integers(0, len(broken) + 3))
    assert COMPILED is not None
    assert told(COMPILED.row_values, broken, at) == told(plain_values, broken, at)


@given(st.binary(max_size=64), st.integers(0, 70))
def test_both_agree_about_any_bytes(data: bytes, at: int) -> None:
    assert COMPILED is not None
    assert told(COMPILED.row_values, data, at) == told(plain_values, data, at)
