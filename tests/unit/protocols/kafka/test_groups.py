"""The group APIs in every version they are advertised in, from bytes to bytes."""

from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import asdict
from tests.kit.kafka import HandlerClient
from tests.kit.loop import virtual_time
from tests.kit.simulation.coordination.memory_stream import MemoryStream
from tests.kit.simulation.coordination.topic_list import TopicList

from mainstem.coordination.groups.service import GroupCoordinator
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.shards.partitioning import OFFSETS_TOPIC
from mainstem.coordination.shards.registry_driver import InternalTopic
from mainstem.model.ids import Epoch, NodeId, Offset, PartitionIndex, RangeIndex, StreamId, TopicId
from mainstem.model.metadata import Node, Range, Stream, Topic
from mainstem.protocols.kafka.handlers.coordination import coordinators, group_offsets, groups
from mainstem.testing.simulation.cluster.clock import SimClock
from mainstem.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from mainstem.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from mainstem.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from mainstem.wire.kafka.messages.heartbeat import HeartbeatRequest
from mainstem.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from mainstem.wire.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from mainstem.wire.kafka.messages.list_groups import ListGroupsRequest
from mainstem.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from mainstem.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from mainstem.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from mainstem.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

pytestmark = virtual_time

SERVED = groups.SERVED | group_offsets.SERVED | coordinators.SERVED
FIND, COMMIT, FETCH, JOIN, BEAT, LEAVE, SYNC = 10, 8, 9, 11, 12, 13, 14
DESCRIBE, LIST, DELETE, DELETE_OFFSETS = 15, 16, 42, 47

TOPIC_ID = TopicId(bytes(range(16)))
READS_T = b"\0\0\0\0\0\1\0\1t"
UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID, MEMBER_ID_REQUIRED = 3, 100, 79
UNKNOWN_MEMBER, GROUP_NOT_FOUND, SUBSCRIBED, NOT_EMPTY, INVALID_REQUEST = 25, 69, 86, 68, 42


def topic() -> Topic:
    streams = []
    for index in range(2):
        opened = Range(RangeIndex(0), Offset(0), Epoch(0), (NodeId(1),))
        stream_id = StreamId(TOPIC_ID, PartitionIndex(index))
        streams.append(Stream(stream_id, Epoch(0), NodeId(1), Offset(0), (opened,)))
    return Topic(TOPIC_ID, "t", 0, tuple(streams))


def joined(chunks: list[Any]) -> bytes:
    return b"".join(chunks)


class GroupsClient(HandlerClient):
    """A broker of groups with one topic ``t`` of two partitions, asked in bytes."""

    def __init__(self) -> None:
        self.counts = {"t": 2}
        streams = [MemoryStream() for _ in range(2)]

        async def ensure() -> None:
            self.counts[OFFSETS_TOPIC] = 2

        self.groups = GroupCoordinator(
            GroupSettings(initial_rebalance_delay_ms=0),
            InternalTopic(ensure, streams.__getitem__, lambda name: self.counts.get(name, 0)),
            TopicList(self.counts),
            SimClock(),
        )
        self.groups.start()
        t = topic()
        topics = SimpleNamespace(
            by_name=lambda name: t if name == "t" else None,
            by_id=lambda topic_id: t if topic_id == TOPIC_ID else None,
            nodes=lambda: [Node(NodeId(1), "127.0.0.1", 9092)],
        )
        node = Node(NodeId(1), "127.0.0.1", 9092)
        super().__init__(SERVED, SimpleNamespace(groups=self.groups, topics=topics, node=node))

    async def join(self, version: int, **changes: Any) -> Any:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000 if version else -1,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", READS_T)],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        answer = await self.ask(JOIN, version, request)
        if answer.error_code == MEMBER_ID_REQUIRED:
            assert version >= 4
            request.member_id = answer.member_id
            answer = await self.ask(JOIN, version, request)
        return answer

    async def stable(self) -> str:
        joined = await self.join(5)
        share = SyncGroupRequestAssignment(joined.member_id, b"all")
        await self.ask(SYNC, 3, SyncGroupRequest("g", 1, joined.member_id, assignments=[share]))
        return str(joined.member_id)


