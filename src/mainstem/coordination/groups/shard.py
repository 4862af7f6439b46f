"""State machine of one partition of the internal topic: its groups and their committed offsets.

The driver loads it by ``replay``, asks it to decide, stores the facts and replays them. Decisions
that concern both groups and offsets (deleting a group, expiry, a member's commit) are made here.
"""

from collections.abc import Callable, Sequence

from mainstem.coordination.classic import generation
from mainstem.coordination.classic.group import Group, GroupState
from mainstem.coordination.classic.group_table import GroupTable
from mainstem.coordination.classic.rebalance import GroupEffects, rebalance_in_progress
from mainstem.coordination.consumer import view
from mainstem.coordination.consumer.decision import ConsumerGroupDecision, Downgraded, Upgraded
from mainstem.coordination.consumer.facts import ConsumerFact, ConsumerRecordKind, FactRemoved
from mainstem.coordination.consumer.group_table import ConsumerGroupTable
from mainstem.coordination.consumer.migration import not_a_consumer_group, removal
from mainstem.coordination.consumer.requests import ConsumerHeartbeat, DescribedConsumerGroup
from mainstem.coordination.consumer.topics import GroupTopics, TopicSource
from mainstem.coordination.consumer.view import check_commit
from mainstem.coordination.groups.facts import Fact, GroupRemoved, GroupSaved, OffsetCommitted
from mainstem.coordination.groups.requests import (
    CommitRequest,
    CommitResult,
    DescribedGroup,
    ListedGroup,
)
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.offsets.pending import GroupFact, OffsetPending, TransactionEnded
from mainstem.coordination.offsets.table import OffsetTable, Partition
from mainstem.coordination.shards.state_machine import Instant
from mainstem.coordination.share.configs import ShareConfigs
from mainstem.coordination.share.facts import ShareFact
from mainstem.coordination.share.group import not_a_share_group
from mainstem.coordination.share.group_table import ShareDecision, ShareGroupTable
from mainstem.coordination.share.requests import ShareHeartbeat
from mainstem.coordination.share.settings import ShareSettings
from mainstem.coordination.transactions.state import ProducerIdentity
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest, Unavailable

_UNSTAMPED = -1
_SHARING = ShareSettings()


