"""Leaders and replicas of partitions.

ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments, AlterReplicaLogDirs. An
election is complete when the response is sent; a reassignment runs in the background and is listed
until the new nodes hold all data.
"""

from collections.abc import Awaitable, Sequence

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.ids import NO_NODE, NodeId
from mainstem.model.metadata import Stream
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import NONE, kafka_code, kafka_message
from mainstem.security.authorisation.acl import Operation
from mainstem.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from mainstem.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from mainstem.wire.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from mainstem.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

_PREFERRED, _UNCLEAN = 0, 1
_NAMED_MAX = 10
"""An error message quotes at most this many characters of the request."""


# ElectLeaders


def elect_leaders(
    call: Call, request: ElectLeadersRequest
) -> ElectLeadersResponse | Awaitable[ElectLeadersResponse]:
    """Elect the preferred replica, or for partitions without a leader any replica."""
    try:
        call.need_cluster(Operation.ALTER)
        if request.election_type not in (_PREFERRED, _UNCLEAN):
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST, f"unknown election type {request.election_type}"
            )
    except MainstemError as error:
        return _no_election(request, error)
    return _elect(call, request)


async def _elect(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    unclean = request.election_type == _UNCLEAN
    asked = request.topic_partitions
    if asked is None:
        # A request for all partitions does not list those that need no election.
        wanting = [
            TopicPartitions(topic.name, [s.id.partition for s in topic.streams if _wants(s)])
            for topic in call.broker.topics.all()
        ]
        asked = [each for each in wanting if each.partitions]
    named = [(each.topic, number) for each in asked for number in each.partitions]
    found = await _elected(call, named, unclean=unclean, timeout_ms=request.timeout_ms)
    results = dict(zip(named, found, strict=True))
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(each.topic, [results[each.topic, n] for n in each.partitions])
            for each in asked
        ]
    )


def _wants(stream: Stream) -> bool:
    return stream.writer != stream.wanted[0]


def _no_election(request: ElectLeadersRequest, error: MainstemError) -> ElectLeadersResponse:
    """The error of a whole request; version 0 has error fields only at the partitions."""
    code, message = kafka_code(error), kafka_message(error)
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                asked.topic, [PartitionResult(number, code, message) for number in asked.partitions]
            )
            for asked in request.topic_partitions or ()
        ],
    )


async def _elected(
    call: Call, named: Sequence[tuple[str, int]], *, unclean: bool, timeout_ms: int
) -> list[PartitionResult]:
    streams: dict[tuple[str, int], Stream] = {}
    refused: dict[tuple[str, int], MainstemError] = {}
    for place in named:
        try:
            stream = streams[place] = _stream(call, *place)
            if stream.writer != NO_NODE and (unclean or not _wants(stream)):
                raise InvalidRequest(
                    ErrorCode.ELECTION_NOT_NEEDED, "the partition needs no election"
                )
        except MainstemError as error:
            refused[place] = error
    open_ids = [streams[place].id for place in streams if place not in refused]
    try:
        cluster = call.broker.cluster
        changed = (
            await cluster.elect(open_ids, unclean=unclean, timeout_ms=timeout_ms)
            if open_ids
            else ()
        )
    except MainstemError as error:
        refused |= {place: error for place in named if place not in refused}
        changed = ()
    for place in named:
        if place not in refused and streams[place].id not in changed:
            refused[place] = InvalidRequest(
                ErrorCode.WRITER_UNAVAILABLE, "no eligible replica is available"
            )
    return [
        PartitionResult(place[1], kafka_code(refused[place]), kafka_message(refused[place]))
        if place in refused
        else PartitionResult(place[1], NONE, None)
        for place in named
    ]


# AlterPartitionReassignments and ListPartitionReassignments


