"""Three processes share one catalogue, and clients find what they look for at any of them."""

import time
from functools import partial

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.kit.waiting import wait_until

from mainstem.testing.local_cluster import LocalCluster


def admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address})


def is_listed(asked: AdminClient, topic: str) -> bool:
    return topic in asked.list_topics(timeout=5).topics


def test_every_node_tells_the_same_of_a_topic(shared_cluster: LocalCluster) -> None:
    third = admin(shared_cluster.nodes[3].kafka)
    third.create_topics([NewTopic("spread", 6, 1)])["spread"].result(10)
    for node in shared_cluster.nodes.values():
        asked = admin(node.kafka)
        wait_until(partial(is_listed, asked, "spread"), within_s=20.0)
        found = asked.list_topics(timeout=5)
        assert set(found.brokers) == {1, 2, 3}
        leaders = sorted(part.leader for part in found.topics["spread"].partitions.values())
        assert leaders == [1, 1, 2, 2, 3, 3]


def test_clients_write_and_read_partitions_of_all_nodes(shared_cluster: LocalCluster) -> None:
    asked = admin(shared_cluster.bootstrap)
    asked.create_topics([NewTopic("everywhere", 6, 1)])["everywhere"].result(10)
    producer = Producer({"bootstrap.servers": shared_cluster.nodes[1].kafka})
    failures: list[object] = []
    for number in range(600):
        producer.produce(
            "everywhere",
            f"{number}".encode(),
            partition=number % 6,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(20) == 0
    assert not failures
    consumer = Consumer({"bootstrap.servers": shared_cluster.nodes[2].kafka, "group.id": "unused"})
    consumer.assign([TopicPartition("everywhere", p, 0) for p in range(6)])
    seen: list[int] = []
    give_up = time.monotonic() + 20
    while len(seen) < 600 and time.monotonic() < give_up:
        seen += [int(message.value() or b"") for message in consumer.consume(600, 0.5)]
    consumer.close()
    assert sorted(seen) == list(range(600))


def test_a_cluster_that_stood_still_starts_again(cluster: LocalCluster) -> None:
    asked = admin(cluster.bootstrap)
    asked.create_topics([NewTopic("kept", 3, 1)])["kept"].result(10)
    for node in cluster.nodes.values():
        node.kill9()
    cluster.start_together(cluster.nodes.values())
    found = admin(cluster.nodes[2].kafka).list_topics(timeout=10)
    assert set(found.brokers) == {1, 2, 3}
    assert len(found.topics["kept"].partitions) == 3
