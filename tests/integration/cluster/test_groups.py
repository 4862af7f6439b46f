"""Consumer groups of a cluster: coordinated everywhere, and by others when a node dies."""

import json
import time
from typing import Any
from urllib.request import Request, urlopen

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainstem.testing.local_cluster import LocalCluster, MemberNode


def admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address})


def over_http(node: MemberNode, path: str, method: str = "GET") -> Any:
    request = Request(f"http://{node.http}/v1/groups{path}", method=method)
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


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
    for node in shared_cluster.nodes.values():
        assert {"a", "b", "c", "d"} <= {line["group_id"] for line in over_http(node, "")}
        for group in ("a", "b", "c", "d"):
            shown = over_http(node, f"/{group}")
            assert shown["committed_offsets"] == {f"grouped-{number}": 10 for number in range(3)}
            assert [position["lag"] for position in shown["positions"]] == [0, 0, 0]
    for group, node in zip("abc", shared_cluster.nodes.values(), strict=True):
        assert over_http(node, f"/{group}", "DELETE") == {"deleted": group}
    for node in shared_cluster.nodes.values():
        left = {line["group_id"] for line in over_http(node, "")}
        assert left & {"a", "b", "c", "d"} == {"d"}


def test_a_group_goes_on_when_its_coordinator_dies(cluster: LocalCluster) -> None:
    asked = admin(cluster.bootstrap)
    asked.create_topics([NewTopic("lively", 3, 3)])["lively"].result(20)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(300):
        producer.produce("lively", str(number).encode(), partition=number % 3)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "lively",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
        }
    )
    consumer.subscribe(["lively"])
    seen = read(consumer, 300)
    consumer.commit(asynchronous=False)
    coordinator = asked.describe_consumer_groups(["lively"])["lively"].result(10).coordinator.id
    cluster.nodes[coordinator].kill9()
    for number in range(300, 600):
        producer.produce("lively", str(number).encode(), partition=number % 3)
    assert producer.flush(60) == 0
    seen += read(consumer, 300)
    consumer.commit(asynchronous=False)
    consumer.close()
    assert sorted(seen) == list(range(600))
    # Whoever comes next begins where the group has come to.
    successor = Consumer(
        {
            "bootstrap.servers": ",".join(n.kafka for n in cluster.nodes.values() if n.is_running),
            "group.id": "lively",
            "auto.offset.reset": "earliest",
        }
    )
    committed = successor.committed([TopicPartition("lively", p) for p in range(3)], timeout=30)
    assert [place.offset for place in committed] == [200, 200, 200]
    successor.close()


def read(consumer: Consumer, count: int, *, timeout_s: float = 60.0) -> list[int]:
    seen: list[int] = []
    give_up = time.monotonic() + timeout_s
    while len(seen) < count and time.monotonic() < give_up:
        seen += [int(m.value() or b"") for m in consumer.consume(count, 0.5) if not m.error()]
    return seen
