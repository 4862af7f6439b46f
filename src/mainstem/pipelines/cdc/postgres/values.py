"""PostgreSQL's text of a value as JSON, by its type and the chosen modes. Pure.

The server's text is that of ``datestyle ISO``, ``intervalstyle iso_8601``, ``bytea_output hex``,
UTC. Numbers follow Debezium: days since 1970 for dates, micro- or milliseconds for times as precise
as the column, ISO 8601 with Z where there is a zone. Other types are written as text.
"""

import base64
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Final

import msgspec
from msgspec import Struct

from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig

Convert = Callable[[bytes], bytes]

NULL: Final = b"null"
_encode = msgspec.json.encode
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - compared with times that have no zone
_DAY_US: Final = 86_400_000_000
_DAYS_PER_MONTH: Final = 365.25 / 12
# The values of the JDBC driver, and so of Debezium, for infinite timestamps.
_FOREVER: Final = {b"infinity": 9223372036825200000, b"-infinity": -9223372036832400000}
_FOREVER_TEXT: Final = {
    b"infinity": b'"+294247-01-10T04:00:25.2Z"',
    b"-infinity": b'"-290308-12-21T19:59:27.6Z"',
}
# The range of a 32-bit integer, which readers use for days.
_LAST_DAYS: Final = {b"infinity": (1 << 31) - 1, b"-infinity": -(1 << 31)}
_NO_NUMBER: Final = {
    b"NaN": b'"NAN"',
    b"Infinity": b'"POSITIVE_INFINITY"',
    b"-Infinity": b'"NEGATIVE_INFINITY"',
}
_PLAIN_NUMBER: Final = frozenset({b"NaN", b"Infinity", b"-Infinity"})


class TypeInfo(Struct, frozen=True):
    """The properties of a type for converters; ``element`` and ``of_domain`` are types too."""

    name: str
    modifier: int = -1
    element: "TypeInfo | None" = None


def text(value: bytes) -> bytes:
    """A string."""
    return _encode(value.decode())


def as_is(value: bytes) -> bytes:
    """Text that is already JSON, such as integers."""
    return value


def boolean(value: bytes) -> bytes:
    """A boolean."""
    return b"true" if value == b"t" else b"false"


def floating(value: bytes) -> bytes:
    """A number; NaN and infinities, which JSON does not have, are strings."""
    if value in _PLAIN_NUMBER:
        return b'"%b"' % value
    return _encode(float(value))


def decimal_text(value: bytes) -> bytes:
    """A decimal as text; NaN and infinities have Debezium's names."""
    return _NO_NUMBER.get(value) or b'"%b"' % value


def decimal_precise(value: bytes, scale: int | None) -> bytes:
    """The unscaled value's bytes in base64; with its scale if the column has none."""
    if value in _PLAIN_NUMBER:
        return NULL
    whole, _, fraction = value.partition(b".")
    own_scale = 0
    if scale is None:
        fraction = fraction.rstrip(b"0")
        own_scale = len(fraction)
    # In integer arithmetic: Decimal would round at 28 digits.
    if scale is not None and scale < 0:
        digits = int(whole[:scale] or b"0")
    else:
        digits = int(whole + (fraction if scale is None else fraction.ljust(scale, b"0")[:scale]))
    size = (digits.bit_length() if digits >= 0 else (digits + 1).bit_length()) // 8 + 1
    coded = base64.b64encode(digits.to_bytes(size, "big", signed=True))
    if scale is not None:
        return b'"%b"' % coded
    return b'{"scale":%d,"value":"%b"}' % (own_scale, coded)


def money(value: bytes) -> str:
    """An amount without currency and separators."""
    bare = re.sub(r"[^0-9.\-()]", "", value.decode())
    return "-" + bare.strip("()") if bare.startswith("(") else bare


def bytea(value: bytes, mode: str) -> bytes:
    """Bytes, given as a backslash, an x and hexadecimal digits."""
    if mode == "hex":
        return b'"%b"' % value[2:]
    return encoded(bytes.fromhex(value[2:].decode()), mode)


