"""Runtime of the generated codecs: varints, errors and the limits of a message.

Guarantees: reading never allocates by a number that the peer sent; a varint has at most 5 bytes.
"""

from typing import Final

Buffer = bytes | bytearray | memoryview

# Array elements and tagged fields together, over the whole message. An element can cost some
# hundred bytes of memory for 3 bytes on the wire, so the frame limit alone would not bound memory.
# Responses are read by our own client from a node it chose, and a metadata response lists every
# replica of every partition.
REQUEST_ELEMENTS_MAX: Final = 1 << 19
RESPONSE_ELEMENTS_MAX: Final = 1 << 23

VARINT_BYTES_MAX: Final = 5

SMALL_VARINTS: Final = tuple(bytes([n]) for n in range(128))


class Malformed(ValueError):
    """Bytes that are not the message they claim to be."""


class Unencodable(ValueError):
    """A message holds a value that its version of the wire format cannot carry."""


def encode_uvarint(number: int) -> bytes:
    """Encodes an unsigned varint."""
    if number < 128:
        return SMALL_VARINTS[number]
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def decode_uvarint(buf: Buffer, position: int) -> tuple[int, int]:
    """Decodes an unsigned varint of at most 5 bytes: the number and the position after it."""
    number = shift = 0
    while True:
        byte = buf[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position
        shift += 7
        if shift >= 7 * VARINT_BYTES_MAX:
            raise Malformed("a varint has more than 5 bytes")
