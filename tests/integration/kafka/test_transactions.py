"""Transactions of real clients against a real node: outcomes, positions, fencing, crashes."""

import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.integration.kafka.transaction_clients import (
    CLIENTS,
    AbortTransactionSpec,
    Fenced,
    KafkaAdminClient,
    KafkaPythonError,
    PythonPartition,
    Transactional,
    committed,
    read,
)

from mainstem.client.admin import Admin
from mainstem.client.values import TopicPartition
from mainstem.testing.local_node import LocalNode

NOTHING = -1001
EVERY_CLIENT = pytest.mark.parametrize(
    "client",
    [
        pytest.param(name, marks=[pytest.mark.needs("java", "maven")] if name == "java" else [])
        for name in CLIENTS
    ],
)


@pytest.fixture
def topic(shared_node: LocalNode) -> str:
    return create(shared_node)


def create(node: LocalNode, partitions: int = 2) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.create_topics([NewTopic(name, partitions)])[name].result(30)
    return name


@contextmanager
def producing(client: str, node: LocalNode, name: str, **rest: int) -> Iterator[Transactional]:
    producer: Transactional = CLIENTS[client](node.kafka, name, **rest)
    try:
        yield producer
    finally:
        producer.close()


@EVERY_CLIENT
def test_what_is_aborted_is_never_read(client: str, shared_node: LocalNode, topic: str) -> None:
    with producing(client, shared_node, f"id-{topic}") as producer:
        for number in range(6):
            producer.begin()
            for partition in (0, 1):
                producer.send(topic, f"{number}", partition)
            (producer.commit if number % 2 else producer.abort)()

    for partition in (0, 1):
        assert read(shared_node.kafka, topic, partition=partition) == ["1", "3", "5"]
        everything = read(
            shared_node.kafka, topic, partition=partition, isolation="read_uncommitted"
        )
        assert everything == ["0", "1", "2", "3", "4", "5"]


@EVERY_CLIENT
def test_an_open_transaction_holds_back_what_follows_it(
    client: str, shared_node: LocalNode, topic: str
) -> None:
    with (
        producing(client, shared_node, f"slow-{topic}") as slow,
        producing(client, shared_node, f"fast-{topic}") as fast,
    ):
        slow.begin()
        slow.send(topic, "slow")
        fast.begin()
        fast.send(topic, "fast")
        fast.commit()
        assert read(shared_node.kafka, topic) == []

        slow.commit()

    assert read_until(shared_node, topic, 2) == ["slow", "fast"]


@EVERY_CLIENT
def test_positions_move_with_the_transaction(
    client: str, shared_node: LocalNode, topic: str
) -> None:
    group = f"group-{topic}"
    with producing(client, shared_node, f"id-{topic}") as producer:
        for offset, ends in ((3, producer.abort), (5, producer.commit), (7, producer.abort)):
            producer.begin()
            producer.send(topic, f"{offset}")
            producer.send_offset(group, topic, offset)
            ends()
            assert committed(shared_node.kafka, group, topic) == (NOTHING if offset == 3 else 5)

    assert read(shared_node.kafka, topic) == ["5"]


@EVERY_CLIENT
def test_a_second_instance_fences_the_first(
    client: str, shared_node: LocalNode, topic: str
) -> None:
    with producing(client, shared_node, f"id-{topic}") as first:
        first.begin()
        first.send(topic, "first")

        with producing(client, shared_node, f"id-{topic}") as second:
            second.begin()
            second.send(topic, "second")
            with pytest.raises(Fenced):
                send_and_commit(first, topic)
            second.commit()

    assert read_until(shared_node, topic, 1) == ["second"]


@EVERY_CLIENT
def test_a_transaction_that_lasts_too_long_is_aborted(
    client: str, shared_node: LocalNode, topic: str
) -> None:
    with (
        producing(client, shared_node, f"slow-{topic}", timeout_ms=1_000) as slow,
        producing(client, shared_node, f"fast-{topic}") as fast,
    ):
        slow.begin()
        slow.send(topic, "slow")
        fast.begin()
        fast.send(topic, "fast")
        fast.commit()

        assert read_until(shared_node, topic, 1) == ["fast"]
        with pytest.raises(Fenced):
            send_and_commit(slow, topic)

    assert read(shared_node.kafka, topic) == ["fast"]


