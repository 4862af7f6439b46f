"""Metrics as clients push them: the part of OpenTelemetry's protobuf messages that they use.

    MetricsData ▸ ResourceMetrics ▸ ScopeMetrics ▸ Metric ▸ Gauge, Sum or Histogram ▸ points

Pure. Unknown fields are skipped, damaged ones raise ``Corrupt``, and the numbers of points and of
fields are limited, so that a small message causes neither a large answer nor much work.
"""

from collections.abc import Iterator
from struct import Struct as Layout
from typing import Final

from msgspec import Struct

from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest

TEXT_LENGTH_MAX: Final = 300
ATTRIBUTES_MAX: Final = 32
"""Of one point; more are dropped."""
FIELDS_MAX: Final = 200_000
"""Fields read of one message: a megabyte of the smallest fields would keep a node busy."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}
_VARINT_BYTES_MAX = 10
_double = Layout("<d").unpack_from
_long = Layout("<q").unpack_from
_unsigned = Layout("<Q").unpack_from

Value = str | float | bool
Field = tuple[
    int, int, int, int
]  # number, wire type, start, until; of a varint: its value at start


class MetricPoint(Struct, frozen=True, omit_defaults=True):
    """One measured value. A histogram has the number and the sum of its values."""

    name: str
    kind: str  # "gauge", "sum" or "histogram"
    value: float
    count: int | None = None
    time_ms: int = 0
    attributes: dict[str, Value] = {}


class PushedMetrics(Struct, frozen=True):
    """The content of one push."""

    resource: dict[str, Value]
    points: list[MetricPoint]


class _Message:
    """The bytes of a whole message, and how many of its fields may still be read."""

    __slots__ = ("_fields_left", "_view")

    def __init__(self, data: bytes, fields_max: int) -> None:
        self._view = memoryview(data)
        self._fields_left = fields_max

    def fields(self, start: int, until: int) -> Iterator[Field]:
        """Every field of the part in [start, until)."""
        view = self._view
        while start < until:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise InvalidRequest(ErrorCode.TELEMETRY_TOO_LARGE, "too many fields in one push")
            tag, start = _varint(view, start, until)
            number, wire = tag >> 3, tag & 7
            if wire == _VARINT:
                value, start = _varint(view, start, until)
                yield number, wire, value, start
                continue
            if wire == _BYTES:
                size, start = _varint(view, start, until)
            elif wire in _SIZES:
                size = _SIZES[wire]
            else:
                raise Corrupt(f"metrics: a field of wire type {wire}")
            end = start + size
            if end > until:
                raise Corrupt("metrics: a field is longer than its message")
            yield number, wire, start, end
            start = end

    def parts(self, start: int, until: int, wanted: int) -> Iterator[tuple[int, int]]:
        """Where the messages under one field number are."""
        for number, wire, first, last in self.fields(start, until):
            if number == wanted and wire == _BYTES:
                yield first, last

    def text(self, start: int, until: int) -> str:
        """A text, cut where it is too long."""
        try:
            return str(self._view[start:until], "utf-8")[:TEXT_LENGTH_MAX]
        except UnicodeDecodeError:
            raise Corrupt("metrics: a text is not UTF-8") from None

    def double(self, start: int) -> float:
        """A floating-point number of 8 bytes."""
        return float(_double(self._view, start)[0])

    def signed(self, start: int) -> int:
        """A number of 8 bytes that may be negative."""
        return int(_long(self._view, start)[0])

    def unsigned(self, start: int) -> int:
        """A number of 8 bytes that is not."""
        return int(_unsigned(self._view, start)[0])


def decode_metrics(data: bytes, *, points_max: int, fields_max: int = FIELDS_MAX) -> PushedMetrics:
    """The points in a ``MetricsData``.

    Raises:
        Corrupt: it is malformed.
        InvalidRequest: there are more points or fields than that.
    """
    message = _Message(data, fields_max)
    resource: dict[str, Value] = {}
    points: list[MetricPoint] = []
    for of_resource in message.parts(0, len(data), 1):
        for part in message.parts(*of_resource, 1):
            resource.update(_attributes(message, *part, 1))
        for scope in message.parts(*of_resource, 2):
            for metric in message.parts(*scope, 2):
                points += _metric(message, *metric)
                if len(points) > points_max:
                    raise InvalidRequest(
                        ErrorCode.TELEMETRY_TOO_LARGE, f"more than {points_max} points in one push"
                    )
    return PushedMetrics(resource, points)


_KINDS = {5: "gauge", 7: "sum", 9: "histogram"}


def _metric(message: _Message, start: int, until: int) -> Iterator[MetricPoint]:
    name = ""
    points: list[tuple[str, int, int]] = []
    for number, wire, first, last in message.fields(start, until):
        if number == 1 and wire == _BYTES:
            name = message.text(first, last)
        elif number in _KINDS and wire == _BYTES:
            points += [(_KINDS[number], *point) for point in message.parts(first, last, 1)]
    for kind, first, last in points:
        if kind == "histogram":
            yield _histogram(message, name, first, last)
        else:
            yield _number(message, name, kind, (first, last))


def _number(message: _Message, name: str, kind: str, at: tuple[int, int]) -> MetricPoint:
    value, time_ms = 0.0, 0
    for number, wire, first, _ in message.fields(*at):
        if wire != _FIXED64:
            continue
        if number == 3:
            time_ms = message.unsigned(first) // 1_000_000
        elif number == 4:
            value = message.double(first)
        elif number == 6:
            value = message.signed(first)
    return MetricPoint(name, kind, value, None, time_ms, _attributes(message, *at, 7))


def _histogram(message: _Message, name: str, start: int, until: int) -> MetricPoint:
    total, count, time_ms = 0.0, 0, 0
    for number, wire, first, _ in message.fields(start, until):
        if wire != _FIXED64:
            continue
        if number == 3:
            time_ms = message.unsigned(first) // 1_000_000
        elif number == 4:
            count = message.unsigned(first)
        elif number == 5:
            total = message.double(first)
    attributes = _attributes(message, start, until, 9)
    return MetricPoint(name, "histogram", total, count, time_ms, attributes)


def _attributes(message: _Message, start: int, until: int, wanted: int) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for first, last in message.parts(start, until, wanted):
        if len(found) >= ATTRIBUTES_MAX:
            break
        key, value = "", None
        for number, wire, begin, end in message.fields(first, last):
            if wire == _BYTES and number == 1:
                key = message.text(begin, end)
            elif wire == _BYTES and number == 2:
                value = _any_value(message, begin, end)
        if value is not None:
            found[key] = value
    return found


def _any_value(message: _Message, start: int, until: int) -> Value | None:
    """A text, truth value or number; lists and maps are not used by clients."""
    for number, wire, first, last in message.fields(start, until):
        if number == 1 and wire == _BYTES:
            return message.text(first, last)
        if number == 2 and wire == _VARINT:
            return bool(first)
        if number == 3 and wire == _VARINT:
            return first - (1 << 64) if first >> 63 else first
        if number == 4 and wire == _FIXED64:
            return message.double(first)
    return None


def _varint(view: memoryview, start: int, until: int) -> tuple[int, int]:
    value = 0
    for at in range(start, min(until, start + _VARINT_BYTES_MAX)):
        byte = view[at]
        value |= (byte & 0x7F) << (7 * (at - start))
        if byte < 0x80:
            return value & (1 << 64) - 1, at + 1
    raise Corrupt("metrics: a number does not end")
