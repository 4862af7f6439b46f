"""Elections, reassignments, folders, the quorum, features and nodes, as clients see them."""

from typing import Any

import pytest
from tests.unit.protocols.kafka.admin_kit import SERVED, Client

from mainstem.model.features import OWN_LEVELS
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Node
from mainstem.placement.changes.commands import RegisterNode
from mainstem.placement.changes.replication_commands import FenceNode
from mainstem.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from mainstem.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from mainstem.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from mainstem.wire.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from mainstem.wire.kafka.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from mainstem.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from mainstem.wire.kafka.messages.unregister_broker import UnregisterBrokerRequest
from mainstem.wire.kafka.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)

CREATE, FOLDERS, ELECT, REASSIGN, LIST, QUORUM, FEATURES, UNREGISTER = (
    19, 34, 43, 45, 46, 55, 57, 64,
)  # fmt: skip
UNKNOWN_TOPIC, BAD_FACTOR, BAD_REPLICAS, INVALID_REQUEST, NO_FOLDER = 3, 38, 39, 42, 57
POLICY, NOT_NEEDED, NO_REASSIGNMENT, BAD_LEVEL, UNKNOWN_NODE = 44, 84, 85, 95, 102
UPGRADE, SAFE, UNSAFE = 1, 2, 3


def versions(api_key: int) -> range:
    return range(SERVED[api_key].min_version, SERVED[api_key].max_version + 1)


async def with_topic(client: Client) -> None:
    topic = CreatableTopic("t", 2, 1, [], [])
    await client.ask(CREATE, 7, CreateTopicsRequest(topics=[topic]))


@pytest.mark.parametrize("version", versions(ELECT))
async def test_no_election_is_needed_where_the_preferred_replica_leads(
    client: Client, version: int
) -> None:
    await with_topic(client)
    asked = [TopicPartitions("t", [0, 1, 2]), TopicPartitions("u", [0])]
    for kind in (0, 1) if version else (0,):
        request = ElectLeadersRequest(election_type=kind, topic_partitions=asked)
        answer = await client.ask(ELECT, version, request)
        codes = {
            result.topic: [part.error_code for part in result.partition_result]
            for result in answer.replica_election_results
        }
        assert answer.error_code == 0
        assert codes == {"t": [NOT_NEEDED, NOT_NEEDED, UNKNOWN_TOPIC], "u": [UNKNOWN_TOPIC]}
    answer = await client.ask(ELECT, version, ElectLeadersRequest(topic_partitions=None))
    assert answer.replica_election_results == []


async def test_an_election_of_a_kind_that_does_not_exist_is_refused(client: Client) -> None:
    await with_topic(client)
    asked = [TopicPartitions("t", [0])]
    request = ElectLeadersRequest(election_type=7, topic_partitions=asked)
    answer = await client.ask(ELECT, 2, request)
    [result] = answer.replica_election_results
    assert answer.error_code == INVALID_REQUEST
    assert [part.error_code for part in result.partition_result] == [INVALID_REQUEST]


async def reassign(client: Client, replicas: list[int] | None, **rest: Any) -> int:
    version = rest.pop("version", 1)
    topic = ReassignableTopic(
        rest.pop("topic", "t"), [ReassignablePartition(rest.pop("partition", 0), replicas)]
    )
    request = AlterPartitionReassignmentsRequest(topics=[topic], **rest)
    answer = await client.ask(REASSIGN, version, request)
    assert answer.error_code == 0
    [[part]] = [response.partitions for response in answer.responses]
    assert bool(part.error_message) is bool(part.error_code)
    return int(part.error_code)


@pytest.mark.parametrize("version", versions(REASSIGN))
async def test_a_partition_is_reassigned_to_where_it_is_and_nowhere_else(
    client: Client, version: int
) -> None:
    await with_topic(client)
    assert await reassign(client, [1], version=version) == 0
    assert await reassign(client, None, version=version) == NO_REASSIGNMENT
    for bad in ([], [1, 1], [2], [1, 2], [-1]):
        assert await reassign(client, bad, version=version) == BAD_REPLICAS, bad
    assert await reassign(client, [1], version=version, partition=2) == UNKNOWN_TOPIC
    assert await reassign(client, [1], version=version, topic="u") == UNKNOWN_TOPIC
    answer = await client.ask(LIST, 0, ListPartitionReassignmentsRequest(topics=None))
    assert (answer.error_code, answer.topics) == (0, [])


async def test_a_node_that_does_not_run_takes_no_partition(client: Client) -> None:
    await with_topic(client)
    await another_node(client)
    await client.counter.topics._placement.submit(FenceNode(NodeId(2), 1))
    assert await reassign(client, [2]) == BAD_REPLICAS
    assert await reassign(client, [1, 2]) == BAD_REPLICAS


async def test_a_partition_on_its_way_is_listed_and_can_be_called_back(client: Client) -> None:
    await with_topic(client)
    await another_node(client)
    assert await reassign(client, [1, 2], allow_replication_factor_change=False) == BAD_FACTOR
    assert await reassign(client, [2]) == 0
    answer = await client.ask(LIST, 0, ListPartitionReassignmentsRequest(topics=None))
    [topic] = answer.topics
    [moving] = topic.partitions
    assert (moving.adding_replicas, moving.removing_replicas) == ([2], [1])
    other = ListPartitionReassignmentsTopics("t", [1])
    answer = await client.ask(LIST, 0, ListPartitionReassignmentsRequest(topics=[other]))
    assert answer.topics == []
    assert await reassign(client, None) == 0
    answer = await client.ask(LIST, 0, ListPartitionReassignmentsRequest(topics=None))
    assert answer.topics == []


