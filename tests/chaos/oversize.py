"""Clients of every protocol that send more than a node takes, and what they must be answered.

| protocol | limit | answer |
|---|---|---|
| Kafka | `max.message.bytes`, or `message.max.bytes` for a topic without | MESSAGE_TOO_LARGE |
| AMQP | `amqp.message_bytes_max` | the channel is closed with 406 |
| MQTT 5 | `mqtt.packet_bytes_max` | DISCONNECT with 0x95 |
| MQTT 3.1.1 | the same | the connection is closed |

Promises that are checked: what is too large is refused, never confirmed and never read; the largest
that fits is taken right after it, on the same producer, connection or topic, and is read.
"""

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pika
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from paho.mqtt.client import Client, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from pika.exceptions import AMQPError, ChannelClosedByBroker

from mainstem.testing.local_cluster import LocalCluster, MemberNode

AMQP_BYTES: Final = 256 << 10
MQTT_BYTES: Final = 256 << 10
# Smaller than the defaults, so that little has to be sent.
LIMITS: Final = (
    "--set", f"amqp.message_bytes_max={AMQP_BYTES}", "--set", f"mqtt.packet_bytes_max={MQTT_BYTES}",
)  # fmt: skip
KAFKA_DEFAULT_BYTES: Final = 1_048_588
KAFKA_TOPIC_BYTES: Final = 50_000
# More than a batch of one record, or a packet, has beside its content; there is no key.
HEAD_BYTES: Final = 100
TOO_LARGE, FITS = b"L", b"f"
PRECONDITION_FAILED: Final = 406
PACKET_TOO_LARGE: Final = 0x95
ANSWER_TIMEOUT_S: Final = 20.0
TIMEOUT_S: Final = 60.0
PAUSE_S: Final = 0.2


class Unanswered(Exception):
    """A client got no answer, as it may while a node takes over; it tries again."""


def send_oversize(cluster: LocalCluster, node: MemberNode) -> None:
    """Send too much over every protocol, each time followed by what fits."""
    mark = uuid.uuid4().hex[:6]
    for name, limit, configs in (
        (f"oversize-{mark}", KAFKA_DEFAULT_BYTES, {}),
        (
            f"oversize-topic-{mark}",
            KAFKA_TOPIC_BYTES,
            {"max.message.bytes": str(KAFKA_TOPIC_BYTES)},
        ),
    ):
        _repeat("Kafka", partial(create_topic, cluster.bootstrap, name, configs))
        _repeat("Kafka", partial(send_to_kafka, cluster.bootstrap, name, limit))
        _repeat("Kafka", partial(read_fitting, cluster.bootstrap, name))
    _repeat("AMQP", partial(send_to_amqp, node.amqp, f"oversize-{mark}"))
    for version in (MQTTv311, MQTTv5):
        topic = f"oversize-{mark}/{int(version)}"
        _repeat("MQTT", partial(send_to_mqtt, node.mqtt, topic, version))


def _repeat(protocol: str, act: Callable[[], None]) -> None:
    give_up = time.monotonic() + TIMEOUT_S
    while True:
        try:
            act()
        except (Unanswered, AMQPError, OSError, KafkaException) as error:
            if time.monotonic() > give_up:
                raise AssertionError(f"{protocol}, oversize messages: {error!r}") from error
            time.sleep(PAUSE_S)
        else:
            return


def create_topic(bootstrap: str, topic: str, configs: dict[str, str]) -> None:
    """Create a topic, unless an earlier attempt did."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    try:
        admin.create_topics([NewTopic(topic, 1, -1, config=configs)])[topic].result(
            ANSWER_TIMEOUT_S
        )
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    except TimeoutError as error:
        raise Unanswered from error


def send_to_kafka(bootstrap: str, topic: str, limit: int) -> None:
    """Send as an idempotent producer: a refused batch must not break its sequence."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "message.max.bytes": 4 * limit,
            "log_level": 2,
        }
    )
    answers: list[KafkaError | None] = []
    for value in (TOO_LARGE * limit, TOO_LARGE * 2 * limit, FITS * (limit - HEAD_BYTES)):
        producer.produce(topic, value, on_delivery=lambda error, _: answers.append(error))
        if producer.flush(TIMEOUT_S):
            producer.purge()
            raise Unanswered
    *refused, taken = answers
    for error in refused:
        assert error is not None, f"{topic} took more than {limit} bytes"
        if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
            raise Unanswered(str(error))
    assert taken is None, f"{topic}, what fits after what does not: {taken}"