def commit_request(version: int, name: str = "t", partition: int = 0) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(partition, 42, 3 if version >= 6 else -1, "note")
    asked = OffsetCommitRequestTopic(partitions=[part])
    if version >= 10:
        asked.topic_id = TOPIC_ID if name == "t" else bytes(16)
    else:
        asked.name = name
    return OffsetCommitRequest("g", -1, topics=[asked])


@pytest.fixture
async def client() -> AsyncIterator[GroupsClient]:
    client = GroupsClient()
    yield client
    client.groups.stop()


def versions(api_key: int) -> range:
    served = SERVED[api_key]
    return range(served.min_version, served.max_version + 1)


def test_what_is_served_is_all_that_clients_ask_of_classic_groups() -> None:
    assert {key: (row.min_version, row.max_version) for key, row in SERVED.items()} == {
        8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9), 12: (0, 4), 13: (0, 5),
        14: (0, 5), 15: (0, 6), 16: (0, 5), 42: (0, 2), 47: (0, 0),
    }  # fmt: skip


@pytest.mark.parametrize("version", versions(JOIN))
async def test_join_sync_heartbeat_leave_in_every_version(
    client: GroupsClient, version: int
) -> None:
    joined = await client.join(version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id
    assert [m.metadata for m in joined.members] == [READS_T]
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    sync_version = min(version, 5)
    request = SyncGroupRequest("g", 1, joined.member_id)
    request.assignments = [SyncGroupRequestAssignment(joined.member_id, b"all")]
    if sync_version >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
    synced = await client.ask(SYNC, sync_version, request)
    assert (synced.error_code, synced.assignment) == (0, b"all")
    beat = HeartbeatRequest("g", 1, joined.member_id)
    assert (await client.ask(BEAT, min(version, 4), beat)).error_code == 0
    leave_version = min(version, 5)
    if leave_version < 3:
        leave = LeaveGroupRequest("g", member_id=joined.member_id)
        assert (await client.ask(LEAVE, leave_version, leave)).error_code == 0
        assert (await client.ask(LEAVE, leave_version, leave)).error_code == UNKNOWN_MEMBER
    else:
        leave = LeaveGroupRequest("g", [MemberIdentity(joined.member_id)])
        left = await client.ask(LEAVE, leave_version, leave)
        assert [m.error_code for m in left.members] == [0]
    gone = await client.ask(BEAT, min(version, 4), beat)
    assert gone.error_code == UNKNOWN_MEMBER


@pytest.mark.parametrize("version", versions(JOIN))
async def test_a_refused_join_can_be_read_in_every_version(
    client: GroupsClient, version: int
) -> None:
    answer = await client.join(version, session_timeout_ms=1)
    assert (answer.error_code, answer.generation_id) == (26, -1)
    answer = await client.join(version, member_id="m")
    assert (answer.error_code, answer.member_id) == (UNKNOWN_MEMBER, "m")


@pytest.mark.parametrize("version", versions(COMMIT))
async def test_positions_are_committed_in_every_version(client: GroupsClient, version: int) -> None:
    for name, partition, code in (
        ("t", 0, 0),
        ("t", 2, UNKNOWN_TOPIC),
        ("t", -1, UNKNOWN_TOPIC),
        ("u", 0, UNKNOWN_TOPIC_ID if version >= 10 else UNKNOWN_TOPIC),
    ):
        answer = await client.ask(COMMIT, version, commit_request(version, name, partition))
        [of_topic] = answer.topics
        assert [p.error_code for p in of_topic.partitions] == [code]
    [kept] = await client.groups.fetch_offsets("g", None)
    assert (kept.committed.offset, kept.committed.metadata) == (42, "note")
    assert kept.committed.leader_epoch == (3 if version >= 6 else -1)


@pytest.mark.parametrize(
    ("version", "code"), [(8, 22), (9, GROUP_NOT_FOUND), (10, GROUP_NOT_FOUND)]
)
async def test_a_commit_to_no_group_is_refused_in_words_the_client_knows(
    client: GroupsClient, version: int, code: int
) -> None:
    request = commit_request(version)
    request.generation_id_or_member_epoch = 5
    answer = await client.ask(COMMIT, version, request)
    assert [p.error_code for t in answer.topics for p in t.partitions] == [code]


@pytest.mark.parametrize("version", range(1, 8))
@pytest.mark.parametrize("everything", [False, True])
async def test_positions_of_one_group_are_fetched_in_every_version(
    client: GroupsClient, version: int, everything: bool
) -> None:
    await client.ask(COMMIT, 8, commit_request(8))
    asked = None if everything and version >= 2 else [OffsetFetchRequestTopic("t", [0, 1])]
    answer = await client.ask(FETCH, version, OffsetFetchRequest(group_id="g", topics=asked))
    assert answer.error_code == 0
    [of_topic] = answer.topics
    found = [(p.partition_index, p.committed_offset, p.metadata) for p in of_topic.partitions]
    assert found == [(0, 42, "note")] if asked is None else [(0, 42, "note"), (1, -1, "")]
    assert of_topic.partitions[0].committed_leader_epoch == (3 if version >= 5 else -1)


@pytest.mark.parametrize("version", [8, 9, 10])
@pytest.mark.parametrize("everything", [False, True])
async def test_positions_of_many_groups_are_fetched_at_once(
    client: GroupsClient, version: int, everything: bool
) -> None:
    await client.ask(COMMIT, 8, commit_request(8))
    by_id = version >= 10
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    if by_id:
        topics = [
            OffsetFetchRequestTopics(topic_id=TOPIC_ID, partition_indexes=[0]),
            OffsetFetchRequestTopics(topic_id=bytes(15) + b"?", partition_indexes=[0]),
        ]
    asked = [OffsetFetchRequestGroup(g, topics=None if everything else topics) for g in "gh"]
    answer = await client.ask(FETCH, version, OffsetFetchRequest(groups=asked))
    known, unknown = answer.groups
    assert (known.group_id, unknown.group_id) == ("g", "h")
    assert [p.committed_offset for p in known.topics[0].partitions] == [42]
    if by_id:
        assert known.topics[0].topic_id == TOPIC_ID
    if everything:
        assert unknown.topics == []
    else:
        assert unknown.topics[0].partitions[0].committed_offset == -1
        assert known.topics[-1].partitions[0].error_code == (UNKNOWN_TOPIC_ID if by_id else 0)


@pytest.mark.parametrize("version", versions(DESCRIBE))
async def test_groups_are_described_in_every_version(client: GroupsClient, version: int) -> None:
    member_id = await client.stable()
    request = DescribeGroupsRequest(["g", "nobody"], include_authorized_operations=version >= 3)
    known, unknown = (await client.ask(DESCRIBE, version, request)).groups
    assert (known.group_state, known.protocol_type, known.protocol_data) == (
        "Stable", "consumer", "range",
    )  # fmt: skip
    [member] = known.members
    assert (member.member_id, member.client_id) == (member_id, "c")
    assert member.client_host == "/127.0.0.1"
    assert (member.member_metadata, member.member_assignment) == (READS_T, b"all")
    assert unknown.group_state == "Dead"
    assert unknown.error_code == (GROUP_NOT_FOUND if version >= 6 else 0)
    if version >= 3:
        assert known.authorized_operations == 328


@pytest.mark.parametrize("version", versions(LIST))
async def test_groups_are_listed_in_every_version(client: GroupsClient, version: int) -> None:
    assert (await client.ask(LIST, version, ListGroupsRequest())).groups == []
    await client.stable()
    [line] = (await client.ask(LIST, version, ListGroupsRequest())).groups
    assert (line.group_id, line.protocol_type) == ("g", "consumer")
    if version >= 4:
        assert line.group_state == "Stable"
        none = await client.ask(LIST, version, ListGroupsRequest(states_filter=["Empty"]))
        assert none.groups == []
    if version >= 5:
        assert line.group_type == "classic"
        none = await client.ask(LIST, version, ListGroupsRequest(types_filter=["share"]))
        assert none.groups == []


@pytest.mark.parametrize("version", versions(DELETE))
async def test_groups_are_deleted_in_every_version(client: GroupsClient, version: int) -> None:
    member_id = await client.stable()
    request = DeleteGroupsRequest(["g", "nobody"])
    answer = await client.ask(DELETE, version, request)
    assert [r.error_code for r in answer.results] == [NOT_EMPTY, GROUP_NOT_FOUND]
    await client.ask(LEAVE, 2, LeaveGroupRequest("g", member_id=member_id))
    answer = await client.ask(DELETE, version, request)
    assert [r.error_code for r in answer.results] == [0, GROUP_NOT_FOUND]


async def test_positions_are_deleted_one_by_one(client: GroupsClient) -> None:
    request = OffsetDeleteRequest(
        "g",
        [
            OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(p) for p in (0, 9)]),
            OffsetDeleteRequestTopic("u", [OffsetDeleteRequestPartition(0)]),
        ],
    )
    assert (await client.ask(DELETE_OFFSETS, 0, request)).error_code == GROUP_NOT_FOUND
    await client.ask(COMMIT, 8, commit_request(8))
    answer = await client.ask(DELETE_OFFSETS, 0, request)
    codes = [[p.error_code for p in t.partitions] for t in answer.topics]
    assert codes == [[0, UNKNOWN_TOPIC], [UNKNOWN_TOPIC]]
    assert list(await client.groups.fetch_offsets("g", None)) == []
    await client.stable()
    answer = await client.ask(DELETE_OFFSETS, 0, request)
    assert answer.topics[0].partitions[0].error_code == SUBSCRIBED


