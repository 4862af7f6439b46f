"""Frames between nodes, without a socket."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.cluster.peers.error_codec import decode_error, encode_error
from mainstem.cluster.peers.frames import HEADER, Frame, FrameDecoder, FrameKind, header
from mainstem.model.errors import (
    Corrupt,
    ErrorCode,
    Fenced,
    InvalidRequest,
    MainstemError,
    Unavailable,
)


@given(
    bodies=st.lists(st.binary(max_size=300), max_size=20),
    pieces=st.lists(st.integers(1, 200), min_size=1),
    keeps=st.lists(st.booleans(), min_size=1),
    buffer_bytes=st.integers(HEADER.size, 100),
)
def test_frames_are_found_however_the_bytes_arrive_and_whoever_keeps_them(
    bodies: list[bytes], pieces: list[int], keeps: list[bool], buffer_bytes: int
) -> None:
    stream = b"".join(
        header(FrameKind.NOTE, 1, number, len(body)) + body for number, body in enumerate(bodies)
    )
    cutter = FrameDecoder(buffer_bytes=buffer_bytes, body_bytes_max=300)
    found: list[tuple[int, bytes | memoryview]] = []
    at = turn = 0
    while at < len(stream):
        free_space = cutter.free_space()
        piece = stream[at : at + min(len(free_space), pieces[turn % len(pieces)])]
        free_space[: len(piece)] = piece
        del free_space
        for number, body in [(f.number, f.body) for f in cutter.received(len(piece))]:
            found.append((number, body if keeps[number % len(keeps)] else bytes(body)))
            del body
        at += len(piece)
        turn += 1
    assert [(number, bytes(body)) for number, body in found] == list(enumerate(bodies))


def pour(cutter: FrameDecoder, data: bytes) -> tuple[list[Frame], set[int]]:
    """Receive bytes as they come; the frames, and in which buffers the bytes were put."""
    frames: list[Frame] = []
    seen: set[int] = set()
    at = 0
    while at < len(data):
        free_space = cutter.free_space()
        taken = min(len(free_space), len(data) - at)
        free_space[:taken] = data[at : at + taken]
        seen.add(id(free_space.obj))
        del free_space
        frames += cutter.received(taken)
        at += taken
    return frames, seen


def test_a_buffer_is_used_again_when_nobody_looks_at_it() -> None:
    cutter = FrameDecoder(buffer_bytes=64, body_bytes_max=300)
    data = header(FrameKind.NOTE, 1, 1, 3) + b"abc"
    seen = {found for _ in range(10) for found in pour(cutter, data)[1]}
    assert len(seen) == 1


def test_another_buffer_takes_the_place_of_one_that_is_looked_at() -> None:
    cutter = FrameDecoder(buffer_bytes=64, body_bytes_max=300)
    seen: set[int] = set()
    kept: list[Frame] = []
    for number in range(10):
        frames, found = pour(cutter, header(FrameKind.NOTE, 1, number, 40) + bytes([number]) * 40)
        seen |= found
        kept = [*kept[-1:], *frames]  # each is let go when the next but one has come
        assert [set(bytes(frame.body)) for frame in kept] == [{f.number} for f in kept]
    assert 2 <= len(seen) <= 3


def test_buffers_grow_with_the_frames_that_come() -> None:
    cutter = FrameDecoder(buffer_bytes=64, body_bytes_max=100_000)
    seen: set[int] = set()
    for number in range(20):
        size = 40_000 + number
        frames, found = pour(cutter, header(FrameKind.NOTE, 1, number, size) + bytes(size))
        assert [(each.number, len(each.body)) for each in frames] == [(number, size)]
        del frames
        if number > 2:
            seen |= found
    assert len(seen) == 1


@pytest.mark.parametrize("data", [b"\0" * 10, b"\xff" * 10, header(FrameKind.NOTE, 1, 1, 301)])
def test_what_is_no_frame_or_too_large_is_refused(data: bytes) -> None:
    cutter = FrameDecoder(buffer_bytes=64, body_bytes_max=300)
    cutter.free_space()[: len(data)] = data
    with pytest.raises(Corrupt):
        cutter.received(len(data))


@pytest.mark.parametrize("body_bytes", [301, 5_000])
def test_a_large_frame_right_behind_the_proof_waits_for_it(body_bytes: int) -> None:
    cutter = FrameDecoder(buffer_bytes=8_000, body_bytes_max=300)
    data = header(FrameKind.NOTE, 1, 1, 3) + b"abc" + header(FrameKind.NOTE, 1, 2, body_bytes)
    data += bytes(body_bytes)
    cutter.free_space()[: len(data)] = data
    assert [frame.number for frame in cutter.received(len(data), limit=1)] == [1]
    cutter.body_bytes_max = 10_000
    assert [(frame.number, len(frame.body)) for frame in cutter.received(0)] == [(2, body_bytes)]


def test_a_large_frame_behind_a_small_one_is_refused_without_a_proof() -> None:
    cutter = FrameDecoder(buffer_bytes=64, body_bytes_max=300)
    data = header(FrameKind.NOTE, 1, 1, 3) + b"abc" + header(FrameKind.NOTE, 1, 2, 2**30)
    cutter.free_space()[: len(data)] = data
    assert len(cutter.received(len(data), limit=1)) == 1
    with pytest.raises(Corrupt):
        cutter.received(0)


def test_a_frame_of_no_known_kind_is_refused() -> None:
    cutter = FrameDecoder(buffer_bytes=64, body_bytes_max=300)
    data = HEADER.pack(6, 99, 1, 1)
    cutter.free_space()[: len(data)] = data
    with pytest.raises(Corrupt, match="kind 99"):
        cutter.received(len(data))


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequest(ErrorCode.TOPIC_EXISTS, "a", subject="b", remedy="c"),
        Fenced(ErrorCode.FENCED_PRODUCER, "newer"),
        Unavailable(ErrorCode.DISK_FULL),
        Corrupt("bits", subject="s", remedy="r"),
    ],
)
def test_an_error_comes_out_as_it_went_in(error: MainstemError) -> None:
    found = decode_error(encode_error(error))
    assert type(found) is type(error)
    assert str(found) == str(error)


def test_the_disk_of_another_node_that_fails_is_not_taken_for_the_own() -> None:
    error = Unavailable(ErrorCode.STORAGE_FAILED, "Input/output error", subject="a file")
    found = decode_error(encode_error(error))
    assert isinstance(found, Unavailable)
    assert found.code is ErrorCode.WRITER_UNAVAILABLE
    assert found.retriable
    assert "Input/output error" in str(found)


def test_a_code_of_another_release_keeps_its_name() -> None:
    data = msgspec.msgpack.encode(["unavailable", "NEW_CODE", "why", "", ""])
    found = decode_error(data)
    assert isinstance(found, Unavailable)
    assert "NEW_CODE: why" in str(found)
