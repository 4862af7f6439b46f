"""Values of MySQL and MariaDB: from the log to text, and from text to JSON. Pure.

A value of the log is converted to the text that the server would return for a query; texts from
queries and from the log then use the same conversion to JSON, so a row of a snapshot and the same
row in the log cannot differ. Binary columns are their bytes.
"""

import base64
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest
from mainstem.pipelines.cdc.mysql import binlog as log
from mainstem.pipelines.cdc.mysql.binary_json import json_text
from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig

Convert = Callable[[bytes], bytes]
Read = Callable[[bytes, int], tuple[bytes, int]]
"""Takes the bytes of rows and a position in them; returns a value's text and where it ends."""

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - the moments compared have no zone either
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_US: Final = timedelta(microseconds=1)
_DECIMAL_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_FRACTION_US: Final = (0, 10_000, 100, 1)  # size of a unit in bytes
_POINT: Final = struct.Struct("<IBIdd")
CODECS: Final = {
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "utf8": "utf-8",
    "latin1": "cp1252",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "ascii": "ascii",
    "ucs2": "utf_16_be",
    "utf16": "utf_16_be",
    "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "big5": "big5",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "gb18030": "gb18030",
    "sjis": "shift_jis",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "euckr": "euc_kr",
    "tis620": "tis_620",
    "macroman": "mac_roman",
    **{name: name for name in ("cp850", "cp852", "cp866", "cp1250", "cp1251", "cp1256", "cp1257")},
}


class ColumnType(Struct, frozen=True):
    """The type of a column's texts: a word, and the fractional digits or the number of bits.

    ``precision`` is the number of digits of a decimal.
    """

    word: str
    digits: int = 0
    precision: int = 0


# From the log to text.


def reader(
    column: log.LoggedColumn, charsets: Mapping[int, str], declared: str = ""
) -> tuple[ColumnType, Read]:
    """The reader of a column's values in the log.

    Args:
        column: as described in the log.
        charsets: the names of character sets by collation id.
        declared: the name of its type, which the log does not always contain.

    Raises:
        InvalidRequest: its type is not supported.
    """
    first, second = column.meta
    kind = column.kind
    if kind in _INT_BYTES:
        size = _INT_BYTES[kind]
        return ColumnType("int"), partial(_integer, size=size, signed=not column.unsigned)
    if kind in _FRACTIONAL:
        word, read = _FRACTIONAL[kind]
        return ColumnType(word, first), partial(read, digits=first)
    if kind in _SIMPLE:
        word, plain = _SIMPLE[kind]
        return ColumnType(word), plain
    if kind == log.DECIMAL:
        return ColumnType("decimal", second, first), partial(
            _decimal, precision=first, scale=second
        )
    if kind == log.BIT:
        return ColumnType("bit", second * 8 + first), partial(_raw, size=second + (first > 0))
    return _text_reader(column, charsets, declared)


def _text_reader(
    column: log.LoggedColumn, charsets: Mapping[int, str], declared: str
) -> tuple[ColumnType, Read]:
    (first, second), kind = column.meta, column.kind
    if kind == log.GEOMETRY:
        word = "point" if declared == "point" else "geometry"
        return ColumnType(word), partial(_string, size=first)
    if declared in _FIXED and kind == log.STRING and second == _FIXED[declared][0]:
        return ColumnType("text"), partial(_fixed, render=_FIXED[declared][1])
    if kind in {log.ENUM, log.SET}:
        decode = _decoder(column, charsets)
        members = tuple(each if decode is None else decode(each) for each in column.members)
        choose = _member if kind == log.ENUM else _members
        return ColumnType("text"), partial(choose, size=second, members=members)
    if kind == log.JSON:
        return ColumnType("text"), partial(_string, size=first, decode=_document)
    if kind in {log.VARCHAR, log.VAR_STRING, log.STRING, log.BLOB}:
        size = first if kind == log.BLOB else 1 + (second > 255)
        if column.charset == log.BINARY_CHARSET:
            padded = second if kind == log.STRING else 0
            return ColumnType("bytes"), partial(_string, size=size, padded=padded)
        return ColumnType("text"), partial(_string, size=size, decode=_decoder(column, charsets))
    raise InvalidRequest(
        ErrorCode.INVALID_CONFIG,
        f"column type {kind} is not supported",
        subject=column.name,
        remedy="exclude the table with exclude_tables",
    )


