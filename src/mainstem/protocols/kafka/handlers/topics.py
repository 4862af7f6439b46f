"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords.

The topics of one request are handled concurrently, so that their changes share one sync. Each has
its own result; none is undone because another was refused. Created and deleted partitions count
against the client's ``controller_mutation_rate``.
"""

from asyncio import gather
from collections import Counter

from mainstem.broker.api.configs import ConfigValue
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.ids import NO_TOPIC_ID, TopicId
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import kafka_code, kafka_message
from mainstem.protocols.kafka.handlers.configs import SOURCES
from mainstem.protocols.kafka.mutation_quota import mutations
from mainstem.security.authorisation.acl import Operation
from mainstem.security.quotas import MUTATIONS
from mainstem.wire.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from mainstem.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from mainstem.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from mainstem.wire.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_FIRST_WITH_TOPIC_STATES = 6
_NO_WATERMARK = -1
# From these versions on clients understand THROTTLING_QUOTA_EXCEEDED (KIP-599).
_FIRST_STRICT_CREATE = 6
_FIRST_STRICT_DELETE = 5
_FIRST_STRICT_GROW = 3

TOPICS_PER_REQUEST_MAX = 10_000
"""The response has all settings of each topic, so a small request could have a huge response."""


# CreateTopics


async def create_topics(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create topics, or with ``validate_only`` only validate."""
    times = Counter(topic.name for topic in request.topics)
    if len(times) > TOPICS_PER_REQUEST_MAX:
        many = InvalidRequest(ErrorCode.POLICY_VIOLATION, f"{len(times)} topics in one request")
        return CreateTopicsResponse(topics=[_not_created(name, many) for name in times])
    named_once = [topic for topic in request.topics if times[topic.name] == 1]
    results = await gather(
        *(_create(call, topic, validate_only=request.validate_only) for topic in named_once)
    )
    again = InvalidRequest(ErrorCode.INVALID_REQUEST, "the request names the topic more than once")
    refused = [_not_created(name, again) for name, count in times.items() if count > 1]
    return CreateTopicsResponse(topics=[*results, *refused])


async def _create(
    call: Call, asked: CreatableTopic, *, validate_only: bool
) -> CreatableTopicResult:
    topics = call.broker.topics
    try:
        if not call.may_cluster(Operation.CREATE):
            call.need_topic(Operation.CREATE, asked.name)
        partitions = _count(asked.num_partitions, ErrorCode.INVALID_PARTITIONS)
        factor = _count(asked.replication_factor, ErrorCode.INVALID_REPLICATION_FACTOR)
        counted = 0 if validate_only else max(1, partitions, len(asked.assignments))
        with mutations(call.peer, counted, strict=call.version >= _FIRST_STRICT_CREATE):
            topic = await topics.create(
                asked.name,
                partitions=partitions,
                replication_factor=factor,
                configs={config.name: config.value for config in asked.configs},
                assignments=_assignments(asked),
                validate_only=validate_only,
            )
    except MainstemError as error:
        return _not_created(asked.name, error)
    if counted:
        # Defaults of partitions and replication factor are known only now.
        call.peer.charge(MUTATIONS, len(topic.streams) - counted)
    created = CreatableTopicResult(
        name=topic.name,
        topic_id=topic.id,
        error_message=None,
        num_partitions=len(topic.streams),
        replication_factor=len(topic.streams[0].last.replicas),
        configs=[],
    )
    if call.may_topic(Operation.DESCRIBE_CONFIGS, topic.name):
        created.configs = [_created_config(config) for config in topics.configs.describe(topic)]
    else:
        created.topic_config_error_code = kafka_code(ErrorCode.NOT_AUTHORIZED)
        created.num_partitions = created.replication_factor = -1
    return created


def _count(number: int, refusal: ErrorCode) -> int:
    if number == 0 or number < -1:
        raise InvalidRequest(refusal, f"{number}: use a number above 0, or -1 for the default")
    return number


def _assignments(asked: CreatableTopic) -> dict[int, list[int]] | None:
    if not asked.assignments:
        return None
    if asked.num_partitions != -1 or asked.replication_factor != -1:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            "with an assignment, the numbers of partitions and replicas must be -1",
        )
    assigned = {entry.partition_index: entry.broker_ids for entry in asked.assignments}
    if len(assigned) != len(asked.assignments):
        raise InvalidRequest(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned more than once"
        )
    return assigned


def _not_created(name: str, error: MainstemError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=kafka_code(error), error_message=kafka_message(error), configs=[]
    )


def _created_config(config: ConfigValue) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=config.name,
        value=config.value,
        read_only=config.read_only,
        config_source=SOURCES[config.source],
        is_sensitive=config.sensitive,
    )


# DeleteTopics


