"""Coordinator of share groups: members, and the stored states of their partitions.

No request waits for other members: every answer is sent as soon as the facts it depends on are
committed. The writer of a partition decides the states of records; the coordinator of the group
stores them.
"""

from collections.abc import Mapping, Sequence

from mainstem.coordination.groups.pending_requests_driver import PendingRequests
from mainstem.coordination.groups.shards_driver import GroupShards, LiveGroupShard
from mainstem.coordination.offsets.transactional_service import check_name, store
from mainstem.coordination.share.configs import ShareConfigs
from mainstem.coordination.share.facts import ShareEpochMoved, ShareFact, ShareState
from mainstem.coordination.share.group import ShareGroup, SharePartitionKey, not_a_share_group
from mainstem.coordination.share.requests import DescribedShareGroup, ShareAnswer, ShareHeartbeat
from mainstem.coordination.share.state_rules import forgotten, moved, stored, taken_over
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.ids import TopicId


class ShareGroupCoordinator:
    """The coordinator of the share groups on this node."""

    def __init__(self, shards: GroupShards, pending: PendingRequests) -> None:
        self._shards = shards
        self._pending = pending

    def partition_of(self, group_id: str) -> int:
        """The partition of the internal topic in which a group is stored."""
        return self._shards.partition_of(group_id)

    @property
    def configs(self) -> ShareConfigs:
        """The effective settings of groups."""
        return self._shards.share_configs

    async def heartbeat(self, request: ShareHeartbeat) -> ShareAnswer:
        """Handle ShareGroupHeartbeat; returns the member's epoch, and changed partitions."""
        check_name(request.group_id)
        if request.epoch == 0:
            live = await self._shards.find_to_write(request.group_id)
        else:
            live = self._find(request.group_id)
        with live.check_fresh_on_error():
            decision = live.shard.share_heartbeat(request)
        self._pending.settle_share(live, decision)
        await live.safe(has_stored=bool(decision.facts))
        assert decision.reply is not None, "a heartbeat has an answer"
        return decision.reply

    def describe(self, group_id: str) -> DescribedShareGroup:
        """Describe a share group."""
        check_name(group_id)
        return self._find_fresh(group_id).shard.shares.known(group_id).described()

    def states(self, group_id: str) -> Mapping[SharePartitionKey, ShareState]:
        """The states of all partitions that a group has read."""
        check_name(group_id)
        return self._find_fresh(group_id).shard.shares.known(group_id).states

    async def read(
        self, group_id: str, place: SharePartitionKey, leader_epoch: int
    ) -> ShareState | None:
        """Return the stored state of a partition to its writer, and fence earlier writers."""
        live = self._find(group_id)
        group = live.shard.shares.known(group_id)
        await store(live, taken_over(group, place, leader_epoch), self._pending.now())
        return group.states.get(place)

    async def write(self, group_id: str, place: SharePartitionKey, state: ShareState) -> None:
        """Store a state from the writer of a partition; returns once it is committed."""
        live = self._find(group_id)
        if not live.shard.shares.knows(place[0]):
            raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC_ID, subject=group_id)
        facts = stored(live.shard.shares.known(group_id), place, state)
        await store(live, facts, self._pending.now())

    async def move(self, group_id: str, wanted: Sequence[tuple[SharePartitionKey, int]]) -> None:
        """Set the start offsets of a group without members; creates the group if needed."""
        check_name(group_id)
        if not wanted:
            return
        live = await self._shards.find_to_write(group_id)
        group = live.shard.shares.get(group_id)
        facts: list[ShareFact] = []
        if group is None:
            if live.shard.has(group_id):
                raise not_a_share_group(group_id, "a group of another type has this id")
            group = ShareGroup(group_id)
            facts.append(ShareEpochMoved(group_id, 0))
        _check_empty(group)
        facts += [fact for place, start in wanted for fact in moved(group, place, start)]
        await store(live, facts, self._pending.now())

    async def forget(self, group_id: str, topics: Sequence[TopicId]) -> None:
        """Delete the states of a group without members in topics."""
        live = self._find_empty(group_id)
        group = live.shard.shares.known(group_id)
        facts = [fact for topic in topics for fact in forgotten(group, topic)]
        await store(live, facts, self._pending.now())

    def _find(self, group_id: str) -> LiveGroupShard:
        live = self._shards.find(group_id)
        if live is None:
            raise not_a_share_group(group_id, "the share group does not exist")
        return live

    def _find_fresh(self, group_id: str) -> LiveGroupShard:
        live = self._find(group_id)
        live.check_fresh()
        return live

    def _find_empty(self, group_id: str) -> LiveGroupShard:
        check_name(group_id)
        live = self._find(group_id)
        _check_empty(live.shard.shares.known(group_id))
        return live


def _check_empty(group: ShareGroup) -> None:
    if group.members:
        raise InvalidRequest(
            ErrorCode.GROUP_NOT_EMPTY,
            f"{len(group.members)} members",
            subject=group.id,
            remedy="stop its members first",
        )
