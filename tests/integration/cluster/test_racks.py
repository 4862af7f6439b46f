"""Consumers that say where they stand read from the copy that stands there."""

import time
import warnings
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.integration.cluster.test_fail_over import PARTITIONS, Writer, create

from mainstem.testing.local_cluster import LocalCluster, MemberNode

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas the old way
    from kafka import KafkaConsumer
    from kafka import TopicPartition as PythonPartition

COUNT = 3_000
QUICK = ("--set", "groups.initial_rebalance_delay_ms=100", "--set", "groups.offsets_partitions=6")


class Racks(LocalCluster):
    """A cluster of nodes that stand in a rack each."""

    def member(self, number: int, join: object) -> MemberNode:
        node = super().member(number, join)  # type: ignore[arg-type]
        node.arguments = (*node.arguments, "--set", f"node.rack=rack-{number}")
        return node


@pytest.fixture
def racks() -> Iterator[Racks]:
    with Racks(arguments=QUICK) as cluster:
        yield cluster


def bytes_out(node: MemberNode) -> int:
    """How many bytes of batches a node has handed to readers."""
    with urlopen(f"http://{node.http}/metrics", timeout=30) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("mainstem_broker_bytes_out"):
                return int(float(line.split()[-1]))
    raise AssertionError("the metric is not there")


def consumer_in(cluster: Racks, rack: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"reader-{rack}",
            "client.rack": rack,
            "topic.metadata.refresh.interval.ms": 1_000,
            **settings,
        }
    )


def read(consumer: Consumer, count: int, *, timeout_s: float = 60.0) -> list[int]:
    seen: list[int] = []
    give_up = time.monotonic() + timeout_s
    while len(seen) < count and time.monotonic() < give_up:
        seen += [int(m.value() or b"") for m in consumer.consume(1_000, 0.5) if not m.error()]
    return seen


def outs(cluster: Racks) -> dict[int, int]:
    return {number: bytes_out(node) for number, node in cluster.nodes.items() if node.is_running}


def test_consumers_read_from_the_copy_in_their_rack_and_go_on_when_it_dies(racks: Racks) -> None:
    create(racks, "near")
    writer = Writer(racks, "near")
    writer.write(COUNT)
    writer.settle()
    places = [TopicPartition("near", number, 0) for number in range(PARTITIONS)]

    before = outs(racks)
    consumer = consumer_in(racks, "rack-2")
    consumer.assign(places)
    assert sorted(read(consumer, COUNT)) == list(range(COUNT))
    after = outs(racks)
    taken = {number: after[number] - before[number] for number in after}
    assert taken[1] == taken[3] == 0, taken
    assert taken[2] > 0

    writer.write(COUNT)  # what is written while a consumer waits at a copy
    writer.settle()
    assert sorted(read(consumer, COUNT)) == list(range(COUNT, 2 * COUNT))
    after = outs(racks)
    assert after[1] == before[1]
    assert after[3] == before[3]

    racks.nodes[2].kill9()
    writer.write(COUNT)
    writer.settle()
    assert sorted(read(consumer, COUNT)) == list(range(2 * COUNT, 3 * COUNT))
    consumer.close()


def test_a_python_consumer_reads_from_the_copy_in_its_rack(racks: Racks) -> None:
    create(racks, "python")
    writer = Writer(racks, "python")
    writer.write(COUNT)
    writer.settle()
    before = outs(racks)
    consumer = KafkaConsumer(
        bootstrap_servers=racks.bootstrap.split(","),
        client_rack="rack-3",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    consumer.assign([PythonPartition("python", number) for number in range(PARTITIONS)])
    seen: list[int] = []
    give_up = time.monotonic() + 60
    while len(seen) < COUNT and time.monotonic() < give_up:
        for records in consumer.poll(500).values():
            seen += [int(record.value) for record in records]
    consumer.close()
    assert sorted(seen) == list(range(COUNT))
    after = outs(racks)
    assert after[1] == before[1]
    assert after[2] == before[2]
    assert after[3] > before[3]


def test_a_copy_shows_committed_transactions_only_to_who_wants_that(racks: Racks) -> None:
    create(racks, "bought")
    producer = Producer({"bootstrap.servers": racks.bootstrap, "transactional.id": "buyer"})
    producer.init_transactions(30)
    for number in range(20):
        producer.begin_transaction()
        producer.produce("bought", str(number).encode(), partition=number % PARTITIONS)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    before = outs(racks)
    for rack, isolation, expected in (
        ("rack-1", "read_committed", range(0, 20, 2)),
        ("rack-2", "read_uncommitted", range(20)),
        ("rack-3", "read_committed", range(0, 20, 2)),
    ):
        consumer = consumer_in(racks, rack, **{"isolation.level": isolation})
        consumer.assign([TopicPartition("bought", number, 0) for number in range(PARTITIONS)])
        wanted = list(expected)
        assert sorted(read(consumer, len(wanted))) == wanted
        assert read(consumer, 1, timeout_s=1.0) == []
        consumer.close()
    after = outs(racks)
    assert all(after[number] > before[number] for number in after), (before, after)
