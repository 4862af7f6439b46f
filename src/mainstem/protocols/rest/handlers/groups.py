"""Groups of every type and of all nodes: members, committed offsets, lag."""

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mainstem.broker.api.groups import GroupView, PartitionProgress
from mainstem.model.errors import MainstemError
from mainstem.protocols.rest.access import may
from mainstem.protocols.rest.handler_context import HandlerContext
from mainstem.protocols.rest.responses import json_answer
from mainstem.protocols.rest.schemas.topics_and_groups import (
    GroupAnswer,
    GroupDeleted,
    GroupLine,
    MemberAnswer,
    PositionAnswer,
)
from mainstem.security.authorisation.acl import Operation, ResourceType

# End offsets are read from this many partitions at once, and for this long in all.
READS_AT_ONCE: Final = 64
READS_TIMEOUT_S: Final = 5.0

Positions = list[PositionAnswer]


async def list_groups(site: HandlerContext, request: Request) -> Response:
    """GET /v1/groups."""
    groups = await site.broker.all_groups.list()
    return json_answer(
        [
            GroupLine(
                group_id=group.group_id,
                type=group.type,
                state=group.state,
                generation_id=group.generation,
                member_count=group.member_count,
                protocol_type=group.protocol_type,
            )
            for group in sorted(groups, key=lambda group: group.group_id)
            if may(request, Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        ]
    )


async def get_group(site: HandlerContext, request: Request) -> Response:
    """GET /v1/groups/{id}."""
    view = await site.broker.all_groups.view(request.path_params["id"])
    group = view.group

    def sees(topic: str) -> bool:
        return may(request, Operation.DESCRIBE, ResourceType.TOPIC, topic)

    positions = await _positions(site, view, sees)
    return json_answer(
        GroupAnswer(
            group_id=group.group_id,
            type=view.type,
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


async def delete_group(site: HandlerContext, request: Request) -> Response:
    """DELETE /v1/groups/{id}."""
    group_id = request.path_params["id"]
    await site.broker.all_groups.delete(group_id)
    return json_answer(GroupDeleted(deleted=group_id))


async def _positions(
    site: HandlerContext, view: GroupView, sees: Callable[[str], bool]
) -> Positions:
    """Committed offsets and lag of a group, in the topics that the caller may see."""
    standings = [each for each in view.standings if sees(each.topic)]
    standings.sort(key=lambda each: (each.topic, each.partition))
    positions = []
    ends = _Ends(site)
    for at in range(0, len(standings), READS_AT_ONCE):
        some = standings[at : at + READS_AT_ONCE]
        found = await asyncio.gather(*map(ends.of, some))
        positions += [
            _position(standing, end, is_shared=view.type == "share")
            for standing, end in zip(some, found, strict=True)
        ]
    return positions


class _Ends:
    """End offsets of partitions; None for those whose node does not respond in time."""

    def __init__(self, site: HandlerContext) -> None:
        self._streams = site.broker.streams
        self._until_s = asyncio.get_running_loop().time() + READS_TIMEOUT_S

    async def of(self, standing: PartitionProgress) -> int | None:
        try:
            async with asyncio.timeout_at(self._until_s):
                return (
                    await self._streams.open_reader(standing.topic, standing.partition)
                ).last_stable
        except (MainstemError, TimeoutError):
            return None  # the topic was deleted, or has no writer now


def _position(standing: PartitionProgress, end: int | None, *, is_shared: bool) -> PositionAnswer:
    lag = standing.lag if is_shared or end is None else max(0, end - standing.offset)
    return PositionAnswer(
        topic=standing.topic,
        partition=standing.partition,
        committed_offset=standing.offset,
        end_offset=end,
        lag=lag,
        metadata=standing.metadata,
    )
