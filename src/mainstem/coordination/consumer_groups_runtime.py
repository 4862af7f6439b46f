"""Groups whose members are assigned by the coordinator, as the rest of the house sees them.

Nothing waits for other members here: every answer goes out as soon as the facts it rests on are
committed. Classic members of such a group come in through the verbs of classic groups.
"""

from collections.abc import Sequence

from mainstem.coordination.consumer_group import JOINING, ConsumerGroup
from mainstem.coordination.consumer_group_classic import rejoin_refusal
from mainstem.coordination.consumer_group_decision import Decision
from mainstem.coordination.consumer_group_migration import not_a_consumer_group
from mainstem.coordination.consumer_group_requests import (
    ConsumerAnswer,
    ConsumerHeartbeat,
    DescribedConsumerGroup,
)
from mainstem.coordination.desk_runtime import Desk
from mainstem.coordination.group_positions_runtime import check_name
from mainstem.coordination.group_shards_runtime import GroupShards, LiveGroups
from mainstem.coordination.requests import (
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    Leaver,
    Outcome,
    SyncAnswer,
    SyncRequest,
)


class ConsumerGroupsRuntime:
    """The coordinator of the consumer groups on this node."""

    def __init__(self, shards: GroupShards, desk: Desk) -> None:
        self._shards = shards
        self._desk = desk

    async def heartbeat(self, request: ConsumerHeartbeat) -> ConsumerAnswer:
        """A member joins, lives or leaves; its epoch, and its partitions where they changed."""
        check_name(request.group_id)
        if request.epoch == JOINING:
            live = await self._shards.find_to_write(request.group_id)
        else:
            live = self._find(request.group_id)
        decision = live.shard.consumer_heartbeat(request, self._desk.now())
        self._desk.settle(live, decision)
        await live.safe()
        assert isinstance(decision.reply, ConsumerAnswer)
        return decision.reply

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        """One consumer group in full."""
        check_name(group_id)
        return self._find(group_id).shard.describe_consumers(group_id)

    async def join(
        self, live: LiveGroups, group: ConsumerGroup, request: JoinRequest
    ) -> JoinAnswer:
        """A classic member joins, or takes its next step."""
        live.shard.groups.check(request)
        decision = live.shard.consumers.join(group, request, self._desk.now())
        self._desk.settle(live, decision)
        await live.safe()
        assert isinstance(decision.reply, JoinAnswer)
        return decision.reply

    async def sync(
        self, live: LiveGroups, group: ConsumerGroup, request: SyncRequest
    ) -> SyncAnswer:
        """A classic member wants to know what it has."""
        decision = live.shard.consumers.classic.sync(group, request)
        self._settle_classic(live, decision)
        await live.safe()
        assert isinstance(decision.reply, SyncAnswer)
        return decision.reply

    def live_on(self, live: LiveGroups, group: ConsumerGroup, request: HeartbeatRequest) -> None:
        """A classic member lives; raises if it has to join again."""
        decision = live.shard.consumers.live_on(group, request, self._desk.now())
        self._settle_classic(live, decision)

    async def leave(
        self, live: LiveGroups, group: ConsumerGroup, leavers: Sequence[Leaver]
    ) -> list[Outcome]:
        """Classic members go, or an administrator removes them."""
        decision = live.shard.consumers.leave(group, leavers, self._desk.now())
        self._desk.settle(live, decision)
        await live.safe()
        assert isinstance(decision.reply, list)
        return decision.reply

    def _find(self, group_id: str) -> LiveGroups:
        live = self._shards.find(group_id)
        if live is None:
            raise not_a_consumer_group(group_id, "nobody has joined it")
        return live

    def _settle_classic(self, live: LiveGroups, decision: Decision) -> None:
        self._desk.settle(live, decision)
        if decision.rejoins is not None:
            raise rejoin_refusal(decision.group_id)
