"""The codecs of a record batch: none, gzip, snappy, lz4, zstd are numbers 0 to 4 of its attributes.

Guarantees: ``decompress`` never returns or allocates more than its limit, whatever size the bytes
claim; any damage raises ``Corrupt``; the Java client, librdkafka and the Python clients read what
``compress`` writes. The codec libraries are imported only here.

Two details of the wire formats. Snappy data is either one raw block (librdkafka) or in the framing
of the Java library, a header and length-prefixed blocks; both are read and the framing is written,
since every client accepts it. LZ4 frames are written with independent blocks and without a content
size, because the Java client refuses linked blocks.
"""

import zlib
from collections.abc import Callable
from struct import Struct
from typing import Final

import cramjam
import lz4.frame  # type: ignore[import-untyped]
import zstandard

from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest
from mainstem.model.records.batch import Buffer

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

_CHUNK_BYTES = 1 << 20
_GZIP_WINDOW_BITS = 31  # the largest window, in a gzip wrapper
_ZSTD_WINDOW_BYTES_MAX = 1 << 27  # what the reference decoder accepts by default
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE = 0x184D2A50

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
# The densest element of the format, a copy, turns three bytes into sixty-four.
_SNAPPY_RATIO_MAX = 22
_LENGTH = Struct(">i")


def codec_of(name: str) -> int:
    """The number of a codec by its configuration name."""
    try:
        return CODEC_NAMES.index(name)
    except ValueError:
        raise InvalidRequest(
            ErrorCode.UNSUPPORTED_COMPRESSION,
            f"unknown compression {name!r}",
            remedy=f"use one of {', '.join(CODEC_NAMES)}",
        ) from None


def compress(codec: int, data: Buffer, *, level: int | None = None) -> bytes:
    """The data in the given codec; ``level`` means what the codec's library means by it."""
    match codec:
        case 0:
            return bytes(data)
        case 1:
            packer = zlib.compressobj(-1 if level is None else level, wbits=_GZIP_WINDOW_BITS)
            return packer.compress(data) + packer.flush()
        case 2:
            return _compress_snappy(memoryview(data))
        case 3:
            return bytes(
                lz4.frame.compress(
                    bytes(data),
                    compression_level=0 if level is None else level,
                    block_size=lz4.frame.BLOCKSIZE_MAX64KB,
                    block_linked=False,
                    store_size=False,
                )
            )
        case 4:
            return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
        case _:
            raise _unknown(codec)


def decompress(codec: int, data: Buffer, *, limit_bytes: int) -> bytes:
    """The plain bytes.

    Raises:
        InvalidRequest: the codec is unknown, or the plain bytes exceed ``limit_bytes``.
        Corrupt: the bytes are damaged or incomplete.
    """
    if codec == NONE:
        if len(data) > limit_bytes:
            raise _too_large(limit_bytes)
        return bytes(data)
    reader = _READERS.get(codec)
    if reader is None:
        raise _unknown(codec)
    return reader(bytes(data), limit_bytes)


