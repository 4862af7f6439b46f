"""Small answers that clients and tools compare with those of Apache Kafka, by raw requests."""

import time
import uuid

import pytest
from confluent_kafka import KafkaError, Producer
from tests.integration.bad_input.wire import PRODUCE, Raw
from tests.integration.kafka.conftest import Broker, create, is_apache

from mainstem.model.records.record import Record, build_batch
from mainstem.wire.kafka.messages import alter_share_group_offsets as share_altering
from mainstem.wire.kafka.messages import alter_user_scram_credentials as scram
from mainstem.wire.kafka.messages import delete_topics as deleting
from mainstem.wire.kafka.messages import describe_configs as describing
from mainstem.wire.kafka.messages import describe_share_group_offsets as share_describing
from mainstem.wire.kafka.messages import find_coordinator as finding
from mainstem.wire.kafka.messages import incremental_alter_configs as altering
from mainstem.wire.kafka.messages import metadata as seeing
from mainstem.wire.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

UNKNOWN_ERROR = -1
INVALID_TIMESTAMP, INVALID_RECORD, UNACCEPTABLE_CREDENTIAL = 32, 87, 93
UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, NOT_ENOUGH_REPLICAS = 3, 5, 19
METADATA, DELETE_TOPICS, DESCRIBE_CONFIGS, ALTER_CONFIGS, ALTER_SCRAM = 3, 20, 32, 44, 51
INVALID_CONFIG, INVALID_REQUEST = 40, 42
FIND_COORDINATOR, DESCRIBE_SHARE_OFFSETS, ALTER_SHARE_OFFSETS = 10, 90, 91
TOPIC, BROKER = 2, 4
FOR_CLUSTER, STATIC, DEFAULT = 3, 4, 5
HOUR_MS = 3_600_000


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:8]}"


def now_ms() -> int:
    return int(time.time() * 1000)


def produced(
    node: Raw, topic: str, records: list[Record], *, version: int = 9
) -> PartitionProduceResponse:
    part = PartitionProduceData(index=0, records=bytes(build_batch(records)))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[part])],
    )
    answer: PartitionProduceResponse
    [answer] = node.call(PRODUCE, version, request).responses[0].partition_responses
    return answer


def test_a_refused_batch_names_the_records_without_a_key(broker: Broker, topic: str) -> None:
    oracle = create(broker, topic, 1, {"cleanup.policy": "compact"})
    keys = (b"a", None, b"c", None)
    with Raw(oracle.writer(topic)) as node:
        answer = produced(node, topic, [Record(0, now_ms(), key, b"v") for key in keys])
        old_client = produced(
            node, topic, [Record(0, now_ms(), key, b"v") for key in keys], version=7
        )

    assert (answer.error_code, answer.base_offset) == (INVALID_RECORD, -1)
    assert [error.batch_index for error in answer.record_errors] == [1, 3]
    assert all("key" in (error.batch_index_error_message or "") for error in answer.record_errors)
    assert old_client.error_code == INVALID_RECORD


