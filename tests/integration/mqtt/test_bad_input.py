"""What is not MQTT does no harm, and its sender is told where the version has words for it."""

import psutil
import pytest
from tests.integration.mqtt.conftest import Dial
from tests.integration.mqtt.raw_client import RawClient

from mainstem.testing.local_node import LocalNode
from mainstem.wire.mqtt.kinds import V3_1_1, V5, Kind
from mainstem.wire.mqtt.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
    Subscribe,
    Subscription,
)
from mainstem.wire.mqtt.reasons import Reason


def dialled(node: LocalNode, version: int = V5) -> RawClient:
    return RawClient(str(node.announced["mqtt"]), version)


BEFORE = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a length of 2^28 - 1": b"\x10\xff\xff\xff\x7f",
    "a length of five bytes": b"\x10\xff\xff\xff\xff\x7f",
    "PUBLISH before CONNECT": b"\x30\x03\x00\x01a",
    "CONNECT to another protocol": b"\x10\x0d\x00\x04HTTP\x04\x02\x00\x00\x00\x01a",
    "CONNECT with bad UTF-8": b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x00\x00\x02\xc3\x28",
    "CONNECT with a reserved flag": b"\x10\x0d\x00\x04MQTT\x04\x03\x00\x00\x00\x01a",
    "CONNECT that is too short": b"\x10\x02\x00\x04",
    "CONNECT with bytes behind it": b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x00\x00\x01aZ",
}


@pytest.mark.parametrize("data", BEFORE.values(), ids=BEFORE)
def test_what_comes_before_a_login_and_is_no_mqtt_ends_the_connection(
    mqtt_node: LocalNode, data: bytes
) -> None:
    with dialled(mqtt_node) as raw:
        raw.send_bytes(data)
        assert raw.is_closed()


AFTER = {
    "QoS 3": (b"\x36\x05\x00\x01a\x00\x01", Reason.MALFORMED_PACKET),
    "bad UTF-8": (b"\x30\x05\x00\x02\xc3\x28\x00", Reason.MALFORMED_PACKET),
    "a topic with a NUL": (b"\x30\x04\x00\x01\x00\x00", Reason.MALFORMED_PACKET),
    "a wildcard in a topic": (b"\x30\x04\x00\x01#\x00", Reason.TOPIC_NAME_INVALID),
    "an empty topic": (b"\x30\x03\x00\x00\x00", Reason.PROTOCOL_ERROR),
    "a length that is too long": (b"\x30\x81\x00\x00", Reason.MALFORMED_PACKET),
    "a property that does not exist": (b"\x30\x06\x00\x01a\x02\x7f\x00", Reason.MALFORMED_PACKET),
    "SUBSCRIBE without a filter": (b"\x82\x03\x00\x01\x00", Reason.PROTOCOL_ERROR),
    "a second CONNECT": (
        b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x00\x00\x00\x01a",
        Reason.PROTOCOL_ERROR,
    ),
    "a packet of a server": (b"\xd0\x00", Reason.PROTOCOL_ERROR),
    "an alias of 0": (b"\x30\x07\x00\x01a\x03\x23\x00\x00", Reason.TOPIC_ALIAS_INVALID),
    "an alias of nothing": (b"\x30\x06\x00\x00\x03\x23\x00\x05", Reason.TOPIC_ALIAS_INVALID),
    "an alias beyond the limit": (b"\x30\x07\x00\x01a\x03\x23\xff\xff", Reason.TOPIC_ALIAS_INVALID),
    "a subscription identifier": (b"\x30\x06\x00\x01a\x02\x0b\x01", Reason.PROTOCOL_ERROR),
    "more than the largest packet": (b"\x30\xff\xff\xff\x7f", Reason.PACKET_TOO_LARGE),
}


@pytest.mark.parametrize(("data", "reason"), AFTER.values(), ids=AFTER)
def test_a_packet_that_breaks_a_rule_ends_the_connection_with_a_reason(
    mqtt_node: LocalNode, data: bytes, reason: Reason
) -> None:
    with dialled(mqtt_node) as raw:
        assert raw.connect(client_id="").reason == Reason.SUCCESS
        raw.send_bytes(data)
        answer = raw.receive()
        assert isinstance(answer, Disconnect)
        assert answer.reason == reason
        assert raw.is_closed()


def test_a_version_that_is_not_served_is_told_so(mqtt_node: LocalNode) -> None:
    with dialled(mqtt_node, V3_1_1) as raw:
        raw.send_bytes(b"\x10\x0d\x00\x04MQTT\x07\x02\x00\x00\x00\x01a")
        answer = raw.receive()
        assert isinstance(answer, Connack)
        assert answer.reason == Reason.UNSUPPORTED_VERSION
        assert raw.is_closed()


def test_a_nameless_client_of_3_1_1_cannot_keep_a_session(mqtt_node: LocalNode) -> None:
    with dialled(mqtt_node, V3_1_1) as raw:
        assert raw.connect(client_id="", clean_start=False).reason == Reason.CLIENT_ID_NOT_VALID
        assert raw.is_closed()


