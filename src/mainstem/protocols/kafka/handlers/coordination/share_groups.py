"""Membership of share groups (KIP-932): ShareGroupHeartbeat and ShareGroupDescribe."""

from mainstem.broker.api.share_groups import (
    DescribedShareGroup,
    DescribedShareMember,
    ShareHeartbeat,
)
from mainstem.broker.api.topics import Topics
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.features import SHARE_VERSION
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import kafka_code, kafka_message
from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.wire.kafka.messages import share_group_describe as describing
from mainstem.wire.kafka.messages import share_group_heartbeat as beating

# READ, DELETE and DESCRIBE: all that can be done with a group, as bits of Kafka's operations.
_ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8


def need_shares(call: Call) -> None:
    """Refuse while an operator has disabled share groups."""
    if not call.broker.cluster.level(SHARE_VERSION):
        raise InvalidRequest(
            ErrorCode.UNSUPPORTED_VERSION,
            "share groups are disabled",
            subject=SHARE_VERSION,
            remedy=f"set {SHARE_VERSION} to 1",
        )


async def share_group_heartbeat(
    call: Call, request: beating.ShareGroupHeartbeatRequest
) -> beating.ShareGroupHeartbeatResponse:
    """Serve the heartbeat of a member: it joins, stays or leaves."""
    names = request.subscribed_topic_names
    try:
        need_shares(call)
        call.need_group(Operation.READ, request.group_id)
        for name in names or ():
            call.need_topic(Operation.DESCRIBE, name)
        answer = await call.broker.shares.heartbeat(
            ShareHeartbeat(
                group_id=request.group_id,
                member_id=request.member_id,
                epoch=request.member_epoch,
                rack_id=request.rack_id,
                topics=None if names is None else tuple(names),
                client_id=call.client_id,
                client_host=f"/{call.peer.address}",
            )
        )
    except MainstemError as error:
        return beating.ShareGroupHeartbeatResponse(
            error_code=kafka_code(error), error_message=kafka_message(error)
        )
    assigned = answer.assigned
    return beating.ShareGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None
        if assigned is None
        else beating.Assignment(
            topic_partitions=[
                beating.TopicPartitions(topic_id=topic, partitions=sorted(partitions))
                for topic, partitions in sorted(assigned.items())
            ]
        ),
    )


def share_group_describe(
    call: Call, request: describing.ShareGroupDescribeRequest
) -> describing.ShareGroupDescribeResponse:
    """Describe share groups, with one result for each named group."""
    response = describing.ShareGroupDescribeResponse(groups=[])
    for group_id in request.group_ids:
        answer = describing.DescribedGroup(group_id=group_id)
        response.groups.append(answer)
        try:
            need_shares(call)
            call.need_group(Operation.DESCRIBE, group_id)
            group = call.broker.shares.describe(group_id)
            members = [_member(call.broker.topics, member) for member in group.members]
            _need_to_see(call, group, members)
        except MainstemError as error:
            answer.error_code, answer.error_message = kafka_code(error), kafka_message(error)
            continue
        answer.group_state = group.state
        answer.group_epoch = group.epoch
        answer.assignment_epoch = group.target_epoch
        answer.assignor_name = group.assignor
        answer.members = members
        if request.include_authorized_operations:
            allowed = call.operations(ResourceType.GROUP, group_id)
            answer.authorized_operations = allowed & _ALL_OPERATIONS
    return response


def _need_to_see(call: Call, group: DescribedShareGroup, members: list[describing.Member]) -> None:
    """Refuse unless the client may see every topic of the group, as in Kafka."""
    names = {name for member in group.members for name in member.topics}
    names.update(
        each.topic_name for member in members for each in member.assignment.topic_partitions
    )
    for name in sorted(names):
        call.need_topic(Operation.DESCRIBE, name)


def _member(topics: Topics, member: DescribedShareMember) -> describing.Member:
    shown = []
    for topic_id, partitions in sorted(member.assigned.items()):
        topic = topics.by_id(topic_id)
        # A deleted topic has no name; its partitions are about to be removed.
        if topic is not None:
            shown.append(describing.TopicPartitions(topic_id, topic.name, sorted(partitions)))
    return describing.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=describing.Assignment(topic_partitions=shown),
    )


SERVED = {
    76: ApiHandler(share_group_heartbeat, 1, 1),
    77: ApiHandler(share_group_describe, 1, 1),
}
