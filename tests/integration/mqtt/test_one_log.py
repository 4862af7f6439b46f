"""What MQTT clients write Kafka clients read, and back: key, headers, bytes and order."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from tests.integration.mqtt.conftest import WITH_MQTT, Dial

from mainstem.testing.local_node import LocalNode

BINARY = bytes(range(256))


def consumed(
    node: LocalNode, topic: str, count: int
) -> list[tuple[bytes, bytes, dict[str, bytes]]]:
    consumer = Consumer(
        {
            "bootstrap.servers": node.kafka,
            "group.id": f"reads-{topic}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[tuple[Any, Any, dict[str, Any]]] = []
    while len(found) < count:
        message = consumer.poll(15)
        assert message is not None, f"{len(found)} of {count} came"
        assert message.error() is None, message.error()
        found.append((message.key(), message.value(), dict(message.headers() or [])))
    consumer.close()
    return found


@pytest.fixture(scope="module")
def routed_node() -> Iterator[LocalNode]:
    """MQTT topics of sensors have a topic of their own in the log."""
    routes = json.dumps(["sensors/=sensors", "sensors/cold/=cold"])
    with LocalNode(arguments=(*WITH_MQTT, "--set", f"mqtt.routes={routes}")) as node:
        yield node


def test_kafka_reads_what_mqtt_writes(own_mqtt_node: LocalNode, dial: Dial) -> None:
    client = dial(own_mqtt_node, "thermometer")
    told = {
        "ContentType": "application/octet-stream",
        "CorrelationData": b"\x01\x02",
        "ResponseTopic": "answers",
        "UserProperty": [("unit", "K")],
    }

    client.publish("home/kitchen", BINARY, 2, told=told)
    for number in range(10):
        client.publish("home/hall", b"%d" % number)

    records = consumed(own_mqtt_node, "mqtt", 11)
    assert records[0] == (
        b"home/kitchen",
        BINARY,
        {
            "mqtt.client-id": b"thermometer",
            "mqtt.qos": b"2",
            "content-type": b"application/octet-stream",
            "reply-to": b"answers",
            "correlation-id": b"\x01\x02",
            "unit": b"K",
        },
    )
    assert [value for _, value, _ in records[1:]] == [b"%d" % number for number in range(10)]


def test_mqtt_reads_what_kafka_writes(mqtt_node: LocalNode, dial: Dial) -> None:
    client = dial(mqtt_node)
    client.subscribe("from/kafka/#")
    producer = Producer({"bootstrap.servers": mqtt_node.kafka, "compression.type": "zstd"})

    producer.produce(
        "mqtt",
        key=b"from/kafka/1",
        value=BINARY,
        headers=[("content-type", b"text/plain"), ("unit", b"K"), ("raw", b"\xff")],
    )
    for number in range(100):
        producer.produce("mqtt", key=b"from/kafka/2", value=b"%d" % number)
    producer.flush(10)

    first, *others = client.take(101)
    assert (first.topic, first.payload, first.qos) == ("from/kafka/1", BINARY, 1)
    assert first.properties.ContentType == "text/plain"
    assert first.properties.UserProperty == [("unit", "K")]
    assert [each.payload for each in others] == [b"%d" % number for number in range(100)]


def test_an_aborted_transaction_is_not_seen_by_mqtt(mqtt_node: LocalNode, dial: Dial) -> None:
    client = dial(mqtt_node)
    client.subscribe("transactions")
    producer = Producer({"bootstrap.servers": mqtt_node.kafka, "transactional.id": "mqtt-tx"})
    producer.init_transactions(10)

    producer.begin_transaction()
    producer.produce("mqtt", key=b"transactions", value=b"aborted")
    producer.flush(10)
    producer.abort_transaction(10)
    producer.begin_transaction()
    producer.produce("mqtt", key=b"transactions", value=b"committed")
    producer.commit_transaction(10)

    assert client.payloads() == [b"committed"]
    assert client.nothing()


def test_the_longest_prefix_decides_where_messages_go(routed_node: LocalNode, dial: Dial) -> None:
    client = dial(routed_node)
    client.subscribe("#")

    client.publish("sensors/1", b"a")
    client.publish("sensors/cold/1", b"b")
    client.publish("other", b"c")

    assert sorted(client.payloads(3)) == [b"a", b"b", b"c"]
    assert consumed(routed_node, "sensors", 1)[0][:2] == (b"sensors/1", b"a")
    assert consumed(routed_node, "cold", 1)[0][:2] == (b"sensors/cold/1", b"b")
    assert consumed(routed_node, "mqtt", 1)[0][:2] == (b"other", b"c")


def test_a_node_without_mqtt_clients_has_no_topics_for_them(own_mqtt_node: LocalNode) -> None:
    listed = AdminClient({"bootstrap.servers": own_mqtt_node.kafka}).list_topics(timeout=10)
    assert not [name for name in listed.topics if "mqtt" in name]
