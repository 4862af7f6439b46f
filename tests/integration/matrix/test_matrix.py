"""One log: what any client writes, every other reads, with key, headers, bytes and order.

Each writer sends the same messages to the topic ``mqtt``, which is an exchange as well; before it
does, a reader of every protocol is ready. Kafka, AMQP, MQTT and HTTP are spoken by third parties.
"""

import base64
import json
import queue
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import confluent_kafka
import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from mainstem import connect_blocking
from mainstem.node.embedded import Embedded, EmbeddedNode

TOPIC = "mqtt"
COUNT = 20
BINARY = bytes(range(256))
TIMEOUT_S = 20.0


class Seen(NamedTuple):
    """A message as a reader got it."""

    key: str
    value: bytes
    header: bytes


class Reader(Protocol):
    def read(self, count: int) -> list[Seen]: ...

    def close(self) -> None: ...


def expected(key: str) -> list[Seen]:
    return [Seen(key, BINARY + bytes([n]), b"value") for n in range(COUNT)]


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedNode]:
    with Embedded().start() as node:
        with connect_blocking(node.native) as queues:
            queues.declare_exchange(TOPIC, "topic", shared=True)
        yield node


# Writers


def write_kafka(node: EmbeddedNode, key: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": node.kafka})
    for n in range(COUNT):
        producer.produce(TOPIC, BINARY + bytes([n]), key, headers=[("header", b"value")])
    assert producer.flush(TIMEOUT_S) == 0


def write_amqp(node: EmbeddedNode, key: str) -> None:
    link = pika.BlockingConnection(_amqp(node))
    channel = link.channel()
    channel.confirm_delivery()
    for n in range(COUNT):
        properties = pika.BasicProperties(headers={"header": "value"}, delivery_mode=2)
        channel.basic_publish(TOPIC, key, BINARY + bytes([n]), properties)
    link.close()


def write_mqtt(node: EmbeddedNode, key: str) -> None:
    client = _paho(node)
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.UserProperty = [("header", "value")]
    for n in range(COUNT):
        told = client.publish(key, BINARY + bytes([n]), qos=1, properties=properties)
        told.wait_for_publish(TIMEOUT_S)
    client.disconnect()
    client.loop_stop()


def write_native(node: EmbeddedNode, key: str) -> None:
    with connect_blocking(node.native) as queues:
        exchange = queues.exchange(TOPIC)
        for n in range(COUNT):
            exchange.publish(BINARY + bytes([n]), key=key, headers={"header": b"value"})


def write_http(node: EmbeddedNode, key: str) -> None:
    for n in range(COUNT):
        message = {
            "key": key,
            "value": base64.b64encode(BINARY + bytes([n])).decode(),
            "value_encoding": "base64",
            "headers": {"header": "value"},
        }
        request = urllib.request.Request(
            f"http://{node.http}/v1/topics/{TOPIC}/messages",
            json.dumps(message).encode(),
            {"content-type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=TIMEOUT_S).close()


# Readers


class KafkaReader:
    def __init__(self, node: EmbeddedNode, key: str) -> None:
        self._key = key
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": node.kafka, "group.id": key, "auto.offset.reset": "earliest"}
        )
        found = self._consumer.list_topics(TOPIC, timeout=TIMEOUT_S).topics[TOPIC].partitions
        self._consumer.assign([confluent_kafka.TopicPartition(TOPIC, p, 0) for p in found])

    def read(self, count: int) -> list[Seen]:
        found: list[Seen] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < count and time.monotonic() < deadline:
            record = self._consumer.poll(0.5)
            if record is not None and record.error() is None and _text(record.key()) == self._key:
                header = _bytes(dict(record.headers() or [])["header"])
                found.append(Seen(self._key, _bytes(record.value()), header))
        return found

    def close(self) -> None:
        self._consumer.close()


class AmqpReader:
    def __init__(self, node: EmbeddedNode, key: str) -> None:
        self._link = pika.BlockingConnection(_amqp(node))
        self._channel = self._link.channel()
        self._queue = f"amqp-{key}"
        self._channel.queue_declare(self._queue, durable=True)
        self._channel.queue_bind(self._queue, TOPIC, key)

    def read(self, count: int) -> list[Seen]:
        found: list[Seen] = []
        for method, properties, body in self._channel.consume(
            self._queue, auto_ack=True, inactivity_timeout=TIMEOUT_S
        ):
            if method is None:
                break
            header = _bytes(properties.headers["header"])
            found.append(Seen(method.routing_key, body, header))
            if len(found) == count:
                break
        return found

    def close(self) -> None:
        self._link.close()


class MqttReader:
    def __init__(self, node: EmbeddedNode, key: str) -> None:
        self._seen: queue.Queue[Seen] = queue.Queue()
        ready: queue.Queue[None] = queue.Queue()
        self._client = _paho(node)
        self._client.on_message = self._arrived
        self._client.on_subscribe = lambda *_: ready.put(None)
        self._client.subscribe(key, qos=1)
        ready.get(timeout=TIMEOUT_S)

    def _arrived(self, _: Any, __: Any, message: paho.MQTTMessage) -> None:
        headers = dict(getattr(message.properties, "UserProperty", []))
        header = _bytes(headers.get("header", ""))
        self._seen.put(Seen(message.topic, bytes(message.payload), header))

    def read(self, count: int) -> list[Seen]:
        return [self._seen.get(timeout=TIMEOUT_S) for _ in range(count)]

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class NativeReader:
    def __init__(self, node: EmbeddedNode, key: str) -> None:
        self._queues = connect_blocking(node.native).__enter__()
        self._queue = self._queues.declare(f"native-{key}")
        self._queues.exchange(TOPIC).bind(self._queue, key)

    def read(self, count: int) -> list[Seen]:
        found: list[Seen] = []
        for message in self._queue.consume(idle_ms=round(TIMEOUT_S * 1000)):
            with message:
                header = dict(message.headers)["header"] or b""
                found.append(Seen(message.key, message.value, header))
            if len(found) == count:
                break
        return found

    def close(self) -> None:
        self._queues.close()


class HttpReader:
    def __init__(self, node: EmbeddedNode, key: str) -> None:
        self._key = key
        self._address = f"http://{node.http}/v1/topics/{TOPIC}"

    def read(self, count: int) -> list[Seen]:
        partitions = len(self._get(self._address)["partitions"])
        found: list[Seen] = []
        for partition in range(partitions):
            query = f"messages?partition={partition}&limit=10000&encoding=base64"
            for message in self._get(f"{self._address}/{query}"):
                if _plain(message["key"]) == self._key.encode():
                    header = next(h for h in message["headers"] if h["name"] == "header")
                    seen = Seen(self._key, _plain(message["value"]), _plain(header["value"]))
                    found.append(seen)
        return found[:count]

    def close(self) -> None:
        pass

    @staticmethod
    def _get(address: str) -> Any:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
            return json.load(answer)


WRITERS: dict[str, Callable[[EmbeddedNode, str], None]] = {
    "kafka": write_kafka,
    "amqp": write_amqp,
    "mqtt": write_mqtt,
    "native": write_native,
    "http": write_http,
}
READERS: dict[str, Callable[[EmbeddedNode, str], Reader]] = {
    "kafka": KafkaReader,
    "amqp": AmqpReader,
    "mqtt": MqttReader,
    "native": NativeReader,
    "http": HttpReader,
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("reader", READERS)
def test_what_one_writes_the_other_reads(node: EmbeddedNode, writer: str, reader: str) -> None:
    key = f"{writer}/to/{reader}"
    ready = READERS[reader](node, key)
    try:
        WRITERS[writer](node, key)
        assert ready.read(COUNT) == expected(key)
    finally:
        ready.close()


def _amqp(node: EmbeddedNode) -> pika.ConnectionParameters:
    host, _, port = node.amqp.rpartition(":")
    return pika.ConnectionParameters(host, int(port))


def _paho(node: EmbeddedNode) -> paho.Client:
    host, _, port = node.mqtt.rpartition(":")
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.connect(host, int(port))
    client.loop_start()
    return client


def _text(key: bytes | str | None) -> str:
    return key.decode() if isinstance(key, bytes) else key or ""


def _bytes(value: bytes | str | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def _plain(shown: Any) -> bytes:
    return base64.b64decode(shown["base64"] if isinstance(shown, dict) else shown)
