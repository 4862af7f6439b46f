"""Values of PostgreSQL's types as JSON, mode by mode."""

import base64
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig
from mainstem.pipelines.cdc.postgres.values import TypeInfo, converter

CONFIG = PostgresCdcConfig(database="d")
UUID = "6c9f8a50-0000-4000-8000-000000000001"
POINT = "AQEAAAAAAAAAAAD4PwAAAAAAAADA"
ISO = {"time_mode": "isostring"}
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001


def told(name: str, value: str, modifier: int = -1, /, **modes: Any) -> object:
    config = msgspec.structs.replace(CONFIG, **modes)
    return json.loads(converter(TypeInfo(name, modifier), config)(value.encode()))


@pytest.mark.parametrize(
    ("name", "modifier", "value", "expected"),
    [
        ("int8", -1, "-9223372036854775808", -9223372036854775808),
        ("bool", -1, "t", True),
        ("bool", -1, "f", False),
        ("float8", -1, "1.5e300", 1.5e300),
        ("float8", -1, "NaN", "NaN"),
        ("float4", -1, "-Infinity", "-Infinity"),
        ("numeric", -1, "123.4500", "123.4500"),
        ("money", -1, "-$1,234.50", "-1234.50"),
        ("text", -1, 'a"b\\c\n\u2603', 'a"b\\c\n\u2603'),
        ("uuid", -1, UUID, UUID),
        ("jsonb", -1, '{"a": 1}', '{"a": 1}'),
        ("bytea", -1, "\\xdeadbeef", "3q2+7w=="),
        ("bit", 1, "1", True),
        ("varbit", -1, "1000000001", "AQI="),
        ("date", -1, "1970-01-02", 1),
        ("date", -1, "0044-03-15 BC", -735160),
        ("date", -1, "12026-11-15", 3_673_197),
        ("time", -1, "24:00:00", 86_400_000_000),
        ("time", 3, "01:02:03.004", 3_723_004),
        ("timetz", -1, "01:30:00.5+02", "23:30:00.5Z"),
        ("timestamp", -1, "1970-01-01 00:00:00.000001", 1),
        ("timestamp", 3, "1970-01-01 00:00:01.5", 1_500),
        ("timestamp", -1, "infinity", 9223372036825200000),
        ("timestamptz", -1, "2026-11-15 12:00:00.5+00", "2026-11-15T12:00:00.500000Z"),
        ("timestamptz", 0, "2026-11-15 12:00:00+00", "2026-11-15T12:00:00Z"),
        ("interval", -1, "P1Y2M3DT4H5M6.5S", 37_091_106_500_000),
        ("point", -1, "(1.5,-2)", {"x": 1.5, "y": -2.0, "wkb": POINT, "srid": None}),
        ("hstore", -1, '"a"=>"1", "b\\"c"=>NULL', '{"a":"1","b\\"c":null}'),
        ("inet", -1, "10.0.0.1/8", "10.0.0.1/8"),
    ],
)  # fmt: skip
def test_a_value_is_told_as_its_type_says(
    name: str, modifier: int, value: str, expected: object
) -> None:
    assert told(name, value, modifier) == expected


@pytest.mark.parametrize(
    ("name", "value", "modes", "expected"),
    [
        ("numeric", "1.5", {"decimal_mode": "double"}, 1.5),
        ("numeric", "1.50", {"decimal_mode": "precise"}, {"scale": 1, "value": "Dw=="}),
        ("numeric", "100.00", {"decimal_mode": "precise"}, {"scale": 0, "value": "ZA=="}),
        ("numeric", "0", {"decimal_mode": "precise"}, {"scale": 0, "value": "AA=="}),
        ("numeric", "-Infinity", {"decimal_mode": "string"}, "NEGATIVE_INFINITY"),
        ("varbit", "00000000000000000001", {"binary_mode": "hex"}, "AQ=="),
        ("date", "infinity", {}, 2_147_483_647),
        ("date", "infinity", ISO, "infinity"),
        ("date", "0044-03-15 BC", ISO, "-0043-03-15Z"),
        ("date", "0001-03-15 BC", ISO, "0000-03-15Z"),
        ("date", "12024-03-15", ISO, "+12024-03-15Z"),
        ("timestamp", "-infinity", {"time_mode": "connect"}, -9223372036832400),
        ("timestamp", "-infinity", ISO, "-290308-12-21T19:59:27.6Z"),
        ("bytea", "\\xfbff", {"binary_mode": "base64-url-safe"}, "-_8="),
        ("bytea", "\\xfbff", {"binary_mode": "hex"}, "fbff"),
        ("date", "2026-11-15", ISO, "2026-11-15Z"),
        ("time", "01:02:03", {"time_mode": "connect"}, 3_723_000),
        ("timestamp", "1970-01-01 00:00:01", {"time_mode": "connect"}, 1_000),
        ("timestamp", "1970-01-01 00:00:01", ISO, "1970-01-01T00:00:01Z"),
        ("interval", "P1D", {"interval_mode": "string"}, "P0Y0M1DT0H0M0S"),
    ],
)  # fmt: skip
def test_modes_choose_another_form(
    name: str, value: str, modes: dict[str, Any], expected: object
) -> None:
    assert told(name, value, **modes) == expected


def test_arrays_are_told_element_by_element() -> None:
    whole = converter(TypeInfo("_int4", element=TypeInfo("int4")), CONFIG)
    words = converter(TypeInfo("_text", element=TypeInfo("text")), CONFIG)
    assert json.loads(whole(b"{1,NULL,-3}")) == [1, None, -3]
    assert json.loads(whole(b"{}")) == []
    assert json.loads(whole(b"[0:1]={{1,2},{3,4}}".replace(b"[0:1]", b"[0:1][1:2]"))) == [
        [1, 2],
        [3, 4],
    ]
    assert json.loads(words(b'{a,"b,c","d\\"e\\\\f",null,"NULL",""}')) == [
        "a", "b,c", 'd"e\\f', None, "NULL", "",
    ]  # fmt: skip


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=6, min_value=-(10**30), max_value=10**30
    )
)
def test_precise_decimals_keep_their_value(number: Decimal) -> None:
    modifier = 4 + ((38 << 16) | 6)
    coded = told("numeric", f"{number:f}", modifier, decimal_mode="precise")
    assert isinstance(coded, str)
    raw = base64.b64decode(coded)
    assert Fraction(int.from_bytes(raw, "big", signed=True), 10**6) == Fraction(number)


@given(st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31)))  # noqa: DTZ001
def test_timestamps_keep_their_moment(moment: datetime) -> None:
    text = moment.isoformat(sep=" ")
    assert told("timestamp", text) == (moment - EPOCH) // timedelta(microseconds=1)
    zoned = told("timestamptz", text + "+00")
    assert datetime.fromisoformat(str(zoned)) == moment.replace(tzinfo=UTC)


def test_a_negative_scale_leaves_out_zeros_before_the_point() -> None:
    modifier = 4 + (3 << 16) + (-2 & 0x7FF)
    config = PostgresCdcConfig(database="d", decimal_mode="precise")
    told = converter(TypeInfo("numeric", modifier), config)
    assert told(b"12300") == b'"ew=="'
    assert told(b"0") == b'"AA=="'
    assert told(b"-100") == b'"/w=="'