async def alter_partition_reassignments(
    call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Move partitions to other nodes, or cancel their reassignment."""
    try:
        call.need_cluster(Operation.ALTER)
    except MainstemError as error:
        return AlterPartitionReassignmentsResponse(
            error_code=kafka_code(error), error_message=kafka_message(error), responses=[]
        )
    same_count = call.version >= 1 and not request.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                asked.name,
                [
                    await _reassigned(call, asked.name, partition, same_count=same_count)
                    for partition in asked.partitions
                ],
            )
            for asked in request.topics
        ],
    )


async def _reassigned(
    call: Call, topic: str, asked: ReassignablePartition, *, same_count: bool
) -> ReassignablePartitionResponse:
    try:
        stream = _stream(call, topic, asked.partition_index)
        wanted: tuple[NodeId, ...] | None = None
        if asked.replicas is None:
            if not _is_moving(stream):
                raise InvalidRequest(ErrorCode.NO_REASSIGNMENT, "no reassignment is in progress")
        else:
            _check_replicas(call, asked.replicas)
            if same_count and len(asked.replicas) != len(stream.wanted):
                raise InvalidRequest(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"{len(asked.replicas)} replicas instead of {len(stream.wanted)}",
                    subject=topic,
                )
            wanted = tuple(NodeId(node) for node in asked.replicas)
        if wanted != stream.wanted:
            await call.broker.cluster.reassign(stream.id, wanted)
    except MainstemError as error:
        return ReassignablePartitionResponse(
            asked.partition_index, kafka_code(error), kafka_message(error)
        )
    return ReassignablePartitionResponse(asked.partition_index)


def _is_moving(stream: Stream) -> bool:
    return set(stream.wanted) != set(stream.last.replicas) or any(
        held.replicating for held in stream.ranges
    )


def _check_replicas(call: Call, replicas: Sequence[int]) -> None:
    known = {int(node.id) for node in call.broker.topics.nodes()}
    cause = ""
    if not replicas:
        cause = "a partition needs a replica"
    elif len(set(replicas)) != len(replicas):
        cause = "a node is named twice"
    elif unknown := sorted(set(replicas) - known)[:_NAMED_MAX]:
        cause = f"unknown node {', '.join(map(str, unknown))}"
    if cause:
        raise InvalidRequest(ErrorCode.INVALID_REPLICA_ASSIGNMENT, cause)


def list_partition_reassignments(
    call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """List partitions that are being moved to other nodes."""
    try:
        call.need_cluster(Operation.DESCRIBE)
    except MainstemError as error:
        return ListPartitionReassignmentsResponse(
            error_code=kafka_code(error), error_message=kafka_message(error), topics=[]
        )
    wanted = None
    if request.topics is not None:
        wanted = {
            (each.name, number) for each in request.topics for number in each.partition_indexes
        }
    found = []
    for topic in call.broker.topics.all():
        moving = [
            _moving(stream)
            for stream in topic.streams
            if _is_moving(stream)
            and (wanted is None or (topic.name, stream.id.partition) in wanted)
        ]
        if moving:
            found.append(OngoingTopicReassignment(topic.name, moving))
    return ListPartitionReassignmentsResponse(topics=found)


def _moving(stream: Stream) -> OngoingPartitionReassignment:
    held = stream.last.replicas
    copying = {node for each in stream.ranges for node in each.replicating}
    return OngoingPartitionReassignment(
        partition_index=stream.id.partition,
        replicas=[int(node) for node in dict.fromkeys((*stream.wanted, *held))],
        adding_replicas=[int(n) for n in stream.wanted if n not in held or n in copying],
        removing_replicas=[int(n) for n in held if n not in stream.wanted],
    )


# AlterReplicaLogDirs


def alter_replica_log_dirs(
    call: Call, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Move partitions to another folder of this node; it has one folder only."""
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic.name,
                [
                    AlterReplicaLogDirPartitionResult(
                        number, _moved(call, asked.path, topic.name, number)
                    )
                    for number in topic.partitions
                ],
            )
            for asked in request.dirs
            for topic in asked.topics
        ]
    )


def _moved(call: Call, path: str, topic: str, partition: int) -> int:
    try:
        call.need_cluster(Operation.ALTER)
        if path != call.broker.topics.log_directory().path:
            raise InvalidRequest(ErrorCode.INVALID_DIRECTORY, "this node has no such folder")
        _stream(call, topic, partition)
    except MainstemError as error:
        return kafka_code(error)
    return NONE


def _stream(call: Call, name: str, partition: int) -> Stream:
    topic = call.broker.topics.by_name(name)
    if topic is None or not 0 <= partition < len(topic.streams):
        raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC, "no such partition", subject=name)
    return topic.streams[partition]


SERVED = {
    34: ApiHandler(alter_replica_log_dirs, 1, 2),
    43: ApiHandler(elect_leaders, 0, 2),
    45: ApiHandler(alter_partition_reassignments, 0, 1),
    46: ApiHandler(list_partition_reassignments, 0, 0),
}