def test_a_length_that_is_a_lie_costs_no_memory(mqtt_node: LocalNode) -> None:
    process = psutil.Process(mqtt_node.pid)
    with dialled(mqtt_node) as first:
        first.connect(client_id="")
    before = process.memory_info().rss
    clients = [dialled(mqtt_node) for _ in range(50)]
    for raw in clients:
        raw.send_bytes(b"\x10\xff\xff\xff\x7f" + bytes(1_000))
        assert raw.is_closed()
        raw.sock.close()
    assert process.memory_info().rss - before < 8 * 2**20


def test_packets_in_pieces_and_in_one_piece_are_served_alike(mqtt_node: LocalNode) -> None:
    with dialled(mqtt_node) as raw:
        raw.send(Connect(version=V5, client_id="p"), Pingreq(), Pingreq())
        assert isinstance(raw.receive(), Connack)
        assert [type(raw.receive()) for _ in range(2)] == [Pingresp, Pingresp]
        for byte in b"\xc0\x00\xc0\x00":
            raw.send_bytes(bytes((byte,)))
        assert [type(raw.receive()) for _ in range(2)] == [Pingresp, Pingresp]


def test_more_than_receive_maximum_is_refused(mqtt_node: LocalNode) -> None:
    with dialled(mqtt_node) as raw:
        most = raw.connect(client_id="").properties["receive_maximum"]
        for number in range(1, most + 1):
            raw.send(Publish("many", b"", 2, packet_id=number))
        assert [type(raw.receive()) for _ in range(most)] == [Ack] * most
        raw.send(Publish("many", b"", 2, packet_id=most + 1))
        answer = raw.receive()
        assert isinstance(answer, Disconnect)
        assert answer.reason == Reason.RECEIVE_MAXIMUM_EXCEEDED


def test_receive_maximum_counts_messages_that_are_being_stored_as_well(
    mqtt_node: LocalNode,
) -> None:
    with dialled(mqtt_node) as raw:
        most = raw.connect(client_id="").properties["receive_maximum"]
        first = most * 6 // 10
        for number in range(1, first + 1):
            raw.send(Publish("many", b"", 2, packet_id=number))
        assert [type(raw.receive()) for _ in range(first)] == [Ack] * first
        # None of them is released, and these come faster than they are stored.
        raw.send(*(Publish("many", b"", 2, packet_id=each) for each in range(first + 1, most + 51)))
        answers = 0
        while isinstance(answer := raw.receive(), Ack):
            answers += 1
        assert isinstance(answer, Disconnect)
        assert answer.reason == Reason.RECEIVE_MAXIMUM_EXCEEDED
        assert first + answers <= most


def test_numbers_that_nobody_knows_are_answered(mqtt_node: LocalNode) -> None:
    with dialled(mqtt_node) as raw:
        raw.connect(client_id="")
        raw.send(Ack(Kind.PUBREL, 7), Ack(Kind.PUBREC, 8), Ack(Kind.PUBACK, 9))
        assert raw.receive() == Ack(Kind.PUBCOMP, 7, Reason.PACKET_ID_NOT_FOUND)
        assert raw.receive() == Ack(Kind.PUBREL, 8, Reason.PACKET_ID_NOT_FOUND)


def test_a_message_of_qos_2_sent_twice_is_stored_once(
    mqtt_node: LocalNode, dial: Dial, topic: str
) -> None:
    watcher = dial(mqtt_node)
    watcher.subscribe(topic, 2)
    with dialled(mqtt_node) as raw:
        raw.connect(client_id="twice", properties={"session_expiry_interval": 60})
        raw.send(Publish(topic, b"once", 2, packet_id=5))
        assert raw.receive() == Ack(Kind.PUBREC, 5)
    with dialled(mqtt_node) as raw:
        answer = raw.connect(
            client_id="twice", clean_start=False, properties={"session_expiry_interval": 60}
        )
        assert answer.session_present
        raw.send(Publish(topic, b"once", 2, dup=True, packet_id=5))
        assert raw.receive() == Ack(Kind.PUBREC, 5)
        raw.send(Ack(Kind.PUBREL, 5))
        assert raw.receive() == Ack(Kind.PUBCOMP, 5)

    assert watcher.payloads() == [b"once"]
    assert watcher.nothing()


def test_a_client_that_reads_nothing_does_not_fill_the_node(
    mqtt_node: LocalNode, dial: Dial, topic: str
) -> None:
    process = psutil.Process(mqtt_node.pid)
    with dialled(mqtt_node) as deaf:
        deaf.connect(client_id="deaf")
        deaf.send(Subscribe(1, (Subscription(topic, 0),)))
        deaf.receive()
        writer = dial(mqtt_node)
        before = process.memory_info().rss
        for _ in range(300):
            writer.publish(topic, bytes(200_000))
        assert process.memory_info().rss - before < 50 * 2**20
        # Nothing is lost either: what waits is read from the log.
        got = [deaf.receive() for _ in range(300)]
    assert all(isinstance(each, Publish) and len(each.payload) == 200_000 for each in got)
