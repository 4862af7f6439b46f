"""A message is a record seen by people: nothing is lost between the two."""

from hypothesis import given
from hypothesis import strategies as st

from mainstem.model.message import (
    CONTENT_TYPE,
    CORRELATION_ID,
    EXPIRES_AT,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
    Message,
)
from mainstem.model.records.record import Record

headers = st.lists(
    st.tuples(
        st.sampled_from([CONTENT_TYPE, PRIORITY, EXPIRES_AT, "other"]), st.none() | st.binary()
    )
).map(tuple)


@given(
    st.builds(
        Record,
        st.just(0),
        st.integers(-1, 2**63 - 1),
        st.none() | st.binary(),
        st.none() | st.binary(),
        headers,
    )
)
def test_a_record_survives_being_a_message(record: Record) -> None:
    assert Message.of_record(record).to_record() == record


def test_what_other_protocols_name_is_read_from_agreed_headers() -> None:
    message = Message(
        b"k",
        b"v",
        (
            (CONTENT_TYPE, b"text/plain"),
            (CORRELATION_ID, b"c-1"),
            (REPLY_TO, b"answers"),
            (MESSAGE_ID, b"m-1"),
            (EXPIRES_AT, b"1700000000000"),
            (PRIORITY, b"7"),
        ),
    )
    assert (message.content_type, message.correlation_id) == ("text/plain", "c-1")
    assert (message.reply_to, message.message_id) == ("answers", "m-1")
    assert (message.expires_ms, message.priority) == (1_700_000_000_000, 7)


def test_the_last_of_two_headers_with_one_name_counts() -> None:
    message = Message(None, None, ((CONTENT_TYPE, b"a"), (CONTENT_TYPE, b"b")))
    assert message.content_type == "b"


def test_a_malformed_property_reads_as_absent_and_still_travels() -> None:
    for name, value in (
        (PRIORITY, b"urgent"),
        (PRIORITY, b"256"),
        (PRIORITY, b"-1"),
        (EXPIRES_AT, b"9" * 1_000),
        (CONTENT_TYPE, b"\xff"),
        (CONTENT_TYPE, None),
    ):
        message = Message(None, b"v", ((name, value),))
        seen = (message.priority, message.expires_ms, message.content_type)
        assert seen == (None, None, None)
        assert message.to_record().headers == ((name, value),)


def test_setting_a_header_replaces_all_of_its_name_and_none_removes_it() -> None:
    message = Message(None, None, (("a", b"1"), ("b", b"2"), ("a", b"3")))
    assert message.with_header("a", b"4").headers == (("b", b"2"), ("a", b"4"))
    assert message.with_header("a", None).headers == (("b", b"2"),)
    assert message.header("absent") is None
