"""Settings of a topic that change what a producer stores or what it is told."""

import time
import uuid

import pytest
from bench.wire import stored_batches
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from tests.clients.oracle import Oracle
from tests.clients.records import Record

from mainstem.testing.local_node import LocalNode

TEXT = [b"%04d compressible compressible compressible" % number for number in range(500)]


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


def read(node: LocalNode, topic: str, count: int) -> list[Record]:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "unused", "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Record] = []
    deadline = time.monotonic() + 20
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
        for message in consumer.consume(count, timeout=0.5):
            assert message.error() is None, message.error()
            value = message.value()
            assert isinstance(value, bytes)
            found.append(Record(value=value, timestamp_ms=message.timestamp()[1]))
    consumer.close()
    return found


@pytest.mark.parametrize("sent_as", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("stored_as", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_that_names_a_codec_stores_every_batch_in_it(
    sent_as: str, stored_as: str, shared_node: LocalNode, topic: str
) -> None:
    oracle = Oracle(shared_node.kafka)
    oracle.create(topic, 1, {"compression.type": stored_as})
    producer = Producer(
        {"bootstrap.servers": shared_node.kafka, "compression.type": sent_as, "linger.ms": 50}
    )
    for value in TEXT:
        producer.produce(topic, value)
    producer.flush()

    codecs = {batch.codec for batch in stored_batches(oracle.writer(topic), topic, 0)}
    assert codecs == {"none" if stored_as == "uncompressed" else stored_as}
    assert [record.value for record in read(shared_node, topic, len(TEXT))] == TEXT


def test_a_producer_that_wants_no_acknowledgement_is_served(
    shared_node: LocalNode, topic: str
) -> None:
    Oracle(shared_node.kafka).create(topic, 1)
    producer = Producer({"bootstrap.servers": shared_node.kafka, "acks": 0})
    for value in TEXT:
        producer.produce(topic, value)
    producer.flush()
    assert [record.value for record in read(shared_node, topic, len(TEXT))] == TEXT


def test_a_topic_with_append_time_ignores_the_producers_clock(
    shared_node: LocalNode, topic: str
) -> None:
    Oracle(shared_node.kafka).create(topic, 1, {"message.timestamp.type": "LogAppendTime"})
    before_ms = time.time() * 1_000 - 1
    Oracle(shared_node.kafka).produce(topic, [Record(value=b"v", timestamp_ms=1)])
    [record] = read(shared_node, topic, 1)
    assert record.timestamp_ms is not None
    assert before_ms <= record.timestamp_ms <= time.time() * 1_000 + 1


def test_the_offset_of_the_latest_time_is_found(shared_node: LocalNode, topic: str) -> None:
    Oracle(shared_node.kafka).create(topic, 1)
    times = [1_000, 9_000, 3_000, 8_000]
    records = [Record(value=b"v", timestamp_ms=one) for one in times]
    Oracle(shared_node.kafka).produce(topic, records)
    admin = AdminClient({"bootstrap.servers": shared_node.kafka})
    latest: OffsetSpec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(topic, 0): latest}
    [future] = admin.list_offsets(asked).values()
    found = future.result(20)
    assert (found.offset, found.timestamp) == (1, 9_000)


def test_a_record_beyond_the_topics_limit_is_refused_and_the_next_one_stored(
    shared_node: LocalNode, topic: str
) -> None:
    Oracle(shared_node.kafka).create(topic, 1, {"max.message.bytes": "2000"})
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": shared_node.kafka})
    for value in (b"x" * 5_000, b"small"):
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
        producer.flush()
    refused, stored = errors
    assert refused is not None
    assert refused.code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert stored is None
    assert [record.value for record in read(shared_node, topic, 1)] == [b"small"]


def test_topics_are_not_made_by_producing_where_that_is_switched_off(topic: str) -> None:
    with LocalNode(arguments=["--set", "topics.auto_create=false"]) as node:
        errors: list[KafkaError | None] = []
        producer = Producer(
            {"bootstrap.servers": node.kafka, "message.timeout.ms": 3_000, "log_level": 2}
        )
        producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
        producer.flush()
        assert errors[0] is not None
        assert Oracle(node.kafka).partitions(topic) == []
