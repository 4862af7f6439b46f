"""Classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup; list, describe and delete."""

from mainstem.broker.api.groups import (
    DescribedGroup as GroupDescription,
)
from mainstem.broker.api.groups import (
    HeartbeatRequest as Heartbeat,
)
from mainstem.broker.api.groups import (
    JoinRequest,
    LeavingMember,
    SyncRequest,
)
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import kafka_code, kafka_message
from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.wire.kafka.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from mainstem.wire.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from mainstem.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from mainstem.wire.kafka.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from mainstem.wire.kafka.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from mainstem.wire.kafka.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from mainstem.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_FIRST_JOIN_WITH_ID_REQUIRED = 4
_FIRST_JOIN_WITHOUT_NULL_PROTOCOL = 7
_FIRST_JOIN_WITH_SKIP_ASSIGNMENT = 9
_FIRST_LEAVE_WITH_MEMBERS = 3
_FIRST_DESCRIBE_WITH_UNKNOWN_GROUP = 6
_DEAD = "Dead"
# READ, DELETE and DESCRIBE: all that can be done with a group, as bits of Kafka's operations.
_ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8


async def join_group(call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    """Join a group; the response is sent when the next generation starts."""
    try:
        call.need_group(Operation.READ, request.group_id)
        answer = await call.broker.groups.join(_join_request(call, request))
    except MainstemError as error:
        member_id = request.member_id
        if error.code is ErrorCode.MEMBER_ID_REQUIRED:
            member_id = error.subject
        return JoinGroupResponse(
            error_code=kafka_code(error),
            member_id=member_id,
            protocol_name=_no_protocol(call),
        )
    return JoinGroupResponse(
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata,
            )
            for member in answer.members
        ],
    )


def _join_request(call: Call, request: JoinGroupRequest) -> JoinRequest:
    # Before version 1 there was one timeout for both.
    rebalance_timeout_ms = request.rebalance_timeout_ms if call.version else -1
    if rebalance_timeout_ms < 0:
        rebalance_timeout_ms = request.session_timeout_ms
    return JoinRequest(
        group_id=request.group_id,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=call.client_id,
        client_host=f"/{call.peer.address}",
        id_required=call.version >= _FIRST_JOIN_WITH_ID_REQUIRED,
        may_skip_assignment=call.version >= _FIRST_JOIN_WITH_SKIP_ASSIGNMENT,
    )


def _no_protocol(call: Call) -> str | None:
    return None if call.version >= _FIRST_JOIN_WITHOUT_NULL_PROTOCOL else ""


async def sync_group(call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    """Return the member's assignment, once the leader has sent it."""
    try:
        call.need_group(Operation.READ, request.group_id)
        answer = await call.broker.groups.sync(
            SyncRequest(
                group_id=request.group_id,
                generation=request.generation_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignments=tuple((a.member_id, a.assignment) for a in request.assignments),
            )
        )
    except MainstemError as error:
        return SyncGroupResponse(error_code=kafka_code(error))
    return SyncGroupResponse(
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )


def heartbeat(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    """Serve the heartbeat of a member."""
    try:
        call.need_group(Operation.READ, request.group_id)
        call.broker.groups.heartbeat(
            Heartbeat(
                group_id=request.group_id,
                generation=request.generation_id,
                member_id=request.member_id,
                instance_id=request.group_instance_id,
            )
        )
    except MainstemError as error:
        return HeartbeatResponse(error_code=kafka_code(error))
    return HeartbeatResponse()


async def leave_group(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove one member, or since version 3 any number."""
    one_by_one = call.version < _FIRST_LEAVE_WITH_MEMBERS
    leaving_members = (
        [LeavingMember(request.member_id)]
        if one_by_one
        else [LeavingMember(m.member_id, m.group_instance_id) for m in request.members]
    )
    try:
        call.need_group(Operation.READ, request.group_id)
        outcomes = await call.broker.groups.leave(request.group_id, leaving_members)
    except MainstemError as error:
        return LeaveGroupResponse(error_code=kafka_code(error))
    if one_by_one:
        return LeaveGroupResponse(error_code=kafka_code(outcomes[0]))
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=leaving_member.member_id,
                group_instance_id=leaving_member.instance_id,
                error_code=kafka_code(outcome),
            )
            for leaving_member, outcome in zip(leaving_members, outcomes, strict=True)
        ]
    )


def list_groups(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """List the groups that this node coordinates."""
    try:
        lines = call.broker.groups.list(request.states_filter, request.types_filter)
    except MainstemError as error:
        return ListGroupsResponse(error_code=kafka_code(error))
    every = call.may_cluster(Operation.DESCRIBE)
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=line.group_id,
                protocol_type=line.protocol_type,
                group_state=line.state,
                group_type=line.type,
            )
            for line in lines
            if every or call.may_group(Operation.DESCRIBE, line.group_id)
        ]
    )


def describe_groups(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe groups, with one result for each named group."""
    response = DescribeGroupsResponse(groups=[])
    for group_id in request.groups:
        try:
            call.need_group(Operation.DESCRIBE, group_id)
            described = _described(call.broker.groups.describe(group_id))
            if request.include_authorized_operations:
                allowed = call.operations(ResourceType.GROUP, group_id)
                described.authorized_operations = allowed & _ALL_OPERATIONS
        except MainstemError as error:
            described = _refused(call, group_id, error)
        response.groups.append(described)
    return response


def _refused(call: Call, group_id: str, error: MainstemError) -> DescribedGroup:
    described = DescribedGroup(group_id=group_id, error_code=kafka_code(error))
    if error.code is ErrorCode.UNKNOWN_GROUP:
        described.group_state = _DEAD
        described.error_message = (
            kafka_message(error) if error.cause else f"Group {group_id} not found."
        )
        if call.version < _FIRST_DESCRIBE_WITH_UNKNOWN_GROUP:
            described.error_code = 0
    return described


def _described(group: GroupDescription) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )


async def delete_groups(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete empty groups."""
    response = DeleteGroupsResponse(results=[])
    for group_id in request.groups_names:
        result = DeletableGroupResult(group_id=group_id)
        response.results.append(result)
        try:
            call.need_group(Operation.DELETE, group_id)
            await call.broker.groups.delete(group_id)
        except MainstemError as error:
            result.error_code = kafka_code(error)
    return response


SERVED = {
    11: ApiHandler(join_group, 0, 9),
    12: ApiHandler(heartbeat, 0, 4),
    13: ApiHandler(leave_group, 0, 5),
    14: ApiHandler(sync_group, 0, 5),
    15: ApiHandler(describe_groups, 0, 6),
    16: ApiHandler(list_groups, 0, 5),
    42: ApiHandler(delete_groups, 0, 2),
}
