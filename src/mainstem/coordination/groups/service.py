"""Group coordinator as other packages use it: every request, on top of the shards.

``join`` and ``sync`` may wait for other members; a caller may cancel them at any time. The other
requests wait only for storage. Refusals are raised as ``MainstemError``s.
"""

from collections.abc import Callable, Collection, Sequence
from uuid import uuid4

from mainstem.coordination.classic.group import unknown_member
from mainstem.coordination.consumer.requests import NOBODY, OffsetReader
from mainstem.coordination.consumer.service import ConsumerGroupCoordinator
from mainstem.coordination.consumer.topics import TopicSource
from mainstem.coordination.consumer.view import check_fetch
from mainstem.coordination.groups.pending_requests_driver import PendingRequests
from mainstem.coordination.groups.requests import (
    NOTHING_COMMITTED,
    CommitRequest,
    CommitResult,
    DescribedGroup,
    FetchedOffset,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    ListedGroup,
    SyncAnswer,
    SyncRequest,
)
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.groups.shards_driver import GroupShards, LiveGroupShard
from mainstem.coordination.offsets.table import Partition
from mainstem.coordination.offsets.transactional_service import (
    TransactionalGroupOffsets,
    check_name,
    store,
)
from mainstem.coordination.shards.registry_driver import InternalTopic
from mainstem.coordination.share.service import ShareGroupCoordinator
from mainstem.coordination.share.settings import ShareSettings
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest

_SHARING = ShareSettings()


def _uuid() -> str:
    return str(uuid4())


