"""Answers leave in the order of their requests."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from mainstem.protocols.kafka.response_queue import Replies

if TYPE_CHECKING:
    from mainstem.protocols.session import Chunk


def at_once(call: Callable[[], None]) -> None:
    call()


def test_replies_settled_together_leave_together() -> None:
    sends: list[list[Chunk]] = []
    later: list[Callable[[], None]] = []
    replies = Replies(lambda chunks: sends.append(list(chunks)), later.append)
    first, second = replies.reserve(), replies.reserve()
    replies.settle(first, [b"1"])
    replies.settle(second, [b"2"])
    replies.answer([b"3"])
    assert sends == []

    for call in later:
        call()

    assert sends == [[b"1", b"2", b"3"]]


def test_an_answer_without_predecessors_leaves_at_once() -> None:
    sent: list[Chunk] = []
    replies = Replies(sent.extend, at_once)

    replies.answer([b"a"])

    assert sent == [b"a"]


def test_a_finished_answer_waits_for_the_one_before_it() -> None:
    sent: list[Chunk] = []
    replies = Replies(sent.extend, at_once)
    first, second = replies.reserve(), replies.reserve()

    replies.settle(second, [b"2"])
    replies.answer([b"3"])
    assert sent == []
    replies.settle(first, [b"1"])

    assert sent == [b"1", b"2", b"3"]


def test_an_answer_to_a_gone_connection_is_dropped() -> None:
    sent: list[Chunk] = []
    replies = Replies(sent.extend, at_once)
    reply = replies.reserve()
    replies.clear()

    replies.settle(reply, [b"late"])

    assert sent == []


@given(st.permutations(range(8)))
def test_any_order_of_completion_gives_the_order_of_requests(order: Sequence[int]) -> None:
    sent: list[Chunk] = []
    replies = Replies(sent.extend, at_once)
    places = [replies.reserve() for _ in order]

    for number in order:
        replies.settle(places[number], [bytes([number])])

    assert sent == [bytes([number]) for number in range(8)]
