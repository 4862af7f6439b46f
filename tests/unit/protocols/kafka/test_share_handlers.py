"""Share groups in every version of their APIs, from bytes to bytes."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kit.kafka import HandlerClient

from mainstem.broker.api.share_groups import (
    AckRange,
    AcquiredRange,
    DescribedShareGroup,
    DescribedShareMember,
    ShareAcknowledgeAnswer,
    ShareAcknowledgeCall,
    ShareAnswer,
    ShareFetchAnswer,
    ShareFetchCall,
    ShareFetched,
    ShareHeartbeat,
    ShareOffset,
    ShareOffsetsDeleted,
    ShareOffsetToAlter,
)
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.features import FEATURES, Feature
from mainstem.model.ids import PartitionIndex, StreamId, TopicId
from mainstem.protocols.kafka.handlers.coordination import share_groups, share_offsets
from mainstem.protocols.kafka.handlers.records import share_fetch
from mainstem.protocols.kafka.session import KafkaService, KafkaSession
from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.security.authorisation.authoriser import AllRights
from mainstem.telemetry.metrics import Metrics
from mainstem.wire.kafka.messages import alter_share_group_offsets as altering
from mainstem.wire.kafka.messages import delete_share_group_offsets as deleting
from mainstem.wire.kafka.messages import describe_share_group_offsets as describing
from mainstem.wire.kafka.messages import share_acknowledge as acking
from mainstem.wire.kafka.messages import share_fetch as fetching
from mainstem.wire.kafka.messages.share_group_describe import ShareGroupDescribeRequest
from mainstem.wire.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

SERVED = share_groups.SERVED | share_fetch.SERVED | share_offsets.SERVED
BEAT, DESCRIBE, FETCH, ACK, OFFSETS, ALTER, DELETE = 76, 77, 78, 79, 90, 91, 92
INVALID_REQUEST, UNSUPPORTED, TOPIC_DENIED, GROUP_DENIED, NOT_LEADER = 42, 35, 29, 30, 6
BAD_STATE, UNKNOWN_SESSION, UNKNOWN_GROUP, NOT_EMPTY = 121, 122, 69, 68

T, U = TopicId(b"t" * 16), TopicId(b"u" * 16)


def at(topic: TopicId, partition: int) -> StreamId:
    return StreamId(topic, PartitionIndex(partition))


class Shares:
    """Share groups that answer what they are told to, and remember what they were asked."""

    def __init__(self) -> None:
        self.asked: Any = None
        self.answer: Any = None
        self.gone: list[object] = []

    def _say(self, asked: Any) -> Any:
        self.asked = asked
        if isinstance(self.answer, MainstemError):
            raise self.answer
        return self.answer

    async def heartbeat(self, request: ShareHeartbeat) -> Any:
        return self._say(request)

    def describe(self, group_id: str) -> Any:
        return self._say(group_id)

    async def fetch(self, wish: ShareFetchCall) -> Any:
        return self._say(wish)

    async def acknowledge(self, wish: ShareAcknowledgeCall) -> Any:
        return self._say(wish)

    async def offsets(self, group_id: str, topics: Any) -> Any:
        return self._say((group_id, topics))

    async def alter_offsets(self, group_id: str, wanted: Sequence[ShareOffsetToAlter]) -> Any:
        return self._say((group_id, wanted))

    async def delete_offsets(self, group_id: str, topics: Sequence[str]) -> Any:
        return self._say((group_id, topics))


class Allows(AllRights):
    """May do everything, but with topics and groups only what is listed."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        return name in self.names

    def need(self, operation: Operation, kind: ResourceType, name: str) -> None:
        if name not in self.names:
            is_topic = kind is ResourceType.TOPIC
            code = ErrorCode.NOT_AUTHORIZED if is_topic else ErrorCode.GROUP_NOT_AUTHORIZED
            raise InvalidRequest(code, "no right to that", subject=name)


