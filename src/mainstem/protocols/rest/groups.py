"""Consumer groups: who is in them and how far they are."""

from starlette.requests import Request
from starlette.responses import Response

from mainstem.broker.groups_api import DescribedGroup, DescribedMember, FetchedOffset, Groups
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.protocols.rest.access import may
from mainstem.protocols.rest.answers import json_answer
from mainstem.protocols.rest.bodies import (
    GroupAnswer,
    GroupDeleted,
    GroupLine,
    MemberAnswer,
    PositionAnswer,
)
from mainstem.protocols.rest.site import Site
from mainstem.security.acl import Operation, ResourceType


async def list_groups(site: Site, request: Request) -> Response:
    """GET /v1/groups."""
    return json_answer(
        [
            GroupLine(
                group_id=group.group_id,
                state=group.state,
                generation_id=group.generation,
                member_count=group.member_count,
                protocol_type=group.protocol_type,
            )
            for group in sorted(site.broker.groups.list(), key=lambda group: group.group_id)
            if may(request, Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        ]
    )


async def get_group(site: Site, request: Request) -> Response:
    """GET /v1/groups/{id}."""
    groups = site.broker.groups
    group = _described(groups, request.path_params["id"])
    positions = [
        _position(site, fetched)
        for fetched in await groups.fetch_offsets(group.group_id, None)
        if fetched.committed.offset >= 0
        and may(request, Operation.DESCRIBE, ResourceType.TOPIC, fetched.topic)
    ]
    positions.sort(key=lambda position: (position.topic, position.partition))
    return json_answer(
        GroupAnswer(
            group_id=group.group_id,
            state=group.state,
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader_id=group.leader,
            members=[
                MemberAnswer(
                    member_id=member.member_id,
                    client_id=member.client_id,
                    session_timeout_ms=member.session_timeout_ms,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    client_host=member.client_host,
                    instance_id=member.instance_id,
                )
                for member in group.members
            ],
            committed_offsets={f"{p.topic}-{p.partition}": p.committed_offset for p in positions},
            positions=positions,
            total_lag=sum(position.lag or 0 for position in positions),
        )
    )


async def delete_group(site: Site, request: Request) -> Response:
    """DELETE /v1/groups/{id}."""
    group_id = request.path_params["id"]
    await site.broker.groups.delete(group_id)
    return json_answer(GroupDeleted(deleted=group_id))


def _described(groups: Groups, group_id: str) -> DescribedGroup:
    """The group, whichever way its members are assigned; epochs are generations here."""
    try:
        return groups.describe(group_id)
    except MainstemError as error:
        if error.code is not ErrorCode.UNKNOWN_GROUP:
            raise
    group = groups.consumers.describe(group_id)
    return DescribedGroup(
        group.group_id,
        group.state,
        "consumer",
        group.assignor,
        group.epoch,
        "",
        tuple(
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
                metadata=b"",
                assignment=b"",
            )
            for member in group.members
        ),
    )


def _position(site: Site, fetched: FetchedOffset) -> PositionAnswer:
    try:
        end: int | None = site.broker.streams.door(fetched.topic, fetched.partition).last_stable
    except MainstemError:
        end = None  # the topic is gone, or another node writes it
    committed = fetched.committed
    return PositionAnswer(
        topic=fetched.topic,
        partition=fetched.partition,
        committed_offset=committed.offset,
        end_offset=end,
        lag=None if end is None else max(0, end - committed.offset),
        metadata=committed.metadata,
    )