async def delete_topics(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete topics by name or, from version 6 on, by id."""
    asked = request.topics
    if call.version < _FIRST_WITH_TOPIC_STATES:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    times = Counter((topic.name, topic.topic_id) for topic in asked)
    results = []
    for (name, topic_id), count in times.items():
        results.append(_delete(call, name, topic_id, named_twice=count > 1))
    return DeleteTopicsResponse(responses=list(await gather(*results)))


async def _delete(
    call: Call, name: str | None, topic_id: bytes, *, named_twice: bool
) -> DeletableTopicResult:
    result = DeletableTopicResult(name=name, topic_id=topic_id)
    try:
        if named_twice:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST, "the request names the topic more than once"
            )
        result.name = _name_of(call, name, topic_id)
        _need_delete(call, result, by_id=name is None)
        topic = call.broker.topics.by_name(result.name)
        if topic is not None:
            result.topic_id = topic.id
        count = 0 if topic is None else len(topic.streams)
        with mutations(call.peer, count, strict=call.version >= _FIRST_STRICT_DELETE):
            await call.broker.topics.delete(result.name)
    except MainstemError as error:
        result.error_code = kafka_code(error)
        result.error_message = kafka_message(error)
    return result


def _need_delete(call: Call, result: DeletableTopicResult, *, by_id: bool) -> None:
    """Refuse unless the client may delete; the name of an id is sent only if it may see it."""
    assert result.name is not None, "set by the lookup"
    if by_id and not call.may_topic(Operation.DESCRIBE, result.name):
        result.name = None
        raise InvalidRequest(ErrorCode.NOT_AUTHORIZED, "not allowed to delete the topic")
    call.need_topic(Operation.DELETE, result.name)


def _name_of(call: Call, name: str | None, topic_id: bytes) -> str:
    if (name is None) == (topic_id == NO_TOPIC_ID):
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST, "a topic is named either by its name or by its id"
        )
    if name is not None:
        return name
    topic = call.broker.topics.by_id(TopicId(topic_id))
    if topic is None:
        raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    return topic.name


# CreatePartitions


async def create_partitions(
    call: Call, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions to topics."""
    times = Counter(topic.name for topic in request.topics)
    unique = {topic.name: topic for topic in request.topics}
    results = await gather(
        *(
            _grow(call, topic, named_twice=times[name] > 1, validate_only=request.validate_only)
            for name, topic in unique.items()
        )
    )
    return CreatePartitionsResponse(results=list(results))


async def _grow(
    call: Call, asked: CreatePartitionsTopic, *, named_twice: bool, validate_only: bool
) -> CreatePartitionsTopicResult:
    assignments = None
    if asked.assignments is not None:
        assignments = [entry.broker_ids for entry in asked.assignments]
    try:
        if named_twice:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST, "the request names the topic more than once"
            )
        call.need_topic(Operation.ALTER, asked.name)
        topic = call.broker.topics.by_name(asked.name)
        count = 0 if topic is None or validate_only else max(0, asked.count - len(topic.streams))
        with mutations(call.peer, count, strict=call.version >= _FIRST_STRICT_GROW):
            await call.broker.topics.add_partitions(
                asked.name, total=asked.count, assignments=assignments, validate_only=validate_only
            )
    except MainstemError as error:
        return CreatePartitionsTopicResult(asked.name, kafka_code(error), kafka_message(error))
    return CreatePartitionsTopicResult(asked.name)


# DeleteRecords


async def delete_records(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete the records of partitions before an offset."""
    response = DeleteRecordsResponse(topics=[])
    for asked in request.topics:
        parts = await gather(*(_delete_before(call, asked.name, part) for part in asked.partitions))
        response.topics.append(DeleteRecordsTopicResult(asked.name, list(parts)))
    return response


async def _delete_before(
    call: Call, name: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    broker = call.broker
    try:
        call.need_topic(Operation.DELETE, name)
        topic = broker.topics.by_name(name)
        if topic is not None and topic.internal:
            raise InvalidRequest(
                ErrorCode.POLICY_VIOLATION,
                "records of an internal topic cannot be deleted",
                subject=name,
            )
        # Readers of a compacted topic rely on the last record of every key.
        if topic is not None and not broker.topics.configs.settings_of(topic).delete:
            raise InvalidRequest(
                ErrorCode.POLICY_VIOLATION, "the topic's cleanup policy is not delete", subject=name
            )
        start = await broker.streams.delete_records(name, asked.partition_index, asked.offset)
    except MainstemError as error:
        return DeleteRecordsPartitionResult(asked.partition_index, _NO_WATERMARK, kafka_code(error))
    return DeleteRecordsPartitionResult(asked.partition_index, start)


SERVED = {
    19: ApiHandler(create_topics, 2, 7),
    20: ApiHandler(delete_topics, 1, 6),
    21: ApiHandler(delete_records, 0, 2),
    37: ApiHandler(create_partitions, 0, 3),
}