class GroupCoordinator:
    """The coordinator of the groups on this node.

    Args:
        settings: timeouts and limits.
        topic: the internal topic in which facts are stored.
        topics: the topics of the cluster, which groups read.
        clock: source of time.
        new_id: returns unique ids.
        sharing: the settings of share groups.
    """

    def __init__(
        self,
        settings: GroupSettings,
        topic: InternalTopic,
        topics: TopicSource,
        clock: Clock,
        new_id: Callable[[], str] = _uuid,
        sharing: ShareSettings = _SHARING,
    ) -> None:
        self._shards = self.shards = GroupShards(settings, topic, topics, clock, new_id, sharing)
        self._pending = PendingRequests(self._shards, clock)
        self.consumers = ConsumerGroupCoordinator(self._shards, self._pending)
        self.share_groups = ShareGroupCoordinator(self._shards, self._pending)
        self.transactional_offsets = TransactionalGroupOffsets(self._shards, self._pending.now)

    def start(self) -> None:
        """Start loading the shards; call it in the running loop, once topics are known."""
        self._shards.start(self._pending.loaded, self._pending.given_up)

    def stop(self) -> None:
        """Refuse all further requests and fail those that wait."""
        self._shards.stop()
        self._pending.stop()

    def is_loaded(self) -> bool:
        """Whether every shard that can be loaded serves its groups."""
        return self._shards.is_loaded()

    def topic_deleted(self, topic: str) -> None:
        """Delete the committed offsets of a deleted topic."""
        self._shards.topic_deleted(topic)

    def topic_changed(self, topic: str) -> None:
        """Let groups that read a created or extended topic compute a new assignment."""
        self._shards.topic_changed(topic)

    def coordinator_partition(self, group_id: str) -> int:
        """The partition of the internal topic in which a group is stored."""
        return self._shards.partition_of(group_id)

    async def join(self, request: JoinRequest) -> JoinAnswer:
        """Take part in the next generation; answered when it starts."""
        check_name(request.group_id)
        live = await self._shards.find_to_write(request.group_id)
        if live.shard.shares.get(request.group_id) is not None:
            raise InvalidRequest(
                ErrorCode.INCONSISTENT_PROTOCOL, "it is a share group", subject=request.group_id
            )
        consumers = live.shard.consumers.get(request.group_id)
        if consumers is not None:
            if consumers.members:
                return await self.consumers.join(live, consumers, request)
            # An empty group takes the protocol of the next member that joins.
            self._pending.settle(live, live.shard.consumers.remove_empty_group(consumers, request))
        ticket, parked = self._pending.park(live)
        try:
            with live.check_fresh_on_error():
                effects = live.shard.groups.join(request, ticket, self._pending.now())
            self._pending.carry_out(live, request.group_id, effects)
            answer = await parked
        finally:
            self._pending.forget(ticket)
        assert isinstance(answer, JoinAnswer)
        return answer

    async def sync(self, request: SyncRequest) -> SyncAnswer:
        """The caller's assignment; answered when the leader has sent it."""
        live = self._find_member(request.group_id, request.member_id)
        consumers = live.shard.consumers.get(request.group_id)
        if consumers is not None:
            return await self.consumers.sync(live, consumers, request)
        ticket, parked = self._pending.park(live)
        try:
            with live.check_fresh_on_error():
                effects = live.shard.groups.sync(request, ticket, self._pending.now())
            self._pending.carry_out(live, request.group_id, effects)
            answer = await parked
            if not effects.facts:
                live.check_fresh()
        finally:
            self._pending.forget(ticket)
        assert isinstance(answer, SyncAnswer)
        return answer

    def heartbeat(self, request: HeartbeatRequest) -> None:
        """Handle Heartbeat; raises if the member has to rejoin."""
        live = self._find_member(request.group_id, request.member_id)
        consumers = live.shard.consumers.get(request.group_id)
        try:
            if consumers is not None:
                self.consumers.classic_heartbeat(live, consumers, request)
            else:
                live.shard.groups.heartbeat(request, self._pending.now())
        finally:
            # Last: the session is extended even if the member has to look up its coordinator again.
            live.check_fresh()

    async def leave(
        self, group_id: str, leaving_members: Sequence[LeavingMember]
    ) -> list[CommitResult]:
        """Handle LeaveGroup, sent by a member or by an administrator who removes members."""
        live = self._find_member(
            group_id, ", ".join(leaving_member.member_id for leaving_member in leaving_members)
        )
        consumers = live.shard.consumers.get(group_id)
        if consumers is not None:
            return await self.consumers.leave(live, consumers, leaving_members)
        with live.check_fresh_on_error():
            outcomes, effects = live.shard.groups.leave(
                group_id, leaving_members, self._pending.now()
            )
        self._pending.carry_out(live, group_id, effects)
        await live.safe(has_stored=bool(effects.facts))
        return outcomes

    async def commit_offsets(self, request: CommitRequest) -> list[CommitResult]:
        """Commit offsets; returns the outcome for each once they are stored durably."""
        check_name(request.group_id, may_be_empty=True)
        live = await self._shards.find_to_write(request.group_id)
        with live.check_fresh_on_error():
            outcomes, facts = live.shard.commit(request, self._pending.now())
        await store(live, facts, self._pending.now())
        return outcomes

    async def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[Partition] | None,
        *,
        stable: bool = False,
        reader: OffsetReader = NOBODY,
    ) -> Sequence[FetchedOffset]:
        """The requested committed offsets, or (None) all of the group."""
        live = self._find(group_id, may_be_empty=True)
        if live is None:
            return [FetchedOffset(t, p, NOTHING_COMMITTED) for t, p in partitions or ()]
        consumers = live.shard.consumers.get(group_id)
        if consumers is not None:
            with live.check_fresh_on_error():
                check_fetch(consumers, reader)
        fetched = live.shard.offsets.fetch(group_id, partitions, stable=stable)
        await live.safe()
        live.check_fresh_or_wait()
        return fetched

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[Partition]
    ) -> list[CommitResult]:
        """Delete committed offsets, except in topics the group reads."""
        live = self._find_existing(group_id)
        with live.check_fresh_on_error():
            outcomes, facts = live.shard.delete_offsets(group_id, partitions)
        await store(live, facts, self._pending.now())
        return outcomes

    async def delete(self, group_id: str) -> None:
        """Delete an empty group and all its committed offsets."""
        live = self._find_existing(group_id)
        with live.check_fresh_on_error():
            facts = live.shard.delete_group(group_id)
        await store(live, facts, self._pending.now())

    def list(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> Sequence[ListedGroup]:
        """The groups in one of these states and of one of these types; empty filters match all."""
        wanted_states = frozenset(state.lower() for state in states)
        wanted_types = frozenset(name.lower() for name in types)
        lines: list[ListedGroup] = []
        for live in self._shards.all():
            lines += live.shard.list(wanted_states, wanted_types)
        return lines

    def describe(self, group_id: str) -> DescribedGroup:
        """Describe a classic group."""
        live = self._find_existing(group_id)
        live.check_fresh()
        return live.shard.describe(group_id)

    def _find(self, group_id: str, *, may_be_empty: bool = False) -> LiveGroupShard | None:
        check_name(group_id, may_be_empty=may_be_empty)
        return self._shards.find(group_id)

    def _find_member(self, group_id: str, member_id: str) -> LiveGroupShard:
        live = self._find(group_id)
        if live is None:
            raise unknown_member(group_id, member_id)
        return live

    def _find_existing(self, group_id: str) -> LiveGroupShard:
        live = self._find(group_id, may_be_empty=True)
        if live is None:
            raise InvalidRequest(ErrorCode.UNKNOWN_GROUP, subject=group_id)
        return live
