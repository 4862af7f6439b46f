"""Words of the native protocol survive the way over the wire, and strangers' bytes do no harm."""

from typing import Any, get_args

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mainstem.wire.native.answers import Answer, read_answer
from mainstem.wire.native.frames import (
    BROTLI,
    FRAME_BYTES_MAX,
    GZIP,
    HEAD,
    HEAD_BYTES,
    NONE,
    MalformedFrame,
    check_length,
    frame,
    plain_body,
)
from mainstem.wire.native.requests import Publish, Request, read_request
from mainstem.wire.native.words import NotAWord, WireMessage, encode

texts = st.text(max_size=20)
messages = st.builds(
    WireMessage,
    value=st.none() | st.binary(max_size=2_000),
    key=st.none() | st.binary(max_size=20),
    headers=st.lists(st.tuples(texts, st.none() | st.binary(max_size=20)), max_size=5),
    content_type=st.none() | texts,
    correlation_id=st.none() | texts,
    reply_to=st.none() | texts,
    message_id=st.none() | texts,
    priority=st.none() | st.integers(0, 255),
    timestamp_ms=st.integers(-1, 2**62),
    expires_ms=st.none() | st.integers(0, 2**53),
    ttl_ms=st.none() | st.integers(0, 2**53),
    delay_ms=st.none() | st.integers(0, 2**53),
)
publishes = st.builds(
    Publish,
    messages=st.lists(messages, min_size=1, max_size=20),
    exchange=texts,
    key=st.none() | texts,
    durability=st.sampled_from(["committed", "written", "none"]),
)


@given(publishes, st.integers(0, 2**32 - 1), st.sampled_from([NONE, GZIP, BROTLI]))
def test_what_is_published_arrives_as_it_was_said(
    word: Publish, correlation: int, compression: int
) -> None:
    data = frame(correlation, encode(word), compression)
    length, flags, number = HEAD.unpack_from(data)
    check_length(length, FRAME_BYTES_MAX)
    assert (length + 4, number) == (len(data), correlation)
    body = plain_body(flags, memoryview(data)[HEAD_BYTES:], compression, FRAME_BYTES_MAX)
    assert read_request(body) == word


@given(st.data(), publishes, st.sampled_from([NONE, GZIP, BROTLI]))
def test_damaged_frames_are_refused_or_read_never_worse(
    data: st.DataObject, word: Publish, compression: int
) -> None:
    sent = bytearray(frame(1, encode(word), compression))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(sent) - 1))
        sent[at] = data.draw(st.integers(0, 255))
    length, flags, _ = HEAD.unpack_from(sent)
    try:
        check_length(length, len(sent))
        body = plain_body(flags, bytes(sent[HEAD_BYTES:]), compression, 1 << 20)
        read_request(body)
    except (MalformedFrame, NotAWord):
        pass


@given(st.binary(max_size=200))
def test_any_bytes_are_a_word_or_none(body: bytes) -> None:
    for read in (read_request, read_answer):
        try:
            word = read(body)
        except NotAWord:
            continue
        assert read(encode(word)) == word


def test_every_word_has_a_name_of_its_own_and_stays_the_same_with_defaults() -> None:
    kinds: list[Any] = [*get_args(Request), *get_args(Answer)]
    names = [msgspec.inspect.type_info(kind).tag for kind in kinds]  # type: ignore[attr-defined]
    assert len(set(names)) == len(kinds)
