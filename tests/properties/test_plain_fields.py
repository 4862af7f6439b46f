"""Fields of flat JSON objects: what is accepted is what JSON says, and nothing else is accepted."""

import itertools
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mainstem.model.records.columns import BinaryColumn
from mainstem.model.records.plain_fields import plain_fields

pytest.importorskip("mainstem.model._native", reason="not compiled on this machine")

DECIMALS = st.decimals(min_value=-(10**9), max_value=10**9, places=6).map(
    lambda number: f"{number:f}"
)
SCALARS = st.none() | st.booleans() | st.integers(-(10**18) + 1, 10**18 - 1) | st.text(max_size=90)
NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters='"\\', min_codepoint=32), max_size=9
)
OBJECTS = st.dictionaries(NAMES.filter(lambda name: name != "op"), SCALARS, max_size=12)
SPACE = st.text(" \t\r\n", max_size=3)


def column(values: list[bytes | None]) -> BinaryColumn:
    validity = bytearray((len(values) + 7) // 8)
    offsets, data = [0], b""
    for row, value in enumerate(values):
        validity[row >> 3] |= (value is not None) << (row & 7)
        data += value or b""
        offsets.append(len(data))
    return BinaryColumn(bytes(validity), b"".join(o.to_bytes(4, "little") for o in offsets), data)


def parsed(values: list[bytes | None]) -> list[dict[str, Any] | None]:
    """The fields of each value as Python knows them; None where it has none."""
    found = plain_fields(column(values), len(values))
    assert found is not None
    lists = memoryview(found.offsets).cast("i")
    names, variants = strings(found.names), strings(found.variants)
    rows: list[dict[str, Any] | None] = []
    for row in range(len(values)):
        if found.validity is not None and not found.validity[row >> 3] >> (row & 7) & 1:
            assert lists[row] == lists[row + 1]
            rows.append(None)
            continue
        own = range(lists[row], lists[row + 1])
        rows.append({names[at].decode(): plain(variants[at]) for at in own})
    return rows


def strings(each: BinaryColumn) -> list[bytes]:
    places = memoryview(each.offsets).cast("i")
    return [each.data[start:until] for start, until in itertools.pairwise(places)]


def plain(variant: bytes) -> Any:
    """A scalar's variant as a value of Python."""
    kind, special, rest = variant[0] & 3, variant[0] >> 2, variant[1:]
    if kind == 1:
        assert special == len(rest)
        return rest.decode()
    assert kind == 0
    if special == 16:
        assert int.from_bytes(rest[:4], "little") == len(rest) - 4 > 63
        return rest[4:].decode()
    if special in {8, 9}:
        assert len(rest) == (5 if special == 8 else 9)
        number = int.from_bytes(rest[1:], "little", signed=True)
        return Decimal(number).scaleb(-rest[0])
    if special in {3, 4, 5, 6}:
        assert len(rest) == 1 << (special - 3)
        return int.from_bytes(rest, "little", signed=True)
    return {0: None, 1: True, 2: False}[special]


@given(st.lists(st.none() | OBJECTS, max_size=20), st.booleans(), SPACE)
def test_flat_objects_have_the_fields_that_json_gives_them(
    objects: list[dict[str, Any] | None], ascii_only: bool, space: str
) -> None:
    texts = [
        None if each is None else space + json.dumps(each, ensure_ascii=ascii_only) + space
        for each in objects
    ]
    found = parsed([None if text is None else text.encode() for text in texts])
    for given_object, fields, text in zip(objects, found, texts, strict=True):
        if fields is None:
            assert given_object is None or "\\" in str(text)  # names are not unescaped
        else:
            assert list(fields.items()) == list((given_object or {}).items())


@given(DECIMALS)
@example("-0.0")
@example("0.000000001")
@example("123456789.5")
def test_decimals_keep_their_digits(number: str) -> None:
    [found] = parsed([b'{"a":%s}' % number.encode()])
    assert found == {"a": Decimal(number)}
    assert str(found["a"].copy_abs()) == str(Decimal(number).copy_abs())


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "1", '"a"', "null", "[]", "{", "}", '{"a"}', '{"a":}', '{"a":1,}', "{,}"),
        *('{"a":1} x', '{"a":1}{}', '{"a":1},"s":0', '{"a" 1}', '{"a":1 "b":2}', "{'a':1}"),
        *('{"a":01}', '{"a":-}', '{"a":+1}', '{"a":.5}', '{"a":1.}', '{"a":1e3}', '{"a":1.0E2}'),
        *('{"a":NaN}', '{"a":tru}', '{"a":truer}', '{"a":"x}', '{"a":"\\x"}', '{"a":"\\u12g4"}'),
        *('{"a":"\\ud800"}', '{"a":"\\udc00"}', '{"a":"\\ud800\\u0041"}', '{"a":"\t"}'),
        *('{"a":{}}', '{"a":[]}', '{"a":1,"a":2}', '{"op":"c"}', '{"\\u0061":1}', '\ufeff{"a":1}'),
        *('{"a":1234567890123456789}', '{"a":0.1234567890123456789}', '{"a":12345678901.12345678}'),
        "{" + ",".join(f'"{number}":0' for number in range(65)) + "}",
    ],
)
def test_what_is_not_plain_is_left_to_others(text: str) -> None:
    assert parsed([b'{"b":1}', text.encode(), b'{"c":2}']) == [{"b": 1}, None, {"c": 2}]


@given(st.binary(max_size=40) | st.binary(max_size=8).map(lambda name: b'{"a":"' + name + b'"}'))
@example(b'{"a":"\xed\xa0\x80"}')
@example(b'{"a":"\xc0\xaf"}')
@example(b'{"a":"\xf4\x90\x80\x80"}')
@example(b'{"a":"\xe2\x82"}')
def test_any_bytes_are_read_as_json_reads_them_or_not_at_all(value: bytes) -> None:
    [found] = parsed([value])
    if found is not None:
        assert found == json.loads(value.decode(), parse_float=Decimal)