@pytest.mark.parametrize("far_ms", [-HOUR_MS, 10 * HOUR_MS])
def test_a_refused_batch_names_the_records_of_another_time(
    broker: Broker, topic: str, far_ms: int
) -> None:
    oracle = create(broker, topic, 1, {"message.timestamp.before.max.ms": str(HOUR_MS // 2)})
    with Raw(oracle.writer(topic)) as node:
        times = (now_ms(), now_ms() + far_ms, now_ms())
        answer = produced(node, topic, [Record(0, at, b"k", b"v") for at in times])
        accepted = produced(node, topic, [Record(0, now_ms(), b"k", b"v")])

    assert answer.error_code == INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert (accepted.error_code, accepted.record_errors) == (0, [])


def test_a_batch_of_bad_records_is_answered_within_bounds(broker: Broker, topic: str) -> None:
    oracle = create(broker, topic, 1, {"cleanup.policy": "compact"})
    with Raw(oracle.writer(topic)) as node:
        answer = produced(node, topic, [Record(0, now_ms(), None, b"v")] * 3_000)

    assert answer.error_code == INVALID_RECORD
    if is_apache(broker):  # difference: it names every one
        assert len(answer.record_errors) == 3_000
        assert "3000 record errors in total" in (answer.error_message or "")
    else:
        assert len(answer.record_errors) == 1_000
        assert "3000 of 3000" in (answer.error_message or "")


def test_librdkafka_is_told_of_a_record_without_a_key(broker: Broker, topic: str) -> None:
    create(broker, topic, 1, {"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": broker.kafka})
    failures: list[KafkaError | None] = []
    producer.produce(topic, b"v", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(30) == 0

    [failure] = failures
    assert failure is not None
    assert failure.code() == INVALID_RECORD


@pytest.mark.parametrize(("mechanism", "own_bytes"), [(1, 32), (2, 64)])
def test_salted_passwords_of_any_length_are_taken(
    broker: Broker, mechanism: int, own_bytes: int
) -> None:
    user = f"user-{uuid.uuid4().hex[:8]}"
    outcomes = {}
    with Raw(broker.kafka) as node:
        for size in (0, 1, 16, 20, own_bytes, 200, 1_025):
            upsertion = scram.ScramCredentialUpsertion(
                name=user,
                mechanism=mechanism,
                iterations=4_096,
                salt=b"s" * 16,
                salted_password=b"p" * size,
            )
            request = scram.AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
            [result] = node.call(ALTER_SCRAM, 0, request).results
            outcomes[size] = result.error_code
        deletion = scram.ScramCredentialDeletion(name=user, mechanism=mechanism)
        node.call(
            ALTER_SCRAM,
            0,
            scram.AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]),
        )

    if is_apache(broker):
        # Difference: it has no maximum, and answers an empty one with an unexpected error.
        assert (outcomes.pop(0), outcomes.pop(1_025)) == (UNKNOWN_ERROR, 0)
    refused = {size for size, code in outcomes.items() if code == UNACCEPTABLE_CREDENTIAL}
    assert refused == (set() if is_apache(broker) else {0, 1_025})
    assert {code for size, code in outcomes.items() if size not in refused} == {0}


def test_metadata_tells_that_a_topic_was_deleted_before_it_makes_it_again(
    broker: Broker, topic: str
) -> None:
    create(broker, topic, 1)
    request = seeing.MetadataRequest(
        topics=[seeing.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True
    )
    with Raw(broker.kafka) as node:
        deletion = deleting.DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000)
        assert node.call(DELETE_TOPICS, 4, deletion).responses[0].error_code == 0
        found = [node.call(METADATA, 9, request).topics[0].error_code for _ in range(2)]
        # Difference: Apache Kafka answers before it has made the topic, and clients ask again.
        give_up_s = time.monotonic() + 30
        while is_apache(broker) and found[-1] != 0 and time.monotonic() < give_up_s:
            assert found[-1] in (UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE)
            found = [found[0], node.call(METADATA, 9, request).topics[0].error_code]

    assert found == [UNKNOWN_TOPIC, 0]


def described(
    node: Raw, kind: int, name: str
) -> dict[str, describing.DescribeConfigsResourceResult]:
    resource = describing.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = describing.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    [result] = node.call(DESCRIBE_CONFIGS, 4, request).results
    assert result.error_code == 0
    return {config.name: config for config in result.configs}


def altered(node: Raw, kind: int, resource: str, name: str, value: str | None) -> tuple[int, str]:
    """Error and message of setting a value, or (None) of taking it back."""
    change = altering.AlterableConfig(
        name=name, config_operation=0 if value is not None else 1, value=value
    )
    request = altering.IncrementalAlterConfigsRequest(
        resources=[
            altering.AlterConfigsResource(
                resource_type=kind, resource_name=resource, configs=[change]
            )
        ]
    )
    [result] = node.call(ALTER_CONFIGS, 1, request).responses
    return result.error_code, result.error_message or ""


def node_id(node: Raw) -> str:
    return str(node.call(METADATA, 9, seeing.MetadataRequest(topics=[])).brokers[0].node_id)


@pytest.mark.lone("of several nodes any may answer")
def test_a_node_shows_the_settings_that_tools_read(broker: Broker) -> None:
    with Raw(broker.kafka) as node:
        shown = described(node, BROKER, node_id(node))

    address = f"PLAINTEXT://{broker.kafka}"
    expected = {
        "advertised.listeners": (address, STATIC),
        "listeners": (address, STATIC),
        "listener.security.protocol.map": ("PLAINTEXT:PLAINTEXT", STATIC),
        "log.dirs": (str(broker.data_dir), STATIC),
        "broker.rack": (None, DEFAULT),
        "log.retention.hours": ("168", DEFAULT),
        "log.retention.minutes": (None, DEFAULT),
        "log.retention.ms": (None, DEFAULT),
        "log.roll.hours": ("168", DEFAULT),
        "min.insync.replicas": ("1", DEFAULT),
        "num.partitions": ("1", STATIC),
        "offsets.topic.replication.factor": ("3", STATIC),
        "log.cleaner.enable": ("true", STATIC),
    }
    found = {name: (shown[name].value, shown[name].config_source) for name in expected}
    if is_apache(broker):
        # Differences: it has a listener for its controller too, reads some of these from the file
        # that Apache ships, and sets the minimum for the whole cluster when it is formatted.
        for name in ("advertised.listeners", "listeners"):
            assert (found.pop(name)[0] or "").split(",")[0] == expected.pop(name)[0]
        protocols = (found.pop("listener.security.protocol.map")[0] or "").split(",")
        assert expected.pop("listener.security.protocol.map")[0] in protocols
        expected |= {
            "log.retention.hours": ("168", STATIC),
            "min.insync.replicas": ("1", FOR_CLUSTER),
            "offsets.topic.replication.factor": ("1", STATIC),
            "log.cleaner.enable": ("true", DEFAULT),
        }
    assert found == expected
    fixed = {"advertised.listeners", "broker.rack", "log.dirs", "log.retention.hours"}
    assert {name for name in fixed if shown[name].read_only} == fixed
    assert not shown["log.retention.ms"].read_only
    assert len(shown) > 110


@pytest.mark.lone("of several nodes any may answer")
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("broker.rack", INVALID_REQUEST),
        ("log.retention.hours", INVALID_REQUEST),
        ("num.io.threads", INVALID_REQUEST),
        ("no.such.name", INVALID_CONFIG),
    ],
)
def test_a_setting_that_cannot_change_says_so(broker: Broker, name: str, error: int) -> None:
    with Raw(broker.kafka) as node:
        for resource in ("", node_id(node)):
            code, message = altered(node, BROKER, resource, name, "1")
            if is_apache(broker) and name == "no.such.name":
                # Difference: Apache Kafka stores names that it does not know, for plugins.
                assert (code, message) == (0, "")
                assert altered(node, BROKER, resource, name, None) == (0, "")
            else:
                assert code == error
                assert name in message


