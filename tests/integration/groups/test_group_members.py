"""Real consumers in classic groups: sharing, restarting, being fenced, outliving a killed node."""

import asyncio
import gc
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.integration.several import node_under_test
from tests.kit.waiting import wait_until

from mainstem.testing.local_node import LocalNode

with warnings.catch_warnings():
    # It reads its schemas in a way that the standard library has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer

PATIENCE_S = 30.0
ARGUMENTS = (
    "--set", "groups.initial_rebalance_delay_ms=100",
    "--set", "groups.session_timeout_min_ms=1000",
)  # fmt: skip


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with node_under_test(ARGUMENTS) as running:
        yield running


@pytest.fixture
def topic(node: LocalNode, request: pytest.FixtureRequest) -> str:
    """A topic of four partitions with a hundred records in each."""
    name = str(request.node.originalname)
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.create_topics([NewTopic(name, 4, 1)])[name].result()
    produce(node, name, range(400))
    return name


def produce(node: LocalNode, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": node.kafka})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=number % 4)
    assert producer.flush(PATIENCE_S) == 0


class Worker:
    """A consumer in a thread: what it was assigned, in order, and what it read."""

    def __init__(self, node: LocalNode, topic: str, **settings: Any) -> None:
        self.read: list[int] = []
        self.assigned: list[set[int]] = []
        self.revoked: list[set[int]] = []
        self.errors: list[str] = []
        self.owned: set[int] = set()
        self._halt = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": node.kafka,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 200,
                "auto.commit.interval.ms": 100,
                "error_cb": lambda error: self.errors.append(str(error)),
            }
            | {name.replace("_", "."): value for name, value in settings.items()}
        )
        self._consumer.subscribe([topic], on_assign=self._assign, on_revoke=self._revoke)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned.append({p.partition for p in partitions})
        self.owned |= self.assigned[-1]

    def _revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked.append({p.partition for p in partitions})
        self.owned -= self.revoked[-1]

    def _run(self) -> None:
        while not self._halt.is_set():
            message = self._consumer.poll(0.05)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self.read.append(int(message.value() or b""))
            else:
                self.errors.append(str(error))

    def halt(self) -> None:
        """Stop without saying so to the group when the member is static."""
        self._halt.set()
        self._thread.join(PATIENCE_S)
        self._consumer.close()


@contextmanager
def worker(node: LocalNode, topic: str, **settings: Any) -> Iterator[Worker]:
    running = Worker(node, topic, **settings)
    try:
        yield running
    finally:
        running.halt()


def all_of(*workers: Worker) -> Counter[int]:
    return Counter(number for each in workers for number in each.read)


def committed(node: LocalNode, group: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    [asked] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {p.partition: p.offset for p in asked.result().topic_partitions}


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_partitions_and_take_over_when_one_leaves(
    node: LocalNode, strategy: str
) -> None:
    topic = f"shared-{strategy}"
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result()
    produce(node, topic, range(400))
    settings = {"partition.assignment.strategy": strategy}
    with worker(node, topic, **settings) as first:
        wait_until(lambda: first.owned == {0, 1, 2, 3})
        with worker(node, topic, **settings) as second:
            wait_until(lambda: len(first.owned) == len(second.owned) == 2)
            assert not first.owned & second.owned
            if strategy.startswith("cooperative"):
                assert sum(map(len, first.revoked)) == 2, "only what moved was given up"
            produce(node, topic, range(400, 800))
            wait_until(lambda: all_of(first, second).keys() >= set(range(800)))
        wait_until(lambda: first.owned == {0, 1, 2, 3})
        assert max(all_of(first, second).values()) == 1


def test_a_static_member_restarts_without_disturbing_the_other(node: LocalNode, topic: str) -> None:
    with worker(node, topic, group_instance_id="a") as first, ExitStack() as stack:
        second = stack.enter_context(worker(node, topic, group_instance_id="b"))
        wait_until(lambda: len(first.owned) == len(second.owned) == 2)
        wait_until(lambda: len(all_of(first, second)) == 400)
        assignments, theirs = len(first.assigned), set(second.owned)
        stack.close()
        with worker(node, topic, group_instance_id="b") as again:
            wait_until(lambda: again.owned == theirs)
            produce(node, topic, range(400, 800))
            wait_until(lambda: all_of(first, second, again).keys() >= set(range(800)))
            assert len(first.assigned) == assignments
            assert not first.revoked
            assert max(all_of(first, second, again).values()) == 1


def test_two_members_of_one_instance_name_cannot_live_at_once(node: LocalNode, topic: str) -> None:
    with worker(node, topic, group_instance_id="a") as first:
        wait_until(lambda: first.owned)
        with worker(node, topic, group_instance_id="a") as second:
            wait_until(lambda: second.owned == {0, 1, 2, 3})
            wait_until(lambda: any("fenced" in error for error in first.errors))


def test_members_keep_their_generation_when_the_node_is_killed(topic: str, node: LocalNode) -> None:
    with (
        worker(node, topic, session_timeout_ms=20_000) as first,
        worker(node, topic, session_timeout_ms=20_000) as second,
    ):
        wait_until(lambda: len(first.owned) == len(second.owned) == 2)
        wait_until(lambda: len(all_of(first, second)) == 400)
        assignments = len(first.assigned), len(second.assigned)
        for start in (400, 500):
            node.kill9()
            node.start()
            produce(node, topic, range(start, start + 100))
        wait_until(lambda: all_of(first, second).keys() >= set(range(600)))
        assert (len(first.assigned), len(second.assigned)) == assignments
        assert max(all_of(first, second).values()) == 1
        wait_until(lambda: committed(node, topic) == dict.fromkeys(range(4), 150))


def test_positions_are_moved_by_tools_and_go_with_their_topic(node: LocalNode, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    moved = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, p, 90) for p in range(4)])
    admin.alter_consumer_group_offsets([moved])[topic].result()
    with worker(node, topic) as only:
        wait_until(lambda: len(only.read) == 40)
        [described] = admin.describe_consumer_groups([topic]).values()
        group = described.result()
        assert (group.state.name, group.partition_assignor) == ("STABLE", "range")
        assert len(group.members[0].assignment.topic_partitions) == 4
    assert topic in {g.group_id for g in admin.list_consumer_groups().result().valid}
    admin.delete_topics([topic])[topic].result()
    assert committed(node, topic) == {}
    admin.delete_consumer_groups([topic])[topic].result()
    assert topic not in {g.group_id for g in admin.list_consumer_groups().result().valid}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_kafka_python_and_aiokafka_share_a_group(node: LocalNode, topic: str) -> None:
    seen: list[bytes] = []

    def sync_consumer(halt: threading.Event) -> None:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=node.kafka,
            group_id=topic,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
        )
        while not halt.is_set():
            for batch in consumer.poll(timeout_ms=100).values():
                seen.extend(message.value for message in batch)
        consumer.close()

    async with asyncio.timeout(PATIENCE_S):
        other = AIOKafkaConsumer(
            topic,
            bootstrap_servers=node.kafka,
            group_id=topic,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
        )
        await other.start()
        halt = threading.Event()
        thread = asyncio.ensure_future(asyncio.to_thread(sync_consumer, halt))
        while len(seen) < 400 or len(other.assignment()) != 2:
            for batch in (await other.getmany(timeout_ms=100)).values():
                seen.extend(message.value for message in batch)
        halt.set()
        await thread
        await other.stop()
    gc.collect()  # kafka-python leaves sockets to the collector: let it complain here
    assert sorted(map(int, set(seen))) == list(range(400))
