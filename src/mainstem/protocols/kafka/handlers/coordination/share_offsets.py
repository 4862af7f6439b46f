"""Offsets of share groups: Describe-, Alter- and DeleteShareGroupOffsets."""

from collections.abc import Iterable, Sequence

from mainstem.broker.api.share_groups import ShareOffset, ShareOffsetsDeleted, ShareOffsetToAlter
from mainstem.model.errors import MainstemError
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import kafka_code, kafka_message
from mainstem.protocols.kafka.handlers.coordination.share_groups import need_shares
from mainstem.security.authorisation.acl import Operation
from mainstem.wire.kafka.messages import alter_share_group_offsets as altering
from mainstem.wire.kafka.messages import delete_share_group_offsets as deleting
from mainstem.wire.kafka.messages import describe_share_group_offsets as describing


async def describe_share_group_offsets(
    call: Call, request: describing.DescribeShareGroupOffsetsRequest
) -> describing.DescribeShareGroupOffsetsResponse:
    """Start offsets and lag of share groups."""
    response = describing.DescribeShareGroupOffsetsResponse(groups=[])
    for asked in request.groups:
        answer = describing.DescribeShareGroupOffsetsResponseGroup(
            group_id=asked.group_id, topics=[]
        )
        response.groups.append(answer)
        try:
            need_shares(call)
            call.need_group(Operation.DESCRIBE, asked.group_id)
            answer.topics = _described(await _offsets(call, asked))
        except MainstemError as error:
            answer.error_code, answer.error_message = kafka_code(error), kafka_message(error)
    return response


async def _offsets(
    call: Call, asked: describing.DescribeShareGroupOffsetsRequestGroup
) -> Sequence[ShareOffset]:
    """The offsets that the client may see; named topics that it may not see are refused."""
    if asked.topics is None:
        every = await call.broker.shares.offsets(asked.group_id, None)
        return [each for each in every if call.may_topic(Operation.DESCRIBE, each.topic)]
    found: list[ShareOffset] = []
    wanted: list[tuple[str, Sequence[int]]] = []
    for topic in asked.topics:
        refusal = _refusal(call, Operation.DESCRIBE, topic.topic_name)
        if refusal is None:
            wanted.append((topic.topic_name, topic.partitions))
        else:
            found += [
                ShareOffset(topic.topic_name, partition, error=refusal)
                for partition in topic.partitions
            ]
    found += await call.broker.shares.offsets(asked.group_id, wanted)
    return found


def _described(
    offsets: Iterable[ShareOffset],
) -> list[describing.DescribeShareGroupOffsetsResponseTopic]:
    topics: dict[str, describing.DescribeShareGroupOffsetsResponseTopic] = {}
    for each in offsets:
        topic = topics.get(each.topic)
        if topic is None:
            topic = topics[each.topic] = describing.DescribeShareGroupOffsetsResponseTopic(
                each.topic, each.topic_id, []
            )
        topic.partitions.append(
            describing.DescribeShareGroupOffsetsResponsePartition(
                partition_index=each.partition,
                start_offset=each.start_offset,
                leader_epoch=each.leader_epoch,
                lag=each.lag,
                error_code=kafka_code(each.error),
                error_message=_message(each.error),
            )
        )
    return list(topics.values())


async def alter_share_group_offsets(
    call: Call, request: altering.AlterShareGroupOffsetsRequest
) -> altering.AlterShareGroupOffsetsResponse:
    """Set the start offsets of an empty share group."""
    refused: list[ShareOffset] = []
    wanted: list[ShareOffsetToAlter] = []
    try:
        need_shares(call)
        call.need_group(Operation.READ, request.group_id)
        for asked in request.topics:
            refusal = _refusal(call, Operation.READ, asked.topic_name)
            for part in asked.partitions:
                place = asked.topic_name, part.partition_index
                if refusal is None:
                    wanted.append(ShareOffsetToAlter(*place, part.start_offset))
                else:
                    refused.append(ShareOffset(*place, error=refusal))
        altered = await call.broker.shares.alter_offsets(request.group_id, wanted)
    except MainstemError as error:
        return altering.AlterShareGroupOffsetsResponse(
            error_code=kafka_code(error), error_message=kafka_message(error)
        )
    topics: dict[str, altering.AlterShareGroupOffsetsResponseTopic] = {}
    for each in (*refused, *altered):
        topic = topics.get(each.topic)
        if topic is None:
            topic = topics[each.topic] = altering.AlterShareGroupOffsetsResponseTopic(
                each.topic, each.topic_id, []
            )
        topic.partitions.append(
            altering.AlterShareGroupOffsetsResponsePartition(
                each.partition, kafka_code(each.error), _message(each.error)
            )
        )
    return altering.AlterShareGroupOffsetsResponse(responses=list(topics.values()))


async def delete_share_group_offsets(
    call: Call, request: deleting.DeleteShareGroupOffsetsRequest
) -> deleting.DeleteShareGroupOffsetsResponse:
    """Delete the offsets of an empty share group in topics."""
    refused: list[ShareOffsetsDeleted] = []
    wanted: list[str] = []
    try:
        need_shares(call)
        call.need_group(Operation.DELETE, request.group_id)
        for asked in request.topics:
            refusal = _refusal(call, Operation.READ, asked.topic_name)
            if refusal is None:
                wanted.append(asked.topic_name)
            else:
                refused.append(ShareOffsetsDeleted(asked.topic_name, error=refusal))
        deleted = await call.broker.shares.delete_offsets(request.group_id, wanted)
    except MainstemError as error:
        return deleting.DeleteShareGroupOffsetsResponse(
            error_code=kafka_code(error), error_message=kafka_message(error)
        )
    return deleting.DeleteShareGroupOffsetsResponse(
        responses=[
            deleting.DeleteShareGroupOffsetsResponseTopic(
                each.topic, each.topic_id, kafka_code(each.error), _message(each.error)
            )
            for each in (*refused, *deleted)
        ]
    )


def _refusal(call: Call, operation: Operation, topic: str) -> MainstemError | None:
    try:
        call.need_topic(operation, topic)
    except MainstemError as error:
        return error
    return None


def _message(error: MainstemError | None) -> str | None:
    return None if error is None else kafka_message(error)


SERVED = {
    90: ApiHandler(describe_share_group_offsets, 0, 1),
    91: ApiHandler(alter_share_group_offsets, 0, 0),
    92: ApiHandler(delete_share_group_offsets, 0, 0),
}