def await_default(node: Raw, topic: str, value: str) -> None:
    give_up_s = time.monotonic() + 30
    while described(node, TOPIC, topic)["min.insync.replicas"].value != value:
        assert time.monotonic() < give_up_s, "the default is not applied"


def test_the_minimum_of_in_sync_replicas_has_a_default_for_the_cluster(
    lone_broker: Broker, topic: str
) -> None:
    create(lone_broker, topic, 1)
    with Raw(lone_broker.kafka) as node:
        assert altered(node, BROKER, "", "min.insync.replicas", "2") == (0, "")
        if is_apache(lone_broker):  # difference: it is applied after the answer
            await_default(node, topic, "2")
        shown = described(node, TOPIC, topic)["min.insync.replicas"]
        refused = produced(node, topic, [Record(0, now_ms(), None, b"v")])
        # Difference: Apache Kafka refuses to remove this default while it has eligible leader
        # replicas (KIP-966); it is set to its former value.
        before = "1" if is_apache(lone_broker) else None
        assert altered(node, BROKER, "", "min.insync.replicas", before) == (0, "")
        if is_apache(lone_broker):
            await_default(node, topic, "1")
        accepted = produced(node, topic, [Record(0, now_ms(), None, b"v")])

    assert [(each.value, each.source) for each in shown.synonyms] == [
        ("2", FOR_CLUSTER),
        ("1", DEFAULT),
    ]
    # Difference: Apache Kafka demands no more than a topic has replicas, here one; a node refuses
    # to acknowledge to fewer than was asked for.
    demanded = 0 if is_apache(lone_broker) else NOT_ENOUGH_REPLICAS
    assert (refused.error_code, accepted.error_code) == (demanded, 0)


