"""Share groups of a cluster: what is locked where a partition is written is stored by the group."""

import json
import threading
import time
from collections import Counter
from typing import Any
from urllib.request import urlopen

from confluent_kafka import KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from mainstem.testing.local_cluster import LocalCluster, MemberNode

PATIENCE_S = 60.0
PARTITIONS = 6
RECORDS = 600

Place = tuple[int, int]


class Sharer:
    """A member in a thread: what it was given, and what it knows to be acknowledged."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.given: Counter[Place] = Counter()
        self.acknowledged: set[Place] = set()
        self.unsure: set[Place] = set()
        self._consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group})
        self._consumer.set_acknowledgement_commit_callback(self._hear)
        self._consumer.subscribe(["shared"])
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _hear(self, offsets: dict[Any, set[int]], error: KafkaException | None) -> None:
        places = {(at.partition, offset) for at, found in offsets.items() for offset in found}
        (self.acknowledged if error is None else self.unsure).update(places)

    def _run(self) -> None:
        while not self._halt.is_set():
            for message in self._consumer.poll(0.1):
                if message.error() is None:
                    self.given[message.partition() or 0, message.offset() or 0] += 1

    def halt(self) -> None:
        self._halt.set()
        self._thread.join(PATIENCE_S)
        self._consumer.close()


def produce(cluster: LocalCluster, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce("shared", str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def read_from_the_start(admin: AdminClient, group: str) -> None:
    entry = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    [done] = admin.incremental_alter_configs([resource]).values()
    done.result(PATIENCE_S)


def check_shown(node: MemberNode, group: str) -> None:
    """Any node shows a group with its members and where it stands."""
    with urlopen(f"http://{node.http}/v1/groups/{group}", timeout=30) as answer:
        shown = json.load(answer)
    assert (shown["type"], shown["state"], len(shown["members"])) == ("share", "Stable", 2)
    stands = {(each["topic"], each["partition"]) for each in shown["positions"]}
    assert stands == {("shared", partition) for partition in range(PARTITIONS)}
    ends = [each["end_offset"] for each in shown["positions"]]
    assert ends == [RECORDS // 2 // PARTITIONS] * PARTITIONS


def test_groups_go_on_when_a_node_dies_and_nothing_acknowledged_comes_back(
    cluster: LocalCluster,
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("shared", PARTITIONS, 3)])["shared"].result(PATIENCE_S)
    groups = [f"sharers-{number}" for number in range(3)]  # kept by different nodes
    for group in groups:
        read_from_the_start(admin, group)
    members = {g: [Sharer(cluster.bootstrap, g) for _ in range(2)] for g in groups}

    def settled(group: str) -> set[Place]:
        return set().union(*(m.acknowledged | m.unsure for m in members[group]))

    def until(count: int) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while any(len(settled(group)) < count for group in groups):
            assert time.monotonic() < give_up, {group: len(settled(group)) for group in groups}
            time.sleep(0.05)

    try:
        produce(cluster, range(RECORDS // 2))
        until(RECORDS // 2)
        for node in cluster.nodes.values():
            for group in groups:
                check_shown(node, group)
        known = {group: set().union(*(m.acknowledged for m in members[group])) for group in groups}
        before = {group: sum((m.given for m in members[group]), Counter()) for group in groups}
        cluster.nodes[2].kill9()
        produce(cluster, range(RECORDS // 2, RECORDS))
        until(RECORDS)
    finally:
        for member in (member for every in members.values() for member in every):
            member.halt()
    for group in groups:
        given: Counter[Place] = sum((m.given for m in members[group]), Counter())
        assert len(given) == RECORDS
        assert {place: given[place] for place in known[group]} == {
            place: before[group][place] for place in known[group]
        }