@pytest.mark.parametrize("version", versions(FIND))
async def test_this_node_coordinates_every_group(client: GroupsClient, version: int) -> None:
    if version < 4:
        answer = await client.ask(FIND, version, FindCoordinatorRequest(key="g"))
        found = [answer]
    else:
        request = FindCoordinatorRequest(coordinator_keys=["g", "h"])
        found = (await client.ask(FIND, version, request)).coordinators
        assert [one.key for one in found] == ["g", "h"]
    for one in found:
        assert (one.error_code, one.node_id, one.host, one.port) == (0, 1, "127.0.0.1", 9092)


@pytest.mark.parametrize("version", [1, 6])
async def test_who_looks_for_an_unknown_kind_of_coordinator_is_told_at_once(
    client: GroupsClient, version: int
) -> None:
    request = FindCoordinatorRequest(key="x", key_type=2, coordinator_keys=["x"])
    answer = await client.ask(FIND, version, request)
    one = answer if version < 4 else answer.coordinators[0]
    assert one.error_code == INVALID_REQUEST
    assert "type 2" in one.error_message


async def test_static_members_are_fenced_over_the_wire(client: GroupsClient) -> None:
    first = await client.join(9, group_instance_id="i")
    share = SyncGroupRequestAssignment(first.member_id, b"all")
    await client.ask(SYNC, 5, SyncGroupRequest("g", 1, first.member_id, "i", assignments=[share]))
    second = await client.join(9, group_instance_id="i")
    assert (second.error_code, second.generation_id, second.skip_assignment) == (0, 1, True)
    fenced = await client.ask(BEAT, 4, HeartbeatRequest("g", 1, first.member_id, "i"))
    assert fenced.error_code == 82
    left = await client.ask(LEAVE, 5, LeaveGroupRequest("g", [MemberIdentity("", "i", "bye")]))
    assert [(m.member_id, m.group_instance_id, m.error_code) for m in left.members] == [
        ("", "i", 0)
    ]


