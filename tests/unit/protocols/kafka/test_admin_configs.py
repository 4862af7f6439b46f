"""DescribeConfigs, the two ways to alter them, and ListConfigResources as clients see them."""

from typing import Any

import pytest
from tests.unit.protocols.kafka.admin_kit import Client, new_client

from mainstem.wire.kafka.messages import alter_configs as replacing
from mainstem.wire.kafka.messages import incremental_alter_configs as altering
from mainstem.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from mainstem.wire.kafka.messages.list_config_resources import ListConfigResourcesRequest

DESCRIBE, ALTER, INCREMENTAL, LIST = 32, 33, 44, 74
TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


async def described(
    client: Client, kind: int, name: str, *keys: str, version: int = 4, **rest: Any
) -> Any:
    resource = DescribeConfigsResource(kind, name, list(keys) or None)
    request = DescribeConfigsRequest(resources=[resource], **rest)
    [result] = (await client.ask(DESCRIBE, version, request)).results
    return result


async def altered(
    client: Client, kind: int, name: str, *changes: tuple[str, int, str | None]
) -> Any:
    configs = [altering.AlterableConfig(*change) for change in changes]
    resource = altering.AlterConfigsResource(kind, name, configs)
    request = altering.IncrementalAlterConfigsRequest(resources=[resource])
    [result] = (await client.ask(INCREMENTAL, 1, request)).responses
    return result


async def with_topic(client: Client, **configs: str) -> None:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    await client.counter.topics.create("t", partitions=1, replication_factor=1, configs=named)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
async def test_a_topic_shows_its_settings_in_every_version(client: Client, version: int) -> None:
    await with_topic(client, retention_ms="5")
    result = await described(client, TOPIC, "t", version=version, include_synonyms=True)
    assert (result.error_code, len(result.configs)) == (0, 28)
    shown = {config.name: config for config in result.configs}
    retention = shown["retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("5", 1, False)
    assert [(s.name, s.value, s.source) for s in retention.synonyms] == [
        ("retention.ms", "5", 1),
    ]
    assert shown["segment.bytes"].config_source == 5
    if version >= 3:
        assert retention.config_type == 5
        assert shown["cleanup.policy"].config_type == 7
        assert retention.documentation is None


async def test_only_what_was_asked_for_is_shown(client: Client) -> None:
    await with_topic(client)
    result = await described(
        client, TOPIC, "t", "flush.policy", "nonsense", include_documentation=True
    )
    [config] = result.configs
    assert (config.name, config.value, list(config.synonyms)) == ("flush.policy", "fsync", [])
    assert "power failure" in config.documentation


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", 3),
        (TOPIC, "a b", 17),
        (BROKER, "9", 42),
        (BROKER, "x", 42),
        (LOGGER, "1", 42),
    ],
)
async def test_what_is_not_there_has_no_settings(
    client: Client, kind: int, name: str, code: int
) -> None:
    result = await described(client, kind, name)
    assert (result.error_code, list(result.configs)) == (code, [])
    assert result.error_message
    assert (await altered(client, kind, name, ("retention.ms", SET, "1"))).error_code == code


async def test_a_resource_asked_for_many_times_is_described_once(client: Client) -> None:
    await with_topic(client)
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, "t", None)] * 1_000)
    assert len((await client.ask(DESCRIBE, 4, request)).results) == 1


async def test_huge_names_and_values_are_refused_quickly_and_not_repeated_whole(
    client: Client,
) -> None:
    await with_topic(client)
    huge = "9" * 1_000_000
    for change in [
        (huge, SET, "1"),
        ("retention.ms", SET, huge),
        ("cleanup.policy", SET, huge),
    ]:
        result = await altered(client, TOPIC, "t", change)
        assert result.error_code == 40
        assert len(result.error_message) < 2_000
    result = await described(client, BROKER, huge)
    assert (result.error_code, len(result.error_message) < 500) == (42, True)


async def test_a_node_shows_its_settings() -> None:
    client = await new_client({"num.partitions": "3"})
    result = await described(client, BROKER, "1")
    shown = {config.name: config for config in result.configs}
    assert (shown["num.partitions"].value, shown["num.partitions"].config_source) == ("3", 4)
    assert shown["num.partitions"].read_only
    assert shown["log.retention.ms"].config_source == 5


async def test_settings_of_all_nodes_and_of_one_are_changed_at_run_time(client: Client) -> None:
    await with_topic(client)
    await altered(client, BROKER, "", ("log.retention.ms", SET, "50"))
    await altered(client, BROKER, "1", ("log.segment.bytes", SET, "6000000"))
    [default] = (await described(client, BROKER, "")).configs
    assert (default.name, default.value, default.config_source) == ("log.retention.ms", "50", 3)
    result = await described(client, TOPIC, "t", "retention.ms", "segment.bytes")
    assert [(c.name, c.value, c.config_source) for c in result.configs] == [
        ("retention.ms", "50", 3),
        ("segment.bytes", "6000000", 2),
    ]
    refused = await altered(client, BROKER, "1", ("num.partitions", SET, "5"))
    assert refused.error_code == 42
    assert "cannot be changed while the node runs" in refused.error_message