class ShareGroupsClient(HandlerClient):
    """A broker with topics ``t`` and ``u``, written by node 2, asked in bytes."""

    def __init__(self) -> None:
        self.shares = Shares()
        self.level = 1
        streams = [SimpleNamespace(writer=2, epoch=7)] * 2
        topics = {
            T: SimpleNamespace(id=T, name="t", streams=streams),
            U: SimpleNamespace(id=U, name="u", streams=streams),
        }
        node = SimpleNamespace(id=2, host="far", port=19092, rack="r", listeners=())
        broker = SimpleNamespace(
            shares=self.shares,
            cluster=SimpleNamespace(level=lambda name: self.level),
            topics=SimpleNamespace(by_id=topics.get, nodes=lambda: [node]),
            node=SimpleNamespace(id=1),
        )
        super().__init__(SERVED, broker)

    async def fetch(self, version: int = 2, **said: Any) -> Any:
        request = fetching.ShareFetchRequest(group_id="g", member_id="m")
        for name, value in said.items():
            setattr(request, name, value)
        return await self.ask(FETCH, version, request)

    async def acknowledge(self, *batches: tuple[int, int, list[int]], version: int = 2) -> Any:
        listed = [acking.AcknowledgementBatch(*batch) for batch in batches]
        part = acking.AcknowledgePartition(0, listed)
        request = acking.ShareAcknowledgeRequest(
            "g", "m", 3, False, [acking.AcknowledgeTopic(T, [part])]
        )
        return await self.ask(ACK, version, request)


def test_what_is_served_is_advertised_with_its_feature() -> None:
    assert {key: (s.min_version, s.max_version) for key, s in SERVED.items()} == {
        76: (1, 1), 77: (1, 1), 78: (1, 2), 79: (1, 2), 90: (0, 1), 91: (0, 0), 92: (0, 0),
    }  # fmt: skip
    assert FEATURES["share.version"] == Feature(0, 1, 1)


async def test_a_member_is_told_its_epoch_and_its_partitions() -> None:
    client = ShareGroupsClient()
    client.shares.answer = ShareAnswer("m", 4, 5_000, {T: frozenset({1, 0})})
    request = ShareGroupHeartbeatRequest("g", "m", 0, "rack", ["t"])
    answer = await client.ask(BEAT, 1, request)
    assert client.shares.asked == ShareHeartbeat(
        group_id="g", member_id="m", epoch=0, rack_id="rack", topics=("t",),
        client_id="c", client_host="/127.0.0.1",
    )  # fmt: skip
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m", 4, 5_000)
    [assigned] = answer.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (T, [0, 1])
    client.shares.answer = ShareAnswer("m", 4, 5_000, None)
    answer = await client.ask(BEAT, 1, ShareGroupHeartbeatRequest("g", "m", 4))
    assert (answer.assignment, client.shares.asked.topics) == (None, None)


async def test_groups_are_described_with_the_names_of_their_topics() -> None:
    client = ShareGroupsClient()
    member = DescribedShareMember("m", None, 3, "c", "/h", ("t",), {T: frozenset({1})})
    client.shares.answer = DescribedShareGroup("g", "Stable", 3, 3, "simple", (member,))
    [group] = (await client.ask(DESCRIBE, 1, ShareGroupDescribeRequest(["g"], True))).groups
    assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", 3, "simple")
    [shown] = group.members[0].assignment.topic_partitions
    assert (shown.topic_id, shown.topic_name, shown.partitions) == (T, "t", [1])
    assert group.authorized_operations == 1 << 3 | 1 << 6 | 1 << 8
    client.peer.rights = Allows("g")
    [group] = (await client.ask(DESCRIBE, 1, ShareGroupDescribeRequest(["g"]))).groups
    assert (group.error_code, group.members) == (TOPIC_DENIED, [])
    client.peer.rights = AllRights()
    client.shares.answer = InvalidRequest(ErrorCode.UNKNOWN_GROUP, "no such group")
    [group] = (await client.ask(DESCRIBE, 1, ShareGroupDescribeRequest(["g"]))).groups
    assert group.error_code == UNKNOWN_GROUP


