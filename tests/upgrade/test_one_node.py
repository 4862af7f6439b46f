"""One data folder is opened by the previous release, by this one, and by the previous one again.

Each life finds everything of the lives before it, of every kind that a node keeps, and adds to it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pika
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from paho.mqtt.client import MQTTv311
from tests.integration.mqtt.paho_client import PahoClient
from tests.upgrade.previous_release import CURRENT, previous_release

from mainstem.testing.local_node import LocalNode

SETTINGS = (
    "--set", "amqp.enabled=true", "--set", "mqtt.enabled=true",
    "--set", "security.authorise=on", "--set", "groups.initial_rebalance_delay_ms=100",
)  # fmt: skip
PER_LIFE = 50
words: Any = confluent_kafka.admin  # much of it has no types
SESSION = {"version": MQTTv311, "clean": False}


def records(node: LocalNode, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values in the one partition of a topic without transactions."""
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "auditor"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[bytes | None, bytes | None]] = []
    offset = -1
    while offset + 1 < end:
        message = consumer.poll(60)
        assert message is not None, f"{len(found)} records, then nothing"
        assert message.error() is None, message.error()
        found.append((message.key(), message.value()))
        offset = message.offset() or 0
    consumer.close()
    return found


def plain(node: LocalNode, life: int) -> None:
    producer = Producer({"bootstrap.servers": node.kafka, "enable.idempotence": True})
    for number in range(PER_LIFE):
        producer.produce("plain", f"{life}-{number}")
        producer.produce("compacted", f"{life}", f"key-{number % 5}")
    assert producer.flush(60) == 0


def plain_is_there(node: LocalNode, lives: int) -> None:
    wanted = [f"{life}-{number}".encode() for life in range(lives) for number in range(PER_LIFE)]
    assert [value for _, value in records(node, "plain")] == wanted
    newest = dict(records(node, "compacted"))
    assert newest == {f"key-{n}".encode(): str(lives - 1).encode() for n in range(5)}


def transactions(node: LocalNode, life: int) -> None:
    producer = Producer({"bootstrap.servers": node.kafka, "transactional.id": "tx"})
    producer.init_transactions(60)
    for commit in (False, True):
        producer.begin_transaction()
        producer.produce("transactions", f"{life}-{'commit' if commit else 'abort'}")
        if commit:
            producer.commit_transaction(60)
        else:
            assert producer.flush(60) == 0
            producer.abort_transaction(60)


def transactions_are_there(node: LocalNode, lives: int) -> None:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "auditor",
                         "isolation.level": "read_committed"})  # fmt: skip
    consumer.assign([TopicPartition("transactions", 0, 0)])
    found: list[bytes] = []
    while len(found) < lives:
        message = consumer.poll(60)
        assert message is not None
        found.append(message.value() or b"")
    consumer.close()
    assert found == [f"{life}-commit".encode() for life in range(lives)]


def positions(node: LocalNode, life: int) -> None:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "readers"})
    place = TopicPartition("plain", 0, (life + 1) * 10)
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


def positions_are_there(node: LocalNode, lives: int) -> None:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "readers"})
    [place] = consumer.committed([TopicPartition("plain", 0)], timeout=60)
    consumer.close()
    assert place.offset == lives * 10


def queues(node: LocalNode, life: int) -> None:
    host, _, port = node.amqp.rpartition(":")
    with pika.BlockingConnection(pika.ConnectionParameters(host, int(port))) as connection:
        channel = connection.channel()
        channel.exchange_declare("events", "topic", durable=True)
        channel.queue_declare("jobs", durable=True, arguments={"x-max-priority": 3})
        channel.queue_bind("jobs", "events", "job.#")
        channel.confirm_delivery()
        for number in range(3):
            channel.basic_publish("events", "job.new", f"{life}-{number}".encode())
        # One of each life is taken; what is left waits for the last one.
        frame, _, _ = channel.basic_get("jobs")
        assert frame is not None
        channel.basic_ack(frame.delivery_tag)


