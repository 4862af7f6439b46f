"""Groups that the coordinator assigns (KIP-848), as librdkafka's consumers use them."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.integration.several import node_under_test
from tests.kit.waiting import wait_until

from mainstem.client.admin import Admin
from mainstem.testing.local_node import LocalNode

PATIENCE_S = 30.0
ARGUMENTS = (
    "--set", "groups.initial_rebalance_delay_ms=100",
    "--set", "groups.session_timeout_min_ms=1000",
    "--set", "groups.consumer_heartbeat_interval_ms=200",
    "--set", "groups.consumer_session_timeout_ms=3000",
)  # fmt: skip

Place = tuple[str, int]


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with node_under_test(ARGUMENTS) as running:
        yield running


@pytest.fixture
def topic(node: LocalNode, request: pytest.FixtureRequest) -> str:
    """A topic of four partitions with a hundred records in each."""
    name = str(request.node.originalname)
    create(node, name, 4)
    produce(node, name, range(400))
    return name


def create(node: LocalNode, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()


def produce(node: LocalNode, topic: str, numbers: range, partitions: int = 4) -> None:
    producer = Producer({"bootstrap.servers": node.kafka})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


class Worker:
    """A consumer in a thread: what it was given and what it read."""

    def __init__(self, node: LocalNode, group: str, *topics: str, **settings: Any) -> None:
        self.read: list[int] = []
        self.given: list[set[Place]] = []
        self.revoked: list[set[Place]] = []
        self.errors: list[str] = []
        self.owned: set[Place] = set()
        self._halt = threading.Event()
        # A consumer of the new protocol takes these times from the coordinator.
        classic = settings.get("group_protocol") == "classic"
        times = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200} if classic else {}
        self.consumer = Consumer(
            {
                "bootstrap.servers": node.kafka,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 100,
                "topic.metadata.refresh.interval.ms": 500,
                "error_cb": lambda error: self.errors.append(str(error)),
            }
            | times
            | {name.replace("_", "."): value for name, value in settings.items()}
        )
        self.consumer.subscribe(
            list(topics or (group,)), on_assign=self._assign, on_revoke=self._revoke
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.given.append({(p.topic, p.partition) for p in partitions})
        self.owned |= self.given[-1]

    def _revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked.append({(p.topic, p.partition) for p in partitions})
        self.owned -= self.revoked[-1]

    def _run(self) -> None:
        while not self._halt.is_set():
            try:
                message = self.consumer.poll(0.05)
            except KafkaException as fatal:
                self.errors.append(str(fatal))
                return
            if message is None:
                continue
            error = message.error()
            if error is None:
                self.read.append(int(message.value() or b""))
            else:
                self.errors.append(str(error))

    def halt(self) -> None:
        self._halt.set()
        self._thread.join(PATIENCE_S)
        self.consumer.close()


@contextmanager
def worker(node: LocalNode, group: str, *topics: str, **settings: Any) -> Iterator[Worker]:
    running = Worker(node, group, *topics, **settings)
    try:
        yield running
    finally:
        running.halt()


def all_of(*workers: Worker) -> Counter[int]:
    return Counter(number for each in workers for number in each.read)


def partitions_of(topic: str, *indexes: int) -> set[Place]:
    return {(topic, index) for index in indexes}


def described(node: LocalNode, group: str) -> Any:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    return admin.describe_consumer_groups([group])[group].result()


def committed(node: LocalNode, group: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    [asked] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {p.partition: p.offset for p in asked.result().topic_partitions}


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_partitions_and_take_over_when_one_leaves(
    node: LocalNode, assignor: str
) -> None:
    topic = f"shared-{assignor}"
    create(node, topic, 4)
    produce(node, topic, range(400))
    settings = {"group_remote_assignor": assignor}
    with worker(node, topic, **settings) as first:
        wait_until(lambda: len(first.owned) == 4)
        with worker(node, topic, **settings) as second:
            wait_until(lambda: len(first.owned) == len(second.owned) == 2)
            assert not first.owned & second.owned
            if assignor == "uniform":
                assert sum(map(len, first.revoked)) == 2, "only what moved was given up"
            group = described(node, topic)
            assert (group.state.name, group.type.name) == ("STABLE", "CONSUMER")
            assert group.partition_assignor == assignor
            assert sorted(len(m.assignment.topic_partitions) for m in group.members) == [2, 2]
            produce(node, topic, range(400, 800))
            wait_until(lambda: all_of(first, second).keys() >= set(range(800)))
        wait_until(lambda: len(first.owned) == 4)
        assert max(all_of(first, second).values()) == 1
    assert described(node, topic).state.name == "EMPTY"


def test_a_killed_member_is_replaced_when_its_session_ends(node: LocalNode, topic: str) -> None:
    script = (
        "import sys; from confluent_kafka import Consumer\n"
        "c = Consumer({'bootstrap.servers': sys.argv[1], 'group.id': sys.argv[2],"
        " 'group.protocol': 'consumer', 'auto.offset.reset': 'earliest'})\n"
        "c.subscribe([sys.argv[2]], on_assign=lambda c, p: print(len(p), flush=True))\n"
        "while True: c.poll(0.1)\n"
    )
    command = [sys.executable, "-c", script, node.kafka, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline().strip() == "4"
        with worker(node, topic) as successor:
            wait_until(lambda: len(successor.owned) == 2)
            os.kill(victim.pid, signal.SIGKILL)
            wait_until(lambda: len(successor.owned) == 4)
            wait_until(lambda: len(described(node, topic).members) == 1)
            produce(node, topic, range(400, 800))
            wait_until(lambda: set(successor.read) >= set(range(400, 800)))


def test_an_expression_is_matched_by_the_node_and_follows_new_topics(node: LocalNode) -> None:
    create(node, "re.one", 1)
    create(node, "other.re.one", 1)
    with worker(node, "re", "^re\\..*") as only:
        wait_until(lambda: only.owned == partitions_of("re.one", 0))
        create(node, "re.two", 2)
        grown = partitions_of("re.one", 0) | partitions_of("re.two", 0, 1)
        wait_until(lambda: only.owned == grown)
        produce(node, "re.two", range(10), partitions=2)
        wait_until(lambda: sorted(only.read) == list(range(10)))
        admin = AdminClient({"bootstrap.servers": node.kafka})
        admin.delete_topics(["re.one"])["re.one"].result()
        wait_until(lambda: only.owned == partitions_of("re.two", 0, 1))


def test_a_bad_expression_is_told_to_the_consumer(node: LocalNode, topic: str) -> None:
    # It has to be one that the client itself takes for an expression: RE2 has no back references.
    with worker(node, topic, "^(t)\\1") as only:
        wait_until(lambda: any("regular expression" in error.lower() for error in only.errors))


def test_further_partitions_are_shared_too(node: LocalNode, topic: str) -> None:
    with worker(node, topic) as first, worker(node, topic) as second:
        wait_until(lambda: len(first.owned) == len(second.owned) == 2)
        revoked = len(first.revoked), len(second.revoked)
        admin = AdminClient({"bootstrap.servers": node.kafka})
        admin.create_partitions([NewPartitions(topic, 6)])[topic].result()
        wait_until(lambda: len(first.owned) == len(second.owned) == 3)
        produce(node, topic, range(400, 1000), partitions=6)
        wait_until(lambda: all_of(first, second).keys() >= set(range(1000)))
        assert max(all_of(first, second).values()) == 1
        assert (len(first.revoked), len(second.revoked)) == revoked


def test_a_static_member_restarts_without_disturbing_the_other(node: LocalNode, topic: str) -> None:
    with worker(node, topic, group_instance_id="a") as first, ExitStack() as stack:
        second = stack.enter_context(worker(node, topic, group_instance_id="b"))
        wait_until(lambda: len(first.owned) == len(second.owned) == 2)
        wait_until(lambda: len(all_of(first, second)) == 400)
        changes, theirs = (len(first.given), len(first.revoked)), set(second.owned)
        stack.close()
        with worker(node, topic, group_instance_id="b") as again:
            wait_until(lambda: again.owned == theirs)
            produce(node, topic, range(400, 800))
            wait_until(lambda: all_of(first, second, again).keys() >= set(range(800)))
            assert (len(first.given), len(first.revoked)) == changes
            assert max(all_of(first, second, again).values()) == 1


def test_a_name_in_use_is_refused_to_a_second_member(node: LocalNode, topic: str) -> None:
    with worker(node, topic, group_instance_id="a") as first:
        wait_until(lambda: len(first.owned) == 4)
        with worker(node, topic, group_instance_id="a") as second:
            wait_until(lambda: second.errors)
            assert not second.owned
        assert len(first.owned) == 4


def test_members_keep_their_epoch_when_the_node_is_killed(node: LocalNode, topic: str) -> None:
    with worker(node, topic) as first, worker(node, topic) as second:
        wait_until(lambda: len(first.owned) == len(second.owned) == 2)
        wait_until(lambda: len(all_of(first, second)) == 400)
        epochs = described(node, topic)
        changes = len(first.revoked), len(second.revoked)
        for start in (400, 500):
            node.kill9()
            node.start()
            produce(node, topic, range(start, start + 100))
        wait_until(lambda: all_of(first, second).keys() >= set(range(600)))
        assert (len(first.revoked), len(second.revoked)) == changes
        assert max(all_of(first, second).values()) == 1
        after = described(node, topic)
        assert {m.member_id for m in after.members} == {m.member_id for m in epochs.members}
        wait_until(lambda: committed(node, topic) == dict.fromkeys(range(4), 150))


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_moves_to_the_new_protocol_and_back_while_it_reads(
    node: LocalNode, strategy: str
) -> None:
    topic = f"moving-{strategy}"
    create(node, topic, 4)
    produce(node, topic, range(400))
    old = {"group_protocol": "classic", "partition_assignment_strategy": strategy}
    with ExitStack() as first_half:
        classics = [first_half.enter_context(worker(node, topic, **old)) for _ in range(2)]
        wait_until(lambda: sorted(len(each.owned) for each in classics) == [2, 2])
        assert described(node, topic).type.name == "CLASSIC"
        with ExitStack() as second_half:
            new = [second_half.enter_context(worker(node, topic)) for _ in range(2)]
            everybody = [*classics, *new]
            wait_until(lambda: [len(each.owned) for each in everybody] == [1, 1, 1, 1])
            assert described(node, topic).type.name == "CONSUMER"
            produce(node, topic, range(400, 800))
            wait_until(lambda: all_of(*everybody).keys() >= set(range(800)))
            first_half.close()
            wait_until(lambda: [len(each.owned) for each in new] == [2, 2])
            produce(node, topic, range(800, 1200))
            wait_until(lambda: all_of(*everybody).keys() >= set(range(1200)))
            with ExitStack() as third_half:
                back = [third_half.enter_context(worker(node, topic, **old)) for _ in range(2)]
                everybody += back
                wait_until(lambda: [len(each.owned) for each in (*new, *back)] == [1, 1, 1, 1])
                second_half.close()
                wait_until(lambda: [len(each.owned) for each in back] == [2, 2])
                wait_until(lambda: described(node, topic).type.name == "CLASSIC")
                produce(node, topic, range(1200, 1600))
                wait_until(lambda: all_of(*everybody).keys() >= set(range(1600)))
                assert max(all_of(*everybody).values()) == 1


async def test_our_own_tools_see_such_a_group(node: LocalNode, topic: str) -> None:
    with worker(node, topic) as only:
        wait_until(lambda: committed(node, topic) == dict.fromkeys(range(4), 100))
        async with Admin(node.kafka) as admin:
            group, lag = await admin.groups.describe(topic), await admin.groups.lag(topic)
        assert (group.state, group.protocol_type, group.protocol) == (
            "Stable",
            "consumer",
            "uniform",
        )
        [member] = group.members
        assert {(p.topic, p.partition) for p in member.assignment} == only.owned
        assert [each.lag for each in lag] == [0, 0, 0, 0]
        assert lag[0].member == member
        async with httpx.AsyncClient(base_url=f"http://{node.http}") as http:
            shown = (await http.get(f"/v1/groups/{topic}")).json()
        assert (shown["state"], shown["protocol_name"], shown["total_lag"]) == (
            "Stable",
            "uniform",
            0,
        )
        assert [each["member_id"] for each in shown["members"]] == [member.id]


def test_administrators_see_and_delete_a_group(node: LocalNode, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    with worker(node, topic) as only:
        wait_until(lambda: len(only.read) == 400)
        listed = {g.group_id: g for g in admin.list_consumer_groups().result().valid}
        assert listed[topic].type.name == "CONSUMER"
        [deleted] = admin.delete_consumer_groups([topic]).values()
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            deleted.result()
    moved = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, p, 90) for p in range(4)])
    admin.alter_consumer_group_offsets([moved])[topic].result()
    assert committed(node, topic) == dict.fromkeys(range(4), 90)
    admin.delete_consumer_groups([topic])[topic].result()
    assert topic not in {g.group_id for g in admin.list_consumer_groups().result().valid}