@pytest.mark.parametrize("version", versions(FOLDERS))
async def test_partitions_are_in_the_one_folder_that_there_is(client: Client, version: int) -> None:
    await with_topic(client)
    dirs = [
        AlterReplicaLogDir(path, [AlterReplicaLogDirTopic("t", [0, 2])])
        for path in ("/", "/elsewhere")
    ]
    answer = await client.ask(FOLDERS, version, AlterReplicaLogDirsRequest(dirs=dirs))
    codes = [[part.error_code for part in result.partitions] for result in answer.results]
    assert codes == [[0, UNKNOWN_TOPIC], [NO_FOLDER, NO_FOLDER]]


@pytest.mark.parametrize("version", versions(QUORUM))
async def test_the_quorum_is_one_node(client: Client, version: int) -> None:
    topics = [
        RequestTopicData("__cluster_metadata", [RequestPartitionData(0)]),
        RequestTopicData("t", [RequestPartitionData(0)]),
    ]
    request = DescribeQuorumRequest(topics=topics)
    [[found], [unknown]] = [
        topic.partitions for topic in (await client.ask(QUORUM, version, request)).topics
    ]
    assert (found.error_code, found.leader_id, found.leader_epoch) == (0, 1, 1)
    assert found.high_watermark == 3
    [voter] = found.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, 3)
    assert found.observers == []
    assert unknown.error_code == UNKNOWN_TOPIC
    await with_topic(client)
    answer = await client.ask(QUORUM, version, request)
    assert answer.topics[0].partitions[0].high_watermark == 4
    if version >= 2:
        [node] = answer.nodes
        [listener] = node.listeners
        assert (node.node_id, listener.host, listener.port) == (1, "192.0.2.7", 31_092)


async def update(client: Client, *updates: FeatureUpdateKey, version: int = 2, **rest: Any) -> Any:
    request = UpdateFeaturesRequest(feature_updates=list(updates), **rest)
    return await client.ask(FEATURES, version, request)


@pytest.mark.parametrize("version", versions(FEATURES))
async def test_features_go_down_and_up(client: Client, version: int) -> None:
    cluster = client.counter.cluster
    down = FeatureUpdateKey("transaction.version", 1, SAFE, allow_downgrade=True)
    up = FeatureUpdateKey("transaction.version", 2, UPGRADE)
    answer = await update(client, down, version=version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert [result.feature for result in answer.results] == (
        ["transaction.version"] if version < 2 else []
    )
    assert (cluster.level("transaction.version"), cluster.features_epoch()) == (1, 2)
    assert (await update(client, up, version=version)).error_code == 0
    assert (cluster.level("transaction.version"), cluster.features_epoch()) == (2, 3)


@pytest.mark.parametrize(
    ("updates", "code"),
    [
        ([FeatureUpdateKey("transaction.version", 1, UPGRADE)], BAD_LEVEL),
        ([FeatureUpdateKey("transaction.version", 2, SAFE)], 0),
        ([FeatureUpdateKey("transaction.version", 3, UPGRADE)], BAD_LEVEL),
        ([FeatureUpdateKey("metadata.version", 1, UPGRADE)], BAD_LEVEL),
        ([FeatureUpdateKey("mainstem.version", 1, UNSAFE)], BAD_LEVEL),
        ([FeatureUpdateKey("group.version", 0, 0)], INVALID_REQUEST),
        ([FeatureUpdateKey("group.version", 0, UNSAFE)] * 2, INVALID_REQUEST),
        (
            [FeatureUpdateKey("group.version", 0, SAFE), FeatureUpdateKey("x", 1, UPGRADE)],
            BAD_LEVEL,
        ),
    ],
)
async def test_changes_of_features_count_all_or_none(
    client: Client, updates: list[FeatureUpdateKey], code: int
) -> None:
    assert (await update(client, *updates)).error_code == code
    assert client.counter.cluster.level("group.version") == 1
    assert client.counter.cluster.features_epoch() <= 2


async def test_a_change_of_features_may_be_tried_out(client: Client) -> None:
    down = FeatureUpdateKey("group.version", 0, UNSAFE)
    assert (await update(client, down, validate_only=True)).error_code == 0
    assert client.counter.cluster.level("group.version") == 1


async def another_node(client: Client) -> None:
    node = Node(NodeId(2), "127.0.0.2", 9092)
    await client.counter.topics._placement.submit(RegisterNode(node, 1, "dir-2", OWN_LEVELS))


async def test_a_node_that_is_gone_is_forgotten(client: Client) -> None:
    await another_node(client)
    answers = {}
    for node in (3, 1, 2):
        answer = await client.ask(UNREGISTER, 0, UnregisterBrokerRequest(broker_id=node))
        answers[node] = answer.error_code
    assert answers == {3: UNKNOWN_NODE, 1: POLICY, 2: 0}
    assert [node.id for node in client.counter.topics.nodes()] == [1]
