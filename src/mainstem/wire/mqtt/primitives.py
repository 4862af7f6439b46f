"""The data types of MQTT packets, decoded strictly.

    byte · two and four bytes, big-endian · a length in 1 to 4 bytes of seven bits
    text: two bytes of length, UTF-8 without NUL and surrogates · data: the same, any bytes

Guarantees: for any bytes, a ``Reader`` returns a valid value or raises ``Malformed``; it never
reads beyond its packet and never allocates memory by a length that was not checked.
"""

from typing import Final

LENGTH_MAX: Final = 268_435_455  # the largest number in four bytes of seven bits
TEXT_BYTES_MAX: Final = 65_535


class Malformed(Exception):
    """The bytes are not MQTT; ``reason`` is MQTT 5's code for it."""

    def __init__(self, cause: str, reason: int = 0x81) -> None:
        super().__init__(cause)
        self.cause = cause
        self.reason = reason


class Violation(Malformed):
    """A well-formed packet that breaks a protocol rule."""

    def __init__(self, cause: str, reason: int = 0x82) -> None:
        super().__init__(cause, reason)


class Reader:
    """Reads values from the body of one packet."""

    __slots__ = ("at", "data", "until")

    def __init__(self, data: bytes, at: int = 0, until: int | None = None) -> None:
        self.data = data
        self.at = at
        self.until = len(data) if until is None else until

    @property
    def left(self) -> int:
        """How many bytes are still to be read."""
        return self.until - self.at

    def byte(self) -> int:
        """One byte."""
        at = self.at
        if at >= self.until:
            raise Malformed("the packet ends too soon")
        self.at = at + 1
        return self.data[at]

    def two(self) -> int:
        """A number of two bytes."""
        return int.from_bytes(self.take(2))

    def four(self) -> int:
        """A number of four bytes."""
        return int.from_bytes(self.take(4))

    def length(self) -> int:
        """A number of one to four bytes, seven bits each; the shortest form only."""
        value = 0
        for place in range(4):
            byte = self.byte()
            value |= (byte & 0x7F) << (7 * place)
            if not byte & 0x80:
                if place and not byte:
                    raise Malformed("a length is not in its shortest form")
                return value
        raise Malformed("a length of more than four bytes")

    def take(self, count: int) -> bytes:
        """That many bytes."""
        at, until = self.at, self.at + count
        if until > self.until:
            raise Malformed("the packet ends too soon")
        self.at = until
        return self.data[at:until]

    def rest(self) -> bytes:
        """Everything that is left."""
        return self.take(self.left)

    def binary(self) -> bytes:
        """Length-prefixed data."""
        return self.take(self.two())

    def text(self) -> str:
        """Length-prefixed UTF-8."""
        data = self.take(self.two())
        try:
            found = data.decode()
        except UnicodeDecodeError:
            raise Malformed("text that is not UTF-8") from None
        if "\0" in found:
            raise Malformed("text with a NUL in it")
        return found

    def end(self) -> None:
        """Raises if bytes are left."""
        if self.at != self.until:
            raise Malformed(f"{self.until - self.at} extra bytes in a packet")


def write_length(out: bytearray, value: int) -> None:
    """A number in as few bytes of seven bits as possible."""
    assert 0 <= value <= LENGTH_MAX, "checked where packets are made"
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_binary(out: bytearray, data: bytes) -> None:
    """Length-prefixed data."""
    out += len(data).to_bytes(2)
    out += data


def write_text(out: bytearray, text: str) -> None:
    """Length-prefixed UTF-8."""
    write_binary(out, text.encode())