class GroupShard:
    """The groups of one internal stream."""

    def __init__(
        self,
        settings: GroupSettings,
        topics: TopicSource,
        new_id: Callable[[], str],
        sharing: ShareSettings = _SHARING,
    ) -> None:
        self.groups = GroupTable(settings, new_id)
        self.consumers = ConsumerGroupTable(settings, GroupTopics(topics), new_id)
        configs = ShareConfigs(sharing, topics.group_texts)
        self.shares = ShareGroupTable(configs, GroupTopics(topics))
        self.offsets = OffsetTable(
            metadata_bytes_max=settings.offset_metadata_bytes_max,
            retention_ms=settings.offsets_retention_ms,
        )

    @property
    def group_count(self) -> int:
        """Number of groups of all types."""
        return len(self.groups) + len(self.consumers) + len(self.shares)

    def has(self, group_id: str) -> bool:
        """Whether a group with that id exists, of any type."""
        tables = (self.groups, self.consumers, self.shares)
        return any(table.get(group_id) is not None for table in tables)

    def commit(
        self, request: CommitRequest, now: Instant
    ) -> tuple[list[CommitResult], Sequence[Fact]]:
        """Decide an offset commit; a member's commit extends its session."""
        self.check_unshared(request.group_id)
        group = self.groups.get(request.group_id)
        consumers = self.consumers.get(request.group_id)
        if consumers is not None:
            check_commit(consumers, request, in_transaction=False)
        elif group is None:
            _check_commit_without_group(request)
        else:
            self._check_commit(group, request, now)
        return self.offsets.commit(request, now.wall_ms)

    def commit_in_transaction(
        self, request: CommitRequest, producer: ProducerIdentity, now: Instant
    ) -> tuple[list[CommitResult], Sequence[GroupFact]]:
        """Decide an offset commit that takes effect once the producer's transaction commits."""
        self.check_unshared(request.group_id)
        group = self.groups.get(request.group_id)
        consumers = self.consumers.get(request.group_id)
        if consumers is not None:
            check_commit(consumers, request, in_transaction=True)
        elif group is None:
            _check_commit_without_group(request)
        else:
            self._check_commit_in_transaction(group, request)
        outcomes, facts = self.offsets.commit(request, now.wall_ms)
        return outcomes, [OffsetPending(producer, fact) for fact in facts]

    def delete_offsets(
        self, group_id: str, partitions: Sequence[Partition]
    ) -> tuple[list[CommitResult], Sequence[Fact]]:
        """Decide to delete offsets; groups that are not of consumers have to be empty."""
        consumers = self.consumers.get(group_id)
        if consumers is not None:
            return self.offsets.delete(consumers, partitions)
        group = self._known(group_id)
        if group.state is not GroupState.EMPTY and not group.is_consumer:
            raise _not_empty(group_id, len(group.members), group.state.value)
        return self.offsets.delete(group, partitions)

    def delete_group(self, group_id: str) -> list[Fact]:
        """Decide to delete a group with all its committed offsets."""
        consumers = self.consumers.get(group_id)
        if consumers is not None:
            if consumers.members:
                raise _not_empty(group_id, len(consumers.members), consumers.phase.value)
            return [*self.offsets.delete_all(group_id), *removal(consumers)]
        shared = self.shares.get(group_id)
        if shared is not None:
            if shared.members:
                raise _not_empty(group_id, len(shared.members), shared.state)
            return [*self.shares.removal(shared)]
        group = self._known(group_id)
        if group.state is not GroupState.EMPTY:
            raise _not_empty(group_id, len(group.members), group.state.value)
        return [*self.offsets.delete_all(group_id), GroupRemoved(group_id)]

    def expire(self, wall_ms: int) -> list[Fact]:
        """Decide which offsets expire; empty groups are deleted with their last offset."""
        facts: list[Fact] = []
        for group in list(self.groups):
            expired = self.offsets.expire(group, wall_ms)
            facts += expired
            if self.offsets.pending.has(group.id):
                continue
            if group.is_empty and len(expired) == len(self.offsets.of(group.id)):
                if group.is_saved or expired:
                    facts.append(GroupRemoved(group.id))
                else:
                    self.groups.forget(group.id)
        for consumers in self.consumers:
            expired = self.offsets.expire(consumers, wall_ms)
            facts += expired
            is_last = len(expired) == len(self.offsets.of(consumers.id))
            if is_last and not consumers.members and not self.offsets.pending.has(consumers.id):
                facts += removal(consumers)
        return facts

    def consumer_heartbeat(self, request: ConsumerHeartbeat, now: Instant) -> ConsumerGroupDecision:
        """Decide a consumer group heartbeat; a classic group may become a consumer group."""
        self.check_unshared(request.group_id)
        return self.consumers.heartbeat(request, self.groups.get(request.group_id), now)

    def share_heartbeat(self, request: ShareHeartbeat) -> ShareDecision:
        """Decide a share group heartbeat; other groups cannot become share groups."""
        if self.has(request.group_id) and self.shares.get(request.group_id) is None:
            raise not_a_share_group(request.group_id, "a group of another type has this id")
        return self.shares.heartbeat(request)

    def check_unshared(self, group_id: str) -> None:
        """Refuse a request that does not apply to share groups."""
        if self.shares.get(group_id) is not None:
            raise InvalidRequest(ErrorCode.UNKNOWN_GROUP, "it is a share group", subject=group_id)

    def settle(self, decision: ConsumerGroupDecision, now: Instant) -> GroupEffects:
        """Effects after the facts of a decision about a consumer group are replayed."""
        effects = GroupEffects()
        wake_ms = self.consumers.settle(decision, now)
        if wake_ms is not None:
            effects.wake_at(wake_ms)
        if isinstance(decision.change, Upgraded):
            for ticket in decision.change.tickets:
                effects.answer(ticket, rebalance_in_progress(decision.group_id))
        elif isinstance(decision.change, Downgraded):
            return self.groups.take_over(decision.group_id, decision.change, now)
        return effects

    def replay(self, fact: GroupFact) -> None:
        """Apply a stored fact. Must not fail and must depend only on the facts."""
        if isinstance(fact, GroupSaved | GroupRemoved):
            if isinstance(fact, GroupSaved):
                self.consumers.discard(fact.group_id)
            self.groups.replay(fact)
            return
        if isinstance(fact, ConsumerFact):
            self._replay_consumers(fact)
            return
        if isinstance(fact, ShareFact):
            self.shares.replay(fact)
            return
        if isinstance(fact, TransactionEnded):
            self.offsets.end_transaction(fact.producer.producer_id, commit=fact.commit)
            return
        committed = fact
        if isinstance(fact, OffsetPending):
            committed = fact.committed
            self.offsets.pending.add(fact.producer.producer_id, fact.committed)
        else:
            self.offsets.replay(fact)
        if isinstance(committed, OffsetCommitted) and not self.has(committed.group_id):
            self.groups.ensure(committed.group_id, committed.committed.commit_ms)

    def list(self, states: frozenset[str], types: frozenset[str]) -> Sequence[ListedGroup]:
        """The groups in one of these states and of one of these types; empty filters match all."""
        lines = [generation.listed(group) for group in self.groups]
        lines += [view.listed(group) for group in self.consumers]
        lines += [group.listed() for group in self.shares]
        return [
            line
            for line in lines
            if (not states or line.state.lower() in states)
            and (not types or line.type.lower() in types)
        ]

    def describe(self, group_id: str) -> DescribedGroup:
        """Describe a classic group."""
        self.check_unshared(group_id)
        if self.consumers.get(group_id) is not None:
            raise InvalidRequest(
                ErrorCode.UNKNOWN_GROUP, "it is not a classic group", subject=group_id
            )
        return generation.described(self._known(group_id))

    def describe_consumers(self, group_id: str) -> DescribedConsumerGroup:
        """Describe a consumer group."""
        group = self.consumers.get(group_id)
        if group is None:
            self.check_unshared(group_id)
            self._known(group_id)
            raise not_a_consumer_group(group_id, "it is a classic group")
        return view.described(group, self.consumers.times.session_timeout_ms(group_id))

    def _replay_consumers(self, fact: ConsumerFact) -> None:
        if not isinstance(fact, FactRemoved):
            self.groups.forget(fact.group_id)
        self.consumers.replay(fact)
        ends = isinstance(fact, FactRemoved) and fact.kind is ConsumerRecordKind.EPOCH
        if ends and self.offsets.has(fact.group_id):
            # Its offsets stay, like those of a group without members that only commits.
            self.groups.ensure(fact.group_id, _UNSTAMPED)

    def _known(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise InvalidRequest(ErrorCode.UNKNOWN_GROUP, subject=group_id)
        return group

    def _check_commit(self, group: Group, request: CommitRequest, now: Instant) -> None:
        if request.generation < 0 and group.state is GroupState.EMPTY:
            return
        # Without generation and id this is refused too: only an empty group accepts such commits.
        member = group.check_member(request.member_id, request.instance_id)
        if request.generation != group.generation:
            raise _other_generation(group, request.generation)
        if group.state is GroupState.COMPLETING:
            # The member knows its generation but does not have its assignment yet.
            raise Unavailable(ErrorCode.REBALANCE_IN_PROGRESS, subject=group.id)
        self.groups.touch(member, now)

    def _check_commit_in_transaction(self, group: Group, request: CommitRequest) -> None:
        # The producer is fenced by its epoch; a member is checked only if named (KIP-447).
        if request.generation < 0 and not request.member_id and request.instance_id is None:
            return
        if request.generation < 0 and group.state is GroupState.EMPTY:
            return
        group.check_member(request.member_id, request.instance_id)
        if request.generation != group.generation:
            raise _other_generation(group, request.generation)


def _check_commit_without_group(request: CommitRequest) -> None:
    if request.generation < 0:
        return
    if request.reports_unknown_group:
        raise InvalidRequest(ErrorCode.UNKNOWN_GROUP, subject=request.group_id)
    raise Fenced(ErrorCode.ILLEGAL_GENERATION, "the group does not exist", subject=request.group_id)


def _other_generation(group: Group, given: int) -> Fenced:
    return Fenced(
        ErrorCode.ILLEGAL_GENERATION,
        f"generation {given} is not the current generation, {group.generation}",
        subject=group.id,
    )


def _not_empty(group_id: str, members: int, state: str) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.GROUP_NOT_EMPTY,
        f"{members} members, state {state}",
        subject=group_id,
        remedy="stop its members first",
    )
