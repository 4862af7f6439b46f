"""Small answers that clients and tools compare with those of Apache Kafka, by raw requests."""

import time
import uuid

import pytest
from confluent_kafka import KafkaError, Producer
from tests.clients.oracle import Oracle
from tests.integration.bad_input.wire import PRODUCE, Raw

from mainstem.model.record import Record, build_batch
from mainstem.testing.local_node import LocalNode
from mainstem.wire.kafka.messages import alter_user_scram_credentials as scram
from mainstem.wire.kafka.messages import delete_topics as deleting
from mainstem.wire.kafka.messages import metadata as seeing
from mainstem.wire.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

INVALID_TIMESTAMP, INVALID_RECORD, UNACCEPTABLE_CREDENTIAL = 32, 87, 93
UNKNOWN_TOPIC = 3
METADATA, DELETE_TOPICS, ALTER_SCRAM = 3, 20, 51
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


def test_a_refused_batch_names_the_records_without_a_key(
    shared_node: LocalNode, topic: str
) -> None:
    oracle = Oracle(shared_node.kafka)
    oracle.create(topic, 1, {"cleanup.policy": "compact"})
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
    shared_node: LocalNode, topic: str, far_ms: int
) -> None:
    oracle = Oracle(shared_node.kafka)
    oracle.create(topic, 1, {"message.timestamp.before.max.ms": str(HOUR_MS // 2)})
    with Raw(oracle.writer(topic)) as node:
        times = (now_ms(), now_ms() + far_ms, now_ms())
        answer = produced(node, topic, [Record(0, at, b"k", b"v") for at in times])
        accepted = produced(node, topic, [Record(0, now_ms(), b"k", b"v")])

    assert answer.error_code == INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert (accepted.error_code, accepted.record_errors) == (0, [])


def test_a_batch_of_bad_records_is_answered_within_bounds(
    shared_node: LocalNode, topic: str
) -> None:
    oracle = Oracle(shared_node.kafka)
    oracle.create(topic, 1, {"cleanup.policy": "compact"})
    with Raw(oracle.writer(topic)) as node:
        answer = produced(node, topic, [Record(0, now_ms(), None, b"v")] * 3_000)

    assert answer.error_code == INVALID_RECORD
    assert len(answer.record_errors) == 1_000
    assert "3000 of 3000" in (answer.error_message or "")


def test_librdkafka_is_told_of_a_record_without_a_key(shared_node: LocalNode, topic: str) -> None:
    Oracle(shared_node.kafka).create(topic, 1, {"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": shared_node.kafka})
    failures: list[KafkaError | None] = []
    producer.produce(topic, b"v", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(30) == 0

    [failure] = failures
    assert failure is not None
    assert failure.code() == INVALID_RECORD


@pytest.mark.parametrize(("mechanism", "own_bytes"), [(1, 32), (2, 64)])
def test_salted_passwords_of_any_length_are_taken(
    shared_node: LocalNode, mechanism: int, own_bytes: int
) -> None:
    user = f"user-{uuid.uuid4().hex[:8]}"
    outcomes = {}
    with Raw(shared_node.kafka) as node:
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

    refused = {size for size, code in outcomes.items() if code == UNACCEPTABLE_CREDENTIAL}
    assert refused == {0, 1_025}
    assert {code for size, code in outcomes.items() if size not in refused} == {0}


def test_metadata_tells_that_a_topic_was_deleted_before_it_makes_it_again(
    shared_node: LocalNode, topic: str
) -> None:
    Oracle(shared_node.kafka).create(topic, 1)
    request = seeing.MetadataRequest(
        topics=[seeing.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True
    )
    with Raw(shared_node.kafka) as node:
        deletion = deleting.DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000)
        assert node.call(DELETE_TOPICS, 4, deletion).responses[0].error_code == 0
        found = [node.call(METADATA, 9, request).topics[0].error_code for _ in range(2)]

    assert found == [UNKNOWN_TOPIC, 0]
