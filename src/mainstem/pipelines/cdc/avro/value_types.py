"""Avro types for the values of events: each has a schema and encodes JSON values in Avro. Pure.

Events are created as JSON. A type takes a value in its JSON representation (bytes as base64, for
example) and returns Avro's bytes, so both formats always have the same content. Where a column can
hold more than its type, such as the placeholder of an unchanged large value, it has a string branch
for it.
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
"""A schema in JSON: a name, a list of branches, or an object."""

_DOUBLE: Final = struct.Struct("<d")
_FLOAT: Final = struct.Struct("<f")
_LONG_SPAN: Final = 1 << 64
_LONG_MAX: Final = (1 << 63) - 1
_FLOAT_MAX: Final = 3.4028234663852886e38
# Timestamps and log positions repeat in consecutive events, names in all events.
CACHED_MAX: Final = 4_096
DECIMAL_DIGITS_MAX: Final = 76  # of a fixed number of bytes; 32 of them
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_]")


class AvroType(Struct, frozen=True):
    """An Avro type: ``encode`` encodes one value that is not null."""

    schema: Schema
    encode: Callable[[Any], bytes]


def safe_name(name: str) -> str:
    """A valid Avro name: letters, digits and underscores, no digit first."""
    safe = _UNSAFE.sub("_", name)
    return f"_{safe}" if not safe or safe[0].isdigit() else safe


@lru_cache(maxsize=CACHED_MAX)
def long(value: int) -> bytes:
    """An integer as zig-zag varint; values beyond 63 bits wrap to negative ones."""
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
    """A string; values of other JSON types are written as their JSON text."""
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


STRING: Final = AvroType("string", string)
NAME: Final = AvroType("string", lru_cache(maxsize=CACHED_MAX)(string))
LONG: Final = AvroType("long", long)
INT: Final = AvroType("int", long)
DOUBLE: Final = AvroType("double", _double)
FLOAT: Final = AvroType("float", _float)
BOOLEAN: Final = AvroType("boolean", _boolean)


def annotated(kind: AvroType, meaning: str) -> AvroType:
    """A type with a semantic name as ``connect.name``, as in Debezium."""
    return AvroType({"type": kind.schema, "connect.name": meaning}, kind.encode)


def binary(mode: str) -> AvroType:
    """Bytes whose JSON representation is text of one of the binary modes."""
    if mode == "hex":
        return AvroType("bytes", lambda value: _sized(bytes.fromhex(value)))
    if mode == "base64-url-safe":
        return AvroType("bytes", lambda value: _sized(base64.urlsafe_b64decode(value)))
    return AvroType("bytes", lambda value: _sized(base64.b64decode(value)))


def decimal(precision: int, scale: int) -> AvroType:
    """A decimal whose JSON representation is base64 of its unscaled bytes.

    A fixed type whose name contains precision and scale: fingerprints cover nothing else of them,
    and a column whose scale was changed must get another fingerprint.
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

    return AvroType(schema, encode)


def record(name: str, fields: Sequence[tuple[str, AvroType]]) -> AvroType:
    """A record; fields whose names are invalid in Avro are renamed and keep the original name."""
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

    return AvroType({"type": "record", "name": name, "fields": listed}, encode)


def array(element: AvroType) -> AvroType:
    """An array of one dimension, whose elements may be null."""
    write = optional(element).encode

    def encode(values: list[Any]) -> bytes:
        if not values:
            return b"\0"
        return long(len(values)) + b"".join(map(write, values)) + b"\0"

    return AvroType({"type": "array", "items": ["null", element.schema]}, encode)


def optional(kind: AvroType) -> AvroType:
    """A value or null."""
    write = kind.encode
    return AvroType(
        ["null", kind.schema], lambda value: b"\0" if value is None else b"\2" + write(value)
    )


def column(kind: AvroType, *, placeholder: str, may_be_text: bool) -> AvroType:
    """The value of a column. Without a string branch, a placeholder is written as null."""
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
    return AvroType([*branches, "string"] if may_be_text else branches, encode)


def _fits(schema: Schema) -> Callable[[Any], bool]:
    """Whether a value can be of a type, as far as columns can hold other values."""
    bare = schema.get("type") if isinstance(schema, dict) else schema
    if bare in {"int", "long"}:
        return lambda value: isinstance(value, int)
    if bare == "array":
        return lambda value: not any(isinstance(each, list) for each in value)
    return lambda value: True