async def test_incremental_changes_touch_only_what_they_name(client: Client) -> None:
    await with_topic(client, retention_ms="5", segment_ms="6", flush_ms="7")
    result = await altered(
        client,
        TOPIC,
        "t",
        ("retention.ms", SET, "50"),
        ("segment.ms", DELETE, None),
        ("cleanup.policy", APPEND, "compact"),
    )
    assert (result.error_code, result.error_message) == (0, None)
    topic = client.counter.topics.by_name("t")
    assert topic is not None
    assert topic.configs == {
        "retention.ms": "50", "flush.ms": "7", "cleanup.policy": "delete,compact",
    }  # fmt: skip
    await altered(client, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete"))
    topic = client.counter.topics.by_name("t")
    assert topic is not None
    assert topic.configs["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("retention.ms", 4, "1"), 42),
        (("retention.ms", -1, "1"), 42),
        (("retention.ms", SET, None), 42),
        (("retention.ms", SET, "x"), 40),
        (("retention.ms", APPEND, "1"), 40),
        (("nonsense", SET, "1"), 40),
    ],
)
async def test_a_bad_change_is_refused_with_a_message(
    client: Client, change: tuple[str, int, str | None], code: int
) -> None:
    await with_topic(client)
    result = await altered(client, TOPIC, "t", change)
    assert result.error_code == code
    assert result.error_message


async def test_a_resource_named_twice_is_refused_both_times(client: Client) -> None:
    await with_topic(client)
    twice = [
        altering.AlterConfigsResource(
            TOPIC, "t", [altering.AlterableConfig("retention.ms", SET, "1")]
        )
    ] * 2
    request = altering.IncrementalAlterConfigsRequest(resources=twice)
    answer = await client.ask(INCREMENTAL, 0, request)
    assert [r.error_code for r in answer.responses] == [42, 42]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_older_request_replaces_everything(client: Client, version: int) -> None:
    await with_topic(client, retention_ms="5", segment_ms="6")

    async def replaced(*configs: tuple[str, str | None], **rest: Any) -> int:
        entries = [replacing.AlterableConfig(*config) for config in configs]
        resource = replacing.AlterConfigsResource(TOPIC, "t", entries)
        request = replacing.AlterConfigsRequest(resources=[resource], **rest)
        [result] = (await client.ask(ALTER, version, request)).responses
        return int(result.error_code)

    assert await replaced(("flush.ms", "9"), validate_only=True) == 0
    topic = client.counter.topics.by_name("t")
    assert topic is not None
    assert topic.configs == {"retention.ms": "5", "segment.ms": "6"}
    assert await replaced(("flush.ms", "9")) == 0
    topic = client.counter.topics.by_name("t")
    assert topic is not None
    assert topic.configs == {"flush.ms": "9"}
    assert await replaced(("flush.ms", None)) == 40
    assert await replaced(("flush.ms", "9"), ("flush.ms", "8")) == 42


async def test_what_has_settings_is_listed(client: Client) -> None:
    await with_topic(client)

    async def listed(version: int, *kinds: int) -> list[tuple[str, int]]:
        request = ListConfigResourcesRequest(resource_types=list(kinds))
        answer = await client.ask(LIST, version, request)
        return [(r.resource_name, r.resource_type) for r in answer.config_resources]

    assert await listed(1) == [("t", TOPIC), ("1", BROKER)]
    assert await listed(1, BROKER) == [("1", BROKER)]
    assert await listed(0) == [], "version 0 asks for client metrics, of which there are none"


async def test_a_group_has_settings_of_its_own_within_bounds(client: Client) -> None:
    session, interval = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    result = await described(client, GROUP, "g", include_synonyms=True)
    assert {c.name: (c.value, c.config_source) for c in result.configs} == {
        interval: ("5000", 5),
        session: ("45000", 5),
        "share.auto.offset.reset": ("latest", 5),
        "share.delivery.count.limit": ("5", 5),
        "share.heartbeat.interval.ms": ("5000", 5),
        "share.isolation.level": ("read_uncommitted", 5),
        "share.partition.max.record.locks": ("2000", 5),
        "share.record.lock.duration.ms": ("30000", 5),
        "share.renew.acknowledge.enable": ("true", 5),
        "share.session.timeout.ms": ("45000", 5),
    }
    assert (await altered(client, GROUP, "g", (session, SET, "50000"))).error_code == 0
    result = await described(client, GROUP, "g", session, include_synonyms=True)
    [shown] = result.configs
    assert (shown.value, shown.config_source, shown.config_type) == ("50000", 8, 3)
    assert [(s.name, s.value, s.source) for s in shown.synonyms] == [
        (session, "50000", 8),
        (f"group.{session}", "45000", 5),
    ]
    for change in ((session, SET, "1000"), (interval, SET, "60000"), ("x", SET, "1")):
        assert (await altered(client, GROUP, "g", change)).error_code == 40
    listed = await client.ask(LIST, 1, ListConfigResourcesRequest([GROUP]))
    assert [(r.resource_name, r.resource_type) for r in listed.config_resources] == [("g", GROUP)]
    replaced = replacing.AlterConfigsResource(
        GROUP, "g", [replacing.AlterableConfig(interval, "6000")]
    )
    request = replacing.AlterConfigsRequest(resources=[replaced], validate_only=True)
    [answer] = (await client.ask(ALTER, 2, request)).responses
    assert answer.error_code == 0
    assert client.counter.topics.group_texts("g") == {session: "50000"}
    request.validate_only = False
    await client.ask(ALTER, 2, request)
    assert client.counter.topics.group_texts("g") == {interval: "6000"}
    await altered(client, GROUP, "g", (interval, DELETE, None))
    listed = await client.ask(LIST, 1, ListConfigResourcesRequest([GROUP]))
    assert listed.config_resources == []
