"""Consumer groups as the rest of the house sees them: every verb, on top of the shards.

``join`` and ``sync`` may wait for other members; a caller may cancel them at any time. The other
verbs wait for nothing but storage. Refusals are raised as ``MainstemError``s.
"""

from collections.abc import Callable, Collection, Sequence
from uuid import uuid4

from mainstem.coordination.consumer_group_requests import NOBODY, Reader
from mainstem.coordination.consumer_group_topics import TopicSource
from mainstem.coordination.consumer_group_view import check_fetch
from mainstem.coordination.consumer_groups_runtime import ConsumerGroupsRuntime
from mainstem.coordination.desk_runtime import Desk
from mainstem.coordination.group import unknown_member
from mainstem.coordination.group_positions_runtime import GroupPositions, check_name, store
from mainstem.coordination.group_shards_runtime import GroupShards, LiveGroups
from mainstem.coordination.offsets import Partition
from mainstem.coordination.requests import (
    NOTHING_COMMITTED,
    CommitRequest,
    DescribedGroup,
    FetchedOffset,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    Leaver,
    ListedGroup,
    Outcome,
    SyncAnswer,
    SyncRequest,
)
from mainstem.coordination.settings import GroupSettings
from mainstem.coordination.shards_runtime import InternalTopic
from mainstem.coordination.share_members_runtime import ShareMembersRuntime
from mainstem.coordination.share_settings import ShareSettings
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest

_SHARING = ShareSettings()


def _uuid() -> str:
    return str(uuid4())


class GroupsRuntime:
    """The coordinator of the groups on this node.

    Args:
        settings: time-outs and bounds.
        topic: where the facts are kept.
        topics: the topics of the cluster, which groups read.
        clock: the time.
        new_id: makes ids that are never used twice.
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
        self._desk = Desk(self._shards, clock)
        self.consumers = ConsumerGroupsRuntime(self._shards, self._desk)
        self.sharers = ShareMembersRuntime(self._shards, self._desk)
        self.positions = GroupPositions(self._shards, self._desk.now)

    def start(self) -> None:
        """Begin to load what is stored; call it in the running loop, once topics are known."""
        self._shards.start(self._desk.loaded, self._desk.given_up)

    def stop(self) -> None:
        """Refuse everything from now on and send those away who wait."""
        self._shards.stop()
        self._desk.stop()

    def is_loaded(self) -> bool:
        """Whether every shard that can be loaded serves its groups."""
        return self._shards.is_loaded()

    def topic_deleted(self, topic: str) -> None:
        """Forget the positions in a topic that is gone."""
        self._shards.topic_deleted(topic)

    def topic_changed(self, topic: str) -> None:
        """A topic came or grew: groups that read it share its partitions anew."""
        self._shards.topic_changed(topic)

    def coordinator_partition(self, group_id: str) -> int:
        """The partition of the internal topic that a group is kept in."""
        return self._shards.partition_of(group_id)

    async def join(self, request: JoinRequest) -> JoinAnswer:
        """Take part in the next generation; answered when it begins."""
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
            # An empty group is whatever its next member makes it.
            self._desk.settle(live, live.shard.consumers.make_way(consumers, request))
        ticket, parked = self._desk.park(live)
        try:
            effects = live.shard.groups.join(request, ticket, self._desk.now())
            self._desk.carry_out(live, request.group_id, effects)
            answer = await parked
        finally:
            self._desk.forget(ticket)
        assert isinstance(answer, JoinAnswer)
        return answer

    async def sync(self, request: SyncRequest) -> SyncAnswer:
        """What the caller is assigned; answered when the leader has brought it."""
        live = self._find_member(request.group_id, request.member_id)
        consumers = live.shard.consumers.get(request.group_id)
        if consumers is not None:
            return await self.consumers.sync(live, consumers, request)
        ticket, parked = self._desk.park(live)
        try:
            effects = live.shard.groups.sync(request, ticket, self._desk.now())
            self._desk.carry_out(live, request.group_id, effects)
            answer = await parked
        finally:
            self._desk.forget(ticket)
        assert isinstance(answer, SyncAnswer)
        return answer

    def heartbeat(self, request: HeartbeatRequest) -> None:
        """The caller is alive; raises if it has to do something about its membership."""
        live = self._find_member(request.group_id, request.member_id)
        consumers = live.shard.consumers.get(request.group_id)
        if consumers is not None:
            self.consumers.live_on(live, consumers, request)
        else:
            live.shard.groups.heartbeat(request, self._desk.now())

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> list[Outcome]:
        """Members go, or an administrator removes them."""
        live = self._find_member(group_id, ", ".join(leaver.member_id for leaver in leavers))
        consumers = live.shard.consumers.get(group_id)
        if consumers is not None:
            return await self.consumers.leave(live, consumers, leavers)
        outcomes, effects = live.shard.groups.leave(group_id, leavers, self._desk.now())
        self._desk.carry_out(live, group_id, effects)
        await live.safe()
        return outcomes

    async def commit_offsets(self, request: CommitRequest) -> list[Outcome]:
        """Keep positions; the outcome for each, once they are safe."""
        check_name(request.group_id, may_be_empty=True)
        live = await self._shards.find_to_write(request.group_id)
        outcomes, facts = live.shard.commit(request, self._desk.now())
        await store(live, facts, self._desk.now())
        return outcomes

    async def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[Partition] | None,
        *,
        stable: bool = False,
        reader: Reader = NOBODY,
    ) -> Sequence[FetchedOffset]:
        """The positions asked for, or (None) all of the group."""
        live = self._find(group_id, may_be_empty=True)
        if live is None:
            return [FetchedOffset(t, p, NOTHING_COMMITTED) for t, p in partitions or ()]
        consumers = live.shard.consumers.get(group_id)
        if consumers is not None:
            check_fetch(consumers, reader)
        fetched = live.shard.offsets.fetch(group_id, partitions, stable=stable)
        await live.safe()
        return fetched

    async def delete_offsets(self, group_id: str, partitions: Sequence[Partition]) -> list[Outcome]:
        """Forget positions, except in topics the group reads."""
        live = self._find_existing(group_id)
        outcomes, facts = live.shard.delete_offsets(group_id, partitions)
        await store(live, facts, self._desk.now())
        return outcomes

    async def delete(self, group_id: str) -> None:
        """Forget an empty group and all its positions."""
        live = self._find_existing(group_id)
        await store(live, live.shard.delete_group(group_id), self._desk.now())

    def list(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> Sequence[ListedGroup]:
        """The groups in one of these states and of one of these types; none named: all."""
        wanted_states = frozenset(state.lower() for state in states)
        wanted_types = frozenset(name.lower() for name in types)
        lines: list[ListedGroup] = []
        for live in self._shards.all():
            lines += live.shard.list(wanted_states, wanted_types)
        return lines

    def describe(self, group_id: str) -> DescribedGroup:
        """One group in full."""
        return self._find_existing(group_id).shard.describe(group_id)

    def _find(self, group_id: str, *, may_be_empty: bool = False) -> LiveGroups | None:
        check_name(group_id, may_be_empty=may_be_empty)
        return self._shards.find(group_id)

    def _find_member(self, group_id: str, member_id: str) -> LiveGroups:
        live = self._find(group_id)
        if live is None:
            raise unknown_member(group_id, member_id)
        return live

    def _find_existing(self, group_id: str) -> LiveGroups:
        live = self._find(group_id, may_be_empty=True)
        if live is None:
            raise InvalidRequest(ErrorCode.UNKNOWN_GROUP, subject=group_id)
        return live
