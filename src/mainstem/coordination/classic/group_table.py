"""Shard: the classic consumer groups whose names fall on one internal stream.

Requests change only state that is not stored (parked requests, deadlines); a generation is a fact
that is stored first and takes effect by ``replay``. A request that is refused at once raises; one
that may have to wait is parked under its ticket and answered through effects.

Guarantees: generations of a group only grow; a stable generation has exactly one leader and an
assignment for every member; ``replay`` rebuilds exactly what was stored.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from mainstem.coordination.classic import generation
from mainstem.coordination.classic.group import ClassicMember, Group, GroupState, unknown_member
from mainstem.coordination.classic.join_handler import JoinHandler
from mainstem.coordination.classic.rebalance import (
    AfterStored,
    Assigned,
    GroupEffects,
    Rebalancer,
    Replaced,
    expect_heartbeat,
    join_answer,
    rebalance_in_progress,
    sync_answer,
)
from mainstem.coordination.consumer.decision import Downgraded
from mainstem.coordination.groups.facts import GroupRemoved, GroupSaved
from mainstem.coordination.groups.requests import (
    CommitResult,
    HeartbeatRequest,
    JoinRequest,
    LeavingMember,
    SyncRequest,
)
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.shards.state_machine import Instant
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest, MainstemError
from mainstem.model.limits import GROUP_METADATA_BYTES_MAX


class GroupTable:
    """The groups of one shard.

    Args:
        settings: timeouts and limits.
        new_id: returns the unique part of a member id.
    """

    def __init__(self, settings: GroupSettings, new_id: Callable[[], str]) -> None:
        self._settings = settings
        self._groups: dict[str, Group] = {}
        self._rebalancer = Rebalancer(settings)
        self._join_handler = JoinHandler(settings, self._rebalancer, new_id)

    def get(self, group_id: str) -> Group | None:
        """The group with that id, or None."""
        return self._groups.get(group_id)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def check(self, request: JoinRequest) -> None:
        """Validate the fields of a join that do not depend on the group."""
        self._join_handler.check(request)

    def join(self, request: JoinRequest, ticket: int, now: Instant) -> GroupEffects:
        """Handle JoinGroup: the member takes part in the next generation."""
        self._join_handler.check(request)
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_id:
                raise unknown_member(request.group_id, request.member_id)
            group = Group(request.group_id, state_ms=now.wall_ms)
        effects = self._join_handler.join(group, request, ticket, now)
        self._groups[group.id] = group
        return effects

    def sync(self, request: SyncRequest, ticket: int, now: Instant) -> GroupEffects:
        """Handle SyncGroup: a member requests its assignment, the leader sends all assignments."""
        group = self._group(request.group_id, request.member_id)
        member = group.check_member(request.member_id, request.instance_id)
        _check_generation(group, request.generation)
        for given, is_so in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if given is not None and is_so is not None and given != is_so:
                raise InvalidRequest(
                    ErrorCode.INCONSISTENT_PROTOCOL,
                    f"{given} is not the group's {is_so}",
                    subject=group.id,
                )
        if group.state is GroupState.PREPARING:
            raise rebalance_in_progress(group.id)
        leads = group.state is GroupState.COMPLETING and member.id == group.leader
        if leads:
            _check_assignments(group, request)
        effects = GroupEffects()
        group.unsynced.discard(member.id)
        if not group.unsynced:
            group.sync_deadline_ms = None
        if group.state is GroupState.STABLE:
            effects.answer(ticket, sync_answer(group, member))
            return effects
        effects.answer(member.sync_ticket, rebalance_in_progress(group.id))
        member.sync_ticket = ticket
        if leads:
            saved = generation.save(group, now.wall_ms, assignments=dict(request.assignments))
            effects.facts.append(saved)
            effects.then = Assigned(group.id)
        return effects

    def heartbeat(self, request: HeartbeatRequest, now: Instant) -> None:
        """Handle Heartbeat; raises if the member has to rejoin."""
        group = self._group(request.group_id, request.member_id)
        member = group.check_member(request.member_id, request.instance_id)
        _check_generation(group, request.generation)
        self.touch(member, now)
        if group.state is GroupState.PREPARING:
            raise rebalance_in_progress(group.id)

    def touch(self, member: ClassicMember, now: Instant) -> None:
        """Extend the member's session. The timer is not moved; if it fires early, it is reset."""
        member.deadline_ms = now.monotonic_ms + member.session_timeout_ms

    def leave(
        self, group_id: str, leaving_members: Sequence[LeavingMember], now: Instant
    ) -> tuple[list[CommitResult], GroupEffects]:
        """Handle LeaveGroup, sent by a member or by an administrator who removes members."""
        group = self._group(group_id, "")
        effects = GroupEffects()
        outcomes = [
            self._leave(group, leaving_member, effects) for leaving_member in leaving_members
        ]
        if None in outcomes:
            self._rebalancer.dropped(group, now, effects)
        return outcomes, effects

    def on_time(self, group_id: str, now: Instant) -> GroupEffects:
        """Act on deadlines of the group that have passed."""
        effects = GroupEffects()
        group = self._groups.get(group_id)
        if group is not None:
            self._rebalancer.on_time(group, now, effects)
        return effects

    def stored(self, then: AfterStored, saved: GroupSaved, now: Instant) -> GroupEffects:
        """Replay a stored fact and continue what waited for it."""
        effects = GroupEffects()
        group = self._groups[then.group_id]
        match then:
            case Assigned():
                self.replay(saved)
                self._rebalancer.answer_syncs(group, now, effects)
            case Replaced(_, old_id, new_id, request, ticket):
                leader = group.leader
                member = self._join_handler.replace(group, old_id, new_id, request, effects)
                expect_heartbeat(member, now, effects)
                self.replay(saved)
                if request.may_skip_assignment:
                    leads = member.id == group.leader
                    effects.answer(ticket, join_answer(group, member, skip_assignment=leads))
                else:
                    # An older client that is named leader would compute an assignment that no
                    # member receives: answer with the id of the former leader.
                    answer = join_answer(group, member, with_members=False)
                    effects.answer(ticket, replace(answer, leader=leader or ""))
        return effects

    def refused(self, then: AfterStored, error: MainstemError, now: Instant) -> GroupEffects:
        """Undo what waited for a fact that could not be stored."""
        effects = GroupEffects()
        match then:
            case Assigned(group_id):
                group = self._groups[group_id]
                self._rebalancer.answer_syncs(group, now, effects, refusal=error)
                self._rebalancer.start(group, now, effects)
            case Replaced(_, _, _, _, ticket):
                effects.answer(ticket, error)
        return effects

    def replay(self, fact: GroupSaved | GroupRemoved) -> None:
        """Apply a stored fact."""
        if isinstance(fact, GroupRemoved):
            self._groups.pop(fact.group_id, None)
            return
        generation.restore(self.ensure(fact.group_id, fact.state_ms), fact)

    def ensure(self, group_id: str, wall_ms: int) -> Group:
        """The group; a new one is empty and has no protocol type (it only commits offsets)."""
        return self._groups.setdefault(group_id, Group(group_id, state_ms=wall_ms))

    def forget(self, group_id: str) -> None:
        """Remove a group that was never stored, or that has become a consumer group."""
        self._groups.pop(group_id, None)

    def take_over(self, group_id: str, change: Downgraded, now: Instant) -> GroupEffects:
        """Take over the members of a consumer group that became a classic group."""
        group = self._groups[group_id]
        effects = GroupEffects()
        for member_id, protocols in change.protocols.items():
            group.update(group.members[member_id], protocols)
            expect_heartbeat(group.members[member_id], now, effects)
        if change.rebalances:
            self._rebalancer.start(group, now, effects)
        return effects

    def loaded(self, now: Instant) -> dict[str, GroupEffects]:
        """Start the session timers after replay, and remove members beyond the limit."""
        every = {}
        for group in self._groups.values():
            effects = every[group.id] = GroupEffects()
            for member in group.members.values():
                expect_heartbeat(member, now, effects)
            if len(group.members) > self._settings.members_max:
                self._rebalancer.start(group, now, effects)
        return every

    def _group(self, group_id: str, member_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            raise unknown_member(group_id, member_id)
        return group

    def _leave(
        self, group: Group, leaving_member: LeavingMember, effects: GroupEffects
    ) -> CommitResult:
        if leaving_member.member_id in group.pending:
            group.remove(leaving_member.member_id)
            return None
        member_id = leaving_member.member_id
        if not member_id and leaving_member.instance_id is not None:
            member_id = group.statics.get(leaving_member.instance_id, "")
        try:
            group.check_member(member_id, leaving_member.instance_id)
        except MainstemError as refusal:
            return refusal.code
        self._rebalancer.drop(group, member_id, effects)
        return None


def _check_generation(group: Group, given: int) -> None:
    if given != group.generation:
        raise Fenced(
            ErrorCode.ILLEGAL_GENERATION,
            f"generation {given} is not the current generation, {group.generation}",
            subject=group.id,
        )


def _check_assignments(group: Group, request: SyncRequest) -> None:
    size = sum(len(assignment) for _, assignment in request.assignments)
    if size > GROUP_METADATA_BYTES_MAX:
        raise InvalidRequest(
            ErrorCode.RECORD_TOO_LARGE,
            f"assignments of {size} bytes exceed the limit of {GROUP_METADATA_BYTES_MAX}",
            subject=group.id,
        )
