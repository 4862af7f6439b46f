"""Topics survive kills, a lost catalogue is rebuilt, a damaged one is never taken for the truth."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainstem.testing.local_node import LocalNode
from mainstem.testing.server_process import ServerFailed

WAIT_S = 20


def create(node: LocalNode, *names: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    for future in admin.create_topics([NewTopic(n, 2, 1, config=settings) for n in names]).values():
        future.result(WAIT_S)


def topics(node: LocalNode) -> dict[str, int]:
    found = AdminClient({"bootstrap.servers": node.kafka}).list_topics(timeout=WAIT_S).topics
    return {name: len(topic.partitions) for name, topic in found.items() if name[0] != "_"}


def produce(node: LocalNode, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": node.kafka})
    for value in values:
        producer.produce(topic, b"%d" % value, partition=value % 2)
    assert producer.flush(WAIT_S) == 0


def consume(node: LocalNode, topic: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "g", "check.crcs": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
    values: list[int] = []
    while len(values) < count:
        messages: list[Any] = consumer.consume(count, timeout=WAIT_S)
        assert messages, f"{len(values)} of {count} records"
        for message in messages:
            assert message.error() is None
            values.append(int(message.value()))
    consumer.close()
    return sorted(values)


def test_an_acknowledged_topic_survives_a_kill(fresh_node: LocalNode) -> None:
    for number in range(5):
        create(fresh_node, f"kept-{number}")
        fresh_node.kill9()
        fresh_node.start()
        assert topics(fresh_node) == {f"kept-{n}": 2 for n in range(number + 1)}


def test_a_lost_catalogue_is_rebuilt_with_every_record(fresh_node: LocalNode) -> None:
    create(fresh_node, "events", retention_ms="123456789")
    create(fresh_node, "empty")
    produce(fresh_node, "events", range(100))
    fresh_node.restart()
    produce(fresh_node, "events", range(100, 200))
    fresh_node.stop()
    shutil.rmtree(fresh_node.data_dir / "catalogue")
    fresh_node.start()
    assert topics(fresh_node) == {"events": 2, "empty": 2}
    assert consume(fresh_node, "events", 200) == list(range(200))
    produce(fresh_node, "events", range(200, 250))
    assert consume(fresh_node, "events", 250) == list(range(250))
    assert "the catalogue was lost; rebuilt 2 topics" in fresh_node.log_text()


def test_without_export_the_records_alone_suffice(fresh_node: LocalNode) -> None:
    create(fresh_node, "events")
    produce(fresh_node, "events", range(50))
    fresh_node.kill9()
    shutil.rmtree(fresh_node.data_dir / "catalogue")
    (fresh_node.data_dir / "topic_metadata.json").unlink(missing_ok=True)
    fresh_node.start()
    assert topics(fresh_node) == {"events": 2}
    assert consume(fresh_node, "events", 50) == list(range(50))


def flip(path: Path, at: int) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 0x10
    path.write_bytes(damaged)


def test_a_damaged_catalogue_stops_the_start_and_says_what_helps(fresh_node: LocalNode) -> None:
    create(fresh_node, "events")
    produce(fresh_node, "events", range(50))
    fresh_node.stop()
    journal = fresh_node.data_dir / "catalogue" / "journal"
    flip(journal, journal.stat().st_size // 2)
    with pytest.raises(ServerFailed):
        fresh_node.start()
    assert "journal is damaged" in fresh_node.log_text()
    assert "--rebuild-catalogue" in fresh_node.log_text()
    fresh_node.arguments = (*fresh_node.arguments, "--rebuild-catalogue")
    fresh_node.start()
    assert consume(fresh_node, "events", 50) == list(range(50))
    assert (fresh_node.data_dir / "catalogue.damaged-1").exists()


def test_a_folder_of_another_node_is_refused(fresh_node: LocalNode) -> None:
    fresh_node.stop()
    fresh_node.arguments = (*fresh_node.arguments, "--node-id", "7")
    with pytest.raises(ServerFailed):
        fresh_node.start()
    assert "belongs to node 1" in fresh_node.log_text()
