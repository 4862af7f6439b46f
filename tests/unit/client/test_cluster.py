"""Addresses, errors and the client's view of the cluster."""

import asyncio
from typing import Any

import pytest
from tests.unit.client.peer import LogPeer, ScriptedPeer

from mainstem.client import errors
from mainstem.client.cluster import Cluster, parse_address
from mainstem.model.errors import (
    Corrupt,
    ErrorCode,
    Fenced,
    InvalidRequest,
    MainstemError,
    Unavailable,
)
from mainstem.wire.kafka.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from mainstem.wire.kafka.messages.metadata import MetadataResponse, MetadataResponseTopic


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost", ("localhost", 9092)),
        (" node-1:1234 ", ("node-1", 1234)),
        ("[::1]:5", ("::1", 5)),
        ("[::1]", ("::1", 9092)),
        ("::1", ("::1", 9092)),
    ],
)
def test_addresses_are_read(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", ":", ":9092", "host:", "host:0", "host:65536", "host:x", "h:²"]
)
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_address(text)


@pytest.mark.parametrize("number", errors.TABLE)
def test_every_kafka_error_has_a_house_error(number: int) -> None:
    name, code = errors.TABLE[number]
    error = errors.error_of(number, "because", subject="x")
    assert error.code is code
    assert "because" in error.cause
    assert errors.error_of(number).cause == name
    assert error.subject == "x"
    assert isinstance(error, Unavailable) == error.retriable


def test_the_families_are_told_apart() -> None:
    kinds = {
        1: InvalidRequest,
        2: Corrupt,
        6: Unavailable,
        22: Fenced,
        74: Fenced,
        9999: MainstemError,
    }
    for number, kind in kinds.items():
        assert isinstance(errors.error_of(number), kind)
    assert errors.error_of(9999).code is ErrorCode.INTERNAL


def test_no_error_raises_nothing() -> None:
    errors.check(errors.NONE)


async def test_an_unknown_topic_is_asked_for_and_then_known() -> None:
    async with LogPeer(partitions=3) as peer, Cluster(peer.address) as cluster:
        infos = await asyncio.gather(*(cluster.topic("t") for _ in range(5)))
        await cluster.topic("t")
        asked = sum(name == "Metadata" for name, _, _ in peer.requests)
        partitions = len(infos[0].partitions)
    assert partitions == 3
    assert asked == 1


async def test_a_name_that_comes_while_the_cluster_is_being_asked_is_found_too() -> None:
    async with LogPeer() as peer, Cluster(peer.address) as cluster:
        early = asyncio.ensure_future(cluster.topic("a"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        late = await cluster.topic("b")
        assert [(await early).name, late.name] == ["a", "b"]


async def test_looking_again_does_not_ask_for_the_creation_of_known_topics() -> None:
    async with LogPeer() as peer, Cluster(peer.address) as cluster:
        await cluster.topic("t")
        await cluster.refresh()
        assert [
            request.allow_auto_topic_creation
            for name, _, request in peer.requests
            if name == "Metadata"
        ] == [True, False]


async def test_a_topic_that_does_not_exist_is_unavailable_until_the_time_is_up() -> None:
    def unknown(request: Any, version: int) -> MetadataResponse:
        topics = [MetadataResponseTopic(error_code=3, name=t.name) for t in request.topics]
        return MetadataResponse(topics=topics)

    async with ScriptedPeer({"Metadata": unknown}) as peer, Cluster(peer.address) as cluster:
        with pytest.raises(Unavailable) as caught:
            await cluster.retrying(lambda: cluster.topic("t"), timeout_ms=300)
        error, requests = caught.value, len(peer.requests)
    assert error.code is ErrorCode.UNKNOWN_TOPIC
    assert 3 <= requests < 20


async def test_an_error_that_no_retry_heals_is_raised_at_once() -> None:
    def refuse(request: Any, version: int) -> MetadataResponse:
        topics = [MetadataResponseTopic(error_code=17, name=t.name) for t in request.topics]
        return MetadataResponse(topics=topics)

    async with ScriptedPeer({"Metadata": refuse}) as peer, Cluster(peer.address) as cluster:
        with pytest.raises(InvalidRequest) as caught:
            await cluster.retrying(lambda: cluster.topic("t"), timeout_ms=60_000)
        assert caught.value.code is ErrorCode.INVALID_TOPIC_NAME


async def test_the_second_bootstrap_address_is_tried_when_the_first_is_silent() -> None:
    async with ScriptedPeer() as gone:
        dead = gone.address
    async with LogPeer() as peer, Cluster(f"{dead},{peer.address}") as cluster:
        assert (await cluster.topic("t")).name == "t"


@pytest.mark.parametrize("version_max", [3, 6])
async def test_the_coordinator_is_found_in_both_forms_and_remembered(version_max: int) -> None:
    peer = LogPeer()

    def found(request: Any, version: int) -> FindCoordinatorResponse:
        if version >= 4:
            one = Coordinator(node_id=5, host="127.0.0.1", port=peer.port)
            return FindCoordinatorResponse(coordinators=[one])
        return FindCoordinatorResponse(node_id=5, host="127.0.0.1", port=peer.port)

    peer.handlers["FindCoordinator"] = found
    peer.offered[10] = (0, version_max)
    async with peer, Cluster(peer.address) as cluster:
        links = [await cluster.coordinator("g") for _ in range(3)]
        asked = len([name for name, _, _ in peer.requests if name == "FindCoordinator"])
        cluster.forget_coordinator("g")
        await cluster.coordinator("g")
        assert len(set(links)) == 1
        assert (links[0].port - peer.port, asked) == (0, 1)