async def test_a_stopping_node_refuses_in_every_version_of_every_api(client: GroupsClient) -> None:
    join = JoinGroupRequest("g", 10_000, protocol_type="consumer")
    fetch_one = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0])])
    fetch_many = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
    requests: dict[int, Callable[[int], Any]] = {
        JOIN: lambda version: join,
        SYNC: lambda version: SyncGroupRequest("g", 1, "m"),
        BEAT: lambda version: HeartbeatRequest("g", 1, "m"),
        LEAVE: lambda version: LeaveGroupRequest("g"),
        LIST: lambda version: ListGroupsRequest(),
        COMMIT: commit_request,
        FETCH: lambda version: fetch_one if version < 8 else fetch_many,
        DESCRIBE: lambda version: DescribeGroupsRequest(["g"]),
        DELETE: lambda version: DeleteGroupsRequest(["g"]),
        DELETE_OFFSETS: lambda version: OffsetDeleteRequest("g"),
    }

    await client.stable()
    client.groups.stop()
    for api_key, request in requests.items():
        for version in versions(api_key):
            answer = await client.ask(api_key, version, request(version))
            assert 15 in error_codes(answer), (api_key, version)


def error_codes(answer: Any) -> set[int]:
    """All error codes anywhere in an answer."""
    if isinstance(answer, list):
        return {code for each in answer for code in error_codes(each)}
    if not isinstance(answer, Struct):
        return set()
    values = asdict(answer)
    below = {code for value in values.values() for code in error_codes(value)}
    return below | {values["error_code"]} if "error_code" in values else below
