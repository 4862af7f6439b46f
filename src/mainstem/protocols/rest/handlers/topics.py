"""Topics: list, describe, create, alter, delete."""

from starlette.requests import Request
from starlette.responses import Response

from mainstem.broker.api.configs import ConfigChange
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.ids import topic_id_text
from mainstem.model.metadata import Stream, Topic
from mainstem.model.topic_name import check_topic_name
from mainstem.protocols.rest.access import charge, may, need_create, need_topic, refuse_debt
from mainstem.protocols.rest.handler_context import HandlerContext
from mainstem.protocols.rest.incoming import check_json, decode, read_body
from mainstem.protocols.rest.responses import json_answer
from mainstem.protocols.rest.routing.parameters import ChoiceParameter
from mainstem.protocols.rest.schemas.topics_and_groups import (
    NewTopicRequest,
    PartitionAnswer,
    TopicAnswer,
    TopicDeleted,
    TopicLine,
    TopicRequest,
)
from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.security.quotas import MUTATIONS

DEFAULT = -1

INTERNAL = ChoiceParameter("internal", "Whether internal topics are listed.", ("false", "true"))


async def list_topics(site: HandlerContext, request: Request) -> Response:
    """GET /v1/topics."""
    internal = INTERNAL.of(request) == "true"
    topics = sorted(site.broker.topics.all(), key=lambda topic: topic.name)
    return json_answer(
        [
            _line(site, topic)
            for topic in topics
            if (internal or not topic.internal)
            and may(request, Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
    )


async def get_topic(site: HandlerContext, request: Request) -> Response:
    """GET /v1/topics/{name}."""
    return json_answer(_described(site, request, found(site, request.path_params["name"])))


async def create_topic(site: HandlerContext, request: Request) -> Response:
    """POST /v1/topics: create; an existing topic is not changed."""
    check_json(request)
    wanted = decode(await read_body(site, request), NewTopicRequest)
    need_create(request, wanted.name)
    topic = await _create(site, request, wanted.name, wanted)
    return json_answer(_described(site, request, topic), 201)


async def put_topic(site: HandlerContext, request: Request) -> Response:
    """PUT /v1/topics/{name}: create, or alter an existing topic to match the body."""
    name = request.path_params["name"]
    check_topic_name(name)
    check_json(request)
    body = await read_body(site, request)
    wanted = decode(body, TopicRequest) if body.strip() else TopicRequest()
    topic = site.broker.topics.by_name(name)
    # The refusal for a caller that may not see the topic is the same whether it exists or not.
    if topic is None or not may(request, Operation.DESCRIBE, ResourceType.TOPIC, name):
        need_create(request, name)
    if topic is None:
        created = await _create(site, request, name, wanted)
        return json_answer(_described(site, request, created), 201)
    need_topic(request, Operation.DESCRIBE, name)
    if wanted.configs:
        need_topic(request, Operation.ALTER_CONFIGS, name)
    if wanted.partitions not in (None, len(topic.streams)):
        need_topic(request, Operation.ALTER, name)
    await _alter(site, request, topic, wanted)
    return json_answer(_described(site, request, found(site, name)))


async def delete_topic(site: HandlerContext, request: Request) -> Response:
    """DELETE /v1/topics/{name}."""
    topic = found(site, request.path_params["name"])
    refuse_internal(topic)
    refuse_debt(request, MUTATIONS)
    await site.broker.topics.delete(topic.name)
    charge(request, MUTATIONS, len(topic.streams))
    return json_answer(TopicDeleted(deleted=topic.name, partitions_removed=len(topic.streams)))


def found(site: HandlerContext, name: str) -> Topic:
    """Return the topic of that name, or raise UNKNOWN_TOPIC."""
    check_topic_name(name)
    topic = site.broker.topics.by_name(name)
    if topic is None:
        raise InvalidRequest(
            ErrorCode.UNKNOWN_TOPIC,
            "no topic has this name",
            subject=name,
            remedy="create it with PUT /v1/topics/{name}, or list all with GET /v1/topics",
        )
    return topic


def refuse_internal(topic: Topic) -> None:
    """Refuse a change of an internal topic."""
    if topic.internal:
        raise InvalidRequest(
            ErrorCode.POLICY_VIOLATION,
            "the topic is internal; only nodes write it",
            subject=topic.name,
        )


async def _create(site: HandlerContext, request: Request, name: str, wanted: TopicRequest) -> Topic:
    check_topic_name(name)
    refuse_debt(request, MUTATIONS)
    topic = await site.broker.topics.create(
        name,
        partitions=DEFAULT if wanted.partitions is None else wanted.partitions,
        replication_factor=DEFAULT
        if wanted.replication_factor is None
        else wanted.replication_factor,
        configs={key: _text(value) for key, value in wanted.configs.items() if value is not None},
    )
    charge(request, MUTATIONS, len(topic.streams))
    return topic


async def _alter(
    site: HandlerContext, request: Request, topic: Topic, wanted: TopicRequest
) -> None:
    """Alter a topic; the whole request is validated before any part is applied."""
    refuse_internal(topic)
    present = len(topic.streams)
    replicas = max(len(stream.last.replicas) for stream in topic.streams)
    if wanted.partitions is not None and wanted.partitions < present:
        raise _conflict(topic, "partitions", present, wanted.partitions, "can only grow")
    if wanted.replication_factor not in (None, replicas):
        raise _conflict(
            topic, "replicas", replicas, wanted.replication_factor, "cannot be changed here"
        )
    grown = max(0, (wanted.partitions or 0) - present)
    if grown:
        refuse_debt(request, MUTATIONS)
    changes = [
        ConfigChange(key, "delete") if value is None else ConfigChange(key, "set", _text(value))
        for key, value in wanted.configs.items()
    ]
    topics = site.broker.topics
    for validate_only in (True, False):
        if changes:
            await topics.configs.alter_topic(topic.name, changes, validate_only=validate_only)
        if grown:
            await topics.add_partitions(
                topic.name, total=present + grown, validate_only=validate_only
            )
    charge(request, MUTATIONS, grown)


def _conflict(
    topic: Topic, what: str, present: int, wanted: int | None, rule: str
) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.TOPIC_EXISTS,
        f"the topic exists with {present} {what}, {wanted} were requested",
        subject=topic.name,
        remedy=f"the number of {what} {rule}; leave it out to keep it",
    )


def _text(value: str | float | bool) -> str:  # noqa: FBT001 - a setting's value, not a switch
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _line(site: HandlerContext, topic: Topic) -> TopicLine:
    bounds = [offsets(site, topic.name, stream) for stream in topic.streams]
    return TopicLine(
        name=topic.name,
        partitions=len(bounds),
        start_offset=sum(start for start, _ in bounds),
        end_offset=sum(until for _, until in bounds),
        topic_id=topic_id_text(topic.id),
        internal=topic.internal,
    )


def _described(site: HandlerContext, request: Request, topic: Topic) -> TopicAnswer:
    sizes = {partition: size for _, partition, size in site.broker.streams.sizes(topic.name)}
    settings = may(request, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name)
    partitions = []
    for stream in topic.streams:
        number = stream.id.partition
        start, until = offsets(site, topic.name, stream)
        partitions.append(
            PartitionAnswer(
                partition=number,
                start_offset=start,
                end_offset=until,
                epoch=stream.epoch,
                leader=stream.writer,
                size_bytes=sizes.get(number, 0),
            )
        )
    return TopicAnswer(
        name=topic.name,
        partitions=partitions,
        topic_id=topic_id_text(topic.id),
        internal=topic.internal,
        created_ms=topic.created_ms,
        configs=topic.configs if settings else None,
    )


def offsets(site: HandlerContext, topic: str, stream: Stream) -> tuple[int, int]:
    """Start and committed end; those in the catalogue if another node writes the stream."""
    try:
        writer = site.broker.streams.partition(topic, stream.id.partition)
    except MainstemError:
        return stream.start, stream.last.end or stream.last.start
    return writer.start_offset, writer.committed
