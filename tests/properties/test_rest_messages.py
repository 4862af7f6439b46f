"""What HTTP shows of a message, posted again, is the same message."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mainstem.model.records.record import Record
from mainstem.protocols.rest.convert import message_of, shown
from mainstem.protocols.rest.incoming import decode
from mainstem.protocols.rest.schemas.topics_and_groups import MessageRequest

content = st.none() | st.binary() | st.text().map(str.encode)
records = st.builds(
    Record,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    content,
    content,
    st.lists(st.tuples(st.text(), content)).map(tuple),
)


@given(records, st.sampled_from(["auto", "base64"]), st.integers(0, 99_999), st.integers(0, 9))
def test_a_message_that_was_shown_can_be_stored_again(
    record: Record, encoding: str, partition: int, place: int
) -> None:
    body = msgspec.json.encode(shown(record, partition, encoding))
    again = decode(body, MessageRequest)
    message = message_of(again, now_ms=-1, place=place)
    assert again.partition == partition
    assert message.to_record() == record._replace(offset=0)


@given(
    st.recursive(
        # JSON has no word for infinity: its text would be null, which is no value at all.
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    ).filter(lambda value: value is not None and not isinstance(value, str)),
    st.booleans(),
)
def test_a_value_of_any_json_is_stored_as_the_text_it_was_sent_as(
    value: object, pretty: bool
) -> None:
    text = msgspec.json.encode(value)
    if pretty:
        text = msgspec.json.format(text, indent=2)
    described = decode(b'{"value":' + text + b"}", MessageRequest)
    assert message_of(described, now_ms=0, place=0).value == text


@given(st.text(st.characters(codec="utf-8")), st.booleans())
def test_text_arrives_as_its_bytes_however_it_was_escaped(text: str, escaped: bool) -> None:
    written = msgspec.json.encode(text)
    if escaped:
        written = b'"' + "".join(_escaped(character) for character in text).encode() + b'"'
    described = decode(b'{"key":' + written + b',"value":' + written + b"}", MessageRequest)
    message = message_of(described, now_ms=0, place=0)
    assert (message.key, message.value) == (text.encode(), text.encode())


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
