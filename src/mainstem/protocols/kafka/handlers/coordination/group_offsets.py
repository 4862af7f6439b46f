"""Committed offsets of groups: OffsetCommit, OffsetFetch, OffsetDelete."""

from collections.abc import Iterable, Sequence

from mainstem.broker.api.groups import (
    NO_OFFSET,
    CommitRequest,
    CommittedOffset,
    FetchedOffset,
    OffsetReader,
    OffsetToCommit,
)
from mainstem.broker.api.topics import Topics
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.ids import NO_TOPIC_ID, TopicId
from mainstem.model.metadata import Topic
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import kafka_code
from mainstem.security.authorisation.acl import Operation
from mainstem.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from mainstem.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from mainstem.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_FIRST_COMMIT_WITH_UNKNOWN_GROUP = 9
_FIRST_COMMIT_WITH_TOPIC_IDS = 10
_FIRST_FETCH_WITH_GROUPS = 8
_FIRST_FETCH_WITH_TOPIC_IDS = 10


async def offset_commit(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Store the offsets of existing partitions."""
    response = OffsetCommitResponse(topics=[])
    wanted: list[tuple[OffsetToCommit, OffsetCommitResponsePartition]] = []
    refusal = _refusal(call, Operation.READ, request.group_id)
    for asked in request.topics:
        topic, unknown = (None, refusal) if refusal else _resolve(call, asked)
        answer = OffsetCommitResponseTopic(topic_id=asked.topic_id, name=asked.name, partitions=[])
        response.topics.append(answer)
        for part in asked.partitions:
            result = OffsetCommitResponsePartition(partition_index=part.partition_index)
            answer.partitions.append(result)
            if topic is None or not 0 <= part.partition_index < len(topic.streams):
                result.error_code = kafka_code(unknown)
                continue
            offset = OffsetToCommit(
                topic.name,
                part.partition_index,
                part.committed_offset,
                part.committed_leader_epoch,
                part.committed_metadata or "",
            )
            wanted.append((offset, result))
    if not wanted:
        return response
    commit = CommitRequest(
        group_id=request.group_id,
        offsets=tuple(offset for offset, _ in wanted),
        generation=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        retention_ms=request.retention_time_ms,
        reports_unknown_group=call.version >= _FIRST_COMMIT_WITH_UNKNOWN_GROUP,
    )
    try:
        codes = [kafka_code(outcome) for outcome in await call.broker.groups.commit_offsets(commit)]
    except MainstemError as error:
        codes = [kafka_code(error)] * len(wanted)
    for (_, result), code in zip(wanted, codes, strict=True):
        result.error_code = code
    return response


def _refusal(call: Call, operation: Operation, group_id: str) -> ErrorCode | None:
    """The error if the client may not do that to a group, else None."""
    try:
        call.need_group(operation, group_id)
    except MainstemError as error:
        return error.code
    return None


def _resolve(call: Call, asked: OffsetCommitRequestTopic) -> tuple[Topic | None, ErrorCode]:
    """The requested topic, or the error if it does not exist or may not be read."""
    if call.version >= _FIRST_COMMIT_WITH_TOPIC_IDS:
        topic = call.broker.topics.by_id(TopicId(asked.topic_id))
        if topic is None:
            return None, ErrorCode.UNKNOWN_TOPIC_ID
        name = topic.name
    else:
        name, topic = asked.name, call.broker.topics.by_name(asked.name)
    if not call.may_topic(Operation.READ, name):
        return None, ErrorCode.NOT_AUTHORIZED
    return topic, ErrorCode.UNKNOWN_TOPIC


async def offset_fetch(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Committed offsets of one group, or since version 8 of several."""
    if call.version < _FIRST_FETCH_WITH_GROUPS:
        return await _fetch_one(call, request)
    response = OffsetFetchResponse(groups=[])
    for group in request.groups:
        answer = OffsetFetchResponseGroup(group_id=group.group_id, topics=[])
        response.groups.append(answer)
        try:
            call.need_group(Operation.DESCRIBE, group.group_id)
            answer.topics = await _fetch_group(call, group, stable=request.require_stable)
        except MainstemError as error:
            answer.error_code = kafka_code(error)
    return response


async def _fetch_one(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    partitions = None
    if request.topics is not None:
        partitions = [(t.name, p) for t in request.topics for p in t.partition_indexes]
    try:
        call.need_group(Operation.DESCRIBE, request.group_id)
        fetched = await call.broker.groups.fetch_offsets(
            request.group_id, partitions, stable=request.require_stable
        )
        fetched = _shown(call, fetched, named=partitions is not None)
    except MainstemError as error:
        code = kafka_code(error)
        # Version 1 has error fields only at the partitions.
        return OffsetFetchResponse(
            error_code=code,
            topics=[
                OffsetFetchResponseTopic(
                    name=t.name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=p, committed_offset=-1, error_code=code
                        )
                        for p in t.partition_indexes
                    ],
                )
                for t in request.topics or ()
            ],
        )
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition,
                        committed_offset=each.committed.offset,
                        committed_leader_epoch=each.committed.leader_epoch,
                        metadata=each.committed.metadata,
                        error_code=kafka_code(each.outcome),
                    )
                    for each in of_topic
                ],
            )
            for name, of_topic in _by_topic(fetched).items()
        ]
    )


