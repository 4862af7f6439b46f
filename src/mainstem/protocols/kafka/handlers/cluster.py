"""Metadata, DescribeCluster, DescribeTopicPartitions and DescribeLogDirs."""

from asyncio import gather
from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.ids import NO_NODE, NO_TOPIC_ID, NodeId, TopicId
from mainstem.model.metadata import Stream, Topic
from mainstem.protocols.kafka.advertised_address import reached_at
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import NONE, kafka_code
from mainstem.security.authorisation.acl import CLUSTER_NAME, Operation, ResourceType
from mainstem.wire.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from mainstem.wire.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from mainstem.wire.kafka.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)
from mainstem.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

# All possible operations, as bits by number; responses have those that the client may do.
# Topic: read, write, create, delete, alter, describe, describe and alter configs.
TOPIC_OPERATIONS = 0b1101_1111_1000
# Cluster: create, alter, describe, act as node, describe and alter configs, idempotent write.
CLUSTER_OPERATIONS = 0b1_1111_1010_0000
NOT_ASKED = -(2**31)

ENDPOINT_BROKERS = 1
ENDPOINT_CONTROLLERS = 2
MISMATCHED_ENDPOINT_TYPE = 114
UNSUPPORTED_ENDPOINT_TYPE = 115

PARTITIONS_PER_RESPONSE_MAX = 2_000
_FIRST_WITH_NULLABLE_NAME = 12


# Metadata


def metadata(
    call: Call, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse]:
    """Describe nodes and the requested topics; missing topics may be created.

    Clients send Metadata when a node disconnects, and repeat it only much later if the response
    still names the old writer: such a response waits briefly for the next writer.
    """
    settled = call.broker.cluster.settled()
    return _metadata(call, request) if settled is None else _metadata_then(call, request, settled)


async def _metadata_then(
    call: Call, request: MetadataRequest, settled: Awaitable[None]
) -> MetadataResponse:
    await settled
    answer = _metadata(call, request)
    return answer if isinstance(answer, MetadataResponse) else await answer


def _metadata(
    call: Call, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse]:
    topics = call.broker.topics
    everything = request.topics is None or (call.version == 0 and not request.topics)
    operations = request.include_topic_authorized_operations
    response = _cluster_metadata(call, request)
    if everything:
        response.topics = [
            _topic_metadata(call, topic, operations=operations)
            for topic in topics.all()
            if call.may_topic(Operation.DESCRIBE, topic.name)
        ]
        return response
    # Deduplicated: a small request could otherwise repeat a name very often.
    asked = list({(topic.topic_id, topic.name): topic for topic in request.topics or []}.values())
    if request.allow_auto_topic_creation and any(_is_missing(call, topic) for topic in asked):
        return _metadata_creating(call, asked, response, operations=operations)
    response.topics = [_answer(call, topic, operations=operations) for topic in asked]
    return response


async def _metadata_creating(
    call: Call,
    asked: Sequence[MetadataRequestTopic],
    response: MetadataResponse,
    *,
    operations: bool,
) -> MetadataResponse:
    missing = {topic.name for topic in asked if topic.name and _is_missing(call, topic)}
    # Concurrently, so that the new topics share one sync.
    refused = dict(zip(missing, await gather(*(_ensure(call, n) for n in missing)), strict=True))
    response.topics = [
        _answer(call, t, refused.get(t.name or ""), operations=operations) for t in asked
    ]
    return response


async def _ensure(call: Call, name: str) -> MainstemError | None:
    try:
        if not call.may_cluster(Operation.CREATE):
            call.need_topic(Operation.CREATE, name)
        if call.broker.topics.deleted.take(name):
            # As in Kafka: clients get an error, and create the topic again if they continue.
            return InvalidRequest(ErrorCode.UNKNOWN_TOPIC, "the topic was deleted", subject=name)
        await call.broker.topics.ensure(name)
    except MainstemError as error:
        return error
    return None


def _cluster_metadata(call: Call, request: MetadataRequest) -> MetadataResponse:
    brokers = []
    for node in (*call.broker.topics.nodes(), *call.broker.cluster.lost_lately()):
        host, port = reached_at(call, node)
        brokers.append(MetadataResponseBroker(node.id, host, port, node.rack))
    return MetadataResponse(
        brokers=brokers,
        cluster_id=call.broker.topics.cluster_id(),
        controller_id=call.broker.cluster.controller(),
        topics=[],
        cluster_authorized_operations=_of_cluster(
            call, asked=request.include_cluster_authorized_operations
        ),
    )


