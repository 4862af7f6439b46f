"""The parts of the client for queues that need no node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.client.native.connection import NativeSettings
from mainstem.client.native.errors import copy_of, mainstem_error
from mainstem.client.native.link import native_address, pause_ms
from mainstem.client.native.message import outgoing
from mainstem.client.queues import MESSAGES_PER_FRAME, Queues, _portions
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, Unavailable
from mainstem.wire.native.words import Error, WireMessage


@given(
    st.integers(1, 10_000),
    st.integers(1, 10_000),
    st.integers(0, 1_000),
    st.floats(0, 1, exclude_max=True),
)
def test_pauses_grow_from_the_least_to_the_most(
    least: int, more: int, failures: int, chance: float
) -> None:
    settings = NativeSettings(reconnect_ms_min=least, reconnect_ms_max=least + more)
    pause = pause_ms(failures, settings, chance)
    assert 0.8 * least <= pause <= 1.2 * (least + more)
    assert pause_ms(failures + 1, settings, chance) >= pause


def test_pauses_are_one_second_to_five_minutes_unless_said_otherwise() -> None:
    usual = NativeSettings()
    pauses = [pause_ms(failures, usual, 0.5) for failures in range(1, 12)]
    assert pauses[:3] == [1_000, 2_000, 4_000]
    assert pauses[-1] == 300_000


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("node", ("node", 2925)),
        ("node:7", ("node", 7)),
        ("[::1]", ("::1", 2925)),
        ("[::1]:7", ("::1", 7)),
        ("::1", ("::1", 2925)),
    ],
)
def test_addresses_have_the_usual_port_unless_they_say_another(
    text: str, address: tuple[str, int]
) -> None:
    assert native_address(text) == address


@given(st.lists(st.integers(0, 2_000_000), min_size=1, max_size=60))
def test_portions_are_all_messages_in_order_and_none_is_too_large(sizes: list[int]) -> None:
    messages = [WireMessage(value=bytes(size)) for size in sizes]
    portions = _portions(messages)
    assert [start for start, _ in portions] == [0, *(until for _, until in portions[:-1])]
    assert portions[-1][1] == len(messages)
    for start, until in portions:
        assert 0 < until - start <= MESSAGES_PER_FRAME
        assert until - start == 1 or sum(sizes[start:until]) <= 1024 * 1024


def test_many_small_messages_take_several_frames() -> None:
    messages = [WireMessage(value=b"x")] * 2_500
    assert _portions(messages) == [(0, 1_000), (1_000, 2_000), (2_000, 2_500)]


def test_text_is_bytes_on_the_wire_and_headers_keep_their_order() -> None:
    message = outgoing("wörk", {"headers": [("b", "1"), ("a", None), ("b", b"2")], "ttl_ms": 5})
    assert message.value == "wörk".encode()
    assert message.headers == [("b", b"1"), ("a", None), ("b", b"2")]
    assert message.ttl_ms == 5
    assert outgoing(b"x", {"headers": {"a": "1"}}).headers == [("a", b"1")]


@pytest.mark.parametrize(
    ("told", "kind", "code"),
    [
        (Error(code="UNKNOWN_QUEUE"), InvalidRequest, ErrorCode.UNKNOWN_QUEUE),
        (Error(code="OVERLOADED", retriable=True), Unavailable, ErrorCode.OVERLOADED),
        (Error(code="CORRUPT"), Corrupt, ErrorCode.CORRUPT),
        (Error(code="FROM_THE_FUTURE"), InvalidRequest, ErrorCode.INTERNAL),
        (Error(code="FROM_THE_FUTURE", retriable=True), Unavailable, ErrorCode.TIMED_OUT),
    ],
)
def test_errors_are_those_of_the_house(told: Error, kind: type, code: ErrorCode) -> None:
    error = mainstem_error(told)
    assert (type(error), error.code) == (kind, code)
    again = copy_of(error)
    assert again is not error
    assert (type(again), again.code) == (kind, code)


async def test_a_client_that_was_not_opened_says_so() -> None:
    queues = Queues("127.0.0.1:1")

    with pytest.raises(InvalidRequest, match="not open"):
        await queues.declare("q")
