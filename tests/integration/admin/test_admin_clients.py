"""Real clients administer a real node: each changes something and reads it back."""

import warnings
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.integration.several import NODES

from mainstem.testing.local_node import LocalNode

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas the old way
    from kafka.admin import ConfigResource as PythonResource
    from kafka.admin import ConfigResourceType, KafkaAdminClient
    from kafka.admin import NewPartitions as PythonPartitions
    from kafka.admin import NewTopic as PythonTopic

WAIT_S = 20


@pytest.fixture
def admin(shared_node: LocalNode) -> AdminClient:
    return AdminClient({"bootstrap.servers": shared_node.kafka})


@pytest.fixture
def python_admin(shared_node: LocalNode) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=shared_node.kafka)
    yield client
    client.close()


@pytest.fixture
def name() -> str:
    return f"admin-{uuid4().hex[:12]}"


def outcome(futures: dict[Any, Any]) -> Any:
    """The result of a call about one thing."""
    [future] = futures.values()
    return future.result(WAIT_S)


def refused(futures: dict[Any, Any]) -> str:
    with pytest.raises(KafkaException) as error:
        outcome(futures)
    return str(error.value.args[0].name())


def setting(admin: AdminClient, kind: str, name: str, key: str) -> Any:
    return outcome(admin.describe_configs([ConfigResource(kind, name)]))[key]


def test_confluent_creates_grows_and_deletes_topics(admin: AdminClient, name: str) -> None:
    outcome(admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "5000"})]))
    outcome(admin.create_partitions([NewPartitions(name, 3)]))
    described = outcome(
        admin.describe_topics(TopicCollection([name]), include_authorized_operations=True)
    )
    assert {one.leader.id for one in described.partitions} <= set(range(1, NODES + 1))
    assert len(described.authorized_operations) == 8
    assert name in admin.list_topics(timeout=WAIT_S).topics
    outcome(admin.delete_topics([name]))
    assert refused(admin.describe_topics(TopicCollection([name]))) == "UNKNOWN_TOPIC_OR_PART"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "no spaces"}, "TOPIC_EXCEPTION"),
        ({"num_partitions": 0}, "INVALID_PARTITIONS"),
        ({"replication_factor": NODES + 1}, "INVALID_REPLICATION_FACTOR"),
        ({"config": {"retention.ms": "soon"}}, "INVALID_CONFIG"),
    ],
)
def test_confluent_is_told_why_a_topic_cannot_be(
    admin: AdminClient, name: str, changes: dict[str, Any], code: str
) -> None:
    fields: dict[str, Any] = {"topic": name, "num_partitions": 1, "replication_factor": 1} | changes
    assert refused(admin.create_topics([NewTopic(**fields)])) == code


def test_confluent_changes_settings_of_a_topic(admin: AdminClient, name: str) -> None:
    outcome(admin.create_topics([NewTopic(name, 1, 1)]))
    changes = [
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ConfigEntry("retention.ms", "777", incremental_operation=AlterConfigOpType.SET),
    ]
    resource = ConfigResource("topic", name, incremental_configs=changes)
    outcome(admin.incremental_alter_configs([resource]))
    assert setting(admin, "topic", name, "cleanup.policy").value == "delete,compact"
    retention = setting(admin, "topic", name, "retention.ms")
    assert (retention.value, retention.is_default) == ("777", False)
    assert set(retention.synonyms) == {"retention.ms"}


def test_confluent_changes_settings_of_a_node(admin: AdminClient) -> None:
    key = "log.cleaner.delete.retention.ms"
    change = ConfigEntry(key, "4321", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("broker", "1", incremental_configs=[change])
    outcome(admin.incremental_alter_configs([resource]))
    assert setting(admin, "broker", "1", key).value == "4321"
    back = ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE)
    resource = ConfigResource("broker", "1", incremental_configs=[back])
    outcome(admin.incremental_alter_configs([resource]))
    assert setting(admin, "broker", "1", key).value == "86400000"
    assert setting(admin, "broker", "1", "num.partitions").is_read_only


def test_confluent_deletes_records(admin: AdminClient, name: str, shared_node: LocalNode) -> None:
    outcome(admin.create_topics([NewTopic(name, 1, 1)]))
    producer = Producer({"bootstrap.servers": shared_node.kafka})
    for number in range(50):
        producer.produce(name, b"%d" % number)
    assert producer.flush(WAIT_S) == 0
    deleted = outcome(admin.delete_records([TopicPartition(name, 0, 20)]))
    assert deleted.low_watermark == 20


def test_confluent_sees_the_cluster_at_the_address_it_dialled(
    admin: AdminClient, shared_node: LocalNode
) -> None:
    cluster = admin.describe_cluster(include_authorized_operations=True).result(WAIT_S)
    assert len(cluster.nodes) == NODES
    node = next(one for one in cluster.nodes if one.id == 1)
    assert f"{node.host}:{node.port}" == shared_node.kafka
    assert len(cluster.cluster_id) == 22
    assert len(cluster.authorized_operations) == 7


def test_kafka_python_creates_grows_configures_and_deletes(
    python_admin: KafkaAdminClient, name: str
) -> None:
    python_admin.create_topics([PythonTopic(name, 1, 1, topic_configs={"segment.ms": "60000"})])
    python_admin.create_partitions({name: PythonPartitions(4)})
    [topic] = python_admin.describe_topics([name])
    assert len(topic["partitions"]) == 4
    resource = PythonResource(ConfigResourceType.TOPIC, name, {"retention.ms": "1234"})
    python_admin.alter_configs([resource])
    described = python_admin.describe_configs([PythonResource(ConfigResourceType.TOPIC, name)])
    assert "1234" in str(described)
    python_admin.delete_topics([name])
    assert name not in python_admin.list_topics()
