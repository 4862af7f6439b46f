"""Consumer groups (KIP-848), as other packages use them.

No request waits for other members: every answer is sent as soon as the facts it depends on are
committed. Classic members of such a group use the requests of classic groups.
"""

from collections.abc import Sequence

from mainstem.coordination.consumer.classic_members import rejoin_required
from mainstem.coordination.consumer.decision import ConsumerGroupDecision
from mainstem.coordination.consumer.group import JOINING, ConsumerGroup
from mainstem.coordination.consumer.migration import not_a_consumer_group
from mainstem.coordination.consumer.requests import (
    ConsumerAnswer,
    ConsumerHeartbeat,
    DescribedConsumerGroup,
)
from mainstem.coordination.groups.pending_requests_driver import PendingRequests
from mainstem.coordination.groups.requests import (
    CommitResult,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    SyncAnswer,
    SyncRequest,
)
from mainstem.coordination.groups.shards_driver import GroupShards, LiveGroupShard
from mainstem.coordination.offsets.transactional_service import check_name


class ConsumerGroupCoordinator:
    """The coordinator of the consumer groups on this node."""

    def __init__(self, shards: GroupShards, pending: PendingRequests) -> None:
        self._shards = shards
        self._pending = pending

    async def heartbeat(self, request: ConsumerHeartbeat) -> ConsumerAnswer:
        """Handle ConsumerGroupHeartbeat; returns the member's epoch, and changed partitions."""
        check_name(request.group_id)
        if request.epoch == JOINING:
            live = await self._shards.find_to_write(request.group_id)
        else:
            live = self._find(request.group_id)
        with live.check_fresh_on_error():
            decision = live.shard.consumer_heartbeat(request, self._pending.now())
        self._pending.settle(live, decision)
        await live.safe(has_stored=bool(decision.facts))
        assert isinstance(decision.reply, ConsumerAnswer)
        return decision.reply

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        """Describe a consumer group."""
        check_name(group_id)
        live = self._find(group_id)
        live.check_fresh()
        return live.shard.describe_consumers(group_id)

    async def join(
        self, live: LiveGroupShard, group: ConsumerGroup, request: JoinRequest
    ) -> JoinAnswer:
        """Handle JoinGroup of a classic member."""
        with live.check_fresh_on_error():
            live.shard.groups.check(request)
            decision = live.shard.consumers.join(group, request, self._pending.now())
        self._pending.settle(live, decision)
        await live.safe(has_stored=bool(decision.facts))
        assert isinstance(decision.reply, JoinAnswer)
        return decision.reply

    async def sync(
        self, live: LiveGroupShard, group: ConsumerGroup, request: SyncRequest
    ) -> SyncAnswer:
        """Handle SyncGroup of a classic member."""
        with live.check_fresh_on_error():
            decision = live.shard.consumers.classic.sync(group, request)
        self._settle_classic(live, decision)
        await live.safe(has_stored=bool(decision.facts))
        assert isinstance(decision.reply, SyncAnswer)
        return decision.reply

    def classic_heartbeat(
        self, live: LiveGroupShard, group: ConsumerGroup, request: HeartbeatRequest
    ) -> None:
        """Handle Heartbeat of a classic member; raises if it has to join again."""
        decision = live.shard.consumers.classic_heartbeat(group, request, self._pending.now())
        self._settle_classic(live, decision)

    async def leave(
        self, live: LiveGroupShard, group: ConsumerGroup, leaving_members: Sequence[LeavingMember]
    ) -> list[CommitResult]:
        """Handle LeaveGroup of classic members, sent by them or by an administrator."""
        with live.check_fresh_on_error():
            decision = live.shard.consumers.leave(group, leaving_members, self._pending.now())
        self._pending.settle(live, decision)
        await live.safe(has_stored=bool(decision.facts))
        assert isinstance(decision.reply, list)
        return decision.reply

    def _find(self, group_id: str) -> LiveGroupShard:
        live = self._shards.find(group_id)
        if live is None:
            raise not_a_consumer_group(group_id, "it does not exist")
        return live

    def _settle_classic(self, live: LiveGroupShard, decision: ConsumerGroupDecision) -> None:
        self._pending.settle(live, decision)
        if decision.rejoins is not None:
            raise rejoin_required(decision.group_id)
