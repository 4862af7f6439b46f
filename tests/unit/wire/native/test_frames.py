"""Frames of the native protocol: what fits, what is refused before anything is kept for it."""

import msgspec
import pytest

from mainstem.wire.native.answers import Connected, read_answer
from mainstem.wire.native.frames import (
    BROTLI,
    GZIP,
    HEAD,
    HEAD_BYTES,
    NONE,
    MalformedFrame,
    check_length,
    frame,
    plain_body,
)
from mainstem.wire.native.requests import DeclareQueue, Ping, Publish, read_request
from mainstem.wire.native.words import NotAWord, WireMessage, WireQueueSettings, encode, kebab

LIMIT_BYTES = 1 << 20


def test_a_frame_is_a_length_flags_a_number_and_msgpack() -> None:
    data = frame(7, encode(Ping()))
    assert data == b"\x00\x00\x00\x10" + b"\x00" + b"\x00\x00\x00\x07" + b"\x81\xa4type\xa4ping"


@pytest.mark.parametrize("compression", [GZIP, BROTLI])
def test_a_large_body_is_compressed_and_unpacked_again(compression: int) -> None:
    body = encode(Publish(messages=[WireMessage(value=b"again and " * 1_000)], key="orders"))
    data = frame(1, body, compression)
    length, flags, _ = HEAD.unpack_from(data)
    assert length < len(body) // 10
    assert flags == compression
    assert plain_body(flags, data[HEAD_BYTES:], compression, LIMIT_BYTES) == body


@pytest.mark.parametrize("compression", [GZIP, BROTLI])
def test_a_small_body_is_left_as_it_is(compression: int) -> None:
    assert frame(1, encode(Ping()), compression)[4] == NONE


@pytest.mark.parametrize("compression", [GZIP, BROTLI])
def test_a_body_that_unpacks_to_more_than_it_says_is_refused(compression: int) -> None:
    data = bytearray(frame(1, b"\x00" * 100_000, compression))
    data[HEAD_BYTES : HEAD_BYTES + 4] = (50_000).to_bytes(4, "big")
    with pytest.raises(MalformedFrame):
        plain_body(compression, data[HEAD_BYTES:], compression, LIMIT_BYTES)


@pytest.mark.parametrize("compression", [GZIP, BROTLI])
def test_a_body_that_says_too_much_is_refused_before_it_is_unpacked(compression: int) -> None:
    data = frame(1, b"\x00" * (LIMIT_BYTES + 1), compression)
    with pytest.raises(MalformedFrame, match="are allowed"):
        plain_body(compression, data[HEAD_BYTES:], compression, LIMIT_BYTES)


def test_compression_that_nobody_agreed_on_is_refused() -> None:
    data = frame(1, b"\x00" * 100_000, GZIP)
    with pytest.raises(MalformedFrame, match="agreed"):
        plain_body(GZIP, data[HEAD_BYTES:], BROTLI, LIMIT_BYTES)
    with pytest.raises(MalformedFrame, match="agreed"):
        plain_body(GZIP, data[HEAD_BYTES:], NONE, LIMIT_BYTES)


@pytest.mark.parametrize("flags", [0x04, 0x80, 0xFF])
def test_flags_that_are_not_known_are_refused(flags: int) -> None:
    with pytest.raises(MalformedFrame, match="flags"):
        plain_body(flags, encode(Ping()), NONE, LIMIT_BYTES)


@pytest.mark.parametrize("length", [0, 4, 4_097, 2**31 - 1, 2**32 - 1])
def test_a_length_is_refused_by_itself(length: int) -> None:
    with pytest.raises(MalformedFrame):
        check_length(length, 4_096)


def test_fields_that_are_not_known_are_skipped() -> None:
    body = msgspec.msgpack.encode({"type": "ping", "since": [1, {"a": None}]})
    assert read_request(body) == Ping()


def test_what_is_left_out_has_its_default() -> None:
    word = read_request(msgspec.msgpack.encode({"type": "declare-queue", "name": "orders"}))
    assert word == DeclareQueue(name="orders", settings=WireQueueSettings(), preset="native")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x80",
        b"\x81\xa4type\xa4pinx",
        b"\x81\xa4type\xa2\xff\xff",
        b"\x81\xa4type\xa4ping\x00",
        b"\x82\xa4type\xa4ping\xa1x" + b"\x91" * 100_000 + b"\xc0",
        msgspec.msgpack.encode({"type": "publish", "messages": []}),
        msgspec.msgpack.encode({"type": "publish", "messages": [{}] * 5_000}),
        msgspec.msgpack.encode({"type": "publish", "messages": [{"priority": 256}]}),
        msgspec.msgpack.encode({"type": "ack", "subscription": -1, "numbers": []}),
    ],
)
def test_what_is_not_understood_is_said_so(body: bytes) -> None:
    with pytest.raises(NotAWord):
        read_request(body)


def test_a_count_that_is_not_there_costs_no_memory() -> None:
    body = b"\x82\xa4type\xa7publish\xa8messages\xdd\xff\xff\xff\xff"
    with pytest.raises(NotAWord, match="length"):
        read_request(body)


def test_one_side_does_not_take_the_words_of_the_other() -> None:
    with pytest.raises(NotAWord):
        read_request(encode(Connected(version=1)))
    with pytest.raises(NotAWord):
        read_answer(encode(Publish(messages=[WireMessage()])))


def test_names_on_the_wire_are_the_names_with_hyphens() -> None:
    assert kebab("DeclareQueue") == "declare-queue"
    assert kebab("Ok") == "ok"
