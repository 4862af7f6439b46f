"""Whatever a message holds survives the wire; whatever bytes come, they are read or refused."""

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mainstem.wire.kafka import codec
from mainstem.wire.kafka.samples import draw_message
from mainstem.wire.kafka.schema import load_api

CODECS = [
    (key, version, is_request)
    for key, (first, last) in codec.VERSIONS.items()
    for version in range(first, last + 1)
    for is_request in (True, False)
]
Choice = tuple[int, int, bool]
choices = st.sampled_from(CODECS)
edits = st.lists(
    st.tuples(st.integers(0, 2**16), st.integers(0, 8), st.binary(max_size=8)), min_size=1
)


def encode(choice: Choice, message: Any) -> bytes:
    key, version, is_request = choice
    encoder = codec.encode_request if is_request else codec.encode_response
    chunks: list[Any] = encoder(key, version, message)
    return b"".join(chunks)


def decode(choice: Choice, data: bytes) -> Any:
    key, version, is_request = choice
    decoder = codec.decode_request if is_request else codec.decode_response
    return decoder(key, version, data, 0, len(data))


def check_read_or_refused(choice: Choice, data: bytes) -> None:
    try:
        message = decode(choice, data)
    except codec.Malformed:
        return
    # Compared as bytes, because a float that is not a number equals nothing.
    assert encode(choice, decode(choice, encode(choice, message))) == encode(choice, message)


@given(choices, st.randoms(use_true_random=False))
def test_any_message_survives_the_round_trip(choice: Choice, chance: random.Random) -> None:
    key, version, is_request = choice
    message = draw_message(load_api(key, version, is_request=is_request), chance)
    assert decode(choice, encode(choice, message)) == message


@given(choices, st.randoms(use_true_random=False), st.binary(max_size=64))
def test_neighbouring_bytes_in_a_buffer_do_not_matter(
    choice: Choice, chance: random.Random, around: bytes
) -> None:
    key, version, is_request = choice
    message = draw_message(load_api(key, version, is_request=is_request), chance)
    data = encode(choice, message)
    decoder = codec.decode_request if is_request else codec.decode_response
    buffer = bytearray(around + data + around)
    assert decoder(key, version, buffer, len(around), len(around) + len(data)) == message


@given(choices, st.binary(max_size=300))
def test_random_bytes_are_read_or_refused(choice: Choice, data: bytes) -> None:
    check_read_or_refused(choice, data)


@given(choices, st.randoms(use_true_random=False), edits)
def test_mutated_messages_are_read_or_refused(
    choice: Choice, chance: random.Random, changes: list[tuple[int, int, bytes]]
) -> None:
    key, version, is_request = choice
    message = draw_message(load_api(key, version, is_request=is_request), chance)
    data = bytearray(encode(choice, message))
    for place, removed, added in changes:
        at = place % (len(data) + 1)
        data[at : at + removed] = added
    check_read_or_refused(choice, bytes(data))


@given(st.binary(max_size=64))
def test_a_request_header_is_read_or_refused(data: bytes) -> None:
    try:
        *_, body = codec.decode_request_header(data, 0, len(data))
    except codec.Malformed:
        return
    assert 10 <= body <= len(data)
