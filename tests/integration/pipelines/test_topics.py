"""The topics of pipelines come to be as the file says, or the pipeline says why not."""

import asyncio

import pytest

from mainstem.client.admin import Admin
from mainstem.model.errors import MainstemError
from mainstem.pipelines.connector.shapes import FindingSeverity
from mainstem.pipelines.file.model import (
    BrokerSection,
    FileModel,
    SinkEntry,
    SourceEntry,
    TopicConfig,
    TopicCreationSettings,
)
from mainstem.pipelines.running.checks import check_broker
from mainstem.pipelines.running.topics import (
    RequiredTopic,
    ensure_topics,
    offsets_json,
    required_topics,
)
from mainstem.testing.local_node import LocalNode


def broker_of(node: LocalNode) -> BrokerSection:
    return BrokerSection(bootstrap_servers=["127.0.0.1:9", node.kafka])


def partitions(node: LocalNode, topic: str) -> int | None:
    async def ask() -> int | None:
        async with Admin(node.kafka) as admin:
            found = (await admin.list_topics()).get(topic)
            return None if found is None else len(found.partitions)

    return asyncio.run(ask())


def test_missing_topics_are_created_with_defaults_and_overrides(shared_node: LocalNode) -> None:
    settings = TopicCreationSettings(default_partitions=2)
    wanted = [
        RequiredTopic(name="tp.plain"),
        RequiredTopic(name="tp.wide", partitions=5, configs={"retention.ms": "60000"}),
    ]
    for _ in range(2):  # what exists is left alone
        ensure_topics(broker_of(shared_node), settings, wanted)
    assert partitions(shared_node, "tp.plain") == 2
    assert partitions(shared_node, "tp.wide") == 5
    assert offsets_json(broker_of(shared_node), ["tp.plain"], 7) == '{"tp.plain": {"0": 7, "1": 7}}'


@pytest.mark.parametrize(
    ("settings", "topic"),
    [
        (
            TopicCreationSettings(require_topic_exists=True),
            RequiredTopic(name="tp.none", auto_create=True),
        ),
        (TopicCreationSettings(auto_create=False), RequiredTopic(name="tp.none")),
        (TopicCreationSettings(), RequiredTopic(name="tp.none", auto_create=False)),
    ],
)
def test_a_topic_that_may_not_be_created_is_named(
    shared_node: LocalNode, settings: TopicCreationSettings, topic: RequiredTopic
) -> None:
    with pytest.raises(MainstemError) as caught:
        ensure_topics(broker_of(shared_node), settings, [topic])
    assert not caught.value.retriable
    assert caught.value.subject == "tp.none"
    assert "topic create" in caught.value.remedy
    assert partitions(shared_node, "tp.none") is None


def test_a_topic_with_other_numbers_is_refused_when_asked(shared_node: LocalNode) -> None:
    broker = broker_of(shared_node)
    ensure_topics(broker, TopicCreationSettings(), [RequiredTopic(name="tp.three", partitions=3)])
    wanted = [RequiredTopic(name="tp.three", partitions=4)]
    ensure_topics(broker, TopicCreationSettings(), wanted)
    with pytest.raises(MainstemError, match="has 3 partitions, the file configures 4"):
        ensure_topics(broker, TopicCreationSettings(validate_existing=True), wanted)


def test_a_sink_wants_its_topics_made_as_their_source_says() -> None:
    source = SourceEntry(connector="c", topic="orders", topic_config=TopicConfig(partitions=6))
    sink = SinkEntry(connector="c", topics=["orders", "other", "cdc.*"], dead_letter_topic="dead")
    model = FileModel(version="1.0", sources={"a": source}, sinks={"b": sink})
    assert {each.name: each.partitions for each in required_topics(sink, model)} == {
        "orders": 6,
        "other": None,
        "dead": 1,
    }


def test_a_check_says_whether_the_broker_answers(shared_node: LocalNode) -> None:
    [good] = check_broker(broker_of(shared_node))
    assert good.finding.severity is FindingSeverity.OK
    nobody = BrokerSection(bootstrap_servers=["127.0.0.1:9"], connection_timeout_ms=500)
    [bad] = check_broker(nobody)
    assert bad.is_error
    assert bad.finding.retriable
