"""Frames of the native protocol: a length, flags, a correlation number and a msgpack body.

    u32 length │ u8 flags │ u32 correlation │ body          numbers are big-endian
                └────────── length bytes ─────────┘

The lowest two bits of the flags are the compression of the body, all others are 0. A compressed
body starts with its uncompressed length as u32, so that a reader can check it before decompressing:
nothing decompresses to more than the frame limit that both sides agreed on.
"""

import zlib
from struct import Struct as Layout
from typing import Any, Final

import cramjam

from mainstem.model.limits import KIB, MIB

DEFAULT_PORT: Final = 2925
PROTOCOL_VERSION: Final = 1
NONE: Final = 0
GZIP: Final = 1
BROTLI: Final = 2
COMPRESSIONS: Final = {"none": NONE, "gzip": GZIP, "brotli": BROTLI}

HEAD: Final = Layout(">IBI")
HEAD_BYTES: Final = HEAD.size
LENGTH_BYTES: Final = 4
# The part of the length that is not body.
COUNTED_BYTES: Final = HEAD_BYTES - LENGTH_BYTES
LOGIN_FRAME_BYTES_MAX: Final = 4 * KIB
FRAME_BYTES_MAX: Final = 16 * MIB

_COMPRESSED_BYTES_MIN: Final = 1 * KIB
_PLAIN_LENGTH: Final = Layout(">I")
_CODEC_BITS: Final = 0b11
_GZIP_WINDOW_BITS: Final = 31  # the largest window, in a gzip wrapper
_GZIP_LEVEL: Final = 6
_BROTLI_LEVEL: Final = 4

_pack_head = HEAD.pack


class MalformedFrame(Exception):
    """The bytes are not a frame; the connection cannot continue."""


def frame(correlation: int, body: bytes, compression: int = NONE) -> bytes:
    """A whole frame; the body is compressed if that was agreed on and makes it smaller."""
    flags = NONE
    if compression and len(body) >= _COMPRESSED_BYTES_MIN:
        packed = _compressed(compression, body)
        if len(packed) < len(body):
            flags, body = compression, packed
    return _pack_head(COUNTED_BYTES + len(body), flags, correlation) + body


def check_length(length: int, limit_bytes: int) -> None:
    """Raises on an invalid length before memory is allocated for it."""
    if length < COUNTED_BYTES:
        raise MalformedFrame(f"a frame of length {length} has no header")
    if length > limit_bytes:
        raise MalformedFrame(f"a frame of {length} bytes, {limit_bytes} are allowed")


def plain_body(flags: int, body: Any, compression: int, limit_bytes: int) -> Any:
    """The body as msgpack; ``compression`` is what was agreed on.

    Raises:
        MalformedFrame: unknown flags, a compression that was not agreed on, too large or damaged.
    """
    codec = flags & _CODEC_BITS
    if flags != codec:
        raise MalformedFrame(f"flags {flags:#x} are unknown")
    if codec == NONE:
        return body
    if codec != compression:
        raise MalformedFrame(f"compression {codec} was not agreed on")
    if len(body) < _PLAIN_LENGTH.size:
        raise MalformedFrame("a compressed body without its uncompressed length")
    [size] = _PLAIN_LENGTH.unpack_from(body)
    if size > limit_bytes:
        raise MalformedFrame(f"a body of {size} bytes, {limit_bytes} are allowed")
    return _unpacked(codec, body[_PLAIN_LENGTH.size :], size)


def _compressed(compression: int, body: bytes) -> bytes:
    head = _PLAIN_LENGTH.pack(len(body))
    if compression == GZIP:
        packer = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WINDOW_BITS)
        return head + packer.compress(body) + packer.flush()
    return head + bytes(cramjam.brotli.compress(body, level=_BROTLI_LEVEL))


def _unpacked(codec: int, body: Any, size: int) -> bytes:
    if codec == GZIP:
        unpacker = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
        try:
            plain = unpacker.decompress(body, size + 1)
        except zlib.error as error:
            raise MalformedFrame(f"gzip: {error}") from None
        if len(plain) != size or not unpacker.eof or unpacker.unused_data:
            raise MalformedFrame("gzip: not the declared length")
        return plain
    buffer = bytearray(size)
    try:
        found = cramjam.brotli.decompress_into(bytes(body), buffer)
    except cramjam.DecompressionError as error:
        raise MalformedFrame(f"brotli: {error}") from None
    if found != size:
        raise MalformedFrame("brotli: not the declared length")
    return bytes(buffer)