def read_fitting(bootstrap: str, topic: str) -> None:
    """Read a whole topic: there is nothing in it that is too large."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 2})
    place = TopicPartition(topic, 0, 0)
    with contextlib.closing(consumer):
        _, end = consumer.get_watermark_offsets(place, timeout=ANSWER_TIMEOUT_S)
        consumer.assign([place])
        offset, give_up = -1, time.monotonic() + ANSWER_TIMEOUT_S
        while offset + 1 < end:
            if time.monotonic() > give_up:
                raise Unanswered(f"read until {offset} of {end}")
            message = consumer.poll(0.5)
            if message is None or message.error() is not None:
                continue
            value = message.value() or b""
            assert not value.startswith(TOO_LARGE), f"{topic} has a record of {len(value)} bytes"
            offset = message.offset() or 0
    assert end, f"{topic} is empty, although something that fits was acknowledged"


def send_to_amqp(address: str, queue: str) -> None:
    """Publish with confirms, then take everything from the queue."""
    host, _, port = address.rpartition(":")
    parameters = pika.ConnectionParameters(
        host, int(port), socket_timeout=3, stack_timeout=6, blocked_connection_timeout=6
    )
    with contextlib.closing(pika.BlockingConnection(parameters)) as connection:
        durable = pika.BasicProperties(delivery_mode=2)
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        for size in (AMQP_BYTES + 1, 4 * AMQP_BYTES):
            channel.confirm_delivery()
            try:
                channel.basic_publish("", queue, TOO_LARGE * size, durable)
            except ChannelClosedByBroker as closed:
                if closed.reply_code != PRECONDITION_FAILED:
                    raise
                channel = connection.channel()
            else:
                raise AssertionError(f"a message of {size} bytes was confirmed")
        channel.confirm_delivery()
        channel.basic_publish("", queue, FITS * AMQP_BYTES, durable)
        method, _, body = channel.basic_get(queue)
        assert body is not None, f"{queue} is empty, although a message was confirmed"
        while body is not None:
            assert body[:1] == FITS, f"{queue} has a message of {len(body)} bytes"
            channel.basic_ack(method.delivery_tag)
            method, _, body = channel.basic_get(queue)
        channel.queue_delete(queue)


class _MqttClient:
    """A client that is driven by hand, and what it was told."""

    def __init__(self, address: str, name: str, version: Any) -> None:
        host, _, port = address.rpartition(":")
        self.client = Client(CallbackAPIVersion.VERSION2, client_id=name, protocol=version)
        self.client.connect_timeout = 3.0
        self.confirmed: list[int] = []
        self.received: list[bytes] = []
        self.subscribed = self.closed = False
        self.reason = 0
        self.client.on_publish = lambda _c, _u, mid, *_: self.confirmed.append(mid)
        self.client.on_message = lambda _c, _u, message: self.received.append(
            bytes(message.payload)
        )
        self.client.on_disconnect = self._on_disconnect
        self.client.on_subscribe = self._on_subscribe
        self.client.connect(host, int(port))
        self.until(self.client.is_connected)

    def until(self, holds: Callable[[], bool]) -> None:
        """Serve the connection until something holds."""
        give_up = time.monotonic() + ANSWER_TIMEOUT_S
        while not holds():
            if time.monotonic() > give_up or (self.closed and not holds()):
                raise Unanswered(f"MQTT, closed with {self.reason:#x}")
            self.client.loop(0.05)

    def _on_subscribe(self, *_: Any) -> None:
        self.subscribed = True

    def _on_disconnect(self, _c: Any, _u: Any, _flags: Any, reason: Any, *_: Any) -> None:
        self.closed, self.reason = True, reason.value


@contextlib.contextmanager
def _mqtt(address: str, name: str, version: Any) -> Iterator[_MqttClient]:
    client = _MqttClient(address, name, version)
    try:
        yield client
    finally:
        client.client.disconnect()


def send_to_mqtt(address: str, topic: str, version: Any) -> None:
    """Publish while somebody is subscribed."""
    with _mqtt(address, f"{topic}-reader", version) as reader:
        reader.client.subscribe(topic, qos=1)
        reader.until(lambda: reader.subscribed)
        for size in (MQTT_BYTES, 4 * MQTT_BYTES):
            with _mqtt(address, f"{topic}-writer", version) as writer:
                writer.client.publish(topic, TOO_LARGE * size, qos=1)
                writer.until(lambda: writer.closed or bool(writer.confirmed))
                assert not writer.confirmed, f"a packet of more than {size} bytes was confirmed"
                if version == MQTTv5 and writer.reason != PACKET_TOO_LARGE:
                    raise Unanswered(f"MQTT, closed with {writer.reason:#x}")
        with _mqtt(address, f"{topic}-writer", version) as writer:
            writer.client.publish(topic, FITS * (MQTT_BYTES - HEAD_BYTES), qos=1)
            writer.until(lambda: bool(writer.confirmed))
        reader.until(lambda: bool(reader.received))
        sizes = [len(payload) for payload in reader.received if payload[:1] != FITS]
        assert not sizes, f"{topic}: messages of {sizes} bytes were delivered"
