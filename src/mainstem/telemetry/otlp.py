"""Metrics as clients push them: the part of OpenTelemetry's protobuf messages that they use.

    MetricsData ▸ ResourceMetrics ▸ ScopeMetrics ▸ Metric ▸ Gauge, Sum or Histogram ▸ points

Pure. What is unknown is skipped, what is damaged is ``Corrupt``, and no more than the given number
of points is taken, so that a small message cannot become a large answer.
"""

from collections.abc import Iterator
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest

TEXT_LENGTH_MAX: Final = 300
ATTRIBUTES_MAX: Final = 32
"""Of one point; more are dropped."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10
_double = Layout("<d").unpack_from
_long = Layout("<q").unpack_from
_unsigned = Layout("<Q").unpack_from

Value = str | float | bool
Field = tuple[
    int, int, int, int
]  # number, wire type, start, until; of a varint: its value at start


class Point(Struct, frozen=True, omit_defaults=True):
    """One measured value. A histogram has the number and the sum of what it counted."""

    name: str
    kind: str  # "gauge", "sum" or "histogram"
    value: float
    count: int | None = None
    time_ms: int = 0
    attributes: dict[str, Value] = {}


class Pushed(Struct, frozen=True):
    """What one push brought."""

    resource: dict[str, Value]
    points: list[Point]


def decode_metrics(data: bytes, *, points_max: int) -> Pushed:
    """The points in a ``MetricsData``.

    Raises:
        Corrupt: it is none.
        InvalidRequest: there are more points than that.
    """
    view = memoryview(data)
    resource: dict[str, Value] = {}
    points: list[Point] = []
    for of_resource in _parts(view, 0, len(data), 1):
        for part in _parts(view, *of_resource, 1):
            resource.update(_attributes(view, *part, 1))
        for scope in _parts(view, *of_resource, 2):
            for metric in _parts(view, *scope, 2):
                points += _metric(view, *metric)
                if len(points) > points_max:
                    raise InvalidRequest(
                        ErrorCode.TELEMETRY_TOO_LARGE, f"more than {points_max} points in one push"
                    )
    return Pushed(resource, points)


_KINDS = {5: "gauge", 7: "sum", 9: "histogram"}


def _metric(view: memoryview, start: int, until: int) -> Iterator[Point]:
    name = ""
    points: list[tuple[str, int, int]] = []
    for number, wire, first, last in _fields(view, start, until):
        if number == 1 and wire == _BYTES:
            name = _text(view, first, last)
        elif number in _KINDS and wire == _BYTES:
            points += [(_KINDS[number], *point) for point in _parts(view, first, last, 1)]
    for kind, first, last in points:
        yield (
            _histogram(view, name, first, last)
            if kind == "histogram"
            else _number(view, name, kind, (first, last))
        )


def _number(view: memoryview, name: str, kind: str, at: tuple[int, int]) -> Point:
    value, time_ms = 0.0, 0
    for number, wire, first, _ in _fields(view, *at):
        if wire != _FIXED64:
            continue
        if number == 3:
            time_ms = _unsigned(view, first)[0] // 1_000_000
        elif number == 4:
            value = _double(view, first)[0]
        elif number == 6:
            value = _long(view, first)[0]
    return Point(name, kind, value, None, time_ms, _attributes(view, *at, 7))


def _histogram(view: memoryview, name: str, start: int, until: int) -> Point:
    total, count, time_ms = 0.0, 0, 0
    for number, wire, first, _ in _fields(view, start, until):
        if wire != _FIXED64:
            continue
        if number == 3:
            time_ms = _unsigned(view, first)[0] // 1_000_000
        elif number == 4:
            count = _unsigned(view, first)[0]
        elif number == 5:
            total = _double(view, first)[0]
    attributes = _attributes(view, start, until, 9)
    return Point(name, "histogram", total, count, time_ms, attributes)


def _attributes(view: memoryview, start: int, until: int, wanted: int) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for first, last in _parts(view, start, until, wanted):
        if len(found) >= ATTRIBUTES_MAX:
            break
        key, value = "", None
        for number, wire, begin, end in _fields(view, first, last):
            if wire == _BYTES and number == 1:
                key = _text(view, begin, end)
            elif wire == _BYTES and number == 2:
                value = _any_value(view, begin, end)
        if value is not None:
            found[key] = value
    return found


def _any_value(view: memoryview, start: int, until: int) -> Value | None:
    """A text, truth value or number; lists and maps are not used by clients."""
    for number, wire, first, last in _fields(view, start, until):
        if number == 1 and wire == _BYTES:
            return _text(view, first, last)
        if number == 2 and wire == _VARINT:
            return bool(first)
        if number == 3 and wire == _VARINT:
            return first - (1 << 64) if first >> 63 else first
        if number == 4 and wire == _FIXED64:
            return float(_double(view, first)[0])
    return None


def _text(view: memoryview, start: int, until: int) -> str:
    try:
        return str(view[start:until], "utf-8")[:TEXT_LENGTH_MAX]
    except UnicodeDecodeError:
        raise Corrupt("metrics: a text is not UTF-8") from None


def _parts(view: memoryview, start: int, until: int, wanted: int) -> Iterator[tuple[int, int]]:
    """Where the messages under one field number are."""
    for number, wire, first, last in _fields(view, start, until):
        if number == wanted and wire == _BYTES:
            yield first, last


def _fields(view: memoryview, start: int, until: int) -> Iterator[Field]:
    """Every field of a message."""
    while start < until:
        tag, start = _varint(view, start, until)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, start = _varint(view, start, until)
            yield number, wire, value, start
            continue
        if wire == _BYTES:
            size, start = _varint(view, start, until)
        elif wire == _FIXED64:
            size = 8
        elif wire == _FIXED32:
            size = 4
        else:
            raise Corrupt(f"metrics: a field of wire type {wire}")
        end = start + size
        if end > until:
            raise Corrupt("metrics: a field is longer than its message")
        yield number, wire, start, end
        start = end


def _varint(view: memoryview, start: int, until: int) -> tuple[int, int]:
    value = 0
    for at in range(start, min(until, start + _VARINT_BYTES_MAX)):
        byte = view[at]
        value |= (byte & 0x7F) << (7 * (at - start))
        if byte < 0x80:
            return value & (1 << 64) - 1, at + 1
    raise Corrupt("metrics: a number does not end")
