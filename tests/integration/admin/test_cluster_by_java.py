"""The cluster as a whole, administered by the Java client: what it changes, it reads back."""

import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer
from tests.clients.client import java_command
from tests.integration.bad_input.wire import Raw
from tests.integration.kafka.transaction_clients import Java as JavaProducer
from tests.integration.kafka.transaction_clients import read
from tests.integration.several import node_under_test

from mainstem.testing.local_node import LocalNode
from mainstem.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)

PATIENCE_S = 30.0

pytestmark = [pytest.mark.needs("java", "maven"), pytest.mark.slow]


class Java:
    """One administrator in a process of its own, asked line by line."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        self._log = log.open("w")
        self._process = subprocess.Popen(
            [*java_command("ClusterAdmin"), bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def ask(self, *words: object) -> str:
        """What it answers: ``ok`` and more, or the name of an error and its text."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("> "):
                return line.removeprefix("> ").strip()
        raise AssertionError("it has ended")


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with node_under_test() as running:
        yield running


@pytest.fixture(scope="module")
def java(node: LocalNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    with Java(node.kafka, tmp_path_factory.mktemp("java") / "java.log") as running:
        assert running.ask("create", "t", 2) == "ok"
        yield running


def test_every_partition_is_led_by_its_preferred_replica(java: Java) -> None:
    for kind in ("PREFERRED", "UNCLEAN"):
        assert java.ask("elect", kind, "t", 1).startswith("ok ElectionNotNeededException ")
        assert java.ask("elect", kind, "t", 2).startswith("ok UnknownTopicOrPartitionException ")
        assert java.ask("elect", kind) == "ok", "nothing of all that there is needs one"


@pytest.mark.lone("with others a partition takes its time to move; see tests/integration/cluster")
def test_partitions_are_reassigned_to_nodes_that_there_are(java: Java) -> None:
    assert java.ask("reassign", "t", 0, "1") == "ok"
    assert java.ask("reassignments") == "ok {}"
    assert java.ask("reassign", "t", 0).startswith("NoReassignmentInProgressException ")
    assert java.ask("reassign", "nowhere", 0, "1").startswith("UnknownTopicOrPartitionException ")
    refused = java.ask("reassign", "t", 0, "1,7")
    assert refused == "InvalidReplicaAssignmentException unknown node 7"
    assert java.ask("reassign", "t", 0, "1,1").startswith("InvalidReplicaAssignmentException ")


def test_partitions_move_to_folders_that_there_are(node: LocalNode, java: Java) -> None:
    assert java.ask("folder", "t") == f"ok {node.data_dir}"
    assert java.ask("move", "t", node.data_dir) == "ok"
    assert java.ask("move", "t", "/elsewhere").startswith("LogDirNotFoundException ")
    assert java.ask("folder", "t") == f"ok {node.data_dir}"


@pytest.mark.lone("the quorum of a single node")
def test_the_quorum_is_this_node_and_its_log_grows(node: LocalNode, java: Java) -> None:
    def described() -> tuple[list[str], int]:
        word, leader, epoch, end, *rest = java.ask("quorum").split(" ", 6)
        assert (word, leader, epoch) == ("ok", "1", "1")
        return rest, int(end)

    rest, before = described()
    assert rest[:2] == ["1", "0"]
    assert node.kafka.rpartition(":")[2] in rest[2]
    assert java.ask("create", "growth", 1) == "ok"
    assert described()[1] > before


def test_features_are_switched_and_told_to_every_client(java: Java) -> None:
    assert (
        java.ask("features")
        == "ok {group.version=1, mainstem.version=2, share.version=1, transaction.version=2} 1"
    )
    refused = java.ask("feature", "transaction.version", 1, "UPGRADE")
    assert refused.startswith("InvalidUpdateVersionException ")
    assert java.ask("feature", "transaction.version", 1, "SAFE_DOWNGRADE", "validate") == "ok"
    assert (
        java.ask("features")
        == "ok {group.version=1, mainstem.version=2, share.version=1, transaction.version=2} 1"
    )
    assert java.ask("feature", "transaction.version", 1, "SAFE_DOWNGRADE") == "ok"
    assert java.ask("feature", "group.version", 0, "UNSAFE_DOWNGRADE") == "ok"
    assert (
        java.ask("features") == "ok {mainstem.version=2, share.version=1, transaction.version=1} 3"
    )
    assert java.ask("feature", "transaction.version", 2, "UPGRADE") == "ok"
    assert java.ask("feature", "group.version", 1, "UPGRADE") == "ok"
    assert (
        java.ask("features")
        == "ok {group.version=1, mainstem.version=2, share.version=1, transaction.version=2} 5"
    )
    for unknown in ("metadata.version", "kraft.version"):
        refused = java.ask("feature", unknown, 1, "UPGRADE")
        assert refused.startswith("InvalidUpdateVersionException "), unknown


def requests_of(node: LocalNode, api: str) -> int:
    """How many requests of a kind the node has served."""
    with urllib.request.urlopen(f"http://{node.http}/metrics", timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    found = re.search(rf'^mainstem_kafka_requests_total{{api="{api}"}} (\S+)$', text, re.MULTILINE)
    return int(float(found[1])) if found else 0


@pytest.mark.lone("one node's count of requests is looked at")
@pytest.mark.parametrize("level", [2, 1])
def test_clients_go_by_the_level_of_transactions(node: LocalNode, java: Java, level: int) -> None:
    how = "UPGRADE" if level == 2 else "SAFE_DOWNGRADE"
    assert java.ask("feature", "transaction.version", level, how) == "ok"
    added = requests_of(node, "AddPartitionsToTxn")
    producer = JavaProducer(node.kafka, f"level-{level}")
    try:
        for value, ends in (("a", producer.commit), ("b", producer.abort), ("c", producer.commit)):
            producer.begin()
            producer.send("t", f"{value}{level}")
            ends()
    finally:
        producer.close()
        java.ask("feature", "transaction.version", 2, "UPGRADE")
    values = [value for value in read(node.kafka, "t") if value.endswith(str(level))]
    assert values == [f"a{level}", f"c{level}"]
    has_added = requests_of(node, "AddPartitionsToTxn") > added
    assert has_added is (level == 1), "only the older flow adds before it writes"


def test_java_waits_when_it_creates_too_fast(node: LocalNode, java: Java) -> None:
    entry = RequestEntryData(
        [RequestEntityData("client-id", None)], [OpData("controller_mutation_rate", 10.0)]
    )
    gone = RequestEntryData(entry.entity, [OpData("controller_mutation_rate", 0.0, remove=True)])
    with Raw(node.kafka) as raw:
        raw.call(49, 1, AlterClientQuotasRequest([entry]))
        begun = time.monotonic()
        assert [java.ask("create", f"fast-{number}", 20) for number in range(3)] == ["ok"] * 3
        # Ten at once, then ten a second: the last one waits for what the first two have used.
        assert time.monotonic() - begun > 2.0
        raw.call(49, 1, AlterClientQuotasRequest([gone]))


def test_groups_that_the_node_assigns_are_described(node: LocalNode, java: Java) -> None:
    assert java.ask("group", "assigned").startswith("GroupIdNotFoundException ")
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": node.kafka,
        "client.id": "member",
        "group.id": "assigned",
        "group.protocol": "consumer",
    }
    with Consumer(settings) as member:
        member.subscribe(["t"])
        deadline = time.monotonic() + PATIENCE_S
        while len(member.assignment()) < 2 and time.monotonic() < deadline:
            member.poll(0.1)
        assert java.ask("group", "assigned") == "ok Consumer Stable member 2"


def test_a_node_that_is_gone_for_good_is_unregistered(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LocalNode(data) as node:
        first = node.announced
    assert first
    # The machine was set up anew under another number; its catalogue still knows the old one.
    (data / "node.json").unlink()
    with (
        LocalNode(data, arguments=("--set", "node.id=2")) as node,
        Java(node.kafka, tmp_path / "java.log") as java,
    ):
        assert java.ask("nodes") == "ok 1 2"
        assert java.ask("unregister", 9).startswith("BrokerIdNotRegisteredException ")
        assert java.ask("unregister", 2).startswith("PolicyViolationException ")
        assert java.ask("unregister", 1) == "ok"
        assert java.ask("nodes") == "ok 2"