def _decoder(
    column: log.LoggedColumn, charsets: Mapping[int, str]
) -> Callable[[bytes], bytes] | None:
    name = charsets.get(column.charset, "")
    if name == "binary" or CODECS.get(name) == "utf-8":
        return None
    if name not in CODECS:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"character set {name or column.charset} is not supported",
            subject=column.name,
            remedy="convert the column to utf8mb4, or exclude the table with exclude_tables",
        )
    codec = CODECS[name]
    return lambda value: value.decode(codec, "replace").encode()


def _integer(data: bytes, at: int, *, size: int, signed: bool) -> tuple[bytes, int]:
    until = at + size
    return b"%d" % int.from_bytes(data[at:until], "little", signed=signed), until


def _float(data: bytes, at: int) -> tuple[bytes, int]:
    return repr(struct.unpack_from("<f", data, at)[0]).encode(), at + 4


def _double(data: bytes, at: int) -> tuple[bytes, int]:
    return repr(struct.unpack_from("<d", data, at)[0]).encode(), at + 8


def _raw(data: bytes, at: int, *, size: int) -> tuple[bytes, int]:
    return data[at : at + size], at + size


def _document(value: bytes) -> bytes:
    def decimal(data: bytes, at: int, precision: int, scale: int) -> bytes:
        return _decimal(data, at, precision=precision, scale=scale)[0]

    return json_text(value, decimal)


def _string(
    data: bytes,
    at: int,
    *,
    size: int,
    padded: int = 0,
    decode: Callable[[bytes], bytes] | None = None,
) -> tuple[bytes, int]:
    start = at + size
    until = start + int.from_bytes(data[at:start], "little")
    value = data[start:until]
    if decode is not None:
        value = decode(value)
    return value.ljust(padded, b"\0"), until


def _fixed(data: bytes, at: int, *, render: Callable[[bytes], str]) -> tuple[bytes, int]:
    value, until = _string(data, at, size=1, padded=16)
    return render(value).encode(), until


def _member(data: bytes, at: int, *, size: int, members: tuple[bytes, ...]) -> tuple[bytes, int]:
    number = int.from_bytes(data[at : at + size], "little")
    return members[number - 1] if number else b"", at + size


def _members(data: bytes, at: int, *, size: int, members: tuple[bytes, ...]) -> tuple[bytes, int]:
    bits = int.from_bytes(data[at : at + size], "little")
    return b",".join(each for n, each in enumerate(members) if bits >> n & 1), at + size


def _year(data: bytes, at: int) -> tuple[bytes, int]:
    return b"%d" % (1900 + data[at] if data[at] else 0), at + 1


def _date(data: bytes, at: int) -> tuple[bytes, int]:
    packed = int.from_bytes(data[at : at + 3], "little")
    return b"%04d-%02d-%02d" % (packed >> 9, packed >> 5 & 15, packed & 31), at + 3


def _fraction(data: bytes, at: int, digits: int) -> tuple[bytes, int]:
    size = (digits + 1) // 2
    if not size:
        return b"", at
    us = int.from_bytes(data[at : at + size], "big") * _FRACTION_US[size]
    return b"." + (b"%06d" % us)[:digits], at + size


def _timestamp(data: bytes, at: int, *, digits: int) -> tuple[bytes, int]:
    seconds = int.from_bytes(data[at : at + 4], "big")
    fraction, until = _fraction(data, at + 4, digits)
    if not any(data[at:until]):
        return b"0000-00-00 00:00:00" + fraction, until
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S").encode() + fraction, until


def _datetime(data: bytes, at: int, *, digits: int) -> tuple[bytes, int]:
    packed = int.from_bytes(data[at : at + 5], "big") - (1 << 39)
    days, clock = packed >> 17, packed & 0x1FFFF
    months = days >> 5
    fraction, until = _fraction(data, at + 5, digits)
    whole = b"%04d-%02d-%02d %02d:%02d:%02d" % (
        months // 13,
        months % 13,
        days & 31,
        clock >> 12,
        clock >> 6 & 63,
        clock & 63,
    )
    return whole + fraction, until


