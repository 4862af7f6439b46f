"""Frames that are taken as a run say what they say when each is read by itself."""

from hypothesis import given
from hypothesis import strategies as st

from mainstem.protocols.native.publish_shape import PublishShape, shape_of
from mainstem.wire.native.frames import HEAD, HEAD_BYTES, LENGTH_BYTES, frame
from mainstem.wire.native.requests import Publish, read_request
from mainstem.wire.native.words import WireMessage, encode

# Few letters, so that keys and values look alike and lie within each other.
texts = st.text("ab", min_size=1, max_size=12)
words = st.builds(
    Publish,
    messages=st.lists(
        st.builds(
            WireMessage,
            value=st.none() | st.text("ab", max_size=20).map(str.encode),
            key=st.none() | texts.map(str.encode),
            headers=st.lists(st.tuples(texts, st.none() | texts.map(str.encode)), max_size=1),
            message_id=st.none() | texts,
            timestamp_ms=st.sampled_from([-1, 5]),
        ),
        min_size=1,
        max_size=2,
    ),
    exchange=st.sampled_from(["", "a", "ab"]),
    key=st.none() | texts,
    durability=st.sampled_from(["none", "written", "committed"]),
)
frames = st.lists(st.tuples(st.integers(0, 3), words), min_size=1, max_size=6)


def shape(word: Publish) -> PublishShape | None:
    body = encode(word)
    return shape_of(HEAD_BYTES - LENGTH_BYTES + len(body), body, word)


@given(words, frames)
def test_what_a_run_takes_is_what_its_frames_say(
    first: Publish, rest: list[tuple[int, Publish]]
) -> None:
    found = shape(first)
    buf = bytearray(b"".join(frame(number, encode(word)) for number, word in [(1, first), *rest]))
    view = memoryview(buf)

    numbers, values = ([], []) if found is None else found.take(buf, view, 0, len(buf))

    at = 0
    for number, value in zip(numbers, values, strict=True):
        length, _, told = HEAD.unpack_from(buf, at)
        word = read_request(view[at + HEAD_BYTES : at + LENGTH_BYTES + length])
        assert (told, number != 0) == (number, True)
        assert isinstance(word, Publish)
        assert word.messages == [WireMessage(value=value)]
        assert (word.key, word.exchange, word.durability) == (
            first.key,
            first.exchange,
            first.durability,
        )
        at += LENGTH_BYTES + length
    assert at == (0 if found is None else found.bytes_of(len(numbers)))


def test_frames_of_one_shape_are_taken_together_up_to_one_that_differs() -> None:
    values = [b"%08d" % number for number in range(5)]
    told = [Publish(key="orders", messages=[WireMessage(value=value)]) for value in values]
    other = Publish(key="orderz", messages=[WireMessage(value=b"00000009")])
    sent = [*told, other, *told]
    buf = bytearray(b"".join(frame(at, encode(word)) for at, word in enumerate(sent, 1)))

    found = shape(told[0])
    assert found is not None
    numbers, taken = found.take(buf, memoryview(buf), 0, len(buf) - 1)

    assert (numbers, taken) == ([1, 2, 3, 4, 5], values)


def test_a_value_that_also_stands_elsewhere_has_no_shape() -> None:
    message = WireMessage(value=b"payments")

    assert shape(Publish(key="payments", messages=[message])) is None
    assert shape(Publish(key="payment", messages=[message])) is not None
