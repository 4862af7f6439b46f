"""Kafka's own administration tools against a server: what they change, they read back."""

import json
import tempfile
from pathlib import Path

from confluent_kafka import Producer
from tests.clients.drivers.console import TOOLS, run
from tests.clients.records import Record
from tests.clients.scenarios import Scenario, Scene

CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
TRANSACTIONS = f"{TOOLS}.TransactionsCommand"


def administers_topics(scene: Scene) -> None:
    """kafka-topics: create, list, describe, grow and delete."""
    topics = f"{TOOLS}.TopicCommand"
    _tool(scene, topics, "--create", "--topic", scene.topic, "--partitions", "2")
    assert scene.topic in _tool(scene, topics, "--list").split()
    assert "PartitionCount: 2" in _tool(scene, topics, "--describe", "--topic", scene.topic)
    _tool(scene, topics, "--alter", "--topic", scene.topic, "--partitions", "5")
    described = _tool(scene, topics, "--describe", "--topic", scene.topic)
    assert "PartitionCount: 5" in described
    assert described.count("Leader: ") == 5
    _tool(scene, topics, "--delete", "--topic", scene.topic)
    assert scene.topic not in _tool(scene, topics, "--list").split()


def administers_settings(scene: Scene) -> None:
    """kafka-configs: a topic's setting is added, seen and taken away."""
    scene.oracle.create(scene.topic, 1)
    entity = ("--entity-type", "topics", "--entity-name", scene.topic)
    _tool(scene, CONFIGS, *entity, "--alter", "--add-config", "retention.ms=1234567")
    assert "retention.ms=1234567" in _tool(scene, CONFIGS, *entity, "--describe")
    assert scene.oracle.config(scene.topic, "retention.ms") == "1234567"
    _tool(scene, CONFIGS, *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms=1234567" not in _tool(scene, CONFIGS, *entity, "--describe")
    assert scene.oracle.config(scene.topic, "retention.ms") == "604800000"
    every = _tool(scene, CONFIGS, *entity, "--describe", "--all")
    assert "segment.bytes=1073741824" in every


def administers_records(scene: Scene) -> None:
    """get-offsets, delete-records and log-dirs agree on what is stored."""
    scene.oracle.create(scene.topic, 1)
    sent = [Record(value=b"record %d" % number) for number in range(1_000)]
    scene.oracle.produce(scene.topic, sent)
    offsets = f"{TOOLS}.GetOffsetShell"
    assert f"{scene.topic}:0:1000" in _tool(scene, offsets, "--topic", scene.topic)
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch) / "delete.json"
        entry = {"topic": scene.topic, "partition": 0, "offset": 400}
        wanted.write_text(json.dumps({"partitions": [entry], "version": 1}))
        _tool(scene, f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", str(wanted))
    earliest = _tool(scene, offsets, "--topic", scene.topic, "--time", "earliest")
    assert f"{scene.topic}:0:400" in earliest
    directories = _tool(scene, f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", scene.topic)
    found = json.loads(directories[directories.index("{") :])
    # As many as there are copies.
    partitions = [
        partition
        for broker in found["brokers"]
        for directory in broker["logDirs"]
        for partition in directory["partitions"]
    ]
    assert {each["partition"] for each in partitions} == {f"{scene.topic}-0"}
    assert all(each["size"] > 0 for each in partitions)


def administers_groups(scene: Scene) -> None:
    """kafka-consumer-groups: list, describe with lag, reset, delete."""
    scene.oracle.create(scene.topic, 1)
    sent = [Record(value=b"record %d" % number) for number in range(100)]
    scene.oracle.produce(scene.topic, sent)
    assert len(scene.consume(30)) == 30
    group = ("--group", scene.group)
    assert scene.group in _tool(scene, GROUPS, "--list").split()
    # GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG
    assert _columns(_tool(scene, GROUPS, *group, "--describe"), scene)[3:6] == ["30", "100", "70"]
    assert "Empty" in _tool(scene, GROUPS, *group, "--describe", "--state")
    _tool(
        scene, GROUPS, *group, "--topic", scene.topic, "--reset-offsets", "--to-offset", "90",
        "--execute",
    )  # fmt: skip
    assert _columns(_tool(scene, GROUPS, *group, "--describe"), scene)[3:6] == ["90", "100", "10"]
    assert [record.offset for record in scene.consume(10)] == list(range(90, 100))
    _tool(scene, GROUPS, *group, "--topic", scene.topic, "--delete-offsets")
    assert scene.oracle.committed(scene.group, scene.topic) == {0: 0}
    _tool(scene, GROUPS, *group, "--delete")
    assert scene.group not in _tool(scene, GROUPS, "--list").split()


def administers_transactions(scene: Scene) -> None:
    """kafka-transactions: what is open is listed and described, and not taken for hanging."""
    scene.oracle.create(scene.topic, 1)
    name = f"transaction-{scene.prefix}"
    producer = Producer({"bootstrap.servers": scene.server.kafka, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(scene.topic, b"open", partition=0)
    producer.flush(30)
    partition = ("--topic", scene.topic, "--partition", "0")
    listed = _tool(scene, TRANSACTIONS, "list").splitlines()
    assert any(name in line and "Ongoing" in line for line in listed)
    described = _tool(scene, TRANSACTIONS, "describe", "--transactional-id", name)
    assert f"{scene.topic}-0" in described
    [row] = _tool(scene, TRANSACTIONS, "describe-producers", *partition).splitlines()[1:]
    # ProducerId ProducerEpoch LatestCoordinatorEpoch LastSequence LastTimestamp
    # CurrentTransactionStartOffset
    assert row.split()[-1] == "0"
    hanging = _tool(scene, TRANSACTIONS, "find-hanging", *partition)
    assert len(hanging.splitlines()) <= 1  # the title at most
    producer.commit_transaction(30)
    described = _tool(scene, TRANSACTIONS, "describe", "--transactional-id", name)
    assert "CompleteCommit" in described


def describes_the_server(scene: Scene) -> None:
    """kafka-broker-api-versions and kafka-cluster understand the server."""
    versions = _tool(scene, f"{TOOLS}.BrokerApiVersionsCommand")
    assert "Produce(0)" in versions
    assert "UNSUPPORTED" not in versions.split("Produce(0)")[1].splitlines()[0]
    printed = run(f"{TOOLS}.ClusterTool", ["cluster-id", "--bootstrap-server", scene.server.kafka])
    assert "Cluster ID: " in printed


def administers_replicas(scene: Scene) -> None:
    """kafka-leader-election and kafka-reassign-partitions find all where it should be."""
    scene.oracle.create(scene.topic, 2)
    election = ("--election-type", "preferred", "--topic", scene.topic, "--partition", "1")
    elected = _tool(scene, f"{TOOLS}.LeaderElectionCommand", *election)
    assert f"Valid replica already elected for partitions {scene.topic}-1" in elected
    tool = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch) / "reassignment.json"
        entry = {"topic": scene.topic, "partition": 0, "replicas": [1], "log_dirs": ["any"]}
        wanted.write_text(json.dumps({"partitions": [entry], "version": 1}))
        options = ("--reassignment-json-file", str(wanted))
        started = _tool(scene, tool, *options, "--execute")
        assert f"Successfully started partition reassignment for {scene.topic}-0" in started
        verified = _tool(scene, tool, *options, "--verify")
        assert f"Reassignment of partition {scene.topic}-0 is completed." in verified
    assert "No partition reassignments found." in _tool(scene, tool, "--list")


def administers_features(scene: Scene) -> None:
    """kafka-metadata-quorum sees one voter; kafka-features lowers a level and raises it again."""
    quorum = _tool(scene, f"{TOOLS}.MetadataQuorumCommand", "describe", "--status")
    assert "LeaderId:               1" in quorum
    assert "CurrentObservers:       []" in quorum
    tool = f"{TOOLS}.FeatureCommand"
    lowered = _tool(scene, tool, "downgrade", "--feature", "transaction.version=1")
    assert "transaction.version was downgraded to 1." in lowered
    assert _level(_tool(scene, tool, "describe"), "transaction.version") == 1
    raised = _tool(scene, tool, "upgrade", "--feature", "transaction.version=2")
    assert "transaction.version was upgraded to 2." in raised
    assert _level(_tool(scene, tool, "describe"), "transaction.version") == 2


def administers_client_metrics(scene: Scene) -> None:
    """kafka-client-metrics: a subscription is made, seen and taken away."""
    tool = f"{TOOLS}.ClientMetricsCommand"
    name = ("--name", scene.topic)
    wanted = ("--metrics", "org.apache.kafka.consumer.", "--interval", "5000")
    _tool(scene, tool, "--alter", *name, *wanted, "--match", "client_id=nobody")
    described = _tool(scene, tool, "--describe", *name)
    assert "interval.ms=5000" in described
    assert "match=client_id=nobody" in described
    assert "metrics=org.apache.kafka.consumer." in described
    assert scene.topic in _tool(scene, tool, "--list").split()
    _tool(scene, tool, "--delete", *name)
    assert scene.topic not in _tool(scene, tool, "--list").split()


def _level(described: str, feature: str) -> int:
    [row] = [line for line in described.splitlines() if f"Feature: {feature} " in f"{line} "]
    return int(row.split("FinalizedVersionLevel: ")[1].split()[0])


def _tool(scene: Scene, tool: str, *options: str) -> str:
    return run(tool, ["--bootstrap-server", scene.server.kafka, *options])


def _columns(described: str, scene: Scene) -> list[str]:
    [row] = [line for line in described.splitlines() if line.startswith(scene.group)]
    return row.split()


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        administers_topics,
        administers_settings,
        administers_records,
        administers_groups,
        administers_transactions,
        administers_replicas,
        administers_features,
        administers_client_metrics,
        describes_the_server,
    )
}