@pytest.mark.parametrize("version", [1, 2])
async def test_a_fetch_brings_acknowledgements_and_takes_records(version: int) -> None:
    client = ShareGroupsClient()
    found = ShareFetched(at(T, 0), b"batches", [AcquiredRange(5, 8, 2), AcquiredRange(9, 10, 1)])
    client.shares.answer = ShareFetchAnswer(30_000, [found])
    batches = [
        fetching.AcknowledgementBatch(1, 3, [1]),
        fetching.AcknowledgementBatch(4, 5, [0, 2]),
    ]
    answer = await client.fetch(
        version, share_session_epoch=2, max_wait_ms=500, min_bytes=1, max_bytes=1_000,
        max_records=10, batch_size=20, share_acquire_mode=version - 1,
        topics=[
            fetching.FetchTopic(T, [fetching.FetchPartition(0, batches)]),
            fetching.FetchTopic(U, [fetching.FetchPartition(1)]),
        ],
        forgotten_topics_data=[fetching.ForgottenTopic(U, [0])],
    )  # fmt: skip
    wish = client.shares.asked
    assert (wish.group_id, wish.member_id, wish.session_epoch) == ("g", "m", 2)
    assert (wish.named, wish.forgotten) == ((at(T, 0), at(U, 1)), (at(U, 0),))
    assert wish.acknowledgements == {at(T, 0): [AckRange(1, 4, (1,)), AckRange(4, 6, (0, 2))]}
    assert (wish.max_wait_ms, wish.min_bytes, wish.max_bytes) == (500, 1, 1_000)
    assert (wish.max_records, wish.batch_size, wish.strict) == (10, 20, version == 2)
    assert wish.may_read("t")
    assert answer.acquisition_lock_timeout_ms == 30_000
    [topic] = answer.responses
    [part] = topic.partitions
    assert bytes(part.records) == b"batches"
    acquired = [(a.first_offset, a.last_offset, a.delivery_count) for a in part.acquired_records]
    assert acquired == [(5, 7, 2), (9, 9, 1)]


async def test_a_connection_is_the_same_in_all_its_requests_and_no_other_is() -> None:
    client, other = ShareGroupsClient(), ShareGroupsClient()
    for each in (client, other):
        each.shares.answer = ShareFetchAnswer(1, [])
        await each.fetch()
    first = client.shares.asked.connection
    await client.fetch()
    assert client.shares.asked.connection is first
    assert other.shares.asked.connection != first


async def test_what_makes_no_sense_is_refused_before_anything_counts() -> None:
    client = ShareGroupsClient()
    senseless: list[list[tuple[int, int, list[int]]]] = [
        [(5, 4, [1])],
        [(-1, 4, [1])],
        [(1, 2, [1]), (2, 3, [1])],
        [(7, 8, [1]), (1, 2, [1])],
        [(1, 3, [1, 1])],
        [(1, 3, [])],
        [(1, 3, [4])],
        [(1, 3, [-1])],
        [(1, 2, [1, 5])],
    ]
    for batches in senseless:
        client.shares.answer = ShareAcknowledgeAnswer(1, [])
        [topic] = (await client.acknowledge(*batches)).responses
        assert topic.partitions[0].error_code == INVALID_REQUEST, batches
        assert client.shares.asked.acknowledgements == {}


async def test_a_refused_acknowledgement_stands_beside_what_was_fetched() -> None:
    client = ShareGroupsClient()
    client.shares.answer = ShareFetchAnswer(1, [ShareFetched(at(T, 0), b"more")])
    wrong = fetching.FetchPartition(0, [fetching.AcknowledgementBatch(5, 4, [1])])
    alone = fetching.FetchPartition(1, [fetching.AcknowledgementBatch(5, 4, [1])])
    answer = await client.fetch(
        share_session_epoch=1, topics=[fetching.FetchTopic(T, [wrong, alone])]
    )
    assert [
        (part.partition_index, part.error_code, part.acknowledge_error_code, bytes(part.records))
        for part in answer.responses[0].partitions
    ] == [(0, 0, INVALID_REQUEST, b"more"), (1, 0, INVALID_REQUEST, b"")]


async def test_locks_are_extended_by_requests_that_say_so_and_fetch_nothing() -> None:
    client = ShareGroupsClient()
    client.shares.answer = ShareFetchAnswer(1, [])
    part = fetching.FetchPartition(0, [fetching.AcknowledgementBatch(1, 1, [4])])
    said: dict[str, Any] = {
        "share_session_epoch": 1, "is_renew_ack": True, "max_bytes": 0,
        "topics": [fetching.FetchTopic(T, [part])],
    }  # fmt: skip
    assert (await client.fetch(**said)).error_code == 0
    assert client.shares.asked.renews
    assert client.shares.asked.acknowledgements == {at(T, 0): [AckRange(1, 2, (4,))]}
    for more in ({"max_bytes": 1}, {"max_records": 1}, {"max_wait_ms": 1}, {"min_bytes": 1}):
        assert (await client.fetch(**said | more)).error_code == INVALID_REQUEST


