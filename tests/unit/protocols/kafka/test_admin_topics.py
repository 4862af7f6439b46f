"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords as clients see them."""

from typing import Any

import pytest
from tests.unit.protocols.kafka.admin_kit import SERVED, Client

from mainstem.model.ids import NO_TOPIC_ID
from mainstem.wire.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from mainstem.wire.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from mainstem.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from mainstem.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, CREATE_PARTITIONS = 19, 20, 21, 37
CREATE_VERSIONS = range(SERVED[CREATE_TOPICS].min_version, SERVED[CREATE_TOPICS].max_version + 1)


def a_topic(name: str, **changes: Any) -> CreatableTopic:
    fields: dict[str, Any] = {
        "num_partitions": 2,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    return CreatableTopic(name=name, **(fields | changes))


async def create(client: Client, *topics: CreatableTopic, version: int = 7, **rest: Any) -> Any:
    request = CreateTopicsRequest(topics=list(topics), **rest)
    answer = await client.ask(CREATE_TOPICS, version, request)
    return {topic.name: topic for topic in answer.topics}


@pytest.mark.parametrize("version", CREATE_VERSIONS)
async def test_a_topic_is_created_in_every_version(client: Client, version: int) -> None:
    created = (await create(client, a_topic("t"), version=version))["t"]
    assert (created.error_code, created.error_message) == (0, None)
    topic = client.counter.topics.by_name("t")
    assert topic is not None
    assert len(topic.streams) == 2
    if version >= 5:
        assert (created.num_partitions, created.replication_factor) == (2, 1)
        shown = {config.name: config for config in created.configs}
        assert (shown["retention.ms"].value, shown["retention.ms"].config_source) == (
            "604800000", 5,
        )  # fmt: skip
    if version >= 7:
        assert created.topic_id == topic.id


async def test_topics_of_one_request_have_their_own_outcomes(client: Client) -> None:
    results = await create(
        client,
        a_topic("good", configs=[CreatableTopicConfig("retention.ms", "5")]),
        a_topic("bad name"),
        a_topic("zero", num_partitions=0),
        a_topic("copies", replication_factor=3),
        a_topic("no-copies", replication_factor=0),
        a_topic("config", configs=[CreatableTopicConfig("retention.mz", "5")]),
        a_topic("null", configs=[CreatableTopicConfig("retention.ms", None)]),
        a_topic("twice"),
        a_topic("twice"),
        a_topic("__consumer_offsets"),
        a_topic("default", num_partitions=-1, replication_factor=-1),
    )
    assert {name: result.error_code for name, result in results.items()} == {
        "good": 0,
        "bad name": 17,
        "zero": 37,
        "copies": 38,
        "no-copies": 38,
        "config": 40,
        "null": 40,
        "twice": 42,
        "__consumer_offsets": 42,
        "default": 0,
    }
    assert all(result.error_message for result in results.values() if result.error_code)
    assert "did you mean 'retention.ms'" in results["config"].error_message
    assert {topic.name for topic in client.counter.topics.all()} == {"good", "default"}
    again = await create(client, a_topic("good"), a_topic("GOOD"))
    assert (again["good"].error_code, again["GOOD"].error_code) == (36, 0)


async def test_a_request_for_too_many_topics_is_refused_as_a_whole(client: Client) -> None:
    many = [a_topic(f"t{number}") for number in range(10_001)]
    results = await create(client, *many, validate_only=True)
    assert {result.error_code for result in results.values()} == {44}


async def test_validation_alone_creates_nothing(client: Client) -> None:
    result = (await create(client, a_topic("t"), validate_only=True))["t"]
    assert (result.error_code, result.num_partitions) == (0, 2)
    assert client.counter.topics.by_name("t") is None


@pytest.mark.parametrize(
    ("assignments", "counts", "code"),
    [
        ([(0, [1]), (1, [1])], (-1, -1), 0),
        ([(0, [1])], (1, -1), 42),
        ([(0, [1])], (-1, 1), 42),
        ([(0, [1]), (0, [1])], (-1, -1), 39),
        ([(1, [1])], (-1, -1), 39),
        ([(0, [2])], (-1, -1), 39),
    ],
)
async def test_replicas_may_be_assigned_by_hand(
    client: Client, assignments: list[tuple[int, list[int]]], counts: tuple[int, int], code: int
) -> None:
    entries = [CreatableReplicaAssignment(part, nodes) for part, nodes in assignments]
    topic = a_topic(
        "t", num_partitions=counts[0], replication_factor=counts[1], assignments=entries
    )
    assert (await create(client, topic))["t"].error_code == code


@pytest.mark.parametrize("version", [1, 5])
async def test_topics_are_deleted_by_name(client: Client, version: int) -> None:
    await create(client, a_topic("a"), a_topic("b"))
    request = DeleteTopicsRequest(topic_names=["a", "nope", "b", "b"])
    answer = await client.ask(DELETE_TOPICS, version, request)
    assert {r.name: r.error_code for r in answer.responses} == {"a": 0, "nope": 3, "b": 42}
    assert [topic.name for topic in client.counter.topics.all()] == ["b"]
    if version >= 5:
        assert "no topic 'nope'" in answer.responses[1].error_message


async def test_topics_are_deleted_by_id(client: Client) -> None:
    created = await create(client, a_topic("a"), a_topic("b"))
    asked = [
        DeleteTopicState(None, created["a"].topic_id),
        DeleteTopicState("b", NO_TOPIC_ID),
        DeleteTopicState(None, b"x" * 16),
        DeleteTopicState(None, NO_TOPIC_ID),
        DeleteTopicState("both", b"y" * 16),
    ]
    answer = await client.ask(DELETE_TOPICS, 6, DeleteTopicsRequest(topics=asked))
    outcomes = [(r.name, r.topic_id, r.error_code) for r in answer.responses]
    assert outcomes == [
        ("a", created["a"].topic_id, 0),
        ("b", created["b"].topic_id, 0),
        (None, b"x" * 16, 100),
        (None, NO_TOPIC_ID, 42),
        ("both", b"y" * 16, 42),
    ]
    assert not list(client.counter.topics.all())


async def test_partitions_are_added(client: Client) -> None:
    await create(client, a_topic("a"), a_topic("b"), a_topic("c"), a_topic("d"))
    one = [CreatePartitionsAssignment([1])]
    asked = [
        CreatePartitionsTopic("a", 5),
        CreatePartitionsTopic("b", 2),
        CreatePartitionsTopic("c", 3, one),
        CreatePartitionsTopic("d", 4, one),
        CreatePartitionsTopic("nope", 4),
        CreatePartitionsTopic("e", 4),
        CreatePartitionsTopic("e", 5),
    ]
    for validate_only in (True, False):
        request = CreatePartitionsRequest(topics=asked, validate_only=validate_only)
        answer = await client.ask(CREATE_PARTITIONS, 3, request)
        assert {r.name: r.error_code for r in answer.results} == {
            "a": 0, "b": 37, "c": 0, "d": 39, "nope": 3, "e": 42,
        }  # fmt: skip
        count = client.counter.topics.partition_count
        assert (count("a"), count("c")) == ((2, 2) if validate_only else (5, 3))
    assert "2 partitions" in answer.results[1].error_message


async def test_records_are_deleted_below_an_offset(client: Client) -> None:
    compacted = [CreatableTopicConfig("cleanup.policy", "compact")]
    await create(client, a_topic("a", num_partitions=4), a_topic("k", configs=compacted))
    parts = [(0, 4), (1, -1), (2, 11), (3, -2), (7, 1)]
    asked = [
        DeleteRecordsTopic("a", [DeleteRecordsPartition(*part) for part in parts]),
        DeleteRecordsTopic("k", [DeleteRecordsPartition(0, 1)]),
        DeleteRecordsTopic("nope", [DeleteRecordsPartition(0, 1)]),
    ]
    answer = await client.ask(DELETE_RECORDS, 2, DeleteRecordsRequest(topics=asked))
    outcomes = {
        (topic.name, part.partition_index): (part.low_watermark, part.error_code)
        for topic in answer.topics
        for part in topic.partitions
    }
    assert outcomes == {
        ("a", 0): (4, 0),
        ("a", 1): (10, 0),
        ("a", 2): (-1, 1),
        ("a", 3): (-1, 1),
        ("a", 7): (-1, 3),
        ("k", 0): (-1, 44),
        ("nope", 0): (-1, 3),
    }
