"""Whatever bytes come, a session answers or ends; whatever a message says, AMQP can carry it."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.protocols.amqp.dialogue import Dialogue

from mainstem.model.message import Message
from mainstem.protocols.amqp.convert import RAW, Converter, message_of
from mainstem.protocols.amqp.errors import ChannelRefusal
from mainstem.wire.amqp import frames
from mainstem.wire.amqp.fields import Malformed, Timestamp
from mainstem.wire.amqp.method_codec import METHODS, encode_method
from mainstem.wire.amqp.properties import Properties, decode_properties, encode_properties

TEXTS = st.text(max_size=40)
HEADERS = st.dictionaries(
    TEXTS,
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS | st.binary(max_size=20),
    max_size=5,
)
PROPERTIES = st.builds(
    Properties,
    content_type=st.none() | TEXTS,
    headers=st.none() | HEADERS,
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=st.none() | TEXTS,
    reply_to=st.none() | TEXTS,
    expiration=st.none() | st.integers(0, 2**32 - 1).map(str),
    message_id=st.none() | TEXTS,
    timestamp=st.none() | st.integers(0, 2**64 - 1).map(Timestamp),
    type=st.none() | TEXTS,
    app_id=st.none() | TEXTS,
)
METHOD_BYTES = st.sampled_from([encode_method(kind()) for kind in METHODS.values()])
PAYLOADS = METHOD_BYTES | st.binary(max_size=60)
FRAMES = st.tuples(st.integers(0, 9), st.integers(0, 3), PAYLOADS).map(
    lambda drawn: frames.HEAD.pack(drawn[0], drawn[1], len(drawn[2])) + drawn[2] + b"\xce"
)


@given(st.booleans(), st.lists(FRAMES | st.binary(max_size=30), max_size=12))
@settings(deadline=None)
def test_no_bytes_harm_a_session(is_open: bool, pieces: list[bytes]) -> None:
    dialogue = Dialogue()
    if is_open:
        dialogue.open()
    else:
        dialogue.feed(frames.PROTOCOL_HEADER)
    held = b""
    for piece in pieces:
        held += piece
        got, need = dialogue.feed(held)
        held = held[got:]
        assert need > len(held)
        assert need <= 16 * 1024 + 8
    dialogue.heard()
    dialogue.session.closed()


@given(PROPERTIES, st.binary(max_size=30), TEXTS)
def test_a_message_comes_back_as_it_came(sent: Properties, body: bytes, key: str) -> None:
    converter = Converter()
    raw = encode_properties(sent)
    try:
        parsed = converter.parsed(raw)
    except ChannelRefusal:
        assert sent.headers is not None
        assert {"CC", "BCC"} & set(sent.headers)
        return
    message, _ = message_of(parsed, body, key, 1_000)
    stored = Message.of_record(message.to_record())
    assert converter.properties_of(stored, 2_000) == raw
    assert Converter().properties_of(stored, 2_000) == raw
    assert (stored.key, stored.value) == (key.encode(), body)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["content-type", "reply-to", "priority", "expires-at", RAW, "x-death"])
            | TEXTS,
            st.none() | st.binary(max_size=300),
        ),
        max_size=6,
    ),
    st.integers(-1, 2**62),
)
def test_a_message_of_any_protocol_can_be_carried(
    headers: list[tuple[str, bytes | None]], timestamp_ms: int
) -> None:
    message = Message(b"k", b"v", tuple(headers), timestamp_ms)
    for failures in (0, 3):
        raw = Converter().properties_of(message, 1_000, failures)
        decode_properties(raw, 0, len(raw))


@given(st.binary(max_size=100))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        parsed = Converter().parsed(raw)
    except (Malformed, ChannelRefusal):
        return
    message, routing = message_of(parsed, b"", "key", 0)
    assert routing.keys[0] == "key"
    assert message.header(RAW) is not None


def test_what_was_added_to_a_dead_letter_is_merged() -> None:
    sent = Properties(headers={"mine": 1}, expiration="50", content_type="text/plain")
    message, _ = message_of(Converter().parsed(encode_properties(sent)), b"", "k", 1_000)
    deaths = (
        b'[{"queue":"q","reason":"expired","time-ms":5000,"routing-keys":["k"],"why":"expired"}]'
    )
    letter = message.with_header("expires-at", None).with_header("x-death", deaths)
    raw = Converter().properties_of(letter.with_header("x-dead-letter-id", b"1"), 2_000)
    found: Any = decode_properties(raw, 0, len(raw))
    assert found.expiration is None
    assert found.content_type == "text/plain"
    assert found.headers["mine"] == 1
    assert found.headers["x-death"] == [
        {
            "queue": "q",
            "reason": "expired",
            "time": 5,
            "routing-keys": ["k"],
            "count": 1,
            "exchange": "",
        }
    ]
    assert "x-dead-letter-id" not in found.headers
