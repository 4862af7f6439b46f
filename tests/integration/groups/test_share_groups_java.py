"""Share groups (KIP-932), as Java's share consumer and Kafka's own tools use them."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients.drivers.console import TOOLS
from tests.clients.java_tools import JavaTools, java_tools
from tests.integration.groups.java_member import PATIENCE_S, JavaMember
from tests.integration.groups.settings import configure
from tests.kit.waiting import wait_until

from mainstem.testing.local_node import LocalNode

pytestmark = [pytest.mark.needs("java", "maven"), pytest.mark.slow]

ARGUMENTS = (
    "--set", "share.heartbeat_interval_ms=200",
    "--set", "share.session_timeout_ms=8000",
    "--set", "share.lock_duration_ms=2000",
    "--set", "share.lock_duration_min_ms=1000",
)  # fmt: skip
SHARE_GROUPS = f"{TOOLS}.consumer.group.ShareGroupCommand"
GROUPS = f"{TOOLS}.GroupsCommand"


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with LocalNode(arguments=ARGUMENTS) as running:
        yield running


def create(node: LocalNode, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result()


def produce(node: LocalNode, topic: str, values: list[str], partitions: int = 1) -> None:
    producer = Producer({"bootstrap.servers": node.kafka})
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % partitions)
    assert producer.flush(PATIENCE_S) == 0


def texts(numbers: range) -> list[str]:
    return [str(number) for number in numbers]


@pytest.fixture(scope="module")
def tools(node: LocalNode) -> Iterator[JavaTools]:
    with java_tools(node.kafka) as running:
        yield running


def begin_at_the_start(tools: JavaTools, group: str) -> None:
    """As an operator does it."""
    tools.run(
        "kafka.admin.ConfigCommand", "--alter", "--entity-type", "groups",
        "--entity-name", group, "--add-config", "share.auto.offset.reset=earliest",
    )  # fmt: skip


class Read(NamedTuple):
    """One record as a member saw it."""

    partition: int
    offset: int
    deliveries: int
    value: str


class Member(JavaMember):
    """A share consumer: what it says."""

    program = "ShareMember"

    def __init__(self, log: Path, *arguments: str) -> None:
        self.read: list[Read] = []
        self.acked: list[tuple[int, int, str]] = []
        super().__init__(log, *arguments)

    def heard(self, word: str, rest: str) -> None:
        """A record that was read, or what became of one."""
        if word == "read":
            partition, offset, count, value = rest.split(" ", 3)
            self.read.append(Read(int(partition), int(offset), int(count), value))
        elif word == "acked":
            partition, offset, outcome = rest.split(" ")
            self.acked.append((int(partition), int(offset), outcome))

    @property
    def values(self) -> list[str]:
        return [read.value for read in self.read]


Start = Callable[..., Member]


@pytest.fixture
def start(node: LocalNode, tmp_path: Path) -> Iterator[Start]:
    """Starts members and stops at the end those that still run."""
    started: list[Member] = []

    def run(group: str, topic: str, mode: str = "implicit", *settings: str) -> Member:
        log = tmp_path / f"member-{len(started)}.log"
        started.append(Member(log, node.kafka, group, topic, mode, *settings))
        return started[-1]

    yield run
    for member in started:
        member.kill()


def columns(printed: str, topic: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines() if topic in line.split()]


def test_members_share_records_die_and_outlive_the_node(
    node: LocalNode, tools: JavaTools, start: Start
) -> None:
    create(node, "jshare", 2)
    begin_at_the_start(tools, "jshare")
    produce(node, "jshare", texts(range(200)), partitions=2)
    first, second = start("jshare", "jshare"), start("jshare", "jshare")
    wait_until(lambda: set(first.values + second.values) == set(texts(range(200))))
    assert max(Counter(first.values + second.values).values()) == 1
    wait_until(lambda: len(first.acked) + len(second.acked) == 200)
    second.kill()
    node.kill9()
    node.start()
    produce(node, "jshare", texts(range(200, 400)), partitions=2)
    wait_until(lambda: set(first.values + second.values) == set(texts(range(400))))
    wait_until(lambda: len(first.acked) + len(second.acked) >= 400)
    assert {outcome for _, _, outcome in first.acked} == {"ok"}
    assert max(Counter(first.values + second.values).values()) == 1
    first.stop()
    assert not first.failures
    shown = columns(tools.run(SHARE_GROUPS, "--group", "jshare", "--describe"), "jshare")
    # GROUP TOPIC PARTITION START-OFFSET LAG
    assert sorted(line[2:5] for line in shown) == [["0", "200", "0"], ["1", "200", "0"]]


def test_a_member_says_what_becomes_of_every_record(
    node: LocalNode, tools: JavaTools, start: Start
) -> None:
    create(node, "jexplicit", 1)
    begin_at_the_start(tools, "jexplicit")
    values = ["a", "release:1", "b", "reject", "release:9", "c", "renew:2", "d"]
    produce(node, "jexplicit", values)
    only = start("jexplicit", "jexplicit", "explicit")
    wait_until(lambda: Counter(only.values)["release:9"] == 5)
    wait_until(lambda: Counter(only.values)["renew:2"] == 3)
    produce(node, "jexplicit", ["e"])
    wait_until(lambda: "e" in only.values)
    counted = Counter(only.values)
    assert {value: counted[value] for value in "abcde"} == dict.fromkeys("abcde", 1)
    assert (counted["release:1"], counted["reject"], counted["release:9"]) == (2, 1, 5)
    assert [read.deliveries for read in only.read if read.value == "release:9"] == [1, 2, 3, 4, 5]
    assert {read.deliveries for read in only.read if read.value == "renew:2"} == {1}
    only.stop()
    assert not only.failures
    assert {outcome for _, _, outcome in only.acked} == {"ok"}


def test_no_more_records_than_asked_for_are_held_and_a_dead_member_gives_them_back(
    node: LocalNode, tools: JavaTools, start: Start
) -> None:
    create(node, "jlimit", 1)
    begin_at_the_start(tools, "jlimit")
    # No lock runs out by itself, however slow the machine is.
    configure(node, "jlimit", "share.record.lock.duration.ms", "30000")
    produce(node, "jlimit", ["hold", *texts(range(99))])
    holder = start(
        "jlimit", "jlimit", "explicit", "max.poll.records=1", "share.acquire.mode=record_limit"
    )
    wait_until(lambda: holder.values == ["hold"])
    other = start("jlimit", "jlimit")
    wait_until(lambda: len(other.values) >= 99)
    assert {read.deliveries for read in other.read if read.value != "hold"} == {1}
    holder.kill()
    wait_until(lambda: "hold" in other.values)
    assert [read.deliveries for read in other.read if read.value == "hold"] == [2]


def test_kafkas_tools_administer_share_groups(
    node: LocalNode, tools: JavaTools, start: Start
) -> None:
    create(node, "jtool", 1)
    begin_at_the_start(tools, "jtool")
    produce(node, "jtool", texts(range(50)))
    group = ("--group", "jtool")
    member = start("jtool", "jtool")
    wait_until(lambda: len(member.acked) == 50)
    assert "jtool" in tools.run(SHARE_GROUPS, "--list").split()
    assert ["jtool", "Share", "share"] in [
        line.split() for line in tools.run(GROUPS, "--list").splitlines()
    ]
    assert "Stable" in tools.run(SHARE_GROUPS, *group, "--describe", "--state")
    [shown] = columns(tools.run(SHARE_GROUPS, *group, "--describe", "--members"), "jtool")
    assert shown[-1] == "jtool:0"
    assert "GroupNotEmptyException" in tools.run(SHARE_GROUPS, *group, "--delete")
    member.stop()
    [shown] = columns(tools.run(SHARE_GROUPS, *group, "--describe"), "jtool")
    assert shown[:5] == ["jtool", "jtool", "0", "50", "0"]
    tools.run(
        SHARE_GROUPS, *group, "--topic", "jtool", "--reset-offsets", "--to-earliest",
        "--execute",
    )  # fmt: skip
    [shown] = columns(tools.run(SHARE_GROUPS, *group, "--describe"), "jtool")
    assert shown[:5] == ["jtool", "jtool", "0", "0", "50"]
    read = tools.run(
        f"{TOOLS}.consumer.ConsoleShareConsumer", "--topic", "jtool", *group,
        "--max-messages", "50",
    )  # fmt: skip
    assert set(read.split()) >= set(texts(range(50)))
    tools.run(SHARE_GROUPS, *group, "--topic", "jtool", "--delete-offsets")
    assert not columns(tools.run(SHARE_GROUPS, *group, "--describe"), "jtool")
    tools.run(SHARE_GROUPS, *group, "--delete")
    assert "jtool" not in tools.run(SHARE_GROUPS, "--list").split()
