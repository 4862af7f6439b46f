"""ListOffsets and OffsetForLeaderEpoch: offsets by position, timestamp and epoch."""

from mainstem.broker.api.broker import PartitionWriter, check_fresh
from mainstem.model.errors import ErrorCode, Fenced, MainstemError
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import kafka_code
from mainstem.security.authorisation.acl import Operation
from mainstem.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from mainstem.wire.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
READ_COMMITTED = 1

Answer = tuple[int, int, int]  # offset, timestamp, epoch
_NOTHING: Answer = (-1, -1, -1)


def list_offsets(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """The offset of each partition for the requested timestamp."""
    response = ListOffsetsResponse(topics=[])
    committed_only = request.isolation_level == READ_COMMITTED
    for topic in request.topics:
        answer = ListOffsetsTopicResponse(name=topic.name, partitions=[])
        response.topics.append(answer)
        for part in topic.partitions:
            reply = ListOffsetsPartitionResponse(partition_index=part.partition_index)
            answer.partitions.append(reply)
            try:
                call.need_topic(Operation.DESCRIBE, topic.name)
                log = call.broker.streams.partition(topic.name, part.partition_index)
                check_epoch(log, part.current_leader_epoch)
                found = _offset_at(log, part, committed_only=committed_only)
            except MainstemError as error:
                reply.error_code = kafka_code(error)
                found = _NOTHING
            reply.offset, reply.timestamp, reply.leader_epoch = found
    return response


def offset_for_leader_epoch(
    call: Call, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """The end offset of each epoch, by which consumers detect truncation."""
    response = OffsetForLeaderEpochResponse(topics=[])
    for topic in request.topics:
        answer = OffsetForLeaderTopicResult(topic=topic.topic, partitions=[])
        response.topics.append(answer)
        for part in topic.partitions:
            reply = EpochEndOffset(partition=part.partition, leader_epoch=-1, end_offset=-1)
            answer.partitions.append(reply)
            try:
                call.need_topic(Operation.DESCRIBE, topic.topic)
                log = call.broker.streams.partition(topic.topic, part.partition)
                check_epoch(log, part.current_leader_epoch)
                reply.leader_epoch, reply.end_offset = log.end_of_epoch(part.leader_epoch)
            except MainstemError as error:
                reply.error_code = kafka_code(error)
    return response


def check_epoch(log: PartitionWriter, epoch: int) -> None:
    """Refuse a client whose epoch is older or newer than ours; ours may be stale."""
    check_fresh(log)
    if epoch not in (-1, log.epoch):
        raise Fenced(
            ErrorCode.FENCED_EPOCH if epoch < log.epoch else ErrorCode.UNKNOWN_EPOCH,
            f"epoch {epoch} is not the writer's epoch {log.epoch}",
        )


def _offset_at(log: PartitionWriter, part: ListOffsetsPartition, *, committed_only: bool) -> Answer:
    asked = part.timestamp
    if asked == LATEST:
        end = log.last_stable if committed_only else log.committed
        return end, -1, log.epoch
    if asked in (EARLIEST, EARLIEST_LOCAL):
        start = log.start_offset
        return start, -1, max(log.epoch_of(start), 0)
    if asked == LATEST_TIERED:
        return _NOTHING  # there is no tiered storage
    found = (
        log.offset_of_max_timestamp() if asked == MAX_TIMESTAMP else log.offset_for_timestamp(asked)
    )
    return found or _NOTHING


SERVED = {
    2: ApiHandler(list_offsets, 1, 11),
    23: ApiHandler(offset_for_leader_epoch, 2, 4),
}
