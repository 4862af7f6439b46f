"""Nodes join, are drained, removed and get new disks while records flow: nothing is missing."""

import json
import shutil
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.kit.waiting import wait_until

from mainstem.testing.local_cluster import LocalCluster, MemberNode

PARTITIONS = 4
Acknowledged = dict[tuple[int, int], bytes]


def call(node: MemberNode, path: str, method: str = "GET") -> Any:
    request = urllib.request.Request(f"http://{node.http}{path}", method=method)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def create(cluster: LocalCluster, topic: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, replicas)])[topic].result(20)


@contextmanager
def writing(cluster: LocalCluster, topic: str) -> Iterator[Acknowledged]:
    """Write all the while; afterwards what was acknowledged, by partition and offset."""
    acknowledged: Acknowledged = {}
    failed: list[object] = []
    over = threading.Event()

    def delivered(error: object, message: Any) -> None:
        if error is not None:
            failed.append(error)
        else:
            acknowledged[message.partition(), message.offset()] = message.value()

    def write() -> None:
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 90_000,
            }
        )
        number = 0
        while not over.is_set():
            value = str(number).encode()
            producer.produce(topic, value, partition=number % PARTITIONS, on_delivery=delivered)
            number += 1
            producer.poll(0.005)
        assert producer.flush(90) == 0

    thread = threading.Thread(target=write)
    thread.start()
    try:
        wait_until(lambda: len(acknowledged) > 100, "the first records are written")
        yield acknowledged
    finally:
        over.set()
        thread.join()
    assert not failed, failed[:3]


def stored(address: str, topic: str) -> Acknowledged:
    """Everything that a topic holds."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": f"reader-{topic}"})
    places = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    total = sum(consumer.get_watermark_offsets(place, timeout=30)[1] for place in places)
    consumer.assign(places)
    found: Acknowledged = {}
    give_up = time.monotonic() + 60
    while len(found) < total and time.monotonic() < give_up:
        for message in consumer.consume(1_000, 0.5):
            if not message.error():
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                found[partition, offset] = message.value() or b""
    consumer.close()
    return found


def rows(node: MemberNode) -> dict[int, dict[str, Any]]:
    return {row["node"]: row for row in call(node, "/v1/cluster/nodes")}


def drain(asked: MemberNode, node: int) -> None:
    call(asked, f"/v1/cluster/nodes/{node}/drain", "PUT")
    wait_until(lambda: rows(asked)[node]["ranges"] == 0, f"node {node} holds nothing")


def is_served(asked: MemberNode, without: int) -> bool:
    """Whether every open range is written, and not by a node that is gone."""
    found = [row for row in call(asked, "/v1/cluster/ranges") if row["end"] is None]
    return all(row["state"] == "open" and row["writer"] != without for row in found)


def is_at_rest(node: MemberNode) -> bool:
    found = call(node, "/v1/cluster")
    return found["moving"] == 0 and set(found["ranges"]) <= {"open", "sealed"}


def test_a_node_joins_takes_its_share_is_drained_and_removed(cluster: LocalCluster) -> None:
    create(cluster, "single", replicas=1)
    first = cluster.nodes[1]
    with writing(cluster, "single") as acknowledged:
        fourth = cluster.add()
        create(cluster, "copied", replicas=3)
        call(first, "/v1/cluster/rebalance", "POST")
        wait_until(lambda: rows(first)[4]["ranges"] > 0, "the new node holds something")
        for leaving in (4, 3):
            drain(first, leaving)
    fourth.kill9()
    wait_until(lambda: rows(first)[4]["status"] == "fenced", "the removed node is gone")
    call(first, "/v1/cluster/nodes/4", "DELETE")
    assert set(rows(first)) == {1, 2, 3}
    wait_until(lambda: is_at_rest(first), "everything is where it is wanted")
    assert stored(first.kafka, "single") == acknowledged


def test_a_node_that_lost_its_records_copies_everything_anew(cluster: LocalCluster) -> None:
    create(cluster, "kept", replicas=3)
    first, second = cluster.nodes[1], cluster.nodes[2]
    with writing(cluster, "kept") as acknowledged:
        second.kill9()
        wait_until(lambda: rows(first)[2]["status"] == "fenced", "the killed node is fenced")
        for name in ("topics", "directory.id", "log.checkpoint", "producers.checkpoint"):
            lost = cluster.folder / "node-2" / name
            shutil.rmtree(lost) if lost.is_dir() else lost.unlink(missing_ok=True)
        second.start()
        wait_until(lambda: is_at_rest(first), "the new disk has everything")
        assert rows(first)[2]["ranges"] == rows(first)[1]["ranges"]
    cluster.nodes[3].kill9()
    # A client that asks while it still takes the dead node for the leader waits for long.
    wait_until(lambda: is_served(first, without=3), "others write what the dead node wrote")
    assert stored(second.kafka, "kept") == acknowledged
