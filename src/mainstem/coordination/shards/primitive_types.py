"""Kafka's primitive types as encoded in the records of internal topics.

Records have one of two encodings: classic, with lengths of fixed size, and *flexible*, with
compact lengths and, at the end of every structure, tagged fields that a reader may skip.
"""

from struct import Struct as Layout

BYTE = Layout(">b")
SHORT = Layout(">h")
INT = Layout(">i")
LONG = Layout(">q")


def text(value: str | None) -> bytes:
    """Encode a string in the classic encoding."""
    if value is None:
        return SHORT.pack(-1)
    encoded = value.encode()
    return SHORT.pack(len(encoded)) + encoded


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint of one to five bytes."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_text(value: str) -> bytes:
    """Encode a string in the flexible encoding."""
    encoded = value.encode()
    return uvarint(len(encoded) + 1) + encoded


def tags(fields: dict[int, bytes]) -> bytes:
    """Encode the tagged fields at the end of a flexible structure."""
    parts = [uvarint(len(fields))]
    for tag, data in sorted(fields.items()):
        parts += (uvarint(tag), uvarint(len(data)), data)
    return b"".join(parts)


class PrimitiveReader:
    """Reads Kafka's primitive types; ``flexible`` ones have compact lengths and tagged fields."""

    __slots__ = ("_at", "_data", "_flexible")

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = data
        self._at = 0
        self._flexible = flexible

    def int8(self) -> int:
        """Read an integer of one byte."""
        return self._unpack(BYTE)

    def int16(self) -> int:
        """Read an integer of two bytes."""
        return self._unpack(SHORT)

    def int32(self) -> int:
        """Read an integer of four bytes."""
        return self._unpack(INT)

    def int64(self) -> int:
        """Read an integer of eight bytes."""
        return self._unpack(LONG)

    def text(self) -> str:
        """Read a string; empty if it is null."""
        return self.nullable_text() or ""

    def nullable_text(self) -> str | None:
        """Read a string, or None."""
        length = self._uvarint() - 1 if self._flexible else self._unpack(SHORT)
        return None if length < 0 else self._take(length).decode()

    def sized(self) -> bytes:
        """Read bytes with a length prefix."""
        length = self.count()
        return self._take(length)

    def raw(self, length: int) -> bytes:
        """Read that many bytes."""
        return self._take(length)

    def count(self) -> int:
        """Read the number of elements of a list; 0 if the list is null."""
        return max(self._uvarint() - 1 if self._flexible else self._unpack(INT), 0)

    def tags(self) -> dict[int, bytes]:
        """Read the tagged fields at the end of a flexible structure; a classic one has none."""
        if not self._flexible:
            return {}
        return {self._uvarint(): self._take(self._uvarint()) for _ in range(self._uvarint())}

    def _unpack(self, layout: Layout) -> int:
        value: int = layout.unpack_from(self._data, self._at)[0]
        self._at += layout.size
        return value

    def _take(self, length: int) -> bytes:
        start = self._at
        self._at += length
        if self._at > len(self._data):
            raise IndexError(f"{length} bytes at {start} of {len(self._data)}")
        return self._data[start : self._at]

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