def _compress_snappy(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _read_gzip(data: bytes, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    left = limit_bytes
    while data:  # members may follow each other
        reader = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
        while not reader.eof:
            try:
                part = reader.decompress(data, min(left + 1, _CHUNK_BYTES))
            except zlib.error as error:
                raise Corrupt(f"gzip: {error}") from None
            if not part and not reader.eof and not reader.unconsumed_tail:
                raise Corrupt("gzip: the stream ends early")
            left = _take(part, parts, left, limit_bytes)
            data = reader.unconsumed_tail
        data = reader.unused_data
    if not parts:
        raise Corrupt("gzip: no data")
    return b"".join(parts)


def _read_lz4(data: bytes, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    left = limit_bytes
    whole = False
    while data:
        reader = lz4.frame.LZ4FrameDecompressor()
        while not reader.eof:
            try:
                part = reader.decompress(data, min(left + 1, _CHUNK_BYTES))
            except (RuntimeError, ValueError) as error:
                raise Corrupt(f"lz4: {error}") from None
            if not part and not reader.eof and reader.needs_input:
                raise Corrupt("lz4: the frame ends early")
            left = _take(part, parts, left, limit_bytes)
            data = b""
        whole = True
        data = reader.unused_data or b""
    if not whole:
        raise Corrupt("lz4: no data")
    return b"".join(parts)


def _read_zstd(data: bytes, limit_bytes: int) -> bytes:
    _check_zstd_frames(data)
    parts: list[bytes] = []
    left = limit_bytes
    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    try:
        with unpacker.stream_reader(data, read_across_frames=True) as reader:
            while part := reader.read(min(left + 1, _CHUNK_BYTES)):
                left = _take(part, parts, left, limit_bytes)
    except zstandard.ZstdError as error:
        raise Corrupt(f"zstd: {error}") from None
    return b"".join(parts)


def _check_zstd_frames(data: bytes) -> None:
    """Walk frames and blocks (RFC 8878 §3.1): the library's reader ends silently at a cut frame."""
    at = 0
    while at < len(data) or not data:
        try:
            at = _skip_zstd_frame(data, at)
        except (IndexError, ValueError, zstandard.ZstdError):
            raise Corrupt("zstd: the frame ends early or has no header") from None
        if at > len(data):
            raise Corrupt("zstd: the frame ends early")


def _skip_zstd_frame(data: bytes, at: int) -> int:
    word = int.from_bytes(data[at : at + 4], "little")
    if word & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
        return at + 8 + int.from_bytes(data[at + 4 : at + 8].ljust(4, b"\xff"), "little")
    if word != _ZSTD_MAGIC:
        raise ValueError(word)
    has_checksum = data[at + 4] & 0x04
    at += zstandard.frame_header_size(data[at : at + 18])
    while True:
        block = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        is_run = block >> 1 & 3 == 1
        at += 3 + (1 if is_run else block >> 3)
        if block & 1:
            return at + (4 if has_checksum else 0)


def _read_snappy(data: bytes, limit_bytes: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, limit_bytes, limit_bytes)
    parts: list[bytes] = []
    left = limit_bytes
    at = 0
    while at < len(data):
        if data.startswith(_XERIAL_MAGIC, at):  # streams may follow each other
            at += len(_XERIAL_HEADER)
            continue
        if at + 4 > len(data):
            raise Corrupt("snappy: a block length is cut")
        size = _LENGTH.unpack_from(data, at)[0]
        at += 4
        if size < 0 or at + size > len(data):
            raise Corrupt(f"snappy: block of {size} bytes, but {len(data) - at} are left")
        left = _take(
            _snappy_block(data[at : at + size], left, limit_bytes), parts, left, limit_bytes
        )
        at += size
    if at > len(data):
        raise Corrupt("snappy: the header is cut")
    return b"".join(parts)


def _snappy_block(block: bytes, left: int, limit_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > left:
            raise _too_large(limit_bytes)
        if size > len(block) * _SNAPPY_RATIO_MAX:
            raise Corrupt(f"snappy: {len(block)} bytes cannot hold the {size} they claim")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise Corrupt(f"snappy: {error}") from None


def _take(part: bytes, parts: list[bytes], left: int, limit_bytes: int) -> int:
    if len(part) > left:
        raise _too_large(limit_bytes)
    parts.append(part)
    return left - len(part)


def _too_large(limit_bytes: int) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.RECORD_TOO_LARGE, f"the batch holds more than {limit_bytes} bytes uncompressed"
    )


def _unknown(codec: int) -> InvalidRequest:
    return InvalidRequest(ErrorCode.UNSUPPORTED_COMPRESSION, f"unknown codec number {codec}")


_READERS: Final[dict[int, Callable[[bytes, int], bytes]]] = {
    GZIP: _read_gzip,
    SNAPPY: _read_snappy,
    LZ4: _read_lz4,
    ZSTD: _read_zstd,
}
