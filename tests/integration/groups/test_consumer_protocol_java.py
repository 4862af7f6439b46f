"""Groups that the coordinator assigns (KIP-848), as the Java client uses them."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.integration.groups.java_member import PATIENCE_S, JavaMember
from tests.integration.groups.settings import configure
from tests.integration.several import node_under_test
from tests.kit.waiting import wait_until

from mainstem.testing.local_node import LocalNode

pytestmark = [pytest.mark.needs("java", "maven"), pytest.mark.slow]

ARGUMENTS = (
    "--set", "groups.initial_rebalance_delay_ms=100",
    "--set", "groups.session_timeout_min_ms=1000",
    "--set", "groups.consumer_heartbeat_interval_ms=200",
    "--set", "groups.consumer_session_timeout_ms=8000",
)  # fmt: skip


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with node_under_test(ARGUMENTS) as running:
        yield running


def create(node: LocalNode, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()


def produce(node: LocalNode, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": node.kafka})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=number % 4)
    assert producer.flush(PATIENCE_S) == 0


def group_type(node: LocalNode, group: str) -> str:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    return str(admin.describe_consumer_groups([group])[group].result().type.name)


class Member(JavaMember):
    """A consumer: what it says."""

    program = "Member"

    def __init__(self, log: Path, *arguments: str) -> None:
        self.read: list[int] = []
        self.owned: set[str] = set()
        self.given = 0
        super().__init__(log, *arguments)

    def heard(self, word: str, rest: str) -> None:
        """A record that was read, or a partition that came or went."""
        if word == "read":
            self.read.append(int(rest))
        elif word == "given":
            self.given += 1
            self.owned.add(rest)
        elif word == "gone":
            self.owned.discard(rest)


@pytest.fixture
def start(node: LocalNode, tmp_path: Path) -> Iterator[Callable[..., Member]]:
    """Starts members and stops at the end those that still run."""
    started: list[Member] = []

    def run(group: str, subscription: str, *rest: str, protocol: str = "consumer") -> Member:
        log = tmp_path / f"member-{len(started)}.log"
        started.append(Member(log, node.kafka, group, protocol, subscription, *rest))
        return started[-1]

    yield run
    for member in started:
        member.kill()


def sizes(*members: Member) -> list[int]:
    return [len(member.owned) for member in members]


def test_members_join_leave_and_die(node: LocalNode, start: Callable[..., Member]) -> None:
    create(node, "java", 4)
    produce(node, "java", range(400))
    first = start("java", "java")
    wait_until(lambda: sizes(first) == [4])
    second, third = start("java", "java"), start("java", "java")
    wait_until(lambda: sorted(sizes(first, second, third)) == [1, 1, 2])
    produce(node, "java", range(400, 800))
    everybody = (first, second, third)
    wait_until(lambda: {n for m in everybody for n in m.read} >= set(range(800)))
    assert max(Counter(n for m in everybody for n in m.read).values()) == 1
    second.stop()
    wait_until(lambda: sizes(first, third) == [2, 2])
    third.kill()
    wait_until(lambda: sizes(first) == [4])
    node.kill9()
    node.start()
    produce(node, "java", range(800, 1200))
    wait_until(lambda: set(first.read) >= set(range(800, 1200)))
    assert sizes(first) == [4]
    assert not first.failures


def test_an_expression_is_matched_by_the_node(
    node: LocalNode, start: Callable[..., Member]
) -> None:
    create(node, "jre.one", 1)
    only = start("jre", "^jre\\..*")
    wait_until(lambda: only.owned == {"jre.one-0"})
    create(node, "jre.two", 2)
    wait_until(lambda: only.owned == {"jre.one-0", "jre.two-0", "jre.two-1"})


def test_a_bad_expression_is_an_error_of_its_own(
    node: LocalNode, start: Callable[..., Member]
) -> None:
    only = start("jbad", "^(")
    wait_until(lambda: only.failures)
    assert only.failures[0].startswith("InvalidRegularExpression")


def test_a_static_member_comes_back_to_its_partitions(
    node: LocalNode, start: Callable[..., Member]
) -> None:
    create(node, "jstatic", 4)
    # A member that comes back begins with starting Java, which may take its time.
    configure(node, "jstatic", "consumer.session.timeout.ms", "45000")
    first, second = start("jstatic", "jstatic", "a"), start("jstatic", "jstatic", "b")
    wait_until(lambda: sizes(first, second) == [2, 2])
    theirs, given = set(second.owned), first.given
    second.stop()
    again = start("jstatic", "jstatic", "b")
    wait_until(lambda: again.owned == theirs)
    assert first.given == given
    refused = start("jstatic", "jstatic", "b")
    wait_until(lambda: refused.failures)
    assert refused.failures[0].startswith("UnreleasedInstanceId")


def test_a_group_moves_to_the_new_protocol_and_back(
    node: LocalNode, start: Callable[..., Member]
) -> None:
    create(node, "jmoving", 4)
    produce(node, "jmoving", range(400))
    old = [start("jmoving", "jmoving", protocol="classic") for _ in range(2)]
    wait_until(lambda: sizes(*old) == [2, 2])
    new = [start("jmoving", "jmoving") for _ in range(2)]
    wait_until(lambda: sizes(*old, *new) == [1, 1, 1, 1])
    assert group_type(node, "jmoving") == "CONSUMER"
    produce(node, "jmoving", range(400, 800))
    for member in old:
        member.stop()
    wait_until(lambda: sizes(*new) == [2, 2])
    back = start("jmoving", "jmoving", protocol="classic")
    wait_until(lambda: sorted(sizes(*new, back)) == [1, 1, 2])
    for member in new:
        member.stop()
    wait_until(lambda: sizes(back) == [4])
    assert group_type(node, "jmoving") == "CLASSIC"
    produce(node, "jmoving", range(800, 1200))
    everybody = (*old, *new, back)
    wait_until(lambda: {n for m in everybody for n in m.read} >= set(range(1200)))
    assert max(Counter(n for m in everybody for n in m.read).values()) == 1
    assert not any(member.failures for member in everybody)
