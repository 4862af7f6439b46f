"""The codec table: clients and house read each other, and nothing grows beyond its limit."""

import gzip
import tracemalloc
from collections.abc import Callable

import cramjam
import pytest
import zstandard
from aiokafka import codec as client_codec

from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, MainstemError
from mainstem.model.records import compression
from mainstem.model.records.compression import compress, decompress

CODECS = range(5)
PACKED = range(1, 5)
TEXT = b"the quick brown fox jumps over the lazy dog; " * 3_000


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(200_000)])
def test_what_is_compressed_comes_back(codec: int, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, limit_bytes=len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_holds_to_the_byte(codec: int) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, limit_bytes=len(TEXT)) == TEXT
    with pytest.raises(InvalidRequest) as refusal:
        decompress(codec, packed, limit_bytes=len(TEXT) - 1)
    assert refusal.value.code is ErrorCode.RECORD_TOO_LARGE


@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_is_refused_before_it_is_unpacked(codec: int) -> None:
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest):
            decompress(codec, bomb, limit_bytes=1 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < len(bomb) + (6 << 20)


def test_a_snappy_block_that_claims_more_than_it_can_hold_is_corrupt() -> None:
    claim = b"\xff\xff\xff\x7f" + b"\x00abc"  # 256 MiB from eight bytes
    with pytest.raises(Corrupt):
        decompress(compression.SNAPPY, claim, limit_bytes=1 << 30)


@pytest.mark.parametrize("codec", PACKED)
def test_every_cut_of_compressed_bytes_is_corrupt(codec: int) -> None:
    packed = compress(codec, TEXT[:5_000])
    for size in range(len(packed)):
        if codec == compression.SNAPPY and size in (16, 0):
            continue  # a bare header is a framing of no blocks
        with pytest.raises(Corrupt):
            decompress(codec, packed[:size], limit_bytes=1 << 20)


@pytest.mark.parametrize("codec", PACKED)
def test_no_bytes_at_all_are_corrupt(codec: int) -> None:
    with pytest.raises(Corrupt):
        decompress(codec, b"", limit_bytes=1 << 20)


@pytest.mark.parametrize("codec", PACKED)
def test_damage_never_raises_anything_but_a_house_error(codec: int) -> None:
    packed = compress(codec, TEXT[:3_000])
    for place in range(len(packed)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(packed)
            damaged[place] ^= flip
            try:
                decompress(codec, damaged, limit_bytes=1 << 20)
            except MainstemError:
                continue


def test_raw_snappy_as_librdkafka_writes_it_is_read() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(compression.SNAPPY, raw, limit_bytes=len(TEXT)) == TEXT


def test_framed_snappy_streams_may_follow_each_other() -> None:
    twice = compress(compression.SNAPPY, b"one ") + compress(compression.SNAPPY, b"two")
    assert decompress(compression.SNAPPY, twice, limit_bytes=100) == b"one two"


def test_gzip_members_may_follow_each_other() -> None:
    twice = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decompress(compression.GZIP, twice, limit_bytes=100) == b"one two"


def test_zstd_frames_may_follow_each_other_with_anything_skippable_between() -> None:
    packer = zstandard.ZstdCompressor(write_checksum=True)
    skippable = b"\x50\x2a\x4d\x18" + b"\x03\x00\x00\x00" + b"abc"
    data = packer.compress(b"one ") + skippable + packer.compress(b"two")
    assert decompress(compression.ZSTD, data, limit_bytes=100) == b"one two"


@pytest.mark.parametrize(
    ("codec", "encode", "decode"),
    [
        (1, client_codec.gzip_encode, client_codec.gzip_decode),
        (2, client_codec.snappy_encode, client_codec.snappy_decode),
        (3, client_codec.lz4_encode, client_codec.lz4_decode),
        (4, client_codec.zstd_encode, client_codec.zstd_decode),
    ],
)
def test_a_client_reads_ours_and_we_read_a_clients(
    codec: int, encode: Callable[[bytes], bytes], decode: Callable[[bytes], bytes]
) -> None:
    assert decode(compress(codec, TEXT)) == TEXT
    assert decompress(codec, encode(TEXT), limit_bytes=len(TEXT)) == TEXT


@pytest.mark.parametrize(("codec", "level"), [(1, 9), (3, 9), (4, 19)])
def test_a_level_changes_the_size_not_the_content(codec: int, level: int) -> None:
    packed = compress(codec, TEXT, level=level)
    assert decompress(codec, packed, limit_bytes=len(TEXT)) == TEXT


def test_lz4_blocks_are_independent_as_the_java_client_demands() -> None:
    flags = compress(compression.LZ4, TEXT)[4]
    assert flags & 0x20  # independent blocks
    assert not flags & 0x08  # no content size


def test_unknown_codecs_are_refused_by_name_and_number() -> None:
    for attempt in (
        lambda: compress(5, b""),
        lambda: decompress(7, b"", limit_bytes=1),
        lambda: compression.codec_of("brotli"),
    ):
        with pytest.raises(InvalidRequest) as refusal:
            attempt()
        assert refusal.value.code is ErrorCode.UNSUPPORTED_COMPRESSION
    assert [compression.codec_of(name) for name in compression.CODEC_NAMES] == list(CODECS)
