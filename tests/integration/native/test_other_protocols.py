"""What native clients write, others read, and back: key, headers, bytes, order."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from tests.integration.native.raw_client import RawClient

from mainstem import connect_blocking
from mainstem.node.embedded import Embedded, EmbeddedNode

BINARY = bytes(range(256))


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedNode]:
    with Embedded().start() as node:
        yield node


@pytest.fixture
def channel(node: EmbeddedNode) -> Iterator[Any]:
    host, _, port = node.amqp.rpartition(":")
    link = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
    made = link.channel()
    made.confirm_delivery()
    yield made
    link.close()


def test_what_amqp_publishes_native_clients_consume(node: EmbeddedNode, channel: Any) -> None:
    channel.queue_declare("from-amqp", durable=True)
    properties = pika.BasicProperties(
        content_type="text/plain",
        correlation_id="c",
        reply_to="r",
        message_id="m",
        priority=4,
        headers={"text": "value", "number": 7},
    )
    for n in range(3):
        channel.basic_publish("", "from-amqp", BINARY + bytes([n]), properties)
    with connect_blocking(node.native) as queues:
        found = []
        for message in queues.queue("from-amqp").consume(idle_ms=5_000):
            with message:
                found.append(message)
            if len(found) == 3:
                break
    assert [message.value for message in found] == [BINARY + bytes([n]) for n in range(3)]
    said = found[0].properties
    assert (said.content_type, said.correlation_id, said.reply_to) == ("text/plain", "c", "r")
    assert (said.message_id, said.priority, found[0].key) == ("m", 4, "from-amqp")
    headers = dict(found[0].headers)
    assert (headers["text"], headers["number"]) == (b"value", b"7")


def test_what_native_clients_publish_amqp_consumes(node: EmbeddedNode, channel: Any) -> None:
    with connect_blocking(node.native) as queues:
        exchange = queues.declare_exchange("to-amqp", "topic")
        queue = queues.declare("to-amqp-queue")
        exchange.bind(queue, "a.*")
        for n in range(3):
            exchange.publish(
                BINARY + bytes([n]),
                key="a.b",
                headers={"text": "value"},
                content_type="text/plain",
                correlation_id="c",
                reply_to="r",
                message_id="m",
                priority=4,
                ttl_ms=60_000,
            )
    found = [channel.basic_get("to-amqp-queue", auto_ack=True) for _ in range(3)]
    assert [body for _, _, body in found] == [BINARY + bytes([n]) for n in range(3)]
    method, properties, _ = found[0]
    assert (method.exchange, method.routing_key) == ("to-amqp", "a.b")
    assert (properties.content_type, properties.correlation_id) == ("text/plain", "c")
    assert (properties.reply_to, properties.message_id, properties.priority) == ("r", "m", 4)
    assert 0 < int(properties.expiration) <= 60_000
    assert properties.headers["text"] in ("value", b"value")


def test_what_mqtt_publishes_native_clients_read(node: EmbeddedNode) -> None:
    host, _, port = node.mqtt.rpartition(":")
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.connect(host, int(port))
    client.loop_start()
    try:
        for n in range(3):
            client.publish("home/light", BINARY + bytes([n]), qos=1).wait_for_publish(10)
    finally:
        client.disconnect()
        client.loop_stop()
    with RawClient(node.native) as raw:
        raw.connect()
        topics = {each["name"]: each["partitions"] for each in raw.ask("list-topics")["topics"]}
        found = [
            record["message"]
            for partition in range(topics["mqtt"])
            for record in raw.ask("read", topic="mqtt", partition=partition)["records"]
        ]
    assert [message["value"] for message in found] == [BINARY + bytes([n]) for n in range(3)]
    assert {message["key"] for message in found} == {b"home/light"}


def test_http_and_native_clients_share_topics(node: EmbeddedNode) -> None:
    with RawClient(node.native) as raw:
        raw.connect()
        messages = [{"value": b"by native", "key": b"k", "headers": [["h", b"1"]]}]
        raw.ask("append", topic="shared", messages=messages)
        body = json.dumps({"key": "k", "value": "by http", "headers": {"h": "2"}}).encode()
        address = f"http://{node.http}/v1/topics/shared/messages"
        told = {"content-type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(address, body, told), timeout=10).close()
        records = raw.ask("read", topic="shared")["records"]
        seen = [(r["message"]["key"], r["message"]["value"]) for r in records]
        assert seen == [(b"k", b"by native"), (b"k", b"by http")]
        assert records[1]["message"]["headers"] == [["h", b"2"]]
        with urllib.request.urlopen(address, timeout=10) as answer:
            shown = json.load(answer)
    assert [each["value"] for each in shown] == ["by native", "by http"]
