"""Groups that the coordinator assigns (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe."""

from functools import partial

from mainstem.broker.api.groups import ConsumerAnswer, ConsumerHeartbeat, DescribedConsumer
from mainstem.broker.api.topics import Topics
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.features import GROUP_VERSION
from mainstem.model.ids import TopicId
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import kafka_code, kafka_message
from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.wire.kafka.messages import consumer_group_describe as describing
from mainstem.wire.kafka.messages import consumer_group_heartbeat as beating

_FIRST_WITH_OWN_ID = 1
# READ, DELETE and DESCRIBE: all that can be done with a group, as bits of Kafka's operations.
_ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8
_CLASSIC, _CONSUMER = 0, 1

Partitions = dict[TopicId, frozenset[int]]


async def consumer_group_heartbeat(
    call: Call, request: beating.ConsumerGroupHeartbeatRequest
) -> beating.ConsumerGroupHeartbeatResponse:
    """Serve the heartbeat of a member: it joins, stays or leaves."""
    try:
        _need_on(call)
        call.need_group(Operation.READ, request.group_id)
        for name in request.subscribed_topic_names or ():
            call.need_topic(Operation.DESCRIBE, name)
        answer = await call.broker.groups.consumers.heartbeat(_heartbeat(call, request))
    except MainstemError as error:
        return beating.ConsumerGroupHeartbeatResponse(
            error_code=kafka_code(error), error_message=kafka_message(error)
        )
    return beating.ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=_assignment(answer),
    )


def _need_on(call: Call) -> None:
    """Refuse while an operator has disabled this protocol."""
    if not call.broker.cluster.level(GROUP_VERSION):
        raise InvalidRequest(
            ErrorCode.UNSUPPORTED_VERSION,
            "the consumer group protocol is disabled",
            subject=GROUP_VERSION,
            remedy=f"use group.protocol=classic, or set {GROUP_VERSION} to 1",
        )


def _heartbeat(call: Call, request: beating.ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    names = request.subscribed_topic_names
    return ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if names is None else tuple(names),
        pattern=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
        client_id=call.client_id,
        client_host=f"/{call.peer.address}",
        makes_id=call.version >= _FIRST_WITH_OWN_ID,
        may_see=partial(call.may_topic, Operation.DESCRIBE),
    )


def _owned(listed: list[beating.RequestTopicPartitions] | None) -> Partitions | None:
    if listed is None:
        return None
    owned: Partitions = {}
    for each in listed:
        topic = TopicId(each.topic_id)
        owned[topic] = owned.get(topic, frozenset()) | frozenset(each.partitions)
    return owned


def _assignment(answer: ConsumerAnswer) -> beating.Assignment | None:
    if answer.assigned is None:
        return None
    return beating.Assignment(
        topic_partitions=[
            beating.ResponseTopicPartitions(topic_id=topic, partitions=sorted(partitions))
            for topic, partitions in sorted(answer.assigned.items())
        ]
    )


def consumer_group_describe(
    call: Call, request: describing.ConsumerGroupDescribeRequest
) -> describing.ConsumerGroupDescribeResponse:
    """Describe consumer groups, with one result for each named group."""
    response = describing.ConsumerGroupDescribeResponse(groups=[])
    for group_id in request.group_ids:
        answer = describing.DescribedGroup(group_id=group_id)
        response.groups.append(answer)
        try:
            _need_on(call)
            call.need_group(Operation.DESCRIBE, group_id)
            group = call.broker.groups.consumers.describe(group_id)
        except MainstemError as error:
            answer.error_code, answer.error_message = kafka_code(error), kafka_message(error)
            continue
        answer.group_state = group.state
        answer.group_epoch = group.epoch
        answer.assignment_epoch = group.target_epoch
        answer.assignor_name = group.assignor
        answer.members = [_member(call.broker.topics, member) for member in group.members]
        if request.include_authorized_operations:
            allowed = call.operations(ResourceType.GROUP, group_id)
            answer.authorized_operations = allowed & _ALL_OPERATIONS
    return response


def _member(topics: Topics, member: DescribedConsumer) -> describing.Member:
    return describing.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.pattern,
        assignment=_described(topics, dict(member.assigned)),
        target_assignment=_described(topics, dict(member.target)),
        member_type=_CLASSIC if member.is_classic else _CONSUMER,
    )


def _described(topics: Topics, partitions: Partitions) -> describing.Assignment:
    shown = []
    for topic_id, indexes in sorted(partitions.items()):
        topic = topics.by_id(topic_id)
        # A deleted topic has no name; its partitions are about to be removed.
        if topic is not None:
            shown.append(describing.TopicPartitions(topic_id, topic.name, sorted(indexes)))
    return describing.Assignment(topic_partitions=shown)


SERVED = {
    68: ApiHandler(consumer_group_heartbeat, 0, 1),
    69: ApiHandler(consumer_group_describe, 0, 1),
}
