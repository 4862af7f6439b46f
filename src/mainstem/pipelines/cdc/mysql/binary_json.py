"""Decodes MySQL's binary JSON, as in the binary log, to the text that a query returns. Pure.

    document = kind, value        object = count, size, key offsets, value offsets, keys, values

Offsets count from the start of the enclosing object or array. Small numbers and literals are stored
inline, in place of the offset.
"""

import base64
import struct
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from mainstem.model.errors import Corrupt

DEPTH_MAX: Final = 100
"""The nesting limit of MySQL."""
_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY = range(4)
_LITERAL, _INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING = range(4, 13)
_OPAQUE: Final = 15
_LITERALS: Final = (b"null", b"true", b"false")
_NUMBERS: Final = {
    _INT16: struct.Struct("<h"),
    _UINT16: struct.Struct("<H"),
    _INT32: struct.Struct("<i"),
    _UINT32: struct.Struct("<I"),
    _INT64: struct.Struct("<q"),
    _UINT64: struct.Struct("<Q"),
}
_INLINE: Final = frozenset({_LITERAL, _INT16, _UINT16})
_INLINE_LARGE: Final = _INLINE | {_INT32, _UINT32}
_PLAIN_DIGITS_MAX: Final = 15
_DATES, _DECIMAL = {7: "datetime", 10: "date", 11: "time", 12: "datetime"}, 246
Decimals = Callable[[bytes, int, int, int], bytes]


def json_text(document: bytes, decimal: Decimals) -> bytes:
    """The text of a document; ``decimal`` decodes packed decimals.

    Raises:
        Corrupt: it is not a valid document.
    """
    if not document:
        return b"null"
    try:
        return _BinaryJsonReader(document[1:], decimal).text(document[0], 0)
    except (struct.error, IndexError) as error:
        raise Corrupt(f"truncated JSON document: {error}", subject="binlog") from None


class _BinaryJsonReader:
    def __init__(self, data: bytes, decimal: Decimals) -> None:
        self._data = data
        self._decimal = decimal

    def text(self, kind: int, at: int, depth: int = 0) -> bytes:
        if kind <= _LARGE_ARRAY:
            if depth > DEPTH_MAX:
                raise Corrupt("JSON document is nested too deeply", subject="binlog")
            return self._container(kind, at, depth)
        if kind == _LITERAL:
            return _LITERALS[self._data[at]]
        if kind in _NUMBERS:
            (number,) = _NUMBERS[kind].unpack_from(self._data, at)
            return b"%d" % number
        if kind == _DOUBLE:
            (real,) = struct.unpack_from("<d", self._data, at)
            return double_text(real)
        if kind == _STRING:
            return _quoted(self._bytes(at))
        if kind == _OPAQUE:
            return self._opaque(self._data[at], self._bytes(at + 1))
        raise Corrupt(f"unknown kind of JSON value: {kind}", subject="binlog")

    def _container(self, kind: int, at: int, depth: int) -> bytes:
        is_large, is_object = kind in {_LARGE_OBJECT, _LARGE_ARRAY}, kind <= _LARGE_OBJECT
        number = struct.Struct("<I" if is_large else "<H")
        (count,) = number.unpack_from(self._data, at)
        keys = at + 2 * number.size
        values = keys + count * (number.size + 2) * is_object
        texts = self._values(at, values, count, number, depth)
        if not is_object:
            return b"[%b]" % b", ".join(texts)
        named = (
            b"%b: %b" % (_quoted(self._key(at, keys + each * (number.size + 2), number)), text)
            for each, text in enumerate(texts)
        )
        return b"{%b}" % b", ".join(named)

    def _key(self, start: int, entry: int, number: struct.Struct) -> bytes:
        (place,) = number.unpack_from(self._data, entry)
        (size,) = struct.unpack_from("<H", self._data, entry + number.size)
        return self._data[start + place : start + place + size]

    def _values(
        self, start: int, entries: int, count: int, number: struct.Struct, depth: int
    ) -> Iterator[bytes]:
        inline = _INLINE if number.size == 2 else _INLINE_LARGE
        for entry in range(entries, entries + count * (1 + number.size), 1 + number.size):
            kind = self._data[entry]
            if kind in inline:
                yield self.text(kind, entry + 1)
            else:
                (place,) = number.unpack_from(self._data, entry + 1)
                yield self.text(kind, start + place, depth + 1)

    def _bytes(self, at: int) -> bytes:
        """A string: its length in 7 bits per byte, then its bytes."""
        size = shift = 0
        while True:
            byte = self._data[at]
            size |= (byte & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if byte < 0x80:
                break
        value = self._data[at : at + size]
        if len(value) != size:
            raise IndexError("a text")
        return value

    def _opaque(self, kind: int, value: bytes) -> bytes:
        """A value of an SQL type that JSON itself does not have."""
        if kind == _DECIMAL:
            return self._decimal(value, 2, value[0], value[1])
        if kind in _DATES:
            (packed,) = struct.unpack("<q", value)
            return b'"%b"' % _moment(packed, _DATES[kind])
        return b'"base64:type%d:%b"' % (kind, base64.b64encode(value))


def _moment(packed: int, word: str) -> bytes:
    sign, packed = (b"-", -packed) if packed < 0 else (b"", packed)
    us, whole = packed & 0xFFFFFF, packed >> 24
    clock = b"%02d:%02d:%02d.%06d" % (whole >> 12 & 31, whole >> 6 & 63, whole & 63, us)
    if word == "time":
        return sign + b"%02d" % (whole >> 12 & 0x3FF) + clock[2:]
    day = whole >> 17
    date = b"%04d-%02d-%02d" % ((day >> 5) // 13, (day >> 5) % 13, day & 31)
    return date if word == "date" else date + b" " + clock


def _quoted(value: bytes) -> bytes:
    return msgspec.json.encode(value.decode("utf-8", "replace"))


def double_text(value: float) -> bytes:
    """A number in the shortest form that is unambiguous, formatted as the server does."""
    sign, text = ("-", repr(-value)) if value < 0 or repr(value)[0] == "-" else ("", repr(value))
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0").rstrip("0") or "0"
    zeros = len(fraction) - len(fraction.lstrip("0")) if not whole.strip("0") else 0
    point = int(exponent or 0) + (-zeros if not whole.strip("0") else len(whole))
    if digits == "0":
        return b"-0.0" if sign else b"0.0"
    if -_PLAIN_DIGITS_MAX < point <= _PLAIN_DIGITS_MAX or 0 < point < len(digits):
        padded = "0" * max(0, 1 - point) + digits.ljust(point, "0")
        split = max(point, 1)
        plain = f"{sign}{padded[:split]}.{padded[split:] or '0'}"
        return plain.encode()
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{point - 1}".encode()
