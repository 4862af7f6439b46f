"""Where partitions are and who leads them.

ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments, AlterReplicaLogDirs. On one
node every partition is led by its preferred replica and is where it can be: what asks for just that
succeeds or is not needed, anything else names a node or a folder that is not there.
"""

from collections.abc import Sequence

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.metadata import Stream
from mainstem.protocols.kafka.call import Call, Served
from mainstem.protocols.kafka.errors import NONE, kafka_code, kafka_message
from mainstem.security.acl import Operation
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
)
from mainstem.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

_PREFERRED, _UNCLEAN = 0, 1
_NAMED_MAX = 10
"""A refusal repeats no more of what was sent than this."""


# ElectLeaders


def elect_leaders(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Let partitions be led by their preferred replica, or by any at all: they are already."""
    try:
        call.need_cluster(Operation.ALTER)
        if request.election_type not in (_PREFERRED, _UNCLEAN):
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST, f"an election of type {request.election_type}"
            )
    except MainstemError as error:
        return _no_election(request, error)
    if request.topic_partitions is None:
        # Of all partitions, those that need no election are not listed.
        return ElectLeadersResponse(replica_election_results=[])
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                asked.topic, [_elected(call, asked.topic, number) for number in asked.partitions]
            )
            for asked in request.topic_partitions
        ]
    )


def _no_election(request: ElectLeadersRequest, error: MainstemError) -> ElectLeadersResponse:
    """The refusal of a whole request; version 0 has room for it only at the partitions."""
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


def _elected(call: Call, topic: str, partition: int) -> PartitionResult:
    try:
        stream = _stream(call, topic, partition)
        if stream.writer != stream.last.replicas[0]:
            raise InvalidRequest(
                ErrorCode.WRITER_UNAVAILABLE, "the preferred replica cannot lead now"
            )
        raise InvalidRequest(ErrorCode.ELECTION_NOT_NEEDED, "its preferred replica leads it")
    except MainstemError as error:
        return PartitionResult(partition, kafka_code(error), kafka_message(error))


# AlterPartitionReassignments and ListPartitionReassignments


def alter_partition_reassignments(
    call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Move partitions to other nodes."""
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
                    _reassigned(call, asked.name, partition, same_count=same_count)
                    for partition in asked.partitions
                ],
            )
            for asked in request.topics
        ],
    )


def _reassigned(
    call: Call, topic: str, asked: ReassignablePartition, *, same_count: bool
) -> ReassignablePartitionResponse:
    try:
        stream = _stream(call, topic, asked.partition_index)
        if asked.replicas is None:
            raise InvalidRequest(ErrorCode.NO_REASSIGNMENT, "it is not on its way anywhere")
        held = stream.last.replicas
        _check_replicas(call, asked.replicas)
        if same_count and len(asked.replicas) != len(held):
            raise InvalidRequest(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{len(asked.replicas)} replicas instead of {len(held)}",
                subject=topic,
            )
        if set(asked.replicas) != set(held):
            raise InvalidRequest(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "the nodes named are registered but do not run",
                subject=topic,
            )
    except MainstemError as error:
        return ReassignablePartitionResponse(
            asked.partition_index, kafka_code(error), kafka_message(error)
        )
    return ReassignablePartitionResponse(asked.partition_index)


def _check_replicas(call: Call, replicas: Sequence[int]) -> None:
    known = {int(node.id) for node in call.broker.topics.nodes()}
    cause = ""
    if not replicas:
        cause = "a partition needs a replica"
    elif len(set(replicas)) != len(replicas):
        cause = "a node is named twice"
    elif unknown := sorted(set(replicas) - known)[:_NAMED_MAX]:
        cause = f"there is no node {', '.join(map(str, unknown))}"
    if cause:
        raise InvalidRequest(ErrorCode.INVALID_REPLICA_ASSIGNMENT, cause)


def list_partition_reassignments(
    call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Partitions on their way to other nodes. A move is over when it is answered: none."""
    del request
    try:
        call.need_cluster(Operation.DESCRIBE)
    except MainstemError as error:
        return ListPartitionReassignmentsResponse(
            error_code=kafka_code(error), error_message=kafka_message(error), topics=[]
        )
    return ListPartitionReassignmentsResponse(topics=[])


# AlterReplicaLogDirs


def alter_replica_log_dirs(
    call: Call, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Move partitions to another folder of this node, which has one."""
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
        raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC, "there is no such partition", subject=name)
    return topic.streams[partition]


SERVED = {
    34: Served(alter_replica_log_dirs, 1, 2),
    43: Served(elect_leaders, 0, 2),
    45: Served(alter_partition_reassignments, 0, 1),
    46: Served(list_partition_reassignments, 0, 0),
}