def _time(data: bytes, at: int, *, digits: int) -> tuple[bytes, int]:
    size = (digits + 1) // 2
    until = at + 3 + size
    packed = int.from_bytes(data[at:until], "big") - (1 << 23 << 8 * size)
    sign, packed = (b"-", -packed) if packed < 0 else (b"", packed)
    clock = packed >> 8 * size
    fraction, _ = _fraction((packed & (1 << 8 * size) - 1).to_bytes(size, "big"), 0, digits)
    whole = b"%02d:%02d:%02d" % (clock >> 12 & 0x3FF, clock >> 6 & 63, clock & 63)
    return sign + whole + fraction, until


def _decimal(data: bytes, at: int, *, precision: int, scale: int) -> tuple[bytes, int]:
    whole, rest = divmod(precision - scale, 9)
    parts = [rest, *[9] * whole]
    fraction = [9] * (scale // 9) + [scale % 9]
    until = at + sum(_DECIMAL_BYTES[n] for n in parts + fraction)
    packed = bytearray(data[at:until])
    if not packed:
        raise Corrupt("an empty decimal", subject="binlog")
    is_negative = not packed[0] & 0x80
    packed[0] ^= 0x80
    if is_negative:
        packed = bytearray(byte ^ 0xFF for byte in packed)
    texts, place = [], 0
    for digits in parts + fraction:
        size = _DECIMAL_BYTES[digits]
        number = int.from_bytes(packed[place : place + size], "big")
        texts.append(b"%0*d" % (digits, number) if digits else b"")
        place += size
    text = b"".join(texts[: len(parts)]).lstrip(b"0") or b"0"
    if scale:
        text += b"." + b"".join(texts[len(parts) :])
    return (b"-" if is_negative else b"") + text, until


_INT_BYTES: Final = {log.TINY: 1, log.SHORT: 2, log.INT24: 3, log.LONG: 4, log.LONGLONG: 8}
_FRACTIONAL: Final[dict[int, tuple[str, Callable[..., tuple[bytes, int]]]]] = {
    log.TIMESTAMP2: ("timestamp", _timestamp),
    log.DATETIME2: ("datetime", _datetime),
    log.TIME2: ("time", _time),
}
# Types that are logged as a number of bytes, and how they are formatted.
_FIXED: Final[dict[str, tuple[int, Callable[[bytes], str]]]] = {
    "uuid": (16, lambda value: str(UUID(bytes=value))),
    "inet6": (16, lambda value: str(IPv6Address(value))),
    "inet4": (4, lambda value: str(IPv4Address(value[:4]))),
}
DECLARED: Final = ("point", *_FIXED)
_SIMPLE: Final[dict[int, tuple[str, Read]]] = {
    log.FLOAT: ("float", _float),
    log.DOUBLE: ("double", _double),
    log.DATE: ("date", _date),
    log.YEAR: ("int", _year),
}


# From text to JSON.


def converter(of: ColumnType, config: MysqlCdcConfig) -> Convert:
    """The converter of a column's texts to JSON."""
    if of.word in _MOMENTS:
        return _MOMENTS[of.word](of.digits, config.time_mode)
    if of.word == "decimal":
        return _decimal_converter(of.digits, config)
    if of.word == "bytes":
        return partial(encoded, mode=config.binary_mode)
    if of.word == "bit":
        return boolean if of.digits == 1 else bits
    return _PLAIN.get(of.word, text)


def text(value: bytes) -> bytes:
    """A JSON string."""
    return msgspec.json.encode(value.decode("utf-8", "replace"))


def integer(value: bytes) -> bytes:
    """An integer."""
    return b"%d" % int(value)


def double(value: bytes) -> bytes:
    """A 64-bit floating-point number."""
    return msgspec.json.encode(float(value))


def single(value: bytes) -> bytes:
    """A 32-bit floating-point number in the shortest form that is unambiguous."""
    number = float(value)
    [packed] = struct.unpack("<f", struct.pack("<f", number))
    for digits in range(6, 10):
        short = float(f"{packed:.{digits}g}")
        if struct.unpack("<f", struct.pack("<f", short))[0] == packed:
            return msgspec.json.encode(short)
    return msgspec.json.encode(packed)


def _decimal_converter(scale: int, config: MysqlCdcConfig) -> Convert:
    if config.decimal_mode == "double":
        return double
    if config.decimal_mode == "string":
        return text
    return partial(unscaled, scale=scale)


def unscaled(value: bytes, scale: int) -> bytes:
    """Base64 of the unscaled value of a decimal in two's complement."""
    whole, _, fraction = value.partition(b".")
    number = int(whole + fraction.ljust(scale, b"0"))
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return b'"%b"' % base64.b64encode(number.to_bytes(size, "big", signed=True))


def encoded(value: bytes, mode: str) -> bytes:
    """Bytes in the configured binary mode."""
    if mode == "hex":
        return b'"%b"' % value.hex().encode()
    spelt = base64.urlsafe_b64encode(value) if mode != "base64" else base64.b64encode(value)
    return b'"%b"' % spelt


def boolean(value: bytes) -> bytes:
    """A single bit."""
    return b"true" if value.strip(b"\0") else b"false"


def bits(value: bytes) -> bytes:
    """Bits, least significant byte first, always in base64."""
    return encoded(value[::-1], "base64")


def geometry(value: bytes) -> bytes:
    """A geometry: its spatial reference id, then well-known binary."""
    (srid,) = struct.unpack_from("<I", value)
    srid_text = b"null" if not srid else b"%d" % srid
    return b'{"wkb":"%b","srid":%b}' % (base64.b64encode(value[4:]), srid_text)


def point(value: bytes) -> bytes:
    """A point: its coordinates and the geometry; an empty one is written as a geometry."""
    if len(value) != _POINT.size:
        return geometry(value)
    _, order, _, x, y = _POINT.unpack(value)
    if order != 1:
        return geometry(value)
    coordinates = b'{"x":%b,"y":%b,' % (msgspec.json.encode(x), msgspec.json.encode(y))
    return coordinates + geometry(value)[1:]


def days(value: bytes) -> bytes:
    """Days since 1970; an invalid date is null."""
    try:
        return b"%d" % (date.fromisoformat(value.decode()).toordinal() - _EPOCH_DAY)
    except ValueError:
        return b"null"


def moment_us(value: bytes) -> int | None:
    """Microseconds since 1970; None for an invalid date, such as one with month 0."""
    try:
        return (datetime.fromisoformat(value.decode()) - _EPOCH) // _US
    except ValueError:
        return None


def time_us(value: bytes) -> int:
    """Microseconds of a duration in hours, minutes and seconds."""
    hours, minutes, seconds = value.lstrip(b"-").split(b":")
    whole, _, fraction = seconds.partition(b".")
    us = (int(hours) * 60 + int(minutes)) * 60_000_000 + int(whole) * 1_000_000
    us += int(fraction.ljust(6, b"0") or 0)
    return -us if value.startswith(b"-") else us


def _date_converter(digits: int, mode: str) -> Convert:
    del digits
    if mode == "isostring":
        return lambda value: b"null" if days(value) == b"null" else b'"%bZ"' % value
    return days


def _time_converter(digits: int, mode: str) -> Convert:
    del digits
    if mode == "isostring":
        return lambda value: b'"%bZ"' % _short(value)
    unit_us = 1000 if mode == "connect" else 1
    return lambda value: b"%d" % (time_us(value) // unit_us)


def _datetime_converter(digits: int, mode: str) -> Convert:
    if mode == "isostring":
        return lambda value: zoned(_short(value))
    unit_us = 1000 if mode == "connect" or digits <= 3 else 1

    def convert(value: bytes) -> bytes:
        us = moment_us(value)
        return b"null" if us is None else b"%d" % (us // unit_us)

    return convert


def _short(value: bytes) -> bytes:
    """A timestamp without trailing zeros."""
    return value.rstrip(b"0").rstrip(b".") if b"." in value else value


def zoned(value: bytes) -> bytes:
    """A UTC timestamp in ISO 8601; an invalid one is null."""
    if moment_us(value) is None:
        return b"null"
    return b'"%bZ"' % value.replace(b" ", b"T")


_MOMENTS: Final[dict[str, Callable[[int, str], Convert]]] = {
    "date": _date_converter,
    "time": _time_converter,
    "datetime": _datetime_converter,
    "timestamp": lambda digits, mode: zoned,
}
_PLAIN: Final[dict[str, Convert]] = {
    "int": integer,
    "float": single,
    "double": double,
    "geometry": geometry,
    "point": point,
}
