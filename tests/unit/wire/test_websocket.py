"""WebSocket frames, and those that are none."""

import pytest

from mainstem.wire.websocket import (
    BINARY,
    CONTINUATION,
    PING,
    PROTOCOL_ERROR,
    TOO_BIG,
    FrameReader,
    WebSocketError,
    accept_key,
    frame,
)

MASK = b"\x0a\x0b\x0c\x0d"


def masked(first: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        length = bytes((0x80 | size,))
    elif size < 0x1_0000:
        length = b"\xfe" + size.to_bytes(2)
    else:
        length = b"\xff" + size.to_bytes(8)
    hidden = bytes(byte ^ MASK[place % 4] for place, byte in enumerate(payload))
    return bytes((first,)) + length + MASK + hidden


def test_the_standards_own_key_gets_the_standards_own_answer() -> None:
    assert accept_key("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert accept_key("short") is None


@pytest.mark.parametrize("size", [0, 1, 3, 4, 125, 126, 65_535, 65_536])
def test_frames_of_every_length_are_read_in_pieces(size: int) -> None:
    payload = bytes(place % 251 for place in range(size))
    data = masked(0x82, payload) + masked(0x89, b"ping")
    reader = FrameReader(1 << 20)

    found = [
        each for at in range(0, len(data), 1_000) for each in reader.feed(data[at : at + 1_000])
    ]

    assert found == [(BINARY, payload), (PING, b"ping")]


def test_control_frames_may_stand_within_a_message() -> None:
    data = masked(0x02, b"a") + masked(0x89, b"") + masked(0x80, b"b")
    assert list(FrameReader(10).feed(data)) == [(BINARY, b"a"), (PING, b""), (CONTINUATION, b"b")]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x82\x01a", PROTOCOL_ERROR),
        (masked(0xC2, b"a"), PROTOCOL_ERROR),
        (masked(0x83, b"a"), PROTOCOL_ERROR),
        (masked(0x09, b"a"), PROTOCOL_ERROR),
        (masked(0x89, bytes(126)), PROTOCOL_ERROR),
        (masked(0x80, b"a"), PROTOCOL_ERROR),
        (masked(0x02, b"a") + masked(0x82, b"b"), PROTOCOL_ERROR),
        (b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff", TOO_BIG),
        (masked(0x82, bytes(11)), TOO_BIG),
    ],
)
def test_frames_that_are_none_are_refused_with_a_code(data: bytes, code: int) -> None:
    with pytest.raises(WebSocketError) as refused:
        list(FrameReader(10).feed(data))
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("size", "head"),
    [(5, b"\x82\x05"), (200, b"\x82\x7e\x00\xc8"), (70_000, b"\x82\x7f" + (70_000).to_bytes(8))],
)
def test_a_server_masks_nothing(size: int, head: bytes) -> None:
    assert frame(BINARY, bytes(size)) == head + bytes(size)
