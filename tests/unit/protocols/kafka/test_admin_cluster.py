"""Metadata and the Describe calls as clients see them."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from tests.kit.clock import ManualClock
from tests.kit.topics import CLUSTER, NODE
from tests.unit.protocols.kafka.admin_kit import SERVED, Client, new_client

from mainstem.broker.services.cluster_service import NAMED_AFTER_LOSS_S, SETTLE_S, ClusterAdmin
from mainstem.model.features import OWN_LEVELS
from mainstem.model.ids import NO_NODE, NO_TOPIC_ID, NodeId
from mainstem.placement.changes.commands import RegisterNode
from mainstem.placement.changes.replication_commands import STOPPED, FenceNode, UnfenceNode
from mainstem.wire.kafka.messages.describe_cluster import DescribeClusterRequest
from mainstem.wire.kafka.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from mainstem.wire.kafka.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from mainstem.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic

METADATA, LOG_DIRS, DESCRIBE_CLUSTER, PARTITIONS = 3, 35, 60, 75
ALL_VERSIONS = range(SERVED[METADATA].max_version + 1)
NOT_ASKED = -(2**31)


async def create(client: Client, name: str, partitions: int = 1) -> Any:
    return await client.counter.topics.create(
        name, partitions=partitions, replication_factor=1, configs={}
    )


def named(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


async def metadata(client: Client, topics: Any, version: int = 13, **rest: Any) -> Any:
    return await client.ask(METADATA, version, MetadataRequest(topics=topics, **rest))


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_a_topic_is_described_in_every_version(client: Client, version: int) -> None:
    topic = await create(client, "t", partitions=2)
    answer = await metadata(client, named("t"), version)
    [broker] = answer.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "192.0.2.7", 31_092)
    [shown] = answer.topics
    assert (shown.error_code, shown.name) == (0, "t")
    for partition, entry in enumerate(shown.partitions):
        assert (entry.partition_index, entry.leader_id, entry.error_code) == (partition, 1, 0)
        assert (entry.replica_nodes, entry.isr_nodes) == ([1], [1])
        assert entry.leader_epoch == (0 if version >= 7 else -1)
    if version >= 1:
        assert answer.controller_id == 1
    if version >= 2:
        assert answer.cluster_id == CLUSTER
    if version >= 10:
        assert shown.topic_id == topic.id


@pytest.mark.parametrize(("version", "everything"), [(0, []), (1, None), (13, None)])
async def test_everything_is_asked_for_by_null_or_in_version_0_by_nothing(
    client: Client, version: int, everything: Any
) -> None:
    await create(client, "a")
    await create(client, "b")
    answer = await metadata(client, everything, version)
    assert [topic.name for topic in answer.topics] == ["a", "b"]


async def test_no_topics_are_shown_when_none_are_asked_for(client: Client) -> None:
    await create(client, "a")
    assert (await metadata(client, [], 1)).topics == []


async def test_a_missing_topic_comes_into_being_unless_the_client_or_the_node_forbids_it(
    client: Client,
) -> None:
    topics = client.counter.topics
    answer = await metadata(client, named("x", "a b", "x"), allow_auto_topic_creation=False)
    assert [topic.error_code for topic in answer.topics] == [3, 3]
    assert topics.by_name("x") is None
    answer = await metadata(client, named("x", "a b", "y", "x"))
    assert [topic.error_code for topic in answer.topics] == [0, 17, 0]
    assert topics.by_name("x") is not None
    assert topics.by_name("y") is not None

    forbidding = await new_client({"auto.create.topics.enable": "false"})
    answer = await metadata(forbidding, named("x"))
    assert [topic.error_code for topic in answer.topics] == [3]


async def test_a_topic_asked_for_many_times_is_described_once(client: Client) -> None:
    await create(client, "t", partitions=100)
    answer = await metadata(client, named(*["t"] * 1_000))
    assert [len(topic.partitions) for topic in answer.topics] == [100]


async def test_old_clients_cannot_forbid_creation(client: Client) -> None:
    answer = await metadata(client, named("x"), 3)
    assert answer.topics[0].error_code == 0


async def test_topics_are_asked_for_by_id(client: Client) -> None:
    topic = await create(client, "t")
    asked = [
        MetadataRequestTopic(topic.id, None),
        MetadataRequestTopic(b"x" * 16, None),
        MetadataRequestTopic(NO_TOPIC_ID, None),
    ]
    for version in (12, 13):
        answer = await metadata(client, asked, version)
        shown = [(t.name, t.topic_id, t.error_code) for t in answer.topics]
        assert shown == [
            ("t", topic.id, 0),
            (None, b"x" * 16, 100),
            (None, NO_TOPIC_ID, 42),
        ]


async def test_allowed_operations_are_told_when_asked_for(client: Client) -> None:
    await create(client, "t")
    plain = await metadata(client, named("t"), 9)
    assert plain.topics[0].topic_authorized_operations == NOT_ASKED
    assert plain.cluster_authorized_operations == NOT_ASKED
    asked = await metadata(
        client, named("t"), 9,
        include_cluster_authorized_operations=True, include_topic_authorized_operations=True,
    )  # fmt: skip
    assert asked.topics[0].topic_authorized_operations == 3576
    assert asked.cluster_authorized_operations == 8096


async def test_an_advertised_address_is_told_whatever_the_client_dialled() -> None:
    client = await new_client(node=replace(NODE, host="broker.example", rack="r1", advertised=True))
    [broker] = (await metadata(client, [])).brokers
    assert (broker.host, broker.port, broker.rack) == ("broker.example", 9092, "r1")
    [shown] = (await client.ask(DESCRIBE_CLUSTER, 2, DescribeClusterRequest())).brokers
    assert (shown.host, shown.port) == ("broker.example", 9092)


async def test_a_mapped_ipv4_address_is_told_as_ipv4(client: Client) -> None:
    client.peer = replace(client.peer, dialled_host="::ffff:127.0.0.1")
    assert (await metadata(client, [])).brokers[0].host == "127.0.0.1"
    client.peer = replace(client.peer, dialled_host="::1")
    assert (await metadata(client, [])).brokers[0].host == "::1"


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_cluster_is_described(client: Client, version: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = await client.ask(DESCRIBE_CLUSTER, version, request)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, CLUSTER, 1)
    assert [(b.broker_id, b.port) for b in answer.brokers] == [(1, 31_092)]
    assert answer.cluster_authorized_operations == 8096


@pytest.mark.parametrize(("endpoint", "code"), [(2, 114), (3, 115)])
async def test_there_are_no_endpoints_other_than_brokers(
    client: Client, endpoint: int, code: int
) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint)
    answer = await client.ask(DESCRIBE_CLUSTER, 1, request)
    assert answer.error_code == code
    assert answer.error_message


async def pages(client: Client, limit: int, *names: str) -> list[list[tuple[str, int, list[int]]]]:
    """All pages of a description, following the cursor."""
    seen = []
    cursor = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name) for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        answer = await client.ask(PARTITIONS, 0, request)
        seen.append([
            (t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in answer.topics
        ])  # fmt: skip
        if answer.next_cursor is None:
            return seen
        after = answer.next_cursor
        cursor = RequestCursor(after.topic_name, after.partition_index)


async def test_partitions_are_described_page_by_page(client: Client) -> None:
    await create(client, "b", partitions=3)
    await create(client, "a", partitions=2)
    assert await pages(client, 100) == [[("a", 0, [0, 1]), ("b", 0, [0, 1, 2])]]
    assert await pages(client, 2) == [
        [("a", 0, [0, 1])],
        [("b", 0, [0, 1])],
        [("b", 0, [2])],
    ]
    assert await pages(client, 3) == [
        [("a", 0, [0, 1]), ("b", 0, [0])],
        [("b", 0, [1, 2])],
    ]
    assert await pages(client, 0, "b") == [[("b", 0, [n])] for n in range(3)]


async def test_a_topic_that_is_not_there_is_named_as_such(client: Client) -> None:
    await create(client, "b")
    assert await pages(client, 10, "b", "c", "a") == [[("a", 3, []), ("b", 0, [0]), ("c", 3, [])]]


async def test_a_cursor_below_zero_is_refused(client: Client) -> None:
    await create(client, "b")
    request = DescribeTopicPartitionsRequest(cursor=RequestCursor("b", -1))
    answer = await client.ask(PARTITIONS, 0, request)
    assert [topic.error_code for topic in answer.topics] == [42]


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
async def test_disk_use_is_described(client: Client, version: int) -> None:
    await create(client, "a", partitions=2)
    await create(client, "b")

    async def described(topics: Any) -> tuple[Any, dict[tuple[str, int], int]]:
        answer = await client.ask(LOG_DIRS, version, DescribeLogDirsRequest(topics=topics))
        [result] = answer.results
        sizes = {
            (topic.name, part.partition_index): part.partition_size
            for topic in result.topics
            for part in topic.partitions
        }
        return result, sizes

    result, sizes = await described(None)
    assert (result.error_code, result.log_dir) == (0, "/")
    assert sizes == {("a", 0): 100, ("a", 1): 101, ("b", 0): 100}
    if version >= 4:
        assert result.total_bytes >= result.usable_bytes > 0
    asked = [DescribableLogDirTopic("a", [1, 7]), DescribableLogDirTopic("nope", [0])]
    _, sizes = await described(asked)
    assert sizes == {("a", 1): 101}


# A node that is gone


def dying(client: Client, missing: list[NodeId]) -> None:
    counter = client.counter
    counter.cluster = ClusterAdmin(
        counter.topics._placement,
        lambda: counter.topics.node,
        ManualClock(),
        missing=lambda: missing,
    )


async def test_who_writes_is_answered_once_the_death_of_a_node_is_decided_upon(
    client: Client,
) -> None:
    await create(client, "t")
    dying(client, [NODE.id])
    asked = asyncio.ensure_future(metadata(client, named("t")))
    await asyncio.sleep(0.05)
    assert not asked.done()
    placement = client.counter.topics._placement
    await placement.submit(FenceNode(NODE.id, 1, "it is gone"))
    [topic] = (await asked).topics
    assert topic.partitions[0].leader_id == NO_NODE


async def test_a_node_that_is_found_again_is_not_waited_for(client: Client) -> None:
    await create(client, "t")
    missing = [NODE.id]
    dying(client, missing)
    asked = asyncio.ensure_future(metadata(client, named("t")))
    await asyncio.sleep(0.05)
    missing.clear()
    [topic] = (await asked).topics
    assert topic.partitions[0].leader_id == NODE.id


async def test_a_death_that_nobody_decides_upon_is_not_waited_for_long(client: Client) -> None:
    await create(client, "t")
    dying(client, [NODE.id])
    async with asyncio.timeout(10 * SETTLE_S):
        [topic] = (await metadata(client, named("t"))).topics
    assert topic.partitions[0].leader_id == NODE.id


async def test_a_node_is_named_for_a_while_after_it_was_lost(client: Client) -> None:
    admin, watch = client.counter.topics, ManualClock()
    client.counter.cluster = ClusterAdmin(admin._placement, lambda: admin.node, watch)
    lost = replace(NODE, id=NodeId(2), port=9_099)
    await admin._placement.submit(RegisterNode(lost, 1, "2d" * 16, OWN_LEVELS))
    await admin._placement.submit(FenceNode(lost.id, 1, "it is gone"))

    async def brokers() -> list[tuple[int, int]]:
        found = await metadata(client, [])
        return [(one.node_id, one.port) for one in found.brokers]

    both = await brokers()
    watch.now_s += NAMED_AFTER_LOSS_S
    assert [node for node, _ in both] == [NODE.id, lost.id]
    assert both[1] == (lost.id, lost.port)
    assert await brokers() == both[:1]


async def test_a_node_that_stops_in_good_order_is_named_no_more(client: Client) -> None:
    admin, watch = client.counter.topics, ManualClock()
    client.counter.cluster = ClusterAdmin(admin._placement, lambda: admin.node, watch)
    stopped, lost = (replace(NODE, id=NodeId(n), port=9_090 + n) for n in (2, 3))
    for node in (stopped, lost):
        await admin._placement.submit(RegisterNode(node, 1, f"{node.id}d" * 16, OWN_LEVELS))
    await admin._placement.submit(FenceNode(stopped.id, 1, STOPPED))
    await admin._placement.submit(FenceNode(lost.id, 1, "it is gone"))

    async def brokers() -> list[int]:
        return [one.node_id for one in (await metadata(client, [])).brokers]

    assert await brokers() == [NODE.id, lost.id]
    # It was taken for dead before its own announcement came.
    await admin._placement.submit(FenceNode(lost.id, 1, STOPPED))
    assert await brokers() == [NODE.id]
    await admin._placement.submit(UnfenceNode(lost.id, 1))
    await admin._placement.submit(FenceNode(lost.id, 1, "it is gone"))
    assert await brokers() == [NODE.id, lost.id]
