"""Values of the log as text, and texts as JSON."""

import base64
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.model.errors import InvalidRequest
from mainstem.pipelines.cdc.mysql import binlog as log
from mainstem.pipelines.cdc.mysql import values
from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig

CHARSETS = {45: "utf8mb4", 8: "latin1", 99: "klingon"}


def read(kind: int, data: bytes, meta: tuple[int, int] = (0, 0), **more: object) -> bytes:
    column = log.LoggedColumn("c", kind, meta, **more)  # type: ignore[arg-type]
    _, reader = values.reader(column, CHARSETS)
    text, at = reader(data, 0)
    assert at == len(data)
    return text


@pytest.mark.parametrize(
    ("kind", "meta", "data", "expected"),
    [
        (log.INT24, (0, 0), b"\0\0\x80", b"-8388608"),
        (log.DATE, (0, 0), (2024 << 9 | 2 << 5 | 29).to_bytes(3, "little"), b"2024-02-29"),
        (log.YEAR, (0, 0), b"\0", b"0"),
        (log.TIME2, (0, 0), b"\x4b\x91\x05", b"-838:59:59"),
        (log.TIME2, (1, 0), b"\x7f\xff\xff\xce", b"-00:00:00.5"),
        (log.TIMESTAMP2, (0, 0), b"\0\0\0\0", b"0000-00-00 00:00:00"),
        (log.TIMESTAMP2, (3, 0), b"\0\0\0\1\0\x0a", b"1970-01-01 00:00:01.001"),
        (log.BIT, (4, 1), b"\x08\x01", b"\x08\x01"),
        (log.DECIMAL, (4, 2), b"\x8c\x22", b"12.34"),
        (log.DECIMAL, (4, 2), b"\x73\xdd", b"-12.34"),
        (log.STRING, (254, 4), b"\1a", b"a\0\0\0"),
    ],
)
def test_a_value_of_the_log_is_the_text_of_a_query(
    kind: int, meta: tuple[int, int], data: bytes, expected: bytes
) -> None:
    assert read(kind, data, meta) == expected


@given(
    digits=st.integers(0, 30).flatmap(lambda scale: st.tuples(st.integers(1, 30), st.just(scale))),
    number=st.integers(),
)
def test_a_decimal_that_was_packed_is_itself(digits: tuple[int, int], number: int) -> None:
    whole, scale = digits
    number = abs(number) % 10 ** (whole + scale) * (1 if number >= 0 else -1)

    text = read(log.DECIMAL, packed(number, whole, scale), (whole + scale, scale))

    assert Decimal(text.decode()) == Decimal(f"{number}E-{scale}")  # no rounding here


def packed(number: int, whole: int, scale: int) -> bytes:
    """As the server packs it: nine digits in four bytes, what is left over in fewer."""
    text = f"{abs(number):0{whole + scale}d}"
    front, back = text[:whole], text[whole:]
    parts = [front[: whole % 9]] + [front[at : at + 9] for at in range(whole % 9, whole, 9)]
    parts += [back[at : at + 9] for at in range(0, scale, 9)]
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    data = bytearray(b"".join(int(p or 0).to_bytes(sizes[len(p)], "big") for p in parts))
    if number < 0:
        data = bytearray(byte ^ 0xFF for byte in data)
    data[0] ^= 0x80
    return bytes(data)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_number_of_32_bits_is_told_in_digits_that_give_it_back(number: float) -> None:
    told = float(values.single(repr(number).encode()))

    assert told == pytest.approx(number, rel=1e-7, abs=1e-45)


def test_a_tenth_of_32_bits_is_told_as_a_tenth() -> None:
    assert values.single(b"0.10000000149011612") == b"0.1"


def test_members_are_told_by_their_names() -> None:
    members = (b"a", b"b", b"c")

    assert read(log.ENUM, b"\2", (247, 1), members=members, charset=45) == b"b"
    assert read(log.ENUM, b"\0", (247, 1), members=members, charset=45) == b""
    assert read(log.SET, b"\5", (248, 1), members=members, charset=45) == b"a,c"


