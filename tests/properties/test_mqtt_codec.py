"""MQTT packets survive the wire, and no bytes do harm."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainstem.wire.mqtt.decoder import decode, frame_at
from mainstem.wire.mqtt.encoder import encode
from mainstem.wire.mqtt.kinds import V3_1, V3_1_1, V5, Kind
from mainstem.wire.mqtt.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from mainstem.wire.mqtt.primitives import Malformed
from mainstem.wire.mqtt.properties import TABLE, WILL, Property
from mainstem.wire.mqtt.reasons import Reason

mqtt5 = pytest.importorskip("mqtt5")

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
topics = texts.map(lambda text: "t" + text.replace("+", "").replace("#", ""))
packet_ids = st.integers(1, 65_535)
reasons = st.sampled_from(Reason)
NUMBERS = {"byte": 0xFF, "two": 0xFFFF, "four": 0xFFFF_FFFF, "length": 268_435_455}


def value_of(row: Property) -> st.SearchStrategy[Any]:
    reader = row.form.read.__name__
    if row.name == "response_topic":
        return topics
    if reader == "text":
        return texts
    if reader == "binary":
        return st.binary(max_size=20)
    if reader in NUMBERS:
        return st.integers(row.least, NUMBERS[reader] if row.most is None else row.most)
    return st.tuples(texts, texts)


@st.composite
def properties(draw: st.DrawFn, packet: int, version: int) -> dict[str, Any]:
    if version < V5:
        return {}
    rows = [row for row in TABLE if packet in row.packets]
    if not rows:
        return {}
    found: dict[str, Any] = {}
    for row in draw(st.lists(st.sampled_from(rows), unique=True)):
        most = 1 if packet == Kind.SUBSCRIBE and row.name == "subscription_identifiers" else 3
        many = st.lists(value_of(row), min_size=1, max_size=most).map(tuple)
        found[row.name] = draw(many if row.repeats else value_of(row))
    if "authentication_data" in found:
        found.setdefault("authentication_method", "m")
    return found


@st.composite
def wills(draw: st.DrawFn, version: int) -> Will:
    return Will(
        draw(topics),
        draw(st.binary(max_size=50)),
        draw(st.integers(0, 2)),
        draw(st.booleans()),
        draw(properties(WILL, version)),
    )


@st.composite
def connects(draw: st.DrawFn) -> Connect:
    version = draw(st.sampled_from([V3_1, V3_1_1, V5]))
    name = draw(st.none() | texts)
    return Connect(
        version=version,
        client_id=draw(texts),
        clean_start=draw(st.booleans()),
        keep_alive_s=draw(st.integers(0, 65_535)),
        username=name,
        password=None if name is None else draw(st.none() | st.binary(max_size=20)),
        will=draw(st.none() | wills(version)),
        properties=draw(properties(Kind.CONNECT, version)),
    )


def publishes(version: int) -> st.SearchStrategy[Publish]:
    def built(qos: int, packet_id: int, more: tuple[Any, ...], *, dup: bool) -> Publish:
        topic, payload, retain, with_properties = more
        number = packet_id if qos else 0
        return Publish(topic, payload, qos, retain, dup and qos > 0, number, with_properties)

    more = st.tuples(
        topics, st.binary(max_size=200), st.booleans(), properties(Kind.PUBLISH, version)
    )
    return st.builds(built, st.integers(0, 2), packet_ids, more, dup=st.booleans())


def packets(version: int) -> st.SearchStrategy[Packet]:
    new = version >= V5
    reason = reasons if new else st.just(Reason.SUCCESS)
    flag = st.booleans() if new else st.just(value=False)
    subscription = st.builds(
        Subscription, texts, st.integers(0, 2), flag, flag, st.integers(0, 2 if new else 0)
    )

    def of(kind: Kind) -> st.SearchStrategy[dict[str, Any]]:
        return properties(kind, version)

    def some(each: st.SearchStrategy[Any], least: int = 1) -> st.SearchStrategy[tuple[Any, ...]]:
        return st.lists(each, min_size=least, max_size=4).map(tuple)

    granted = some(st.sampled_from([0, 1, 2, 0x80]))
    removed = some(reasons.map(int), 0) if new else st.just(())
    kinds = (Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP)
    return st.one_of(
        publishes(version),
        st.builds(Connack, reason, st.booleans(), of(Kind.CONNACK)),
        *(st.builds(Ack, st.just(kind), packet_ids, reason, of(kind)) for kind in kinds),
        st.builds(Subscribe, packet_ids, some(subscription), of(Kind.SUBSCRIBE)),
        st.builds(Suback, packet_ids, granted, of(Kind.SUBACK)),
        st.builds(Unsubscribe, packet_ids, some(texts), of(Kind.UNSUBSCRIBE)),
        st.builds(Unsuback, packet_ids, removed, of(Kind.UNSUBACK)),
        st.builds(Pingreq),
        st.builds(Pingresp),
        st.builds(Disconnect, reason, of(Kind.DISCONNECT)),
        *([st.builds(Auth, reason, of(Kind.AUTH))] if new else []),
    )


def parsed(data: bytes, version: int) -> Packet:
    frame = frame_at(data, 0, len(data))
    assert frame is not None
    head, size = frame
    assert head + size == len(data)
    return decode(data[0], data[head:], version)


@given(connects())
def test_a_connect_survives_the_wire(packet: Connect) -> None:
    assert parsed(encode(packet, packet.version), V3_1_1) == packet


@given(st.data(), st.sampled_from([V3_1_1, V5]))
def test_every_packet_survives_the_wire(data: st.DataObject, version: int) -> None:
    packet = data.draw(packets(version))
    assert parsed(encode(packet, version), version) == packet


@given(packets(V5).filter(lambda packet: not isinstance(packet, Suback | Unsuback | Connack)))
def test_another_codec_writes_the_same_packets_of_version_5(packet: Packet) -> None:
    ours = encode(packet, V5)
    try:
        theirs, size = mqtt5.read(memoryview(bytearray(ours)))
    except (ValueError, IndexError):
        return  # it knows which reasons fit which packet; those rules are the sessions' here
    assert size == len(ours)
    assert parsed(bytes(theirs.write()), V5) == _normal(packet)


def _normal(packet: Packet) -> Packet:
    """Without what the other codec takes for a default and leaves out."""
    plain = {
        "payload_format_indicator": 0,
        "receive_maximum": 65_535,
        "topic_alias_maximum": 0,
        "request_problem_information": 1,
        "request_response_information": 0,
        "will_delay_interval": 0,
    }
    if isinstance(packet, Pingreq | Pingresp):
        return packet
    told = packet.properties.items()
    return replace(packet, properties={k: v for k, v in told if plain.get(k) != v})


@given(st.integers(0, 255), st.binary(max_size=80), st.sampled_from([V3_1_1, V5]))
def test_any_bytes_are_a_packet_or_malformed(first: int, body: bytes, version: int) -> None:
    try:
        packet = decode(first, body, version)
    except Malformed:
        return
    assert isinstance(encode(packet, version), bytes)


@given(st.data(), st.sampled_from([V3_1_1, V5]))
def test_a_packet_cut_short_or_changed_is_a_packet_or_malformed(
    data: st.DataObject, version: int
) -> None:
    whole = bytearray(encode(data.draw(packets(version)), version))
    head = frame_at(whole, 0, len(whole))
    assert head is not None
    body = whole[head[0] :]
    if body and data.draw(st.booleans()):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    until = data.draw(st.integers(0, len(body)))
    try:
        decode(whole[0], bytes(body[:until]), version)
    except Malformed:
        return