def encoded(raw: bytes, mode: str) -> bytes:
    """Bytes in the configured binary mode."""
    if mode == "hex":
        return b'"%b"' % raw.hex().encode()
    coded = base64.urlsafe_b64encode(raw) if mode == "base64-url-safe" else base64.b64encode(raw)
    return b'"%b"' % coded


def bits(value: bytes) -> bytes:
    """A bit string as little-endian bytes without leading zero bytes, always in base64."""
    number = int(value or b"0", 2)
    raw = number.to_bytes((number.bit_length() + 7) // 8, "little")
    return b'"%b"' % base64.b64encode(raw)


def days(value: bytes) -> bytes:
    """A date as days since 1970."""
    try:
        return b"%d" % (date.fromisoformat(value.decode()).toordinal() - _EPOCH_DAY)
    except ValueError:
        return b"%d" % (_LAST_DAYS[value] if value in _LAST_DAYS else _far_day(value))


def time_us(value: bytes) -> int:
    """A time of day in microseconds; 24:00:00 is a day."""
    hours, minutes, rest = value.split(b":")
    seconds, _, fraction = rest.partition(b".")
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1_000_000 + int(fraction.ljust(6, b"0") if fraction else 0)


def moment_us(value: bytes) -> int:
    """A timestamp in microseconds since 1970, in any century."""
    if value[4:5] == b"-" and not value.endswith(b" BC"):
        since = datetime.fromisoformat(value.decode()) - _EPOCH
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    day, _, clock = value.removesuffix(b" BC").partition(b" ")
    era = b" BC" if value.endswith(b" BC") else b""
    try:
        number = date.fromisoformat((day + era).decode()).toordinal() - _EPOCH_DAY
    except ValueError:
        number = _far_day(day + era)
    return number * _DAY_US + time_us(clock)


def timestamp(value: bytes, unit_us: int) -> bytes:
    """A timestamp in micro- (1) or milliseconds (1000) since 1970."""
    if value in _FOREVER:
        return b"%d" % (_FOREVER[value] // unit_us)
    return b"%d" % (moment_us(value) // unit_us)


def time_of_day(value: bytes, unit_us: int) -> bytes:
    """A time of day in micro- or milliseconds."""
    return b"%d" % (time_us(value) // unit_us)


def zoned(value: bytes, digits: int) -> bytes:
    """A timestamp with zone: ISO 8601 in UTC with as many digits as the column."""
    if value in _FOREVER:
        return b'"%b"' % value
    bare, era = (value[:-3], b" BC") if value.endswith(b" BC") else (value, b"")
    if not bare.endswith(b"+00"):
        moment = datetime.fromisoformat(bare.decode()).astimezone(UTC)
        bare = moment.strftime("%Y-%m-%d %H:%M:%S.%f+00").encode()
    return _iso(bare[:-3], digits, era)


def unzoned(value: bytes) -> bytes:
    """A timestamp without zone as ISO 8601 in UTC, with as many digits as it has."""
    if value in _FOREVER:
        return _FOREVER_TEXT[value]
    bare, era = (value[:-3], b" BC") if value.endswith(b" BC") else (value, b"")
    day, _, clock = bare.partition(b" ")
    return b'"%bT%bZ"' % (_iso_day(day, era), clock)


def _iso(bare: bytes, digits: int, era: bytes) -> bytes:
    day, _, clock = bare.partition(b" ")
    whole, _, fraction = clock.partition(b".")
    shown = b"." + fraction.ljust(digits, b"0")[:digits] if digits else b""
    return b'"%bT%b%bZ"' % (_iso_day(day, era), whole, shown)


def _iso_day(day: bytes, era: bytes) -> bytes:
    """A date in ISO 8601: the year before 1 is 0, and years of five digits have a sign."""
    year, _, rest = day.partition(b"-")
    if era:
        before = int(year) - 1
        return b"%b%04d-%b" % (b"-" if before else b"", before, rest)
    return b"+" + day if len(year) > 4 else day


def iso_date(value: bytes) -> bytes:
    """A date as ISO 8601."""
    if value in _FOREVER:
        return b'"%b"' % value
    bare, era = (value[:-3], b" BC") if value.endswith(b" BC") else (value, b"")
    return b'"%bZ"' % _iso_day(bare, era)


def zoned_time(value: bytes) -> bytes:
    """A time of day with its zone, converted to UTC."""
    found = re.fullmatch(rb"([\d:.]+)([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?", value)
    if found is None:
        return text(value)
    shift_us = sum(
        int(part or 0) * unit
        for part, unit in zip(
            found.groups()[2:], (3_600_000_000, 60_000_000, 1_000_000), strict=True
        )
    )
    sign = -1 if found[2] == b"+" else 1
    moved = (time_us(found[1]) + sign * shift_us) % _DAY_US
    seconds, fraction = divmod(moved, 1_000_000)
    shown = f".{fraction:06}".rstrip("0") if fraction else ""
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{shown}Z"
    return b'"%b"' % clock.encode()


_INTERVAL = re.compile(
    rb"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)W)?(?:(-?\d+)D)?"
    rb"(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?[\d.]+)S)?)?"
)


def interval_text(value: bytes) -> bytes:
    """An interval in ISO 8601 with all its parts."""
    found = _INTERVAL.fullmatch(value)
    if found is None:
        return text(value)
    years, months, weeks, day, hours, minutes = (int(part or 0) for part in found.groups()[:6])
    seconds = (found[7] or b"0").decode()
    shown = f"P{years}Y{months}M{weeks * 7 + day}DT{hours}H{minutes}M{seconds}S"
    return b'"%b"' % shown.encode()


def interval_us(value: bytes) -> bytes:
    """An interval in microseconds; a month counts as 30.4375 days."""
    found = _INTERVAL.fullmatch(value)
    if found is None:
        return text(value)
    years, months, weeks, day, hours, minutes = (int(part or 0) for part in found.groups()[:6])
    seconds = Decimal((found[7] or b"0").decode())
    in_days = (years * 12 + months) * _DAYS_PER_MONTH + weeks * 7 + day
    clock_us = (hours * 60 + minutes) * 60_000_000 + int(seconds * 1_000_000)
    return b"%d" % (round(in_days * _DAY_US) + clock_us)


def point(value: bytes) -> bytes:
    """A point with its coordinates and its well-known binary form."""
    x, y = (float(part) for part in value.strip(b"()").split(b","))
    coded = base64.b64encode(struct.pack("<BIdd", 1, 1, x, y))
    return b'{"x":%b,"y":%b,"wkb":"%b","srid":null}' % (_encode(x), _encode(y), coded)


def hstore(value: bytes) -> bytes:
    """An hstore value as a string that contains a JSON object."""
    pairs = re.findall(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)', value.decode())
    plain = {_unescaped(key): _unescaped(word) for key, word in pairs}
    nulls = re.findall(r'"((?:[^"\\]|\\.)*)"=>NULL', value.decode())
    whole: dict[str, str | None] = {**plain, **dict.fromkeys(map(_unescaped, nulls))}
    return _encode(_encode(whole).decode())


def _unescaped(word: str) -> str:
    return re.sub(r"\\(.)", r"\1", word)


def array(value: bytes, element: Convert) -> bytes:
    """An array of any depth."""
    start = value.index(b"{")  # dimensions may precede it: [2:3]={1,2}
    items, _ = _items(value, start + 1, element)
    return items


def _items(value: bytes, at: int, element: Convert) -> tuple[bytes, int]:
    found: list[bytes] = []
    while True:
        head = value[at : at + 1]
        if head == b"{":
            inner, at = _items(value, at + 1, element)
            found.append(inner)
        elif head == b'"':
            until = at + 1
            while value[until : until + 1] != b'"':
                until += 2 if value[until : until + 1] == b"\\" else 1
            bare = re.sub(rb"\\(.)", rb"\1", value[at + 1 : until], flags=re.DOTALL)
            found.append(element(bare))
            at = until + 1
        elif head not in {b"}", b","}:
            until = at
            while value[until : until + 1] not in {b",", b"}"}:
                until += 1
            word = value[at:until]
            found.append(NULL if word.upper() == b"NULL" else element(word))
            at = until
        if value[at : at + 1] == b"}":
            return b"[%b]" % b",".join(found), at + 1
        at += 1


def _far_day(value: bytes) -> int:
    """Days since 1970 of a date that is out of Python's range."""
    found = re.fullmatch(rb"(\d+)-(\d\d)-(\d\d)( BC)?", value)
    if found is None:
        raise ValueError(f"{value!r} is not a date")
    year = int(found[1]) if found[4] is None else 1 - int(found[1])
    # 400 years have 146097 days: shift into Python's range and back.
    cycles = (year - 2000) // 400
    near = date(year - cycles * 400, int(found[2]), int(found[3]))
    return near.toordinal() - _EPOCH_DAY + cycles * 146_097


def converter(info: TypeInfo, config: PostgresCdcConfig) -> Convert:
    """The converter of a type's values to JSON."""
    if info.element is not None:
        return partial(array, element=converter(info.element, config))
    family = _FAMILIES.get(info.name)
    return text if family is None else family(info, config)


def _decimal(info: TypeInfo, config: PostgresCdcConfig) -> Convert:
    if config.decimal_mode == "double":
        return floating
    if config.decimal_mode == "string":
        return decimal_text
    return partial(decimal_precise, scale=numeric_digits(info)[1])


def numeric_digits(info: TypeInfo) -> tuple[int, int | None]:
    """Precision and scale of a numeric column; the scale is None if the column has none."""
    if info.modifier < 4:
        return 0, None
    packed = info.modifier - 4
    # The scale has eleven bits and a sign since PostgreSQL 15: numeric(3, -2) rounds to hundreds.
    return packed >> 16, ((packed & 0x7FF) ^ 0x400) - 0x400


def _money(info: TypeInfo, config: PostgresCdcConfig) -> Convert:
    in_cents = TypeInfo("numeric", modifier=4 + 2)
    written = _decimal(in_cents, config)
    del info
    return lambda value: written(money(value).encode())


def _binary(info: TypeInfo, config: PostgresCdcConfig) -> Convert:
    if info.name == "bytea":
        return partial(bytea, mode=config.binary_mode)
    if info.name == "bit" and info.modifier in {1, -1}:
        return lambda value: b"true" if value == b"1" else b"false"
    return bits


def _interval(info: TypeInfo, config: PostgresCdcConfig) -> Convert:
    del info
    return interval_us if config.interval_mode == "numeric" else interval_text


def _digits(info: TypeInfo) -> int:
    return info.modifier if 0 <= info.modifier <= 6 else 6


def _unit_us(info: TypeInfo, config: PostgresCdcConfig) -> int:
    if config.time_mode == "connect":
        return 1000
    if config.time_mode == "adaptive_time_microseconds" and info.name == "time":
        return 1
    return 1000 if _digits(info) <= 3 else 1


def has_millis(info: TypeInfo, config: PostgresCdcConfig) -> bool:
    """Whether a time or timestamp is written in milliseconds rather than microseconds."""
    return _unit_us(info, config) == 1000


def _date(info: TypeInfo, config: PostgresCdcConfig) -> Convert:
    del info
    return iso_date if config.time_mode == "isostring" else days


def _time(info: TypeInfo, config: PostgresCdcConfig) -> Convert:
    if config.time_mode == "isostring":
        return _with_z
    return partial(time_of_day, unit_us=_unit_us(info, config))


def _timestamp(info: TypeInfo, config: PostgresCdcConfig) -> Convert:
    if config.time_mode == "isostring":
        return unzoned
    return partial(timestamp, unit_us=_unit_us(info, config))


def _with_z(value: bytes) -> bytes:
    return b'"%bZ"' % value


Family = Callable[[TypeInfo, PostgresCdcConfig], Convert]


def _always(convert: Convert) -> Family:
    return lambda info, config: convert


_FAMILIES: Final[dict[str, Family]] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid"), _always(as_is)),
    **dict.fromkeys(("float4", "float8"), _always(floating)),
    **dict.fromkeys(("bytea", "bit", "varbit"), _binary),
    "bool": _always(boolean),
    "numeric": _decimal,
    "money": _money,
    "date": _date,
    "time": _time,
    "timetz": _always(zoned_time),
    "timestamp": _timestamp,
    "timestamptz": lambda info, config: partial(zoned, digits=_digits(info)),
    "interval": _interval,
    "point": _always(point),
    "hstore": _always(hstore),
}
