"""Partitions that come and go count against a client's ``controller_mutation_rate`` (KIP-599)."""

from typing import Any

import pytest
from tests.kit.clock import ManualClock
from tests.unit.protocols.kafka.admin_kit import Client, new_client

from mainstem.security.quotas import MUTATIONS, USER, QuotaEntry, Quotas, entity_of
from mainstem.wire.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from mainstem.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from mainstem.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

CREATE, DELETE, GROW = 19, 20, 37
TOO_FAST, EXISTS, BAD_PARTITIONS = 89, 36, 37


def limited(client: Client, rate: float) -> ManualClock:
    """Let everybody change that many partitions per second."""
    clock = ManualClock()
    quotas = Quotas(clock)
    quotas.load([QuotaEntry(entity_of([(USER, None)]), {MUTATIONS: rate})])
    client.peer.quotas = quotas
    return clock


def owed_ms(client: Client) -> int:
    """What the client has to wait, which its connection sees to."""
    owed, client.peer.owed_ms = client.peer.owed_ms, 0
    return owed


async def create(client: Client, *names: str, version: int = 7, partitions: int = 10) -> Any:
    topics = [CreatableTopic(name, partitions, 1, [], []) for name in names]
    answer = await client.ask(CREATE, version, CreateTopicsRequest(topics=topics))
    return {topic.name: topic.error_code for topic in answer.topics}


async def delete(client: Client, name: str, version: int = 6) -> int:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name])
    answer = await client.ask(DELETE, version, request)
    return int(answer.responses[0].error_code)


async def grow(client: Client, name: str, total: int, version: int = 3) -> int:
    topic = CreatePartitionsTopic(name, total, None)
    answer = await client.ask(GROW, version, CreatePartitionsRequest(topics=[topic]))
    return int(answer.results[0].error_code)


async def test_who_creates_too_fast_is_refused_until_it_has_waited(client: Client) -> None:
    clock = limited(client, 10)
    assert await create(client, "a", "b", "c") == {"a": 0, "b": 0, "c": TOO_FAST}
    assert owed_ms(client) == 1_000
    assert await create(client, "c") == {"c": TOO_FAST}
    assert client.counter.topics.by_name("c") is None
    clock.now_s += 1.0
    assert await create(client, "c") == {"c": 0}


async def test_older_clients_have_their_way_and_wait(client: Client) -> None:
    limited(client, 10)
    assert await create(client, "a", "b", "c", version=5) == {"a": 0, "b": 0, "c": 0}
    assert owed_ms(client) == 2_000
    assert await delete(client, "a", version=4) == 0
    assert await grow(client, "b", 20, version=2) == 0
    assert owed_ms(client) == 4_000


async def test_growth_and_deletion_count_as_creation_does(client: Client) -> None:
    await create(client, "a", "b", partitions=5)
    limited(client, 10)
    assert await grow(client, "a", 20) == 0
    assert owed_ms(client) == 500
    assert await delete(client, "b") == TOO_FAST
    assert await grow(client, "b", 6) == TOO_FAST
    assert client.counter.topics.partition_count("b") == 5


@pytest.mark.parametrize("version", [5, 7])
async def test_what_is_refused_or_only_validated_costs_nothing(
    client: Client, version: int
) -> None:
    await create(client, "a")
    limited(client, 10)
    for _ in range(5):
        assert await create(client, "a", version=version) == {"a": EXISTS}
    assert await create(client, "b", version=version, partitions=10**9) == {"b": BAD_PARTITIONS}
    topic = CreatableTopic("c", 10, 1, [], [])
    request = CreateTopicsRequest(topics=[topic], validate_only=True)
    for _ in range(5):
        assert (await client.ask(CREATE, version, request)).topics[0].error_code == 0
    assert owed_ms(client) == 0
    assert await create(client, "b", version=version) == {"b": 0}


async def test_partitions_whose_number_is_left_to_the_node_count_all_the_same() -> None:
    client = await new_client({"num.partitions": "8"})
    limited(client, 10)
    assert await create(client, "a", partitions=-1) == {"a": 0}
    assert await create(client, "b") == {"b": 0}
    assert owed_ms(client) > 0
