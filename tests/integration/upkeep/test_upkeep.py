"""Retention and compaction of a running node, seen by an unmodified client, also after kill -9."""

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.kit.waiting import wait_until

from mainstem.testing.local_node import LocalNode

KEYS = 50
RECORDS = 20_000
ARGUMENTS = (
    "--set",
    "log.retention_check_interval_ms=200",
    "--set",
    "log.cleaner_interval_ms=200",
)


def held(node: LocalNode, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Every record of partition 0: offset, key, value."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.kafka,
            "group.id": f"reader-of-{topic}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[tuple[int, bytes | None, bytes | None]] = []
    try:
        while True:
            message = consumer.poll(20)
            assert message is not None, "no answer within 20 s"
            if message.error():
                return found
            offset = message.offset()
            assert offset is not None
            found.append((offset, message.key(), message.value()))
    finally:
        consumer.close()


def create(node: LocalNode, topic: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    named = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, 1, config=named)])[topic].result(20)


@pytest.mark.timeout(180)
def test_a_compacted_topic_keeps_the_last_record_of_each_key() -> None:
    with LocalNode(arguments=ARGUMENTS) as node:
        create(
            node,
            "c",
            cleanup_policy="compact",
            internal_segment_bytes="100000",
            min_cleanable_dirty_ratio="0.01",
        )
        producer = Producer({"bootstrap.servers": node.kafka, "batch.size": 20_000})
        for number in range(RECORDS):
            producer.produce("c", key=b"%d" % (number % KEYS), value=b"value %d" % number)
            producer.poll(0)
        assert producer.flush(60) == 0

        # What is in the open range is not compacted yet.
        wait_until(lambda: len(held(node, "c")) < RECORDS / 4)
        before = held(node, "c")
        node.kill9()
        node.start()
        after = held(node, "c")

    for records in (before, after):
        last = {key: value for _, key, value in records}
        assert last == {
            b"%d" % (number % KEYS): b"value %d" % number
            for number in range(RECORDS - KEYS, RECORDS)
        }
        for offset, key, value in records:
            assert (key, value) == (b"%d" % (offset % KEYS), b"value %d" % offset)


@pytest.mark.timeout(120)
def test_retention_by_bytes_and_by_time_drops_the_oldest() -> None:
    with LocalNode(arguments=ARGUMENTS) as node:
        create(node, "bytes", internal_segment_bytes="100000", retention_bytes="300000")
        create(node, "time", segment_ms="200", retention_ms="500")
        producer = Producer({"bootstrap.servers": node.kafka, "batch.size": 20_000})
        for number in range(2_000):
            producer.produce("bytes", b"%04d" % number + b"x" * 1_000)
            producer.produce("time", b"%04d" % number)
            producer.poll(0)
        assert producer.flush(60) == 0

        wait_until(lambda: len(held(node, "bytes")) < 600)
        wait_until(lambda: not held(node, "time"))
        before = held(node, "bytes")
        node.kill9()
        node.start()

        assert [value[:4] for _, _, value in before if value] == [
            b"%04d" % number for number in range(before[0][0], 2_000)
        ]
        assert held(node, "bytes") == before
        assert held(node, "time") == []
        producer = Producer({"bootstrap.servers": node.kafka})
        offsets: list[int | None] = []
        producer.produce("time", b"new", on_delivery=lambda _, m: offsets.append(m.offset()))
        assert producer.flush(30) == 0
        assert offsets == [2_000]