def test_a_default_that_could_come_by_several_names_has_no_synonym(
    broker: Broker, topic: str
) -> None:
    create(broker, topic, 1)
    with Raw(broker.kafka) as node:
        shown = described(node, TOPIC, topic)

    assert (shown["retention.ms"].value, shown["retention.ms"].synonyms) == ("604800000", [])
    assert [each.name for each in shown["max.message.bytes"].synonyms] == ["message.max.bytes"]
    assert "internal.segment.bytes" not in shown


def test_altering_the_offsets_of_an_unknown_share_group_makes_the_group(
    broker: Broker, topic: str
) -> None:
    create(broker, topic, 1)
    group = f"group-{uuid.uuid4().hex[:8]}"
    part = share_altering.AlterShareGroupOffsetsRequestPartition(0, 0)
    change = share_altering.AlterShareGroupOffsetsRequest(
        group, [share_altering.AlterShareGroupOffsetsRequestTopic(topic, [part])]
    )
    asked = share_describing.DescribeShareGroupOffsetsRequestGroup(
        group, [share_describing.DescribeShareGroupOffsetsRequestTopic(topic, [0])]
    )
    with Raw(coordinator(broker, group), timeout_s=30) as node:
        altered_to = node.call(ALTER_SHARE_OFFSETS, 0, change)
        [shown] = node.call(
            DESCRIBE_SHARE_OFFSETS, 0, share_describing.DescribeShareGroupOffsetsRequest([asked])
        ).groups

    assert altered_to.error_code == 0, altered_to.error_message
    assert [p.error_code for each in altered_to.responses for p in each.partitions] == [0]
    assert (shown.error_code, shown.topics[0].partitions[0].start_offset) == (0, 0)


def coordinator(broker: Broker, group: str) -> str:
    """The address of the node that keeps a group; Apache Kafka first makes its topic for groups."""
    request = finding.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    give_up_s = time.monotonic() + 30
    with Raw(broker.kafka) as node:
        while True:
            [found] = node.call(FIND_COORDINATOR, 4, request).coordinators
            if found.error_code == 0:
                return f"{found.host}:{found.port}"
            assert time.monotonic() < give_up_s, found
            time.sleep(0.1)


def test_segments_are_at_least_a_mebibyte(broker: Broker, topic: str) -> None:
    create(broker, topic, 1)
    with Raw(broker.kafka) as node:
        code, message = altered(node, TOPIC, topic, "segment.bytes", str(2**20 - 1))
        assert (code, "1048576" in message) == (INVALID_CONFIG, True)
        assert altered(node, TOPIC, topic, "segment.bytes", str(2**20)) == (0, "")
        assert altered(node, TOPIC, topic, "internal.segment.bytes", "5000") == (0, "")