def queues_are_there(node: LocalNode, lives: int) -> None:
    host, _, port = node.amqp.rpartition(":")
    with pika.BlockingConnection(pika.ConnectionParameters(host, int(port))) as connection:
        channel = connection.channel()
        declared = channel.queue_declare("jobs", passive=True)
        assert declared.method.message_count == 2 * lives


def sessions(node: LocalNode, life: int) -> None:
    reader = PahoClient(node.mqtt, "reader", **SESSION)
    reader.connect()
    reader.subscribe("sensors/#", 1)
    reader.disconnect()
    writer = PahoClient(node.mqtt, "writer", version=MQTTv311)
    writer.connect()
    writer.publish("sensors/a", f"{life}".encode(), qos=1)
    writer.publish("state/a", f"{life}".encode(), qos=1, retain=True)
    writer.disconnect()


def sessions_are_there(node: LocalNode, lives: int) -> None:
    reader = PahoClient(node.mqtt, "reader", **SESSION)
    reader.connect()
    assert reader.session_present
    assert reader.payloads() == [str(lives - 1).encode()], "what came while it was away"
    reader.disconnect()
    visitor = PahoClient(node.mqtt, "visitor", version=MQTTv311)
    visitor.connect()
    visitor.subscribe("state/#", 1)
    assert visitor.payloads() == [str(lives - 1).encode()], "what was retained"
    visitor.disconnect()


def security(node: LocalNode, life: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    scram = words.ScramCredentialInfo(words.ScramMechanism.SCRAM_SHA_256, 4096)
    user = words.UserScramCredentialUpsertion(f"user-{life}", scram, b"battery staple")
    for altered in admin.alter_user_scram_credentials([user]).values():
        altered.result(60)
    what = (words.ResourceType.TOPIC, "plain", words.ResourcePatternType.LITERAL)
    rule = words.AclBinding(
        *what, f"User:user-{life}", "*", words.AclOperation.READ, words.AclPermissionType.ALLOW
    )
    for made in admin.create_acls([rule]).values():
        made.result(60)


def security_is_there(node: LocalNode, lives: int) -> None:
    admin: Any = AdminClient({"bootstrap.servers": node.kafka})
    users = admin.describe_user_scram_credentials().result(60)
    assert set(users) == {f"user-{life}" for life in range(lives)}
    whatever = (words.ResourceType.ANY, None, words.ResourcePatternType.ANY, None, None)
    may = (words.AclOperation.ANY, words.AclPermissionType.ANY)
    every = words.AclBindingFilter(*whatever, *may)
    rules = admin.describe_acls(every).result(60)
    assert {rule.principal for rule in rules} == {f"User:user-{life}" for life in range(lives)}


ADDED: list[Callable[[LocalNode, int], None]] = [
    plain, transactions, positions, queues, sessions, security,
]  # fmt: skip
FOUND: list[Callable[[LocalNode, int], None]] = [
    plain_is_there, transactions_are_there, positions_are_there, queues_are_there,
    sessions_are_there, security_is_there,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.needs("previous_release")
def test_a_data_folder_goes_to_the_next_release_and_back_with_all_that_is_in_it(
    tmp_path: Path,
) -> None:
    node = LocalNode(tmp_path / "data", arguments=SETTINGS)
    try:
        old, new = previous_release(), CURRENT
        for life, release in enumerate((old, new, old, new, new)):
            node.environment["PYTHONPATH"] = str(release)
            node.start(timeout_s=120)
            if life == 0:
                make_topics(node)
            for found in FOUND if life else ():
                found(node, life)
            for add in ADDED:
                add(node, life)
            if life % 2:
                node.kill9()
            else:
                assert node.stop(timeout_s=90) == 0, node.log_tail()
    finally:
        node.close()


def make_topics(node: LocalNode) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    compact = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
    }
    made = [
        NewTopic("plain", 1, 1),
        NewTopic("compacted", 1, 1, config=compact),
        NewTopic("transactions", 1, 1),
    ]
    for topic in admin.create_topics(made).values():
        topic.result(60)