async def _fetch_group(
    call: Call, group: OffsetFetchRequestGroup, *, stable: bool
) -> list[OffsetFetchResponseTopics]:
    by_id = call.version >= _FIRST_FETCH_WITH_TOPIC_IDS
    reader = OffsetReader(group.member_id or None, group.member_epoch)
    if group.topics is None:
        fetched = await call.broker.groups.fetch_offsets(
            group.group_id, None, stable=stable, reader=reader
        )
        fetched = _shown(call, fetched, named=False)
        topics = call.broker.topics
        return [
            _topic_answer(name, _id_of(topics, name) if by_id else NO_TOPIC_ID, of_topic)
            for name, of_topic in _by_topic(fetched).items()
            # A topic without an id was deleted; a client that uses ids cannot name it.
            if not by_id or topics.by_name(name) is not None
        ]
    answers = []
    for asked in group.topics:
        name = asked.name
        if by_id:
            topic = call.broker.topics.by_id(TopicId(asked.topic_id))
            if topic is None:
                answers.append(_unknown_topic(asked))
                continue
            name = topic.name
        wanted = [(name, partition) for partition in asked.partition_indexes]
        fetched = await call.broker.groups.fetch_offsets(
            group.group_id, wanted, stable=stable, reader=reader
        )
        fetched = _shown(call, fetched, named=True)
        answers.append(_topic_answer(name, TopicId(asked.topic_id), fetched))
    return answers


def _shown(call: Call, fetched: Sequence[FetchedOffset], *, named: bool) -> Sequence[FetchedOffset]:
    """Offsets of topics that the client may see; others are refused if it ``named`` them."""
    hidden = {
        topic
        for topic in {each.topic for each in fetched}
        if not call.may_topic(Operation.DESCRIBE, topic)
    }
    if not hidden:
        return fetched
    return [
        FetchedOffset(
            each.topic, each.partition, CommittedOffset(NO_OFFSET), ErrorCode.NOT_AUTHORIZED
        )
        if each.topic in hidden
        else each
        for each in fetched
        if named or each.topic not in hidden
    ]


def _id_of(topics: Topics, name: str) -> TopicId:
    topic = topics.by_name(name)
    return NO_TOPIC_ID if topic is None else topic.id


def _topic_answer(
    name: str, topic_id: TopicId, fetched: Iterable[FetchedOffset]
) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic_id,
        name=name,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=each.partition,
                committed_offset=each.committed.offset,
                committed_leader_epoch=each.committed.leader_epoch,
                metadata=each.committed.metadata,
                error_code=kafka_code(each.outcome),
            )
            for each in fetched
        ],
    )


def _unknown_topic(asked: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    code = kafka_code(ErrorCode.UNKNOWN_TOPIC_ID)
    return OffsetFetchResponseTopics(
        topic_id=asked.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=partition, committed_offset=-1, error_code=code
            )
            for partition in asked.partition_indexes
        ],
    )


def _by_topic(fetched: Iterable[FetchedOffset]) -> dict[str, list[FetchedOffset]]:
    topics: dict[str, list[FetchedOffset]] = {}
    for each in fetched:
        topics.setdefault(each.topic, []).append(each)
    return topics


async def offset_delete(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete committed offsets; partitions that do not exist are refused one by one."""
    response = OffsetDeleteResponse(topics=[])
    wanted: list[tuple[tuple[str, int], OffsetDeleteResponsePartition]] = []
    refusal = _refusal(call, Operation.DELETE, request.group_id)
    if refusal is not None:
        return OffsetDeleteResponse(error_code=kafka_code(refusal), topics=[])
    for asked in request.topics:
        topic = call.broker.topics.by_name(asked.name)
        count = len(topic.streams) if topic else 0
        readable = call.may_topic(Operation.READ, asked.name)
        answer = OffsetDeleteResponseTopic(name=asked.name, partitions=[])
        response.topics.append(answer)
        for part in asked.partitions:
            result = OffsetDeleteResponsePartition(partition_index=part.partition_index)
            answer.partitions.append(result)
            if not readable:
                result.error_code = kafka_code(ErrorCode.NOT_AUTHORIZED)
            elif 0 <= part.partition_index < count:
                wanted.append(((asked.name, part.partition_index), result))
            else:
                result.error_code = kafka_code(ErrorCode.UNKNOWN_TOPIC)
    try:
        outcomes = await call.broker.groups.delete_offsets(
            request.group_id, [partition for partition, _ in wanted]
        )
    except MainstemError as error:
        return OffsetDeleteResponse(error_code=kafka_code(error), topics=[])
    for (_, result), outcome in zip(wanted, outcomes, strict=True):
        result.error_code = kafka_code(outcome)
    return response


SERVED = {
    8: ApiHandler(offset_commit, 2, 10),
    9: ApiHandler(offset_fetch, 1, 10),
    47: ApiHandler(offset_delete, 0, 0),
}