@pytest.mark.parametrize(
    ("declared", "logged", "expected"),
    [
        ("uuid", bytes(range(16)), b"00010203-0405-0607-0809-0a0b0c0d0e0f"),
        ("inet6", bytes(15) + b"\1", b"::1"),
        ("inet4", b"\x7f\0\0\1", b"127.0.0.1"),
        ("inet4", b"\x7f", b"127.0.0.0"),
        ("binary", b"ab", b"ab\0\0"),
    ],
)
def test_bytes_that_stand_for_more_are_told_by_the_name_of_their_type(
    declared: str, logged: bytes, expected: bytes
) -> None:
    size = 16 if declared in {"uuid", "inet6"} else 4
    column = log.LoggedColumn("c", log.STRING, (log.STRING, size))

    _, take = values.reader(column, {}, declared)

    assert take(bytes([len(logged)]) + logged, 0) == (expected, len(logged) + 1)


def test_a_point_has_its_coordinates_beside_its_shape() -> None:
    told = values.converter(values.ColumnType("point"), MysqlCdcConfig(database="d"))
    place = struct.pack("<IBIdd", 0, 1, 1, 1.5, -2.0)

    assert told(place).startswith(b'{"x":1.5,"y":-2.0,"wkb":"')
    assert told(place[:8]).startswith(b'{"wkb":"')


def test_kinds_and_character_sets_that_are_not_read_are_refused_with_the_remedy() -> None:
    for kind, charset in ((242, 63), (log.VARCHAR, 99), (log.VARCHAR, 1234)):
        with pytest.raises(InvalidRequest) as refused:
            read(kind, b"", (0, 10), charset=charset)
        assert "exclude_tables" in refused.value.remedy


@pytest.mark.parametrize(
    ("word", "digits", "mode", "text", "expected"),
    [
        ("datetime", 0, "adaptive_time_microseconds", b"2024-00-00 00:00:00", b"null"),
        ("datetime", 6, "adaptive_time_microseconds", b"1970-01-01 00:00:01.000002", b"1000002"),
        ("datetime", 6, "connect", b"1970-01-01 00:00:01.000002", b"1000"),
        ("datetime", 0, "isostring", b"1970-01-01 00:00:01", b'"1970-01-01T00:00:01Z"'),
        ("datetime", 3, "isostring", b"1970-01-01 00:00:01.500", b'"1970-01-01T00:00:01.5Z"'),
        ("time", 3, "isostring", b"00:00:10.000", b'"00:00:10Z"'),
        ("timestamp", 3, "isostring", b"2024-01-01 00:00:00.500", b'"2024-01-01T00:00:00.500Z"'),
        ("date", 0, "adaptive_time_microseconds", b"0000-00-00", b"null"),
        ("date", 0, "isostring", b"2024-01-01", b'"2024-01-01Z"'),
        ("time", 0, "connect", b"-00:00:01.5", b"-1500"),
        ("timestamp", 0, "connect", b"0000-00-00 00:00:00", b"null"),
    ],
)
def test_moments_are_told_in_the_way_that_the_settings_chose(
    word: str, digits: int, mode: str, text: bytes, expected: bytes
) -> None:
    config = MysqlCdcConfig(database="d", time_mode=mode)  # type: ignore[arg-type]

    assert values.converter(values.ColumnType(word, digits), config)(text) == expected


@given(number=st.integers(-(10**65) + 1, 10**65 - 1), scale=st.integers(0, 38))
def test_a_precise_decimal_gives_its_number_back(number: int, scale: int) -> None:
    sign, text = "-" if number < 0 else "", f"{abs(number):0{scale + 1}d}"
    point = len(text) - scale
    spelt = sign + text[:point] + ("." + text[point:] if scale else "")

    told = values.unscaled(spelt.encode(), scale).strip(b'"')

    assert int.from_bytes(base64.b64decode(told), "big", signed=True) == number
