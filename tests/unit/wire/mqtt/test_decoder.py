"""What is not MQTT is refused, each rule by name."""

import pytest

from mainstem.wire.mqtt.decoder import decode, frame_at
from mainstem.wire.mqtt.kinds import V3_1_1, V5
from mainstem.wire.mqtt.primitives import Malformed
from mainstem.wire.mqtt.reasons import Reason
from mainstem.wire.mqtt.topics import SharedFilter, fits, is_subscribable, shared_filter

MALFORMED = {
    "a kind that does not exist": (0x00, b""),
    "QoS 3": (0x36, b"\0\1a\0\1"),
    "a repeated message of QoS 0": (0x38, b"\0\1a"),
    "a topic that is not UTF-8": (0x30, b"\0\2\xc3\x28"),
    "a topic with a NUL": (0x30, b"\0\3a\0b"),
    "a topic with a surrogate": (0x30, b"\0\3\xed\xa0\x80"),
    "an empty topic": (0x30, b"\0\0"),
    "a topic with a wildcard": (0x30, b"\0\3a/#"),
    "a topic longer than its packet": (0x30, b"\0\x09a"),
    "a packet identifier of 0": (0x32, b"\0\1a\0\0"),
    "a ping with a body": (0xC0, b"x"),
    "a ping with flags": (0xC1, b""),
    "SUBSCRIBE without its flag": (0x80, b"\0\1\0\1a\0"),
    "SUBSCRIBE without a filter": (0x82, b"\0\1"),
    "SUBSCRIBE with QoS 3": (0x82, b"\0\1\0\1a\3"),
    "SUBSCRIBE with options of version 5": (0x82, b"\0\1\0\1a\4"),
    "UNSUBSCRIBE without a filter": (0xA2, b"\0\1"),
    "PUBREL without its flag": (0x60, b"\0\1"),
    "an acknowledgement with more than an identifier": (0x40, b"\0\1\0"),
    "AUTH before version 5": (0xF0, b""),
    "CONNECT to another protocol": (0x10, b"\0\4HTTP\4\2\0\0\0\1a"),
    "CONNECT with its reserved flag": (0x10, b"\0\4MQTT\4\3\0\0\0\1a"),
    "CONNECT with a will of QoS 3": (0x10, b"\0\4MQTT\4\x1e\0\0\0\1a\0\1t\0\0"),
    "CONNECT with QoS of no will": (0x10, b"\0\4MQTT\4\x0a\0\0\0\1a"),
    "CONNECT with a password and no name": (0x10, b"\0\4MQTT\4\x42\0\0\0\1a\0\1p"),
    "CONNECT with bytes behind it": (0x10, b"\0\4MQTT\4\2\0\0\0\1ax"),
}


@pytest.mark.parametrize(("first", "body"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_packets_are_refused(first: int, body: bytes) -> None:
    with pytest.raises(Malformed):
        decode(first, body, V3_1_1)


PROPERTIES = {
    "one that does not exist": b"\2\x7f\0",
    "one of another packet": b"\3\x21\0\1",
    "one twice": b"\4\1\0\1\0",
    "a flag of 2": b"\2\1\2",
    "a subscription identifier of 0": b"\2\x0b\0",
    "longer than the packet": b"\x20\1\0",
    "cut in the middle": b"\2\2\0",
    "a length longer than need be": b"\x80\0",
}


@pytest.mark.parametrize("properties", PROPERTIES.values(), ids=PROPERTIES)
def test_malformed_properties_are_refused(properties: bytes) -> None:
    with pytest.raises(Malformed):
        decode(0x30, b"\0\1a" + properties, V5)


def test_an_unknown_version_is_refused_with_its_own_reason() -> None:
    with pytest.raises(Malformed) as refused:
        decode(0x10, b"\0\4MQTT\x06\2\0\0\0\0\1a", V3_1_1)

    assert refused.value.reason == Reason.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"\x30", None), (b"\x30\x80", None), (b"\x30\x05", (2, 5)), (b"\x30\x80\x01", (3, 128))],
)
def test_a_head_says_how_long_its_packet_is(data: bytes, expected: tuple[int, int] | None) -> None:
    assert frame_at(data, 0, len(data)) == expected


@pytest.mark.parametrize("data", [b"\x30\xff\xff\xff\xff\x01", b"\x30\x80\x00"])
def test_a_length_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        frame_at(data, 0, len(data))


@pytest.mark.parametrize(
    ("text", "legal"),
    [
        ("a", True), ("/", True), ("+", True), ("#", True), ("+/+/#", True), ("a//b", True),
        ("", False), ("a#", False), ("a/#/b", False), ("a+", False), ("a/+b", False),
        ("$share/g/a", True), ("$share/g/#", True), ("$share/g", False), ("$share//a", False),
        ("$share/g+/a", False), ("$share/g/", False), ("$SYS/#", True),
    ],
)  # fmt: skip
def test_filters_are_legal_or_not(text: str, *, legal: bool) -> None:
    assert is_subscribable(text) is legal


def test_a_shared_filter_has_a_group_and_a_filter() -> None:
    assert shared_filter("$share/workers/jobs/+") == SharedFilter("workers", "jobs/+")
    assert shared_filter("jobs/+") is None


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("a/b", "a/b", True), ("a/+", "a/b", True), ("a/+", "a", False), ("a/+", "a/b/c", False),
        ("a/#", "a", True), ("a/#", "a/b/c", True), ("#", "a/b", True), ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False), ("$SYS/#", "$SYS/x", True), ("+/+", "/a", True),
        ("/+", "/a", True), ("+", "/a", False), ("a", "b", False), ("a/b", "a", False),
    ],
)  # fmt: skip
def test_filters_fit_topics(pattern: str, topic: str, *, expected: bool) -> None:
    assert fits(pattern, topic) is expected
