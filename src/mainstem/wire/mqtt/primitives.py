"""The few kinds of value that MQTT packets are made of, read strictly and written plainly.

    byte · two and four bytes, big end first · a length in 1 to 4 bytes of seven bits
    text: two bytes of length, UTF-8 without NUL and surrogates · data: the same, any bytes

Promises: whatever the bytes, a ``Reader`` gives a sound value or raises ``Malformed``; it never
reads beyond its packet and never reserves memory on the word of a length.
"""

from typing import Final

LENGTH_MAX: Final = 268_435_455  # what four bytes of seven bits can say
TEXT_BYTES_MAX: Final = 65_535


class Malformed(Exception):
    """The bytes are not MQTT; ``reason`` is MQTT 5's code for it."""

    def __init__(self, cause: str, reason: int = 0x81) -> None:
        super().__init__(cause)
        self.cause = cause
        self.reason = reason


class Violation(Malformed):
    """A packet that can be read but is not allowed."""

    def __init__(self, cause: str, reason: int = 0x82) -> None:
        super().__init__(cause, reason)


class Reader:
    """A place in the body of one packet."""

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
                    raise Malformed("a length is written longer than it need be")
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
        """Data with its length in front."""
        return self.take(self.two())

    def text(self) -> str:
        """UTF-8 with its length in front."""
        data = self.take(self.two())
        try:
            found = data.decode()
        except UnicodeDecodeError:
            raise Malformed("text that is not UTF-8") from None
        if "\0" in found:
            raise Malformed("text with a NUL in it")
        return found

    def end(self) -> None:
        """Nothing may be left."""
        if self.at != self.until:
            raise Malformed(f"{self.until - self.at} bytes too many in a packet")


def write_length(out: bytearray, value: int) -> None:
    """A number in as few bytes of seven bits as it takes."""
    assert 0 <= value <= LENGTH_MAX, "checked where packets are made"
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_binary(out: bytearray, data: bytes) -> None:
    """Data with its length in front."""
    out += len(data).to_bytes(2)
    out += data


def write_text(out: bytearray, text: str) -> None:
    """UTF-8 with its length in front."""
    write_binary(out, text.encode())