async def test_clients_are_told_where_a_partition_moved_to() -> None:
    client = ShareGroupsClient()
    moved = Unavailable(ErrorCode.NOT_WRITER, "written elsewhere")
    client.shares.answer = ShareFetchAnswer(1, [ShareFetched(at(T, 1), error=moved)])
    answer = await client.fetch()
    [part] = answer.responses[0].partitions
    assert (part.error_code, part.current_leader.leader_id) == (NOT_LEADER, 2)
    assert part.current_leader.leader_epoch == 7
    [endpoint] = answer.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack) == (2, "far", 19092, "r")
    client.shares.answer = ShareAcknowledgeAnswer(1, [(at(T, 0), moved)])
    answer = await client.acknowledge((1, 1, [1]))
    [part] = answer.responses[0].partitions
    assert (part.error_code, part.current_leader.leader_id) == (NOT_LEADER, 2)
    assert [each.node_id for each in answer.node_endpoints] == [2]


async def test_every_partition_hears_what_became_of_its_acknowledgements() -> None:
    client = ShareGroupsClient()
    bad = InvalidRequest(ErrorCode.INVALID_RECORD_STATE, "not yours")
    client.shares.answer = ShareAcknowledgeAnswer(9, [(at(T, 0), bad), (at(T, 1), None)])
    answer = await client.acknowledge((1, 2, [1]))
    assert client.shares.asked.session_epoch == 3
    assert [part.error_code for part in answer.responses[0].partitions] == [BAD_STATE, 0]
    assert answer.acquisition_lock_timeout_ms == 9
    client.shares.answer = InvalidRequest(ErrorCode.UNKNOWN_SHARE_SESSION, "no session")
    assert (await client.acknowledge((1, 2, [1]))).error_code == UNKNOWN_SESSION
    assert (await client.fetch(share_session_epoch=5)).error_code == UNKNOWN_SESSION


async def test_a_member_that_does_not_say_who_it_is_is_refused() -> None:
    client = ShareGroupsClient()
    for said in ({"group_id": None}, {"member_id": None}, {"member_id": ""}):
        assert (await client.fetch(**said)).error_code == INVALID_REQUEST


@pytest.mark.parametrize("version", [0, 1])
async def test_positions_are_shown_with_what_is_left(version: int) -> None:
    client = ShareGroupsClient()
    client.shares.answer = [ShareOffset("t", 0, T, 5, 7, 12), ShareOffset("t", 1, T)]
    asked = describing.DescribeShareGroupOffsetsRequestGroup("g", None)
    request = describing.DescribeShareGroupOffsetsRequest([asked])
    [group] = (await client.ask(OFFSETS, version, request)).groups
    [topic] = group.topics
    assert (topic.topic_name, topic.topic_id) == ("t", T)
    lag = 12 if version else -1
    assert [
        (p.partition_index, p.start_offset, p.leader_epoch, p.lag) for p in topic.partitions
    ] == [
        (0, 5, 7, lag),
        (1, -1, 0, -1),
    ]
    assert client.shares.asked == ("g", None)


async def test_topics_that_a_client_may_not_see_are_left_out_or_refused_by_name() -> None:
    client = ShareGroupsClient()
    client.peer.rights = Allows("g", "t")
    client.shares.answer = [ShareOffset("t", 0, T, 5), ShareOffset("u", 0, U, 5)]
    asked = describing.DescribeShareGroupOffsetsRequestGroup("g", None)
    request = describing.DescribeShareGroupOffsetsRequest([asked])
    [group] = (await client.ask(OFFSETS, 1, request)).groups
    assert [topic.topic_name for topic in group.topics] == ["t"]
    asked.topics = [
        describing.DescribeShareGroupOffsetsRequestTopic("t", [0]),
        describing.DescribeShareGroupOffsetsRequestTopic("u", [0]),
    ]
    client.shares.answer = [ShareOffset("t", 0, T, 5)]
    [group] = (await client.ask(OFFSETS, 1, request)).groups
    found = {topic.topic_name: topic.partitions[0].error_code for topic in group.topics}
    assert found == {"t": 0, "u": TOPIC_DENIED}
    assert client.shares.asked == ("g", [("t", [0])])


