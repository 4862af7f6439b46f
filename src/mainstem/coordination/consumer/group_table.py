"""Shard: the consumer groups of one internal stream.

Requests are decided on the current state and change nothing; the facts of a decision are stored
and replayed, then the decision is settled: deadlines and the next wake-up time are set.

Guarantees: group epochs only grow; no partition has two owners at once; ``replay`` rebuilds
exactly what was stored.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from mainstem.coordination.classic.group import Group
from mainstem.coordination.consumer.classic_members import ClassicMembers
from mainstem.coordination.consumer.decision import (
    ConsumerGroupDecision,
    Downgraded,
    Reply,
    Upgraded,
)
from mainstem.coordination.consumer.decision_builder import DecisionBuilder
from mainstem.coordination.consumer.facts import (
    ConsumerFact,
    ConsumerRecordKind,
    FactRemoved,
    MemberState,
)
from mainstem.coordination.consumer.group import (
    AWAY,
    JOINING,
    ConsumerGroup,
    ConsumerMember,
    MemberDeadlines,
)
from mainstem.coordination.consumer.heartbeat_handler import HeartbeatHandler, is_leave_heartbeat
from mainstem.coordination.consumer.migration import (
    MigrationPolicy,
    can_downgrade,
    check_upgrade,
    downgrade,
    not_a_consumer_group,
    removal,
    upgrade,
)
from mainstem.coordination.consumer.requests import ConsumerAnswer, ConsumerHeartbeat
from mainstem.coordination.consumer.timeouts import GroupTimeouts
from mainstem.coordination.consumer.topic_index import GroupsByTopic
from mainstem.coordination.consumer.topics import GroupTopics
from mainstem.coordination.groups.facts import GroupRemoved
from mainstem.coordination.groups.requests import HeartbeatRequest, JoinRequest, LeavingMember
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.shards.state_machine import Instant


class ConsumerGroupTable:
    """The consumer groups of one shard.

    Args:
        settings: timeouts and limits.
        topics: the topics of the cluster.
        new_id: returns unique ids.
    """

    def __init__(
        self, settings: GroupSettings, topics: GroupTopics, new_id: Callable[[], str]
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._policy = MigrationPolicy(settings.consumer_migration_policy)
        self.times = GroupTimeouts(settings, topics)
        self._groups: dict[str, ConsumerGroup] = {}
        self._index = GroupsByTopic()
        self._heartbeat_handler = HeartbeatHandler(settings, new_id)
        self.classic = ClassicMembers(settings, topics, new_id)

    def get(self, group_id: str) -> ConsumerGroup | None:
        """The group with that id, or None."""
        return self._groups.get(group_id)

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def heartbeat(
        self, request: ConsumerHeartbeat, classic: Group | None, now: Instant
    ) -> ConsumerGroupDecision:
        """Decide a heartbeat: join, stay or leave; ``classic`` is the classic group of that id."""
        self._heartbeat_handler.check(request)
        group = self._groups.get(request.group_id)
        if is_leave_heartbeat(request):
            return self._depart(_known(group, request.group_id), request, now)
        if request.epoch != JOINING:
            return self._beat(_known(group, request.group_id), request, now)
        if group is None and classic is not None and classic.members:
            return self._upgrade(classic, request, now)
        group = group or ConsumerGroup(request.group_id)
        decided = self._beat(group, request, now)
        if classic is None or not classic.is_saved:
            return decided
        return replace(decided, facts=[GroupRemoved(classic.id), *decided.facts])

    def join(
        self, group: ConsumerGroup, request: JoinRequest, now: Instant
    ) -> ConsumerGroupDecision:
        """Decide JoinGroup of a classic member: it joins, or takes its next reconciliation step."""
        former = group.static(request.instance_id)
        draft = DecisionBuilder(group, self._topics, now)
        decided = self.classic.join(draft, request)
        members = draft.members()
        is_last = former is not None and former.classic is None
        if not (is_last and can_downgrade(members, self._policy, self._settings.members_max)):
            return decided
        # The last consumer-protocol member rejoined as a classic member.
        arrived = all(m.has_arrived(draft.target_epoch) for m in members.values())
        return ConsumerGroupDecision(
            group_id=group.id,
            facts=downgrade(draft, self._topics, now.wall_ms),
            reply=decided.reply,
            change=Downgraded(_protocols(members.values()), rebalances=not arrived),
        )

    def classic_heartbeat(
        self, group: ConsumerGroup, request: HeartbeatRequest, now: Instant
    ) -> ConsumerGroupDecision:
        """Decide the heartbeat of a classic member."""
        return self.classic.heartbeat(DecisionBuilder(group, self._topics, now), request)

    def leave(
        self, group: ConsumerGroup, leaving_members: Sequence[LeavingMember], now: Instant
    ) -> ConsumerGroupDecision:
        """Decide LeaveGroup of classic members, sent by them or by an administrator."""
        outcomes, gone = self.classic.leaving_members(group, leaving_members)
        if not gone:
            return ConsumerGroupDecision(group_id=group.id, reply=outcomes)
        return self._remove(group, gone, now, outcomes)

    def remove_empty_group(
        self, group: ConsumerGroup, request: JoinRequest
    ) -> ConsumerGroupDecision:
        """Delete an empty group when a classic member joins, so that it becomes a classic group."""
        assert not group.members, "a group with members is joined, not replaced"
        # A request with a member id is refused anyway: the group has no members.
        return ConsumerGroupDecision(
            group_id=group.id, facts=() if request.member_id else removal(group)
        )

    def on_time(self, group_id: str, now: Instant) -> ConsumerGroupDecision | None:
        """Decide to remove the members whose deadlines have passed; None if there are none."""
        group = self._groups.get(group_id)
        if group is None:
            return None
        due = [
            member_id
            for member_id, timers in group.timers.items()
            if (at_ms := timers.earliest()) is not None and at_ms <= now.monotonic_ms
        ]
        return self._remove(group, due, now, None) if due else None

    def settle(self, decision: ConsumerGroupDecision, now: Instant) -> int | None:
        """Set deadlines once the facts of a decision are replayed; returns the wake-up time."""
        group = self._groups.get(decision.group_id)
        if group is None:
            return None
        if decision.refreshed:
            group.is_stale = False
        if isinstance(decision.change, Upgraded):
            for member in group.members.values():
                self._expect(group, member, now)
            return group.next_ms()
        known_member = group.members.get(decision.refreshed_member or decision.rejoins or "")
        if known_member is None:
            return None
        timers = group.timers.setdefault(known_member.id, MemberDeadlines())
        if decision.refreshed_member is not None:
            self._expect(group, known_member, now)
        until_ms = now.monotonic_ms + known_member.rebalance_timeout_ms
        if decision.joined is not None:
            timers.joined(until_ms)
        if decision.synced is not None:
            timers.synced()
        if decision.rejoins is not None:
            timers.asked_to_join(until_ms)
        return timers.earliest()

    def loaded(self, now: Instant) -> dict[str, int | None]:
        """Start the session timeouts after loading; returns the wake-up time of each group."""
        for group in self._groups.values():
            for member in group.members.values():
                self._expect(group, member, now)
        return {group.id: group.next_ms() for group in self._groups.values()}

    def replay(self, fact: ConsumerFact) -> None:
        """Apply a stored fact."""
        group = self._groups.get(fact.group_id)
        if isinstance(fact, FactRemoved):
            if fact.kind is ConsumerRecordKind.EPOCH:
                self.discard(fact.group_id)
                return
            if group is None:
                return
        if group is None:
            group = self._groups[fact.group_id] = ConsumerGroup(fact.group_id)
        self._index.replay(group, fact)

    def discard(self, group_id: str) -> None:
        """Remove a group that was deleted or became a classic group."""
        group = self._groups.pop(group_id, None)
        if group is not None:
            self._index.discard(group)

    def topic_changed(self, name: str) -> None:
        """Mark the groups that read a changed topic as stale until their next heartbeat."""
        for group_id in self._index.concerned(name, self._groups):
            self._groups[group_id].is_stale = True

    def _beat(
        self, group: ConsumerGroup, request: ConsumerHeartbeat, now: Instant
    ) -> ConsumerGroupDecision:
        interval_ms = self.times.heartbeat_interval_ms(group.id)
        draft = DecisionBuilder(group, self._topics, now, request.may_see)
        return self._heartbeat_handler.heartbeat(draft, request, interval_ms)

    def _upgrade(
        self, classic: Group, request: ConsumerHeartbeat, now: Instant
    ) -> ConsumerGroupDecision:
        check_upgrade(classic, self._policy, self._settings.consumer_members_max)
        facts, group = upgrade(classic, self._topics)
        decided = self._beat(group, request, now)
        waiting = (
            ticket
            for member in classic.members.values()
            for ticket in (member.join_ticket, member.sync_ticket)
            if ticket is not None
        )
        return replace(decided, facts=[*facts, *decided.facts], change=Upgraded(tuple(waiting)))

    def _depart(
        self, group: ConsumerGroup, request: ConsumerHeartbeat, now: Instant
    ) -> ConsumerGroupDecision:
        member = self._heartbeat_handler.leaving_member(group, request)
        if request.epoch == AWAY:
            return self._heartbeat_handler.leave_temporarily(group, member)
        return self._remove(group, [member.id], now, ConsumerAnswer(member.id, request.epoch))

    def _remove(
        self, group: ConsumerGroup, member_ids: Sequence[str], now: Instant, reply: Reply
    ) -> ConsumerGroupDecision:
        draft = DecisionBuilder(group, self._topics, now)
        for member_id in member_ids:
            draft.remove(member_id)
        stay = draft.members()
        was_last = any(group.members[m].classic is None for m in member_ids if m in group.members)
        if was_last and can_downgrade(stay, self._policy, self._settings.members_max):
            return ConsumerGroupDecision(
                group_id=group.id,
                facts=downgrade(draft, self._topics, now.wall_ms),
                reply=reply,
                change=Downgraded(_protocols(stay.values()), rebalances=True),
            )
        draft.refresh(moves_epoch=True)
        return ConsumerGroupDecision(
            group_id=group.id, facts=draft.facts, reply=reply, refreshed=draft.refreshed
        )

    def _expect(self, group: ConsumerGroup, member: ConsumerMember, now: Instant) -> None:
        timers = group.timers.setdefault(member.id, MemberDeadlines())
        session_ms = self.times.session_timeout_ms(group.id)
        if member.classic is not None:
            session_ms = member.classic.session_timeout_ms
        else:
            timers.join_ms = timers.sync_ms = None
        timers.session_ms = now.monotonic_ms + session_ms
        if member.classic is not None or member.state is not MemberState.UNREVOKED:
            timers.revoke_ms = None
        elif timers.revoke_ms is None or timers.revoke_epoch != member.epoch:
            timers.revoke_ms = now.monotonic_ms + member.rebalance_timeout_ms
            timers.revoke_epoch = member.epoch


def _protocols(members: Iterable[ConsumerMember]) -> dict[str, tuple[tuple[str, bytes], ...]]:
    return {m.id: m.classic.protocols for m in members if m.classic is not None}


def _known(group: ConsumerGroup | None, group_id: str) -> ConsumerGroup:
    if group is None:
        raise not_a_consumer_group(group_id, "no member has joined it with the consumer protocol")
    return group
