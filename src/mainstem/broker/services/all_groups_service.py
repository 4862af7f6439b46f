"""Groups of every kind as administrators see them, at the node that coordinates them.

Classic groups, groups that the coordinator assigns, and share groups have one form: epochs are
generations, and the offset of a share group is that of its first unfinished record.
"""

from collections.abc import Callable, Sequence

from mainstem.broker.api.groups import (
    DescribedConsumer,
    DescribedGroup,
    DescribedMember,
    Groups,
    GroupView,
    ListedGroup,
    PartitionProgress,
)
from mainstem.broker.api.share_groups import UNKNOWN_LAG, UNKNOWN_OFFSET, ShareGroups
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError


class LocalGroups:
    """The ``AllGroups`` of a single node, and each node's part of it in a cluster.

    Args:
        groups: the groups that this node coordinates.
        shares: the share groups among them.
        share_session_ms: the session time-out of members of share groups.
    """

    def __init__(
        self, groups: Groups, shares: ShareGroups, share_session_ms: Callable[[str], int]
    ) -> None:
        self._groups = groups
        self._shares = shares
        self._share_session_ms = share_session_ms

    async def list(self) -> Sequence[ListedGroup]:
        """Every group that is coordinated here."""
        return self._groups.list()

    async def view(self, group_id: str) -> GroupView:
        """One group with its members and offsets."""
        for kind in (self._classic, self._assigned):
            try:
                group, name = kind(group_id)
            except MainstemError as error:
                if error.code is not ErrorCode.UNKNOWN_GROUP:
                    raise
            else:
                return GroupView(group, name, await self._standings(group_id))
        try:
            shared = self._shared(group_id)
        except MainstemError as error:
            if error.code is not ErrorCode.UNKNOWN_GROUP:
                raise
            raise InvalidRequest(ErrorCode.UNKNOWN_GROUP, subject=group_id) from error
        return GroupView(shared, "share", await self._shared_standings(group_id))

    async def delete(self, group_id: str) -> None:
        """Delete an empty group and its offsets."""
        await self._groups.delete(group_id)

    def _classic(self, group_id: str) -> tuple[DescribedGroup, str]:
        group = self._groups.describe(group_id)
        members = tuple(map(_plain, group.members))
        described = DescribedGroup(
            group.group_id,
            group.state,
            group.protocol_type,
            group.protocol_name,
            group.generation,
            group.leader,
            members,
        )
        return described, "classic"

    def _assigned(self, group_id: str) -> tuple[DescribedGroup, str]:
        group = self._groups.consumers.describe(group_id)
        members = tuple(map(_plain, group.members))
        described = DescribedGroup(
            group.group_id, group.state, "consumer", group.assignor, group.epoch, "", members
        )
        return described, "consumer"

    def _shared(self, group_id: str) -> DescribedGroup:
        group = self._shares.describe(group_id)
        session_ms = self._share_session_ms(group_id)
        members = tuple(
            DescribedMember(
                member.member_id,
                None,
                member.client_id,
                member.client_host,
                session_ms,
                0,  # share groups have no rebalance time-out
                metadata=b"",
                assignment=b"",
            )
            for member in group.members
        )
        return DescribedGroup(
            group.group_id, group.state, "share", group.assignor, group.epoch, "", members
        )

    async def _standings(self, group_id: str) -> tuple[PartitionProgress, ...]:
        return tuple(
            PartitionProgress(
                each.topic, each.partition, each.committed.offset, each.committed.metadata
            )
            for each in await self._groups.fetch_offsets(group_id, None)
            if each.committed.offset >= 0
        )

    async def _shared_standings(self, group_id: str) -> tuple[PartitionProgress, ...]:
        return tuple(
            PartitionProgress(
                each.topic,
                each.partition,
                each.start_offset,
                lag=None if each.lag == UNKNOWN_LAG else each.lag,
            )
            for each in await self._shares.offsets(group_id, None)
            if each.start_offset != UNKNOWN_OFFSET
        )


def _plain(member: DescribedMember | DescribedConsumer) -> DescribedMember:
    """A member without its metadata and assignment, which are opaque and may be large."""
    return DescribedMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        metadata=b"",
        assignment=b"",
    )
