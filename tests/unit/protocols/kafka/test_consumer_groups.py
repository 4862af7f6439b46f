"""Consumer groups in every version of their APIs, from bytes to bytes."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kit.kafka import HandlerClient
from tests.kit.loop import virtual_time
from tests.kit.simulation.coordination.memory_stream import MemoryStream
from tests.kit.simulation.coordination.topic_list import TopicList

from mainstem.coordination.groups.service import GroupCoordinator
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.shards.partitioning import OFFSETS_TOPIC
from mainstem.coordination.shards.registry_driver import InternalTopic
from mainstem.model.features import FEATURES, Feature
from mainstem.protocols.kafka.handlers.coordination import consumer_groups, group_offsets, groups
from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.security.authorisation.authoriser import AllRights
from mainstem.testing.simulation.cluster.clock import SimClock
from mainstem.wire.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from mainstem.wire.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    RequestTopicPartitions,
)
from mainstem.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from mainstem.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from mainstem.wire.kafka.messages.list_groups import ListGroupsRequest
from mainstem.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from mainstem.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

pytestmark = virtual_time

SERVED = groups.SERVED | group_offsets.SERVED | consumer_groups.SERVED
COMMIT, FETCH, DESCRIBE_CLASSIC, LIST, DELETE, BEAT, DESCRIBE = 8, 9, 15, 16, 42, 68, 69
GROUP_NOT_FOUND, NOT_EMPTY, FENCED, UNRELEASED, UNSUPPORTED_ASSIGNOR = 69, 68, 110, 111, 112
STALE, INVALID_REGEX, INVALID_REQUEST, UNKNOWN_MEMBER, UNSUPPORTED_VERSION = 113, 128, 42, 25, 35


class ConsumerGroupsClient(HandlerClient):
    """A broker of groups with one topic ``t`` of two partitions, asked in bytes."""

    def __init__(self) -> None:
        self.topics = TopicList({"t": 2})
        stream = MemoryStream()

        async def ensure() -> None:
            self.topics.counts[OFFSETS_TOPIC] = 1

        self.groups = GroupCoordinator(
            GroupSettings(initial_rebalance_delay_ms=0),
            InternalTopic(ensure, lambda _: stream, lambda n: self.topics.counts.get(n, 0)),
            self.topics,
            SimClock(),
        )
        self.groups.start()
        self.levels = {"group.version": 1}
        cluster = SimpleNamespace(level=lambda name: self.levels[name])
        broker = SimpleNamespace(groups=self.groups, topics=self.topics, cluster=cluster)
        super().__init__(SERVED, broker)

    async def beat(self, version: int = 1, **said: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m")
        if said.get("member_epoch", 0) == 0:
            request.rebalance_timeout_ms = 60_000
            request.subscribed_topic_names = ["t"]
            request.topic_partitions = []
        for name, value in said.items():
            setattr(request, name, value)
        return await self.ask(BEAT, version, request)


@pytest.fixture
async def client() -> AsyncIterator[ConsumerGroupsClient]:
    client = ConsumerGroupsClient()
    yield client
    client.groups.stop()


def test_what_is_served_is_advertised_with_its_feature() -> None:
    assert {k: (s.min_version, s.max_version) for k, s in consumer_groups.SERVED.items()} == {
        68: (0, 1),
        69: (0, 1),
    }
    assert FEATURES["group.version"] == Feature(0, 1, 1)


class SeesSome(AllRights):
    """May do everything, but with topics only what is listed."""

    def __init__(self, *topics: str) -> None:
        self.topics = set(topics)

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        return kind is not ResourceType.TOPIC or name in self.topics


async def test_an_expression_finds_only_topics_that_the_member_may_see(
    client: ConsumerGroupsClient,
) -> None:
    client.topics.counts["hidden"] = 1
    rights = SeesSome("t")
    client.peer.rights = rights
    everything: dict[str, Any] = {
        "subscribed_topic_names": None,
        "subscribed_topic_regex": ".*",
    }
    joined = await client.beat(**everything)
    assert topics_of(client, joined) == {"t"}

    rights.topics.add("hidden")
    client.groups.topic_changed("hidden")
    beat = {"member_epoch": joined.member_epoch, "rebalance_timeout_ms": -1}
    assert topics_of(client, await client.beat(**beat)) == {"t", "hidden"}


def topics_of(client: ConsumerGroupsClient, answer: Any) -> set[str]:
    assert answer.error_code == 0
    assigned = [each.topic_id for each in answer.assignment.topic_partitions]
    found = [client.topics.by_id(topic) for topic in assigned]
    return {topic.name for topic in found if topic is not None}


async def test_groups_that_are_switched_off_are_refused(client: ConsumerGroupsClient) -> None:
    client.levels["group.version"] = 0
    answer = await client.beat()
    assert answer.error_code == UNSUPPORTED_VERSION
    assert "group.version" in answer.error_message
    described = await client.ask(DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=["g"]))
    assert [each.error_code for each in described.groups] == [UNSUPPORTED_VERSION]


@pytest.mark.parametrize("version", [0, 1])
async def test_a_member_joins_lives_and_leaves_in_every_version(
    client: ConsumerGroupsClient, version: int
) -> None:
    first = await client.beat(version, member_id="" if version == 0 else "mine")
    assert (first.error_code, first.member_epoch) == (0, 1)
    assert first.heartbeat_interval_ms == 5_000
    assert first.member_id == "mine" or version == 0
    [given] = first.assignment.topic_partitions
    assert (given.topic_id, given.partitions) == (client.topics.id_of("t"), [0, 1])
    lives = await client.beat(version, member_id=first.member_id, member_epoch=1)
    assert (lives.error_code, lives.assignment) == (0, None)
    left = await client.beat(version, member_id=first.member_id, member_epoch=-1)
    assert (left.error_code, left.member_epoch) == (0, -1)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"member_id": ""}, INVALID_REQUEST),
        ({"subscribed_topic_regex": "("}, INVALID_REGEX),
        ({"server_assignor": "mine"}, UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 9}, FENCED),
        ({"member_epoch": 1, "member_id": "x"}, UNKNOWN_MEMBER),
        ({"member_epoch": 1, "group_id": "h"}, GROUP_NOT_FOUND),
        ({"member_id": "x", "instance_id": "i"}, UNRELEASED),
    ],
)
async def test_refusals_have_their_number_and_say_why(
    client: ConsumerGroupsClient, said: dict[str, Any], code: int
) -> None:
    await client.beat(instance_id="i")
    answer = await client.beat(**said)
    assert answer.error_code == code
    assert answer.error_message
    assert answer.assignment is None


async def test_owned_partitions_may_be_listed_in_pieces(client: ConsumerGroupsClient) -> None:
    await client.beat()
    await client.beat(member_id="n")
    topic_id = client.topics.id_of("t")
    owned = [RequestTopicPartitions(topic_id, [p]) for p in (0, 1)]
    answer = await client.beat(member_epoch=1, topic_partitions=owned)
    assert answer.member_epoch == 1, "it still has what it shall give up"
    answer = await client.beat(member_epoch=1, topic_partitions=owned[:1])
    assert answer.member_epoch == 2


@pytest.mark.parametrize("version", [0, 1])
async def test_groups_are_described_in_every_version(
    client: ConsumerGroupsClient, version: int
) -> None:
    await client.beat(instance_id="i", rack_id="r", subscribed_topic_regex="t.*")
    request = ConsumerGroupDescribeRequest(["g", "h"], include_authorized_operations=True)
    group, unknown = (await client.ask(DESCRIBE, version, request)).groups
    assert (group.error_code, group.group_state, group.assignor_name) == (
        0,
        "Stable",
        "uniform",
    )
    assert (group.group_epoch, group.assignment_epoch) == (1, 1)
    assert group.authorized_operations == 0b101001000
    [member] = group.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("m", "i", "r")
    assert (member.client_id, member.client_host) == ("c", "/127.0.0.1")
    assert member.subscribed_topic_names == ["t"]
    assert member.subscribed_topic_regex == "t.*"
    for assignment in (member.assignment, member.target_assignment):
        [given] = assignment.topic_partitions
        assert (given.topic_name, given.partitions) == ("t", [0, 1])
    assert member.member_type == (1 if version else -1)
    assert unknown.error_code == GROUP_NOT_FOUND
    assert unknown.error_message
    del client.topics.counts["t"]
    [group, _] = (await client.ask(DESCRIBE, version, request)).groups
    assert group.members[0].assignment.topic_partitions == []


@pytest.mark.parametrize("version", [5, 6])
async def test_the_classic_description_knows_no_consumer_group(
    client: ConsumerGroupsClient, version: int
) -> None:
    await client.beat()
    [group] = (await client.ask(DESCRIBE_CLASSIC, version, DescribeGroupsRequest(["g"]))).groups
    assert group.group_state == "Dead"
    assert group.error_code == (GROUP_NOT_FOUND if version == 6 else 0)


async def test_groups_are_listed_by_their_type_and_deleted_when_empty(
    client: ConsumerGroupsClient,
) -> None:
    await client.beat()
    for types, found in (([], ["g"]), (["Consumer"], ["g"]), (["classic"], [])):
        answer = await client.ask(LIST, 5, ListGroupsRequest(types_filter=types))
        assert [group.group_id for group in answer.groups] == found
        assert all(
            (g.group_type, g.protocol_type) == ("consumer", "consumer") for g in answer.groups
        )
    [result] = (await client.ask(DELETE, 2, DeleteGroupsRequest(["g"]))).results
    assert result.error_code == NOT_EMPTY
    await client.beat(member_epoch=-1)
    [result] = (await client.ask(DELETE, 2, DeleteGroupsRequest(["g"]))).results
    assert result.error_code == 0
    assert (await client.ask(LIST, 5, ListGroupsRequest())).groups == []


async def test_positions_belong_to_members_in_their_epoch(client: ConsumerGroupsClient) -> None:
    await client.beat()

    async def commit(version: int, epoch: int) -> int:
        part = OffsetCommitRequestPartition(0, 42)
        asked = OffsetCommitRequestTopic(name="t", partitions=[part])
        request = OffsetCommitRequest("g", epoch, "m", topics=[asked])
        answer = await client.ask(COMMIT, version, request)
        return int(answer.topics[0].partitions[0].error_code)

    assert await commit(8, 1) == UNSUPPORTED_VERSION
    assert await commit(9, 2) == STALE
    assert await commit(9, 1) == 0

    async def fetch(member_id: str | None, epoch: int) -> tuple[int, int]:
        wanted = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        group = OffsetFetchRequestGroup("g", member_id, epoch, wanted)
        answer = await client.ask(FETCH, 9, OffsetFetchRequest(groups=[group]))
        [found] = answer.groups
        offsets = [p.committed_offset for t in found.topics for p in t.partitions]
        return int(found.error_code), (offsets or [-1])[0]

    assert await fetch("m", 1) == (0, 42)
    assert await fetch(None, -1) == (0, 42)
    assert await fetch("m", 0) == (STALE, -1)
    assert await fetch("x", 1) == (UNKNOWN_MEMBER, -1)
