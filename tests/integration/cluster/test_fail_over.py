"""Three copies of every record: nodes are killed, and nothing that was acknowledged is missing."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.integration.bad_input.wire import Raw

from mainstem.testing.local_cluster import LocalCluster
from mainstem.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

PARTITIONS = 3
REASSIGN = 45


class Writer:
    """A producer that knows what was acknowledged."""

    def __init__(
        self, cluster: LocalCluster, topic: str, *, padded_to: int = 0, acks: str = "all"
    ) -> None:
        self._topic = topic
        self._padded_to = padded_to
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": acks,
                "enable.idempotence": acks == "all",
                "message.timeout.ms": 60_000,
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        self.sent = 0
        self.acknowledged: list[int] = []
        self.failed: list[object] = []

    def write(self, count: int) -> None:
        for _ in range(count):
            number = self.sent
            self.sent += 1
            self._producer.produce(
                self._topic,
                str(number).encode().ljust(self._padded_to),
                partition=number % PARTITIONS,
                on_delivery=lambda error, message, number=number: self._delivered(error, number),  # type: ignore[misc]
            )
            self._producer.poll(0)

    def settle(self) -> None:
        assert self._producer.flush(90) == 0, "records were neither stored nor refused"
        assert not self.failed, self.failed[:3]

    def _delivered(self, error: object, number: int) -> None:
        if error is None:
            self.acknowledged.append(number)
        else:
            self.failed.append(error)


def everything(address: str, topic: str, *, timeout_s: float = 60.0) -> list[int]:
    """All records of a topic, partition by partition, in the order of the log."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": f"reader-{topic}"})
    places = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
    ends = {p.partition: consumer.get_watermark_offsets(p, timeout=30)[1] for p in places}
    consumer.assign(places)
    seen: list[int] = []
    give_up = time.monotonic() + timeout_s
    while len(seen) < sum(ends.values()) and time.monotonic() < give_up:
        seen += [int(m.value() or b"") for m in consumer.consume(1_000, 0.5) if not m.error()]
    consumer.close()
    return seen


def named_by(cluster: LocalCluster, stopped: int) -> set[int]:
    """The nodes that another node names in its metadata."""
    other = next(node for number, node in cluster.nodes.items() if number != stopped)
    return set(AdminClient({"bootstrap.servers": other.kafka}).list_topics(timeout=20).brokers)


def create(cluster: LocalCluster, topic: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(20)
    return admin


def test_a_topic_has_three_copies_and_every_node_leads_some(shared_cluster: LocalCluster) -> None:
    admin = create(shared_cluster, "copied")
    found = admin.list_topics("copied", timeout=10).topics["copied"].partitions
    assert {part.leader for part in found.values()} == {1, 2, 3}
    assert all(sorted(part.replicas) == [1, 2, 3] for part in found.values())
    assert all(sorted(part.isrs) == [1, 2, 3] for part in found.values())
    writer = Writer(shared_cluster, "copied")
    writer.write(900)
    writer.settle()
    assert sorted(everything(shared_cluster.nodes[2].kafka, "copied")) == list(range(900))


@pytest.mark.parametrize("victim", [1, 2])
def test_killing_a_node_loses_nothing_and_writing_goes_on(
    cluster: LocalCluster, victim: int
) -> None:
    create(cluster, "safe")
    writer = Writer(cluster, "safe")
    writer.write(600)
    writer.settle()
    cluster.nodes[victim].kill9()
    writer.write(600)
    writer.settle()
    survivor = cluster.nodes[3]
    assert sorted(everything(survivor.kafka, "safe")) == list(range(1_200))
    cluster.nodes[victim].start()
    writer.write(600)
    writer.settle()
    assert sorted(everything(survivor.kafka, "safe")) == list(range(1_800))


def test_nodes_restarted_one_after_the_other_leave_no_partition_without_a_writer(
    cluster: LocalCluster,
) -> None:
    create(cluster, "rolling")
    writer = Writer(cluster, "rolling")
    writer.write(300)
    writer.settle()
    pauses_s = []
    for node in cluster.nodes.values():
        began_s = time.monotonic()
        assert node.stop() == 0, node.log_tail()
        assert time.monotonic() - began_s < 20
        stopped_s = time.monotonic()
        assert node.number not in named_by(cluster, node.number), "it has said that it stops"
        writer.write(300)
        writer.settle()
        pauses_s.append(time.monotonic() - stopped_s)
        node.start()
    # Handed over before, nobody has to wait for a lease to end.
    assert sorted(pauses_s)[1] < 5.0, pauses_s
    assert sorted(everything(cluster.bootstrap, "rolling")) == list(range(1_200))


def test_planned_moves_lose_nothing_that_one_node_acknowledged(cluster: LocalCluster) -> None:
    admin = create(cluster, "lightly")
    writer = Writer(cluster, "lightly", acks="1")
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            writer.write(50)
            time.sleep(0.01)

    def leaders() -> set[int]:
        found = admin.list_topics("lightly", timeout=20).topics["lightly"].partitions
        return {part.leader for part in found.values()}

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for node in cluster.nodes.values():
            assert node.stop() == 0, node.log_tail()
            node.start()
            # The node is given back what it wrote before, which is a planned move as well.
            give_up_s = time.monotonic() + 60
            while leaders() != {1, 2, 3}:
                assert time.monotonic() < give_up_s, leaders()
                time.sleep(0.2)
    finally:
        stop.set()
        writing.join()
    writer.settle()
    assert len(writer.acknowledged) > 500
    missing = set(writer.acknowledged) - set(everything(cluster.bootstrap, "lightly"))
    assert not missing, sorted(missing)[:10]


def prefer(cluster: LocalCluster, topic: str, order: list[int]) -> None:
    """Want all partitions of a topic on these nodes, the first as their leader."""
    parts = [ReassignablePartition(number, order) for number in range(PARTITIONS)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(topic, parts)])
    with Raw(cluster.bootstrap.split(",")[0]) as line:
        answer = line.call(REASSIGN, 0, request)
    codes = [part.error_code for found in answer.responses for part in found.partitions]
    assert codes == [0] * PARTITIONS


