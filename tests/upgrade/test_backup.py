"""A node is started from a copy of its data folder that was made while it ran, or was stopped."""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainstem.log.verification.data_directory import verify_data_dir
from mainstem.model.errors import InvalidRequest, Unavailable
from mainstem.node.backup import back_up
from mainstem.testing.local_cluster import LocalCluster
from mainstem.testing.local_node import LocalNode

PLAIN, COMPACTED = "orders", "states"
QUICK = ("--set", "log.retention_check_interval_ms=200", "--set", "groups.offsets_partitions=1")
KEYS = 20


class Writer:
    """Writes to both topics until told to stop; what was confirmed, in its order."""

    def __init__(self, node: LocalNode) -> None:
        self.confirmed: list[int] = []
        self.newest: dict[int, int] = {}
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": node.kafka, "enable.idempotence": True, "linger.ms": 1}
        )
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._stop.wait(0.002):
            for _ in range(20):
                self._producer.produce(PLAIN, str(number), on_delivery=self._delivered)
                key = number % KEYS
                self._producer.produce(COMPACTED, str(number), str(key), on_delivery=self._kept)
                number += 1
            self._producer.poll(0)
        assert self._producer.flush(60) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.confirmed.append(int(message.value() or b""))

    def _kept(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.newest[int(message.key() or b"")] = int(message.value() or b"")

    def end(self) -> None:
        self._stop.set()
        self._thread.join(90)
        assert not self.errors, self.errors[:3]


def make_topics(node: LocalNode) -> None:
    compact = {"cleanup.policy": "compact", "segment.bytes": "1048576", "segment.ms": "300"}
    admin = AdminClient({"bootstrap.servers": node.kafka})
    made = [
        NewTopic(PLAIN, 1, 1, config={"segment.bytes": "1048576", "segment.ms": "300"}),
        NewTopic(COMPACTED, 1, 1, config=compact),
    ]
    for topic in admin.create_topics(made).values():
        topic.result(60)


def end_of(consumer: Consumer, topic: str) -> int:
    """Where a topic ends; a partition that has just moved is asked for again."""
    for _ in range(100):
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        except KafkaException:
            time.sleep(0.2)
        else:
            return int(end)
    raise AssertionError("nobody writes the partition")


def read(node: LocalNode, topic: str) -> list[tuple[int, int]]:
    """Keys (-1 for none) and values of everything in a topic."""
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "auditor"})
    end = end_of(consumer, topic)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, int]] = []
    offset = -1
    while offset + 1 < end:
        message = consumer.poll(60)
        assert message is not None, f"{len(found)} records, then nothing"
        assert message.error() is None, message.error()
        found.append((int(message.key() or b"-1"), int(message.value() or b"")))
        offset = message.offset() or 0
    consumer.close()
    return found


@contextmanager
def restored(copy: Path) -> Iterator[LocalNode]:
    """A node that runs on the copy, and that has found nothing to complain of."""
    node = LocalNode(copy, arguments=QUICK)
    try:
        node.start(timeout_s=120)
        yield node
        assert "damage" not in node.log_text(), node.log_tail()
    finally:
        node.close()


@pytest.mark.timeout(300)
def test_a_copy_of_a_running_node_holds_all_that_was_confirmed_before_it_began(
    tmp_path: Path,
) -> None:
    with LocalNode(arguments=QUICK) as node:
        make_topics(node)
        writer = Writer(node)
        done: list[tuple[int, dict[int, int]]] = []
        for number in range(3):
            seen = len(writer.confirmed)
            while len(writer.confirmed) < seen + 2_000:
                assert not writer.errors, writer.errors[:3]
                time.sleep(0.02)
            done.append((len(writer.confirmed), dict(writer.newest)))
            copied = back_up(node.data_dir, tmp_path / f"copy-{number}")
            assert copied.ranges > 0
        writer.end()
        everything = writer.confirmed
        for number, (count, newest) in enumerate(done):
            with restored(tmp_path / f"copy-{number}") as other:
                values = [value for _, value in read(other, PLAIN)]
                assert values == everything[: len(values)], "a beginning, in its order"
                assert len(values) >= count
                kept = dict(read(other, COMPACTED))
                assert all(kept[key] >= value for key, value in newest.items())


def test_a_copy_of_a_stopped_node_holds_all_and_is_sound(tmp_path: Path) -> None:
    with LocalNode(arguments=QUICK) as node:
        make_topics(node)
        writer = Writer(node)
        while len(writer.confirmed) < 1_000:
            assert not writer.errors, writer.errors[:3]
            time.sleep(0.02)
        writer.end()
        assert node.stop() == 0
        back_up(node.data_dir, tmp_path / "copy")
        assert verify_data_dir(tmp_path / "copy") == []
        with pytest.raises(InvalidRequest, match="not empty"):
            back_up(node.data_dir, tmp_path / "copy")
    with restored(tmp_path / "copy") as other:
        assert [value for _, value in read(other, PLAIN)] == writer.confirmed
        # The copy runs now, and loses a range that its catalogue names.
        sealed = next((tmp_path / "copy" / "topics").glob("*/*/*/range.seal")).parent
        sealed.rename(tmp_path / "gone")
        with pytest.raises(Unavailable, match="ranges were replaced while they were copied"):
            back_up(tmp_path / "copy", tmp_path / "incomplete")
        (tmp_path / "gone").rename(sealed)


@pytest.mark.timeout(300)
def test_a_whole_cluster_is_restored_from_copies_of_its_stopped_nodes(tmp_path: Path) -> None:
    with LocalCluster(3, arguments=QUICK) as cluster:
        cluster.wait_for_three_voters(timeout_s=90)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for made in admin.create_topics([NewTopic(PLAIN, 1, 3)]).values():
            made.result(60)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        for number in range(500):
            producer.produce(PLAIN, str(number))
        assert producer.flush(60) == 0
        with pytest.raises(InvalidRequest, match="stop the node, or all nodes, first"):
            back_up(cluster.nodes[1].data_dir, tmp_path / "running")
        for node in cluster.nodes.values():
            assert node.stop(timeout_s=90) == 0
        for number, node in cluster.nodes.items():
            back_up(node.data_dir, tmp_path / f"{number}")
            shutil.rmtree(node.data_dir)
            shutil.copytree(tmp_path / f"{number}", node.data_dir)
        cluster.start_together(cluster.nodes.values())
        found = [value for _, value in read(cluster.nodes[1], PLAIN)]
        assert found == list(range(500))
