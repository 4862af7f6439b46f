"""Avro types for the values of events: each has its schema and writes the JSON value in Avro. Pure.

Events are made as JSON. A kind takes a value as JSON has it (bytes as base64, for instance) and
gives Avro's bytes, so that both formats cannot tell different things. Where a column can hold more
than its type, such as the placeholder of a large value that was left as it was, it has a branch of
text for it.
"""

import base64
import re
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

Schema = Any
"""A schema as JSON has it: a name, a list of branches, or an object."""

_DOUBLE: Final = struct.Struct("<d")
_FLOAT: Final = struct.Struct("<f")
_LONG_SPAN: Final = 1 << 64
_LONG_MAX: Final = (1 << 63) - 1
_FLOAT_MAX: Final = 3.4028234663852886e38
# Moments and places are the same for many events in a row, names for all of them.
CACHED_MAX: Final = 4_096
DECIMAL_DIGITS_MAX: Final = 76  # of a fixed number of bytes; 32 of them
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_]")


class Kind(Struct, frozen=True):
    """A type: ``encode`` writes one value that is not null."""

    schema: Schema
    encode: Callable[[Any], bytes]


def safe_name(name: str) -> str:
    """A name that Avro takes: letters, digits and underscores, no digit first."""
    safe = _UNSAFE.sub("_", name)
    return f"_{safe}" if not safe or safe[0].isdigit() else safe


@lru_cache(maxsize=CACHED_MAX)
def long(value: int) -> bytes:
    """A whole number, the small ones in few bytes; beyond 63 bits it is told as negative."""
    if value > _LONG_MAX:
        value -= _LONG_SPAN
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def string(value: Any) -> bytes:
    """Text; what JSON has as something else is told as JSON."""
    raw = value.encode() if isinstance(value, str) else msgspec.json.encode(value)
    return long(len(raw)) + raw


def _sized(raw: bytes) -> bytes:
    return long(len(raw)) + raw


def _double(value: float | str) -> bytes:
    return _DOUBLE.pack(float(value))


def _float(value: float | str) -> bytes:
    number = float(value)
    # A number between the largest of 32 bits and infinity, as JSON rounds it.
    if _FLOAT_MAX < abs(number) < float("inf"):
        number = _FLOAT_MAX if number > 0 else -_FLOAT_MAX
    return _FLOAT.pack(number)


def _boolean(value: bool) -> bytes:  # noqa: FBT001
    return b"\1" if value else b"\0"


STRING: Final = Kind("string", string)
NAME: Final = Kind("string", lru_cache(maxsize=CACHED_MAX)(string))
LONG: Final = Kind("long", long)
INT: Final = Kind("int", long)
DOUBLE: Final = Kind("double", _double)
FLOAT: Final = Kind("float", _float)
BOOLEAN: Final = Kind("boolean", _boolean)


def annotated(kind: Kind, meaning: str) -> Kind:
    """A type with a hint of what its numbers count, in the words that Debezium uses."""
    return Kind({"type": kind.schema, "connect.name": meaning}, kind.encode)


def binary(mode: str) -> Kind:
    """Bytes that JSON has as text of one of the binary modes."""
    if mode == "hex":
        return Kind("bytes", lambda value: _sized(bytes.fromhex(value)))
    if mode == "base64-url-safe":
        return Kind("bytes", lambda value: _sized(base64.urlsafe_b64decode(value)))
    return Kind("bytes", lambda value: _sized(base64.b64decode(value)))


def decimal(precision: int, scale: int) -> Kind:
    """A decimal that JSON has as base64 of its unscaled bytes.

    A fixed type whose name tells precision and scale: fingerprints leave out all else, and a column
    whose scale was changed must not have the fingerprint that it had.
    """
    size = (10**precision).bit_length() // 8 + 1
    schema = {
        "type": "fixed",
        "name": f"mainstem.cdc.decimal_{precision}_{scale}",
        "size": size,
        "logicalType": "decimal",
        "precision": precision,
        "scale": scale,
    }

    def encode(value: str) -> bytes:
        number = int.from_bytes(base64.b64decode(value), "big", signed=True)
        return number.to_bytes(size, "big", signed=True)

    return Kind(schema, encode)


def record(name: str, fields: Sequence[tuple[str, Kind]]) -> Kind:
    """An object; fields whose names Avro does not take are renamed, and say what they were."""
    listed: list[dict[str, Schema]] = []
    taken: set[str] = set()
    for label, kind in fields:
        safe = safe_name(label)
        while safe in taken:
            safe += "_"
        taken.add(safe)
        field: dict[str, Schema] = {"name": safe, "type": kind.schema}
        if isinstance(kind.schema, list) and kind.schema[0] == "null":
            field["default"] = None
        if safe != label:
            field["column"] = label
        listed.append(field)
    parts = tuple((label, kind.encode) for label, kind in fields)

    def encode(value: dict[str, Any]) -> bytes:
        get = value.get
        return b"".join([write(get(label)) for label, write in parts])

    return Kind({"type": "record", "name": name, "fields": listed}, encode)


def array(element: Kind) -> Kind:
    """An array of one dimension, whose elements may be null."""
    write = optional(element).encode

    def encode(values: list[Any]) -> bytes:
        if not values:
            return b"\0"
        return long(len(values)) + b"".join(map(write, values)) + b"\0"

    return Kind({"type": "array", "items": ["null", element.schema]}, encode)


def optional(kind: Kind) -> Kind:
    """A value or null."""
    write = kind.encode
    return Kind(
        ["null", kind.schema], lambda value: b"\0" if value is None else b"\2" + write(value)
    )


def column(kind: Kind, *, placeholder: str, may_be_text: bool) -> Kind:
    """The value of a column. Without a branch of text, a placeholder is told as null."""
    if kind.schema == "string":
        return optional(kind)
    write, fits = kind.encode, _fits(kind.schema)

    def encode(value: Any) -> bytes:
        if value is None:
            return b"\0"
        if value == placeholder or not fits(value):
            return b"\4" + string(value) if may_be_text else b"\0"
        return b"\2" + write(value)

    branches = ["null", kind.schema]
    return Kind([*branches, "string"] if may_be_text else branches, encode)


def _fits(schema: Schema) -> Callable[[Any], bool]:
    """Whether a value can be of a type, as far as columns hold values that cannot."""
    bare = schema.get("type") if isinstance(schema, dict) else schema
    if bare in {"int", "long"}:
        return lambda value: isinstance(value, int)
    if bare == "array":
        return lambda value: not any(isinstance(each, list) for each in value)
    return lambda value: True