@EVERY_CLIENT
def test_a_crash_keeps_every_outcome_and_aborts_the_rest(
    client: str, fresh_node: LocalNode
) -> None:
    topic, group = create(fresh_node), "group"
    with producing(client, fresh_node, "id") as producer:
        for number in range(3):
            producer.begin()
            producer.send(topic, f"{number}")
            producer.send_offset(group, topic, number + 1)
            producer.commit()
        producer.begin()
        producer.send(topic, "open")
        producer.send_offset(group, topic, 100)
        fresh_node.kill9()
        fresh_node.start()

    with producing(client, fresh_node, "id") as again:
        assert read_until(fresh_node, topic, 3) == ["0", "1", "2"]
        assert committed(fresh_node.kafka, group, topic) == 3
        again.begin()
        again.send(topic, "after")
        again.commit()

    assert read_until(fresh_node, topic, 4) == ["0", "1", "2", "after"]


def test_each_input_is_counted_once_however_often_the_work_is_killed(
    fresh_node: LocalNode,
) -> None:
    """Consume, transform, produce: positions and results in one transaction."""
    source, result = create(fresh_node, 1), create(fresh_node, 1)
    inputs = [str(number) for number in range(60)]
    with producing("confluent-kafka", fresh_node, "source") as producer:
        producer.begin()
        for value in inputs:
            producer.send(source, value)
        producer.commit()

    for round_number in range(4):
        with producing("confluent-kafka", fresh_node, "worker") as worker:
            start = max(committed(fresh_node.kafka, "workers", source), 0)
            for at in range(start, min(start + 20, len(inputs)), 5):
                worker.begin()
                for value in read(fresh_node.kafka, source)[at : at + 5]:
                    worker.send(result, f"<{value}>")
                worker.send_offset("workers", source, at + 5)
                if at == start + 15 and round_number < 3:
                    break  # left open
                worker.commit()
            fresh_node.kill9()
            fresh_node.start()
    with producing("confluent-kafka", fresh_node, "worker"):
        pass  # aborts what the last round left open

    assert read_until(fresh_node, result, 60) == [f"<{value}>" for value in inputs]


def test_administrators_see_transactions_and_may_not_abort_living_ones(
    shared_node: LocalNode, topic: str
) -> None:
    name = f"id-{topic}"
    admin = KafkaAdminClient(bootstrap_servers=shared_node.kafka)
    place = PythonPartition(topic, 0)
    try:
        with producing("kafka-python", shared_node, name) as producer:
            producer.begin()
            producer.send(topic, "open")

            described = admin.describe_transactions([name])[name]
            [seen] = admin.describe_producers([place])[place].active_producers
            listed = [each for lines in admin.list_transactions().values() for each in lines]
            spec = AbortTransactionSpec(place, seen.producer_id, seen.producer_epoch)
            with pytest.raises(KafkaPythonError):
                admin.abort_transaction(spec)

            assert described.state.value == "Ongoing"
            assert described.topic_partitions == {place}
            assert (seen.producer_id, seen.current_transaction_start_offset) == (
                described.producer_id,
                0,
            )
            assert name in {each.transactional_id for each in listed}
            producer.commit()
        assert read_until(shared_node, topic, 1) == ["open"]
        assert admin.describe_transactions([name])[name].state.value == "CompleteCommit"
    finally:
        admin.close()


async def test_a_transaction_that_nobody_knows_is_ended_by_an_administrator(
    fresh_node: LocalNode,
) -> None:
    topic = create(fresh_node, 1)
    place = TopicPartition(topic, 0)
    with producing("confluent-kafka", fresh_node, "id") as producer:
        producer.begin()
        producer.send(topic, "hanging")
        fresh_node.kill9()
    # What the coordinator knew is lost; only the partition knows that something is open.
    for folder in fresh_node.data_dir.glob("topics/__transaction_state~*/partition-*/range-*"):
        shutil.rmtree(folder)
    fresh_node.start()
    with producing("confluent-kafka", fresh_node, "other") as other:
        other.begin()
        other.send(topic, "after")
        other.commit()
    assert read(fresh_node.kafka, topic) == []

    async with Admin(fresh_node.kafka) as admin:
        [hanging] = [
            each
            for each in await admin.transactions.producers(place)
            if each.transaction_start >= 0
        ]
        ended = await admin.transactions.abort_hanging(place, hanging.transaction_start)
        assert ended.producer_id == hanging.producer_id

    assert read_until(fresh_node, topic, 1) == ["after"]


def send_and_commit(producer: Transactional, topic: str) -> None:
    producer.send(topic, "too late")
    producer.commit()


def read_until(node: LocalNode, topic: str, count: int) -> list[str]:
    """What is committed, once there is that much of it: markers follow the answer to a commit."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            values = read(node.kafka, topic)
        except KafkaException:
            continue
        if len(values) >= count:
            return values
        time.sleep(0.05)
    raise AssertionError(f"{len(values)} of {count} records after 20 s: {values}")