async def test_positions_are_moved_and_forgotten_where_the_client_may_read() -> None:
    client = ShareGroupsClient()
    client.peer.rights = Allows("g", "t")
    client.shares.answer = [ShareOffset("t", 0, T, 3)]
    part = altering.AlterShareGroupOffsetsRequestPartition(0, 3)
    topics = [altering.AlterShareGroupOffsetsRequestTopic(name, [part]) for name in ("t", "u")]
    answer = await client.ask(ALTER, 0, altering.AlterShareGroupOffsetsRequest("g", topics))
    found = {each.topic_name: each.partitions[0].error_code for each in answer.responses}
    assert found == {"t": 0, "u": TOPIC_DENIED}
    assert client.shares.asked == ("g", [ShareOffsetToAlter("t", 0, 3)])
    client.shares.answer = [ShareOffsetsDeleted("t", T)]
    names = [deleting.DeleteShareGroupOffsetsRequestTopic(name) for name in ("t", "u")]
    answer = await client.ask(DELETE, 0, deleting.DeleteShareGroupOffsetsRequest("g", names))
    assert {each.topic_name: each.error_code for each in answer.responses} == {
        "t": 0,
        "u": TOPIC_DENIED,
    }
    client.shares.answer = InvalidRequest(ErrorCode.GROUP_NOT_EMPTY, "it has members")
    answer = await client.ask(ALTER, 0, altering.AlterShareGroupOffsetsRequest("g", topics))
    assert answer.error_code == NOT_EMPTY
    answer = await client.ask(DELETE, 0, deleting.DeleteShareGroupOffsetsRequest("g", names))
    assert answer.error_code == NOT_EMPTY


REQUESTS = {
    BEAT: (1, ShareGroupHeartbeatRequest("g", "m", 0, None, ["t"])),
    DESCRIBE: (1, ShareGroupDescribeRequest(["g"])),
    FETCH: (2, fetching.ShareFetchRequest("g", "m")),
    ACK: (2, acking.ShareAcknowledgeRequest("g", "m")),
    OFFSETS: (1, describing.DescribeShareGroupOffsetsRequest(
        [describing.DescribeShareGroupOffsetsRequestGroup("g", None)])),
    ALTER: (0, altering.AlterShareGroupOffsetsRequest("g")),
    DELETE: (0, deleting.DeleteShareGroupOffsetsRequest("g")),
}  # fmt: skip


@pytest.mark.parametrize("api_key", REQUESTS)
async def test_nothing_is_done_without_the_right_to_the_group_or_while_it_is_off(
    api_key: int,
) -> None:
    client = ShareGroupsClient()
    version, request = REQUESTS[api_key]
    for code in (GROUP_DENIED, UNSUPPORTED):
        client.peer.rights = Allows("t") if code == GROUP_DENIED else AllRights()
        client.level = 1 if code == GROUP_DENIED else 0
        answer = await client.ask(api_key, version, request)
        said = answer.groups[0] if api_key in (DESCRIBE, OFFSETS) else answer
        assert said.error_code == code
    assert client.shares.asked is None


async def test_a_member_may_not_ask_for_topics_that_it_may_not_see() -> None:
    client = ShareGroupsClient()
    client.peer.rights = Allows("g")
    answer = await client.ask(BEAT, 1, ShareGroupHeartbeatRequest("g", "m", 0, None, ["t"]))
    assert (answer.error_code, client.shares.asked) == (TOPIC_DENIED, None)


class Quiet:
    """A connection that nothing is sent through."""

    def send(self, chunks: Sequence[Any]) -> None:
        raise AssertionError("nothing was asked")

    def soon(self, call: Any) -> None:
        raise AssertionError("nothing was asked")


def test_what_a_connection_holds_is_given_back_once_when_it_ends() -> None:
    client = ShareGroupsClient()
    gone: list[object] = []
    quiet: Any = Quiet()
    client.broker.shares = SimpleNamespace(disconnected=gone.append)
    client.broker.streams = client.broker.transactions = SimpleNamespace()
    service = KafkaService(client.broker, {}, Metrics(), 1_000)
    KafkaSession(quiet, client.peer, service, quiet, quiet.soon).closed()
    assert gone == [], "it never asked share groups for anything"
    token = client.peer.shares()
    session = KafkaSession(quiet, client.peer, service, quiet, quiet.soon)
    session.closed()
    session.closed()
    assert gone == [token]
