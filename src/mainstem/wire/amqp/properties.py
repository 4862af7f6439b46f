"""Content properties: a word of flags, then the values of the flags that are set.

The encoded properties of a message are kept; they are decoded only where their values are needed.
"""

import struct
from typing import Any, Final

from msgspec import Struct

from mainstem.wire.amqp.fields import (
    Buffer,
    Malformed,
    Timestamp,
    read_encoded_table,
    read_short_text,
    read_table,
    short_text,
    table_bytes,
)

_U16 = struct.Struct(">H")
_U64 = struct.Struct(">Q")


class Properties(Struct, kw_only=True):
    """The properties of a message; None where a property is absent."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: dict[str, Any] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: Timestamp | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


# The first field has the highest bit; the lowest bit means that another word follows.
_FIELDS: Final = tuple(
    (1 << 15 - place, name) for place, name in enumerate(Properties.__struct_fields__)
)
_KNOWN: Final = sum(bit for bit, _ in _FIELDS)
_OCTETS: Final = frozenset({"delivery_mode", "priority"})
EMPTY: Final = b"\x00\x00"


def decode_properties(
    buf: Buffer, start: int, until: int, *, headers_encoded: bool = False
) -> Properties:
    """The properties in ``buf[start:until]``.

    With ``headers_encoded`` the values of the headers stay encoded, for callers that write the
    properties again: numbers keep the types that clients gave them.

    Raises:
        Malformed: the bytes are not properties.
    """
    if until - start < 2:
        raise Malformed("a content without property flags")
    (flags,) = _U16.unpack_from(buf, start)
    if flags & ~_KNOWN:
        raise Malformed(f"unknown property flags {flags:#06x}")
    found = Properties()
    at = start + 2
    for bit, name in _FIELDS:
        if flags & bit:
            if name == "headers" and headers_encoded:
                value, at = read_encoded_table(buf, at, until)
            else:
                value, at = _read(name, buf, at, until)
            setattr(found, name, value)
    if at != until:
        raise Malformed(f"{until - at} extra bytes after the properties")
    return found


def _read(name: str, buf: Buffer, at: int, until: int) -> tuple[Any, int]:
    if name == "headers":
        return read_table(buf, at, until)
    if name == "timestamp":
        if at + 8 > until:
            raise Malformed("a content ends within its timestamp")
        return Timestamp(_U64.unpack_from(buf, at)[0]), at + 8
    if name in _OCTETS:
        if at >= until:
            raise Malformed(f"a content ends before its {name}")
        return buf[at], at + 1
    return read_short_text(buf, at, until)


def encode_properties(properties: Properties) -> bytes:
    """The properties as bytes.

    Raises:
        Malformed: a value does not fit.
    """
    flags = 0
    parts = []
    for bit, name in _FIELDS:
        value = getattr(properties, name)
        if value is not None:
            flags |= bit
            parts.append(_written(name, value))
    return _U16.pack(flags) + b"".join(parts)


def _written(name: str, value: Any) -> bytes:
    try:
        if name == "headers":
            return table_bytes(value)
        if name == "timestamp":
            return _U64.pack(value)
        if name in _OCTETS:
            return bytes((value,))
    except (struct.error, ValueError):
        raise Malformed(f"{name} cannot be {value}") from None
    return short_text(value)