def _of_cluster(call: Call, *, asked: bool) -> int:
    if not asked:
        return NOT_ASKED
    return call.operations(ResourceType.CLUSTER, CLUSTER_NAME) & CLUSTER_OPERATIONS


def _of_topic(call: Call, name: str, *, asked: bool) -> int:
    if not asked:
        return NOT_ASKED
    return call.operations(ResourceType.TOPIC, name) & TOPIC_OPERATIONS


def _is_missing(call: Call, asked: MetadataRequestTopic) -> bool:
    """Whether the client may see the requested topic and it does not exist."""
    by_name = asked.topic_id == NO_TOPIC_ID and asked.name is not None
    name = asked.name or ""
    missing = by_name and call.broker.topics.by_name(name) is None
    return missing and call.may_topic(Operation.DESCRIBE, name)


def _answer(
    call: Call,
    asked: MetadataRequestTopic,
    refusal: MainstemError | None = None,
    *,
    operations: bool,
) -> MetadataResponseTopic:
    topics = call.broker.topics
    if asked.topic_id != NO_TOPIC_ID:
        topic = topics.by_id(TopicId(asked.topic_id))
        if topic is None or not call.may_topic(Operation.DESCRIBE, topic.name):
            name = None if call.version >= _FIRST_WITH_NULLABLE_NAME else ""
            return _no_topic(name, asked.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        return _topic_metadata(call, topic, operations=operations)
    if asked.name is None:
        return _no_topic(None, NO_TOPIC_ID, ErrorCode.INVALID_REQUEST)
    try:
        call.need_topic(Operation.DESCRIBE, asked.name)
    except MainstemError as error:
        return _no_topic(asked.name, NO_TOPIC_ID, error.code)
    topic = topics.by_name(asked.name)
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC if refusal is None else refusal.code
        return _no_topic(asked.name, NO_TOPIC_ID, code)
    return _topic_metadata(call, topic, operations=operations)


def _no_topic(name: str | None, topic_id: bytes, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=kafka_code(code), name=name, topic_id=topic_id, partitions=[]
    )


def _topic_metadata(call: Call, topic: Topic, *, operations: bool) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=[_partition_metadata(call, stream) for stream in topic.streams],
        topic_authorized_operations=_of_topic(call, topic.name, asked=operations),
    )


def _partition_metadata(call: Call, stream: Stream) -> MetadataResponsePartition:
    copies = _copies(call, stream)
    return MetadataResponsePartition(
        error_code=NONE if stream.writer != NO_NODE else kafka_code(ErrorCode.WRITER_UNAVAILABLE),
        partition_index=stream.id.partition,
        leader_id=stream.writer,
        leader_epoch=stream.epoch,
        replica_nodes=copies.replicas,
        isr_nodes=copies.in_sync,
        offline_replicas=copies.offline,
    )


class _Copies(NamedTuple):
    """The replicas of a stream as Kafka shows them."""

    replicas: list[int]
    in_sync: list[int]
    offline: list[int]


def _copies(call: Call, stream: Stream) -> _Copies:
    """Replicas of a stream (assigned or held), those in sync, and those offline."""
    held = stream.last.replicas
    replicas = [int(node) for node in dict.fromkeys((*stream.wanted, *held))]
    away = {int(node) for node in replicas if not call.broker.cluster.is_live(NodeId(node))}
    in_sync = [int(node) for node in held if node not in away]
    return _Copies(replicas, in_sync, sorted(away))


# DescribeCluster


