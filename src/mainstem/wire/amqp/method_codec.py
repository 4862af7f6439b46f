"""Methods to bytes and back, by plans made from the annotations of their classes.

A payload is a class and a number of 16 bits each, then the fields. Unknown flags of a byte are
ignored; bytes after the last field are an error.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, get_type_hints

from mainstem.wire.amqp import basic_methods, connection_methods, entity_methods
from mainstem.wire.amqp.fields import (
    Buffer,
    Malformed,
    long_bytes,
    read_long_bytes,
    read_short_text,
    read_table,
    short_text,
    table_bytes,
)
from mainstem.wire.amqp.method import Method

_ID = struct.Struct(">HH")
_BIT: Final = "bit"
_LAYOUTS: Final = {
    "octet": struct.Struct(">B"),
    "short": struct.Struct(">H"),
    "long": struct.Struct(">I"),
    "longlong": struct.Struct(">Q"),
}
_READERS: Final[dict[str, Callable[[Buffer, int, int], tuple[Any, int]]]] = {
    "shortstr": read_short_text,
    "longstr": read_long_bytes,
    "table": read_table,
}
_WRITERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "shortstr": short_text,
    "longstr": long_bytes,
    "table": table_bytes,
}


class UnknownMethod(Malformed):
    """No method has these numbers."""

    def __init__(self, numbers: tuple[int, int]) -> None:
        super().__init__(f"class {numbers[0]} has no method {numbers[1]}")
        self.numbers = numbers


def _plan(method: type[Method]) -> tuple[tuple[str, str], ...]:
    hints = get_type_hints(method, include_extras=True)
    return tuple((name, hints[name].__metadata__[0]) for name in method.__struct_fields__)


METHODS: Final[dict[tuple[int, int], type[Method]]] = {
    found.ID: found
    for module in (connection_methods, entity_methods, basic_methods)
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, Method) and found is not Method
}
_PLANS: Final = {numbers: _plan(method) for numbers, method in METHODS.items()}


def method_numbers(buf: Buffer, start: int, until: int) -> tuple[int, int]:
    """The class and the number of the method in a payload."""
    if until - start < 4:
        raise Malformed("a method without its numbers")
    found: tuple[int, int] = _ID.unpack_from(buf, start)
    return found


def decode_method(buf: Buffer, start: int, until: int) -> Method:
    """The method in a payload.

    Raises:
        Malformed: the bytes are not a method.
        UnknownMethod: its numbers are unknown.
    """
    numbers = method_numbers(buf, start, until)
    plan = _PLANS.get(numbers)
    if plan is None:
        raise UnknownMethod(numbers)
    fields: dict[str, Any] = {}
    at, bit = start + 4, 0
    for name, kind in plan:
        if kind == _BIT:
            if bit in (0, 8):
                if at >= until:
                    raise Malformed(f"{METHODS[numbers].NAME} ends before {name}")
                flags, bit = buf[at], 0
                at += 1
            fields[name] = bool(flags >> bit & 1)
            bit += 1
            continue
        bit = 0
        fields[name], at = _read(kind, buf, at, until)
    if at != until:
        raise Malformed(f"{until - at} extra bytes after {METHODS[numbers].NAME}")
    return METHODS[numbers](**fields)


def _read(kind: str, buf: Buffer, at: int, until: int) -> tuple[Any, int]:
    layout = _LAYOUTS.get(kind)
    if layout is None:
        return _READERS[kind](buf, at, until)
    if at + layout.size > until:
        raise Malformed("a method ends within a number")
    return layout.unpack_from(buf, at)[0], at + layout.size


def encode_method(method: Method) -> bytes:
    """The payload of a method.

    Raises:
        Malformed: a value does not fit.
    """
    parts = [_ID.pack(*method.ID)]
    flags = bit = 0
    for name, kind in _PLANS[method.ID]:
        value = getattr(method, name)
        if kind == _BIT:
            flags |= bool(value) << bit
            bit += 1
            continue
        if bit:
            parts.append(bytes((flags,)))
            flags = bit = 0
        parts.append(_written(name, kind, value))
    if bit:
        parts.append(bytes((flags,)))
    return b"".join(parts)


def _written(name: str, kind: str, value: Any) -> bytes:
    layout = _LAYOUTS.get(kind)
    if layout is None:
        return _WRITERS[kind](value)
    try:
        return layout.pack(value)
    except struct.error:
        raise Malformed(f"{name} cannot be {value}") from None
