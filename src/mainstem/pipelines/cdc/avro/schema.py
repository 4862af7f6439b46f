"""Avro schemas: their canonical form, their fingerprint, and single-object encoding. Pure.

In single-object encoding a value follows a marker and the fingerprint of its schema:

    C3 01 | 8 bytes of CRC-64-AVRO, little endian | the value
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec import Struct

from mainstem.pipelines.cdc.avro.value_types import AvroType, Schema

MARKER: Final = b"\xc3\x01"
_EMPTY: Final = 0xC15D213AA4D7A795
_KEPT: Final = ("name", "type", "fields", "symbols", "items", "values", "size")
_NAMED: Final = frozenset({"record", "fixed", "enum"})


def _table() -> list[int]:
    found = []
    for number in range(256):
        crc = number
        for _ in range(8):
            crc = (crc >> 1) ^ (_EMPTY & -(crc & 1))
        found.append(crc)
    return found


_CRC: Final = _table()


def fingerprint(canonical: bytes) -> int:
    """CRC-64-AVRO of a schema in its canonical form."""
    crc = _EMPTY
    for byte in canonical:
        crc = (crc >> 8) ^ _CRC[(crc ^ byte) & 0xFF]
    return crc


def canonical_form(schema: Schema) -> bytes:
    """The Parsing Canonical Form; names in these schemas are already full names."""
    return msgspec.json.encode(_bare(schema))


def _bare(schema: Schema) -> Schema:
    if isinstance(schema, list):
        return [_bare(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for name in _KEPT:
        if name == "fields" and name in schema:
            kept[name] = [
                {"name": field["name"], "type": _bare(field["type"])} for field in schema[name]
            ]
        elif name in {"type", "items"} and name in schema:
            kept[name] = _bare(schema[name])
        elif name in schema:
            kept[name] = schema[name]
    return kept["type"] if list(kept) == ["type"] else kept


def named_once(schema: Schema) -> Schema:
    """The same schema with every named type defined at its first occurrence."""
    return _named(schema, set())


def _named(schema: Schema, met: set[str]) -> Schema:
    if isinstance(schema, list):
        return [_named(branch, met) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in _NAMED:
        if schema["name"] in met:
            return schema["name"]
        met.add(schema["name"])
    copy = dict(schema)
    for name in ("type", "items"):
        if name in copy:
            copy[name] = _named(copy[name], met)
    if "fields" in copy:
        copy["fields"] = [{**each, "type": _named(each["type"], met)} for each in copy["fields"]]
    return copy


class TableSchemas(Struct, frozen=True):
    """The schemas of a table's keys, if it has any, and of its events."""

    key: "AvroEncoder | None"
    value: "AvroEncoder"


class AvroEncoder:
    """A schema and its encoder."""

    def __init__(self, kind: AvroType) -> None:
        self._kind = kind

    @cached_property
    def schema(self) -> Schema:
        """The writer's schema."""
        return named_once(self._kind.schema)

    @cached_property
    def fingerprint(self) -> bytes:
        """The single-object header of the schema: marker and fingerprint."""
        return fingerprint(canonical_form(self.schema)).to_bytes(8, "little")

    @cached_property
    def write(self) -> Callable[[Any], bytes]:
        """Encodes a value, in its JSON representation, in single-object encoding."""
        head, encode = MARKER + self.fingerprint, self._kind.encode
        return lambda value: head + encode(value)
