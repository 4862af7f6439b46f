"""The blocking twins of producer, consumer and administration against running brokers."""

import itertools
import multiprocessing
import threading
from collections import defaultdict
from contextlib import suppress

import pytest

from mainstem.client.blocking_admin import BlockingAdmin
from mainstem.client.blocking_cluster import BlockingCluster
from mainstem.client.blocking_consumer import BlockingConsumer
from mainstem.client.blocking_producer import (
    HANDED_BYTES_MAX,
    RECORD_BYTES,
    BlockingProducer,
    BlockingTransactionalProducer,
)
from mainstem.client.blocking_table import to_arrow
from mainstem.client.settings import ConsumerSettings, ProducerSettings
from mainstem.client.values import ConsumerRecord, TopicPartition
from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable

NAMES = (f"blocking-{number}" for number in itertools.count())
FROM_START = ConsumerSettings(reset="earliest", fetch_wait_ms=100)


def new_topic(broker: str, partitions: int = 1) -> str:
    name = next(NAMES)
    with BlockingAdmin(broker) as admin:
        admin.create_topic(name, partitions=partitions)
    return name


def first(consumer: BlockingConsumer, count: int) -> list[ConsumerRecord]:
    return list(itertools.islice(consumer, count))


def fail(producer: BlockingTransactionalProducer, topic: str) -> None:
    with producer.transaction():
        producer.send(topic, b"never seen")
        raise ValueError("on purpose")


def test_records_of_several_threads_arrive_once_and_each_threads_in_order(broker: str) -> None:
    topic = new_topic(broker)

    def send(producer: BlockingProducer, name: int) -> None:
        for number in range(1_000):
            producer.send(topic, b"%d" % number, key=b"%d" % name, headers=[("of", b"%d" % name)])

    with BlockingProducer(broker) as producer:
        threads = [threading.Thread(target=send, args=(producer, name)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found: dict[bytes | None, list[bytes | None]] = defaultdict(list)
    with BlockingConsumer(broker, settings=FROM_START) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        for record in first(consumer, 4_000):
            found[record.key].append(record.value)
    assert found == {b"%d" % name: [b"%d" % n for n in range(1_000)] for name in range(4)}


def test_a_delivery_tells_the_place_of_its_record(broker: str) -> None:
    topic = new_topic(broker)
    with BlockingProducer(broker, ProducerSettings(linger_ms=1)) as producer:
        deliveries = [producer.send(topic, b"%d" % number) for number in range(10)]
        places = [delivery.result(10_000) for delivery in deliveries]
        alone = producer.send_and_wait(topic, b"last")
    assert [place.offset for place in places] == list(range(10))
    assert all(delivery.is_done for delivery in deliveries)
    assert alone.offset == 10


def test_a_record_that_nobody_asked_for_is_reported_at_the_end(broker: str) -> None:
    topic = new_topic(broker)
    producer = BlockingProducer(broker)
    producer.__enter__()
    producer.send(topic, b"fits")
    producer.send(topic, b"nowhere", partition=7)
    with pytest.raises(InvalidRequest) as refused:
        producer.close()
    assert refused.value.code is ErrorCode.INVALID_PARTITIONS
    with BlockingProducer(broker) as again:
        lost = again.send(topic, b"nowhere", partition=7)
        with pytest.raises(InvalidRequest):
            lost.result()
        kept = again.send(topic, b"fits too")
        assert kept.result().offset == 1  # a failure that was asked for is not told twice


def test_records_that_cannot_leave_are_refused_or_reported_and_take_bounded_memory() -> None:
    settings = ProducerSettings(block_timeout_ms=300, delivery_timeout_ms=500)
    producer = BlockingProducer("127.0.0.1:9", settings)  # nobody listens there
    producer.__enter__()
    for _ in range(40):
        with suppress(Unavailable):
            producer.send("topic", bytes(100_000))
        assert producer.handed_bytes <= HANDED_BYTES_MAX + 100_000 + RECORD_BYTES
    with pytest.raises(Unavailable):
        producer.close()


def test_a_group_goes_on_where_it_stopped(broker: str) -> None:
    topic = new_topic(broker, 2)
    with BlockingProducer(broker) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number)
    given: list[list[TopicPartition]] = []
    taken: list[list[TopicPartition]] = []
    group = f"{topic}-group"
    with BlockingConsumer(broker, group, FROM_START) as consumer:
        consumer.subscribe([topic], on_assigned=given.append, on_revoked=taken.append)
        early = first(consumer, 30)
        assert consumer.assignment == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    with BlockingConsumer(broker, group, FROM_START) as consumer:
        consumer.subscribe([topic])
        late = first(consumer, 70)
    assert given == [[TopicPartition(topic, 0), TopicPartition(topic, 1)]]
    assert sorted(int(r.value or b"") for r in early + late) == list(range(100))
    with BlockingAdmin(broker) as admin:
        assert sum(entry.lag for entry in admin.groups.lag(group)) == 0
        assert topic in admin.list_topics()


def test_a_callback_may_ask_its_consumer(broker: str) -> None:
    topic = new_topic(broker)
    with BlockingProducer(broker) as producer:
        producer.send_and_wait(topic, b"first")
        producer.send_and_wait(topic, b"second")
    with BlockingConsumer(broker, f"{topic}-group", FROM_START) as consumer:

        def to_the_second(partitions: list[TopicPartition]) -> None:
            for partition in partitions:
                consumer.seek(partition, 1)

        consumer.subscribe([topic], on_assigned=to_the_second)
        assert next(consumer).value == b"second"


def test_offsets_and_records_of_a_transaction_count_together(broker: str) -> None:
    source, target = new_topic(broker), new_topic(broker)
    with BlockingProducer(broker) as producer:
        for number in range(20):
            producer.send(source, b"%d" % number)
    settings = ConsumerSettings(reset="earliest", auto_commit=False, fetch_wait_ms=100)
    group = f"{source}-group"
    with (
        BlockingCluster(broker) as cluster,
        BlockingConsumer(cluster, group, settings) as consumer,
        BlockingTransactionalProducer(cluster, f"{source}-id") as producer,
    ):
        consumer.subscribe([source])
        seen = first(consumer, 10)
        with pytest.raises(ValueError, match="on purpose"):
            fail(producer, target)
        with producer.transaction():
            for record in seen:
                producer.send(target, b"for " + (record.value or b""))
            consumer.commit(through=producer)
        assert consumer.committed()[TopicPartition(source, 0)].offset == 10
    table = to_arrow(broker, target)
    assert table["value"].to_pylist() == [b"for %d" % number for number in range(10)]


def test_a_client_that_is_not_open_says_so(broker: str) -> None:
    producer = BlockingProducer(broker)
    with pytest.raises(InvalidRequest, match="not open"):
        producer.send("topic", b"value")
    with producer, pytest.raises(InvalidRequest, match="open already"):
        producer.__enter__()


def test_a_forked_child_uses_a_thread_of_its_own(broker: str) -> None:
    topic = new_topic(broker)
    with BlockingProducer(broker) as producer:
        producer.send_and_wait(topic, b"parent")
        child = multiprocessing.get_context("fork").Process(target=_send, args=(broker, topic))
        child.start()
        child.join(30)
        assert child.exitcode == 0
        assert producer.send_and_wait(topic, b"parent again").offset == 2


def _send(broker: str, topic: str) -> None:
    with BlockingProducer(broker) as producer:
        producer.send_and_wait(topic, b"child")
