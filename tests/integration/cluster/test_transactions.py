"""Transactions whose partitions, positions and coordinator are on different nodes."""

import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainstem.testing.local_cluster import LocalCluster


def transactional(cluster: LocalCluster, name: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 60_000,
        }
    )
    producer.init_transactions(30)
    return producer


def committed(address: str, topic: str, partitions: int, count: int) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"reads-{topic}",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    seen: list[int] = []
    give_up = time.monotonic() + 30
    while len(seen) < count and time.monotonic() < give_up:
        seen += [int(m.value() or b"") for m in consumer.consume(count, 0.3) if not m.error()]
    # A little longer: what must not be seen would come now.
    seen += [int(m.value() or b"") for m in consumer.consume(count, 0.5) if not m.error()]
    consumer.close()
    return seen


def test_transactions_span_nodes(shared_cluster: LocalCluster) -> None:
    admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap})
    admin.create_topics([NewTopic("ledger", 6, 3)])["ledger"].result(20)
    for name in ("teller-1", "teller-2", "teller-3"):
        producer = transactional(shared_cluster, name)
        base = int(name[-1]) * 1_000
        for round_number in range(4):
            producer.begin_transaction()
            for number in range(6):
                value = base + round_number * 10 + number
                producer.produce("ledger", str(value).encode(), partition=number)
            if round_number % 2:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
    seen = committed(shared_cluster.nodes[1].kafka, "ledger", 6, 36)
    wanted = [n * 1_000 + r * 10 + p for n in (1, 2, 3) for r in (0, 2) for p in range(6)]
    assert sorted(seen) == sorted(wanted)


def test_positions_move_with_the_records_that_follow_from_them(
    shared_cluster: LocalCluster,
) -> None:
    admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap})
    for made in admin.create_topics([NewTopic("in", 3, 3), NewTopic("out", 3, 3)]).values():
        made.result(20)
    plain = Producer({"bootstrap.servers": shared_cluster.bootstrap})
    for number in range(60):
        plain.produce("in", str(number).encode(), partition=number % 3)
    assert plain.flush(30) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": shared_cluster.bootstrap,
            "group.id": "pipe",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["in"])
    producer = transactional(shared_cluster, "pipe")
    moved = 0
    give_up = time.monotonic() + 60
    while moved < 60 and time.monotonic() < give_up:
        messages = [m for m in consumer.consume(20, 0.5) if not m.error()]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce("out", message.value(), partition=message.partition() or 0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
        )
        producer.commit_transaction(30)
        moved += len(messages)
    places = consumer.committed([TopicPartition("in", p) for p in range(3)], timeout=10)
    consumer.close()
    assert [place.offset for place in places] == [20, 20, 20]
    assert sorted(committed(shared_cluster.nodes[3].kafka, "out", 3, 60)) == list(range(60))


def test_a_transaction_survives_the_death_of_a_node(cluster: LocalCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("ledger", 3, 3)])["ledger"].result(20)
    producer = transactional(cluster, "survivor")
    wanted: list[int] = []
    for number in range(8):
        if number == 3:
            cluster.nodes[2].kill9()
        values = [number * 10 + p for p in range(3)]
        if booked(producer, values):
            wanted += values
    assert len(wanted) >= 15
    seen = committed(cluster.nodes[1].kafka, "ledger", 3, len(wanted))
    assert sorted(seen) == sorted(wanted)


def booked(producer: Producer, values: list[int]) -> bool:
    """One transaction, tried again as clients are told to; whether it was committed."""
    give_up = time.monotonic() + 60
    producer.begin_transaction()
    for value in values:
        producer.produce("ledger", str(value).encode(), partition=value % 10)
    while True:
        try:
            producer.commit_transaction(30)
        except KafkaException as failure:
            error = failure.args[0]
            if time.monotonic() > give_up:
                raise
            if error.txn_requires_abort():
                producer.abort_transaction(60)
                return False
            if not error.retriable():
                raise
        else:
            return True