def describe_cluster(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """The nodes of the cluster. All of them are brokers; no separate controllers exist."""
    topics = call.broker.topics
    if request.endpoint_type != ENDPOINT_BROKERS:
        known = request.endpoint_type == ENDPOINT_CONTROLLERS
        return DescribeClusterResponse(
            error_code=MISMATCHED_ENDPOINT_TYPE if known else UNSUPPORTED_ENDPOINT_TYPE,
            error_message="only endpoint type 1 (brokers) is supported",
            endpoint_type=ENDPOINT_BROKERS,
            brokers=[],
        )
    brokers = []
    for node in topics.nodes():
        host, port = reached_at(call, node)
        brokers.append(DescribeClusterBroker(node.id, host, port, node.rack))
    return DescribeClusterResponse(
        endpoint_type=ENDPOINT_BROKERS,
        cluster_id=topics.cluster_id(),
        controller_id=call.broker.cluster.controller(),
        brokers=brokers,
        cluster_authorized_operations=_of_cluster(
            call, asked=request.include_cluster_authorized_operations
        ),
    )


# DescribeTopicPartitions


def describe_topic_partitions(
    call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Partitions in the order of topic names, in pages; a cursor starts the next page."""
    topics = call.broker.topics
    names = {topic.name for topic in request.topics}
    if not names:
        names = {t.name for t in topics.all() if call.may_topic(Operation.DESCRIBE, t.name)}
    from_name, from_partition = "", 0
    if request.cursor is not None:
        from_name, from_partition = request.cursor.topic_name, request.cursor.partition_index
        if from_partition < 0:
            refused = [_no_partitions(name, ErrorCode.INVALID_REQUEST) for name in sorted(names)]
            return DescribeTopicPartitionsResponse(topics=refused)
    left = max(1, min(request.response_partition_limit, PARTITIONS_PER_RESPONSE_MAX))
    response = DescribeTopicPartitionsResponse(topics=[])
    for name in sorted(name for name in names if name >= from_name):
        first = from_partition if name == from_name else 0
        if left == 0:
            response.next_cursor = ResponseCursor(name, first)
            break
        if not call.may_topic(Operation.DESCRIBE, name):
            response.topics.append(_no_partitions(name, ErrorCode.NOT_AUTHORIZED))
            continue
        topic = topics.by_name(name)
        if topic is None:
            response.topics.append(_no_partitions(name, ErrorCode.UNKNOWN_TOPIC))
            continue
        shown = topic.streams[first : first + left]
        left -= len(shown)
        response.topics.append(_topic_partitions(call, topic, shown))
        if first + len(shown) < len(topic.streams):
            response.next_cursor = ResponseCursor(name, first + len(shown))
            break
    return response


def _no_partitions(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=kafka_code(code), name=name, partitions=[]
    )


def _topic_partitions(
    call: Call, topic: Topic, streams: Sequence[Stream]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=[_described_partition(call, stream) for stream in streams],
        topic_authorized_operations=_of_topic(call, topic.name, asked=True),
    )


def _described_partition(call: Call, stream: Stream) -> DescribeTopicPartitionsResponsePartition:
    copies = _copies(call, stream)
    return DescribeTopicPartitionsResponsePartition(
        error_code=NONE if stream.writer != NO_NODE else kafka_code(ErrorCode.WRITER_UNAVAILABLE),
        partition_index=stream.id.partition,
        leader_id=stream.writer,
        leader_epoch=stream.epoch,
        replica_nodes=copies.replicas,
        isr_nodes=copies.in_sync,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=copies.offline,
    )


# DescribeLogDirs


def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """The size of each partition on this node's disk."""
    try:
        call.need_cluster(Operation.DESCRIBE)
    except MainstemError as error:
        return DescribeLogDirsResponse(error_code=kafka_code(error), results=[])
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, part) for topic in request.topics for part in topic.partitions}
    found: dict[str, list[DescribeLogDirsPartition]] = {}
    for name, partition, size_bytes in call.broker.streams.sizes():
        if wanted is None or (name, partition) in wanted:
            entry = DescribeLogDirsPartition(partition_index=partition, partition_size=size_bytes)
            found.setdefault(name, []).append(entry)
    directory = call.broker.topics.log_directory()
    result = DescribeLogDirsResult(
        log_dir=directory.path,
        topics=[DescribeLogDirsTopic(name, parts) for name, parts in found.items()],
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )
    return DescribeLogDirsResponse(results=[result])


SERVED = {
    3: ApiHandler(metadata, 0, 13),
    35: ApiHandler(describe_log_dirs, 1, 5),
    60: ApiHandler(describe_cluster, 0, 2),
    75: ApiHandler(describe_topic_partitions, 0, 0),
}
