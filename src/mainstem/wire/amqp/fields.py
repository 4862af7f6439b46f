"""The values that AMQP 0.9.1 puts into methods, properties and field tables.

Tables are read with every type that RabbitMQ supports and written with the smallest one that
RabbitMQ and its clients agree on. Reading is bounded: by the bytes received, and by ``DEPTH_MAX``
for nested tables. Invalid input raises ``Malformed``, nothing else.

| tag | value | tag | value |
|---|---|---|---|
| t | flag | S | text; bytes if not UTF-8 |
| b B s u I i l L | numbers of 8, 16, 32, 64 bits | x | bytes |
| f d | floats | T | ``Timestamp``, seconds since 1970 |
| D | decimal | A F V | list, table, nothing |
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

DEPTH_MAX: Final = 32
SHORT_TEXT_BYTES_MAX: Final = 255

Buffer = bytes | bytearray | memoryview
Table = dict[str, Any]


class Malformed(Exception):
    """Bytes that are not AMQP, or a value that AMQP cannot carry."""


class Timestamp(int):
    """Seconds since 1970; a type of its own, so that it is written as it was read."""


class Long(int):
    """A number that is written with 64 bits, however small: clients cast it to their long type."""


class Encoded(bytes):
    """The raw bytes of a table value, with its type, so that it is written unchanged."""


_I8 = struct.Struct(">b")
_U16 = struct.Struct(">H")
_I16 = struct.Struct(">h")
_U32 = struct.Struct(">I")
_I32 = struct.Struct(">i")
_U64 = struct.Struct(">Q")
_I64 = struct.Struct(">q")
_F32 = struct.Struct(">f")
_F64 = struct.Struct(">d")

Read = tuple[Any, int]  # a value and where the next one starts


def read_short_text(buf: Buffer, at: int, until: int) -> tuple[str, int]:
    """Up to 255 bytes of UTF-8."""
    if at >= until:
        raise Malformed("a short string is missing")
    end = at + 1 + buf[at]
    if end > until:
        raise Malformed("a short string is longer than its frame")
    try:
        return str(buf[at + 1 : end], "utf-8"), end
    except UnicodeDecodeError:
        raise Malformed("a short string is not UTF-8") from None


def read_long_bytes(buf: Buffer, at: int, until: int) -> tuple[bytes, int]:
    """Bytes with a length of 32 bits before them."""
    if at + 4 > until:
        raise Malformed("a long string is missing")
    end = at + 4 + _U32.unpack_from(buf, at)[0]
    if end > until:
        raise Malformed("a long string is longer than its frame")
    return bytes(buf[at + 4 : end]), end


def read_table(buf: Buffer, at: int, until: int, depth: int = 0) -> tuple[Table, int]:
    """A field table; the last value of a repeated name is used."""
    at, end = _span(buf, at, until, depth)
    table: Table = {}
    while at < end:
        name, at = read_short_text(buf, at, end)
        table[name], at = _read_value(buf, at, end, depth)
    return table, end


def read_encoded_table(buf: Buffer, at: int, until: int) -> tuple[dict[str, Encoded], int]:
    """A field table whose values stay encoded."""
    at, end = _span(buf, at, until, 0)
    table: dict[str, Encoded] = {}
    while at < end:
        name, at = read_short_text(buf, at, end)
        _, after = _read_value(buf, at, end, 0)
        table[name] = Encoded(buf[at:after])
        at = after
    return table, end


def _read_array(buf: Buffer, at: int, until: int, depth: int) -> Read:
    at, end = _span(buf, at, until, depth)
    values = []
    while at < end:
        value, at = _read_value(buf, at, end, depth)
        values.append(value)
    return values, end


def _span(buf: Buffer, at: int, until: int, depth: int) -> tuple[int, int]:
    if depth > DEPTH_MAX:
        raise Malformed(f"tables are nested more than {DEPTH_MAX} deep")
    if at + 4 > until:
        raise Malformed("a table is missing")
    end = at + 4 + _U32.unpack_from(buf, at)[0]
    if end > until:
        raise Malformed("a table is longer than its frame")
    return at + 4, end


def _read_value(buf: Buffer, at: int, until: int, depth: int) -> Read:
    if at >= until:
        raise Malformed("a field has no type")
    number = _NUMBERS.get(buf[at])
    if number is not None:
        if at + 1 + number.size > until:
            raise Malformed("a field is longer than its table")
        return number.unpack_from(buf, at + 1)[0], at + 1 + number.size
    read = _READERS.get(buf[at])
    if read is None:
        raise Malformed(f"unknown field type {buf[at]}")
    return read(buf, at + 1, until, depth + 1)


def _read_text(buf: Buffer, at: int, until: int, _: int) -> Read:
    found, at = read_long_bytes(buf, at, until)
    try:
        return found.decode(), at
    except UnicodeDecodeError:
        return found, at


def _read_flag(buf: Buffer, at: int, until: int, _: int) -> Read:
    if at >= until:
        raise Malformed("a flag is missing")
    return buf[at] != 0, at + 1


def _read_timestamp(buf: Buffer, at: int, until: int, _: int) -> Read:
    if at + 8 > until:
        raise Malformed("a timestamp is missing")
    return Timestamp(_U64.unpack_from(buf, at)[0]), at + 8


def _read_decimal(buf: Buffer, at: int, until: int, _: int) -> Read:
    if at + 5 > until:
        raise Malformed("a decimal is missing")
    return Decimal(_I32.unpack_from(buf, at + 1)[0]).scaleb(-buf[at]), at + 5


_NUMBERS: Final = {
    ord("b"): _I8,
    ord("B"): struct.Struct(">B"),
    ord("s"): _I16,
    ord("u"): _U16,
    ord("I"): _I32,
    ord("i"): _U32,
    ord("l"): _I64,
    ord("L"): _I64,
    ord("f"): _F32,
    ord("d"): _F64,
}
_READERS: Final[dict[int, Callable[[Buffer, int, int, int], Read]]] = {
    ord("S"): _read_text,
    ord("t"): _read_flag,
    ord("T"): _read_timestamp,
    ord("F"): read_table,
    ord("A"): _read_array,
    ord("D"): _read_decimal,
    ord("x"): lambda buf, at, until, _: read_long_bytes(buf, at, until),
    ord("V"): lambda _buf, at, _until, _depth: (None, at),
}


def short_text(text: str) -> bytes:
    """Text of up to 255 bytes with its length."""
    raw = text.encode()
    if len(raw) > SHORT_TEXT_BYTES_MAX:
        raise Malformed(f"{len(raw)} bytes exceed AMQP's limit of {SHORT_TEXT_BYTES_MAX}")
    return bytes((len(raw),)) + raw


def long_bytes(data: bytes) -> bytes:
    """Bytes with their length."""
    return _U32.pack(len(data)) + data


def table_bytes(table: Mapping[str, Any], depth: int = 0) -> bytes:
    """A field table as bytes.

    Raises:
        Malformed: AMQP does not have the type of a value, or a value is too large.
    """
    if depth > DEPTH_MAX:
        raise Malformed(f"tables are nested more than {DEPTH_MAX} deep")
    parts: list[bytes] = []
    for name, value in table.items():
        parts += (short_text(name), _value_bytes(value, depth))
    return long_bytes(b"".join(parts))


def _value_bytes(value: Any, depth: int) -> bytes:
    write = _WRITERS.get(type(value))
    if write is not None:
        return write(value)
    if depth > DEPTH_MAX:
        raise Malformed(f"tables are nested more than {DEPTH_MAX} deep")
    if isinstance(value, Mapping):
        return b"F" + table_bytes(value, depth + 1)
    if isinstance(value, Sequence):
        return b"A" + long_bytes(b"".join(_value_bytes(each, depth + 1) for each in value))
    raise Malformed(f"AMQP has no type for {type(value).__name__}")


def _int_bytes(value: int) -> bytes:
    try:
        if -(2**31) <= value < 2**31:
            return b"I" + _I32.pack(value)
        return b"l" + _I64.pack(value)
    except struct.error:
        raise Malformed(f"{value} is too large for AMQP") from None


def _timestamp_bytes(value: int) -> bytes:
    try:
        return b"T" + _U64.pack(value)
    except struct.error:
        raise Malformed(f"{value} is not a valid time") from None


def _decimal_bytes(value: Decimal) -> bytes:
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise Malformed(f"{value} is not a valid number")
    scale = max(0, -exponent)
    try:
        return b"D" + bytes((scale,)) + _I32.pack(int(value.scaleb(scale)))
    except (struct.error, ValueError, InvalidOperation):
        raise Malformed(f"{value} is too long for AMQP") from None


_WRITERS: Final[dict[type, Callable[[Any], bytes]]] = {
    str: lambda value: b"S" + long_bytes(value.encode()),
    bytes: lambda value: b"x" + long_bytes(value),
    bool: lambda value: b"t\x01" if value else b"t\x00",
    int: _int_bytes,
    float: lambda value: b"d" + _F64.pack(value),
    type(None): lambda _: b"V",
    Timestamp: _timestamp_bytes,
    Long: lambda value: b"l" + _I64.pack(value),
    Encoded: bytes,
    Decimal: _decimal_bytes,
}
