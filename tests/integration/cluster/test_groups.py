"""Consumer groups of a cluster: coordinated everywhere, and by others when a node dies."""

import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainstem.testing.local_cluster import LocalCluster


def admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address})


def test_groups_are_coordinated_by_different_nodes(shared_cluster: LocalCluster) -> None:
    asked = admin(shared_cluster.bootstrap)
    asked.create_topics([NewTopic("grouped", 3, 1)])["grouped"].result(10)
    producer = Producer({"bootstrap.servers": shared_cluster.bootstrap})
    for number in range(30):
        producer.produce("grouped", f"{number}".encode(), partition=number % 3)
    assert producer.flush(20) == 0
    for group in ("a", "b", "c", "d"):
        consumer = Consumer(
            {
                "bootstrap.servers": shared_cluster.nodes[1].kafka,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["grouped"])
        seen: list[int] = []
        give_up = time.monotonic() + 30
        while len(seen) < 30 and time.monotonic() < give_up:
            seen += [int(message.value() or b"") for message in consumer.consume(30, 0.5)]
        consumer.commit(asynchronous=False)
        consumer.close()
        assert sorted(seen) == list(range(30))
    listed = asked.list_consumer_groups().result(10)
    assert {"a", "b", "c", "d"} <= {group.group_id for group in listed.valid}
    groups = [asked.describe_consumer_groups([group])[group] for group in ("a", "b", "c", "d")]
    coordinators = {group.result(10).coordinator.id for group in groups}
    assert len(coordinators) > 1
