"""A fetch waits for ``min_bytes`` only while fewer bytes than that can be read."""

import time
import uuid

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.clients.oracle import Oracle
from tests.integration.bad_input.wire import FETCH, Raw, batch_of
from tests.integration.kafka.conftest import Broker, create, is_apache

from mainstem.wire.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

KIB = 1024
VERSION = 11
PATIENCE_MS = 30_000  # an answer that took half of it has waited
BATCH = batch_of(b"v" * 10 * KIB)


def fetch(
    node: Raw,
    topic: str,
    *offsets: int,
    min_bytes: int,
    partition_bytes: int,
    max_bytes: int = 50 * KIB * KIB,
    wait_ms: int = PATIENCE_MS,
) -> tuple[list[int], float]:
    """Bytes for each partition, and the seconds that passed."""
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=number, fetch_offset=offset, partition_max_bytes=partition_bytes
                    )
                    for number, offset in enumerate(offsets)
                ],
            )
        ],
    )
    begun = time.monotonic()
    answer: FetchResponse = node.call(FETCH, VERSION, request)
    elapsed = time.monotonic() - begun
    parts = answer.responses[0].partitions
    assert [part.error_code for part in parts] == [0] * len(offsets)
    return [len(part.records or b"") for part in parts], elapsed


def two_batches_of(broker: Broker, partition_bytes: int) -> int:
    """The size of an answer with room for two batches and a part of the third.

    Difference: Apache Kafka sends that part too, which clients ignore; a node sends whole batches.
    """
    return partition_bytes if is_apache(broker) else 2 * len(BATCH)


@pytest.fixture
def topic(broker: Broker) -> str:
    """Two partitions with eight batches of 10 KiB each."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    oracle = create(broker, name, 2)
    with Raw(oracle.writer(name)) as node:
        for _ in range(8):
            assert node.produce(name, bytes(BATCH))[0] == 0
    return name


def test_bytes_that_do_not_make_a_whole_batch_count(broker: Broker, topic: str) -> None:
    with Raw(Oracle(broker.kafka).writer(topic), timeout_s=60) as node:
        [size], elapsed = fetch(node, topic, 0, min_bytes=25 * KIB, partition_bytes=25 * KIB)

    assert size == two_batches_of(broker, 25 * KIB)
    assert elapsed < PATIENCE_MS / 2_000


def test_no_more_is_waited_for_than_the_request_takes(broker: Broker, topic: str) -> None:
    with Raw(Oracle(broker.kafka).writer(topic), timeout_s=60) as node:
        [size], elapsed = fetch(
            node, topic, 0, min_bytes=40 * KIB, partition_bytes=60 * KIB, max_bytes=25 * KIB
        )

    assert size == two_batches_of(broker, 25 * KIB)
    assert elapsed < PATIENCE_MS / 2_000


def test_what_is_left_of_a_finished_segment_is_not_waited_with(broker: Broker) -> None:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    oracle = create(broker, topic, 1, {"segment.bytes": str(1024 * KIB)})
    with Raw(oracle.writer(topic), timeout_s=60) as node:
        in_first = 1024 * KIB // len(BATCH)
        for _ in range(in_first + 8):
            assert node.produce(topic, bytes(BATCH))[0] == 0

        [size], elapsed = fetch(
            node, topic, in_first - 1, min_bytes=25 * KIB, partition_bytes=1024 * KIB
        )

    assert size == len(BATCH)
    assert elapsed < PATIENCE_MS / 2_000


def test_too_few_bytes_are_waited_with(broker: Broker, topic: str) -> None:
    with Raw(Oracle(broker.kafka).writer(topic), timeout_s=60) as node:
        [size], elapsed = fetch(
            node, topic, 5, min_bytes=40 * KIB, partition_bytes=60 * KIB, wait_ms=1_000
        )

    assert size == 3 * len(BATCH)
    assert elapsed > 0.9


def test_every_partition_counts_up_to_its_own_maximum(broker: Broker, topic: str) -> None:
    with Raw(Oracle(broker.kafka).writer(topic), timeout_s=60) as node:
        sizes, elapsed = fetch(
            node, topic, 0, 0, min_bytes=26 * KIB, partition_bytes=25 * KIB, wait_ms=1_000
        )

    assert sizes == [two_batches_of(broker, 25 * KIB), 0]
    assert elapsed > 0.9


def test_librdkafka_that_asks_for_as_much_as_it_takes_reads_without_waiting(
    broker: Broker, topic: str
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.kafka,
            "group.id": "unused",
            "fetch.min.bytes": 25 * KIB,
            "max.partition.fetch.bytes": 25 * KIB,
            "fetch.wait.max.ms": PATIENCE_MS,
            "socket.timeout.ms": 2 * PATIENCE_MS,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    begun = time.monotonic()
    found = 0
    while found < 6:  # the last two are fewer bytes than asked for
        assert time.monotonic() - begun < PATIENCE_MS / 2_000, f"{found} records"
        found += len(consumer.consume(1, timeout=1))
    consumer.close()