def test_preferred_elections_lose_nothing_that_one_node_acknowledged(
    cluster: LocalCluster,
) -> None:
    admin = create(cluster, "voted")
    writer = Writer(cluster, "voted", acks="1")
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            writer.write(50)
            time.sleep(0.005)

    writing = threading.Thread(target=write)
    writing.start()
    took_s = []
    try:
        for turn in range(9):
            order = [1 + (turn + step) % 3 for step in range(3)]
            prefer(cluster, "voted", order)
            began_s = time.monotonic()
            outcome = admin.elect_leaders(
                ElectionType.PREFERRED, [TopicPartition("voted", n) for n in range(PARTITIONS)]
            ).result(30)
            took_s.append(time.monotonic() - began_s)
            names = {error.name() for error in outcome.values() if error is not None}
            assert names <= {"ELECTION_NOT_NEEDED"}, (turn, names)
            found = admin.list_topics("voted", timeout=20).topics["voted"].partitions
            assert {part.leader for part in found.values()} == {order[0]}, "answered when it leads"
            time.sleep(0.3)
    finally:
        stop.set()
        writing.join()
        writer.settle()
    assert len(writer.acknowledged) > 500
    missing = set(writer.acknowledged) - set(everything(cluster.bootstrap, "voted"))
    assert not missing, (len(missing), sorted(missing)[:10])
    # It is asked for and done at once: nobody waits for the leader of the catalogue to notice.
    assert sorted(took_s)[len(took_s) // 2] < 2.0, took_s


def test_a_node_is_emptied_and_forgotten_and_another_takes_its_place(
    cluster: LocalCluster,
) -> None:
    admin = create(cluster, "moved")
    writer = Writer(cluster, "moved")
    writer.write(300)
    writer.settle()
    fourth = cluster.add()
    cli = [str(Path(sys.executable).with_name("mainstem")), "node"]
    where = ["-b", fourth.kafka, "--http", f"http://{fourth.http}"]
    done = subprocess.run([*cli, "drain", "2", *where], capture_output=True, text=True, check=True)
    assert done.stdout == "node 2 is empty\n"
    writer.write(300)
    writer.settle()
    cluster.nodes[2].stop()
    subprocess.run([*cli, "remove", "2", "--yes", *where], capture_output=True, check=True)
    found = admin.list_topics("moved", timeout=10)
    assert set(found.brokers) == {1, 3, 4}
    for part in found.topics["moved"].partitions.values():
        assert sorted(part.replicas) == [1, 3, 4]
    writer.write(300)
    writer.settle()
    assert sorted(everything(fourth.kafka, "moved")) == list(range(900))
