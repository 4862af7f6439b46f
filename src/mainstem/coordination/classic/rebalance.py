"""How one group moves from a generation to the next: who is waited for, how long, who is told what.

Joins are parked until everybody has come or patience ends, syncs until the leader has brought the
assignments. Every parked request is answered exactly once: with the generation, with the
assignment, or with the reason why not. Effects collect what the caller shall store and answer.
"""

from msgspec import Struct

from mainstem.coordination.classic import generation
from mainstem.coordination.classic.group import ClassicMember, Group, GroupState, unknown_member
from mainstem.coordination.groups.facts import Fact
from mainstem.coordination.groups.requests import JoinAnswer, JoinedMember, JoinRequest, SyncAnswer
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.shards.state_machine import Effects, Instant
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable


class Assigned(Struct, frozen=True):
    """The leader's assignments become the group's once they are stored."""

    group_id: str


class Replaced(Struct, frozen=True):
    """A static member's new id counts once it is stored."""

    group_id: str
    old_id: str
    new_id: str
    request: JoinRequest
    ticket: int


AfterStored = Assigned | Replaced
ClassicAnswer = JoinAnswer | SyncAnswer
GroupEffects = Effects[Fact, AfterStored, ClassicAnswer]


def rebalance_in_progress(group_id: str) -> Unavailable:
    """The refusal that makes a member join again and keep its id."""
    return Unavailable(ErrorCode.REBALANCE_IN_PROGRESS, subject=group_id)


def join_answer(
    group: Group,
    member: ClassicMember,
    *,
    with_members: bool | None = None,
    skip_assignment: bool = False,
) -> JoinAnswer:
    """The present generation as ``member`` is told of it; the leader is told who else is in."""
    if with_members is None:
        with_members = member.id == group.leader
    return JoinAnswer(
        member.id,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader or "",
        tuple(
            JoinedMember(m.id, m.instance_id, m.metadata(group.protocol_name))
            for m in group.members.values()
        )
        if with_members
        else (),
        skip_assignment,
    )


def sync_answer(group: Group, member: ClassicMember) -> SyncAnswer:
    """What ``member`` is assigned."""
    return SyncAnswer(group.protocol_type, group.protocol_name, member.assignment)


def expect(member: ClassicMember, timeout_ms: int, now: Instant, effects: GroupEffects) -> None:
    """Give the member that long before it counts as dead."""
    member.deadline_ms = now.monotonic_ms + timeout_ms
    effects.wake_at(member.deadline_ms)


def expect_heartbeat(member: ClassicMember, now: Instant, effects: GroupEffects) -> None:
    """Start the member's session anew."""
    expect(member, member.session_timeout_ms, now, effects)


class Rebalancer:
    """The rules; the state is the group's."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings

    def start_or_continue(self, group: Group, now: Instant, effects: GroupEffects) -> None:
        """Something changed: begin a rebalance, or see whether the one under way can end."""
        if group.state is GroupState.PREPARING:
            self.complete_if_all_joined(group, now, effects)
        else:
            self.start(group, now, effects)

    def start(self, group: Group, now: Instant, effects: GroupEffects) -> None:
        """Ask everybody to join."""
        if group.state is GroupState.COMPLETING:
            for member in group.members.values():
                member.assignment = b""
            self.answer_syncs(group, now, effects, refusal=rebalance_in_progress(group.id))
        group.unsynced.clear()
        group.sync_deadline_ms = None
        is_first = group.state is GroupState.EMPTY
        group.move(GroupState.PREPARING, now.wall_ms)
        if is_first:
            # An empty group gives others the time to come too: one rebalance instead of many.
            delay_ms = self._settings.initial_rebalance_delay_ms
            rest_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            group.initial_wait_ms = (delay_ms, rest_ms)
            group.grew_while_waiting = False
            self._wait_for_joins(group, delay_ms, now, effects)
        elif group.all_joined:
            self.complete(group, now, effects)
        else:
            self._wait_for_joins(group, group.rebalance_timeout_ms, now, effects)

    def complete_if_all_joined(self, group: Group, now: Instant, effects: GroupEffects) -> None:
        """Go on to the next generation unless somebody is still waited for."""
        # The first wait runs its course, unless nobody is left to wait with.
        waits = group.initial_wait_ms is not None and group.members
        if group.state is GroupState.PREPARING and group.all_joined and not waits:
            self.complete(group, now, effects)

    def complete(self, group: Group, now: Instant, effects: GroupEffects) -> None:
        """The join phase ends: drop who did not come, tell the others their generation."""
        group.join_deadline_ms = None
        group.initial_wait_ms = None
        for member in [m for m in group.members.values() if m.join_ticket is None]:
            # A static member may be restarting: it keeps its place until its session ends.
            if member.instance_id is None:
                self.drop(group, member.id, effects)
        if not group.elect_leader() and group.members:
            self._wait_for_joins(group, group.rebalance_timeout_ms, now, effects)
            return
        group.next_generation(now.wall_ms)
        if not group.members:
            effects.facts.append(generation.save(group, now.wall_ms))
            return
        for member in group.members.values():
            effects.answer(group.take_join(member), join_answer(group, member))
            member.is_new = False
            expect_heartbeat(member, now, effects)
            group.unsynced.add(member.id)
        group.sync_deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
        effects.wake_at(group.sync_deadline_ms)

    def drop(self, group: Group, member_id: str, effects: GroupEffects) -> None:
        """Take a member out and release its parked requests, so that it joins anew if it lives."""
        member = group.members.get(member_id)
        if member is not None:
            refusal = unknown_member(group.id, member_id)
            effects.answer(group.take_join(member), refusal)
            effects.answer(take_sync(member), refusal)
        group.remove(member_id)

    def dropped(self, group: Group, now: Instant, effects: GroupEffects) -> None:
        """Members are gone: those who stay share the work anew."""
        if group.state in (GroupState.STABLE, GroupState.COMPLETING):
            self.start(group, now, effects)
        else:
            self.complete_if_all_joined(group, now, effects)

    def answer_syncs(
        self,
        group: Group,
        now: Instant,
        effects: GroupEffects,
        *,
        refusal: MainstemError | None = None,
    ) -> None:
        """Release every parked sync, with the assignment or with ``refusal``."""
        for member in group.members.values():
            ticket = take_sync(member)
            if ticket is not None:
                effects.answer(ticket, refusal or sync_answer(group, member))
                # While it waited here the member could not show that it lives.
                expect_heartbeat(member, now, effects)

    def on_time(self, group: Group, now: Instant, effects: GroupEffects) -> None:
        """Carry out what is due, then say when to come back."""
        self._drop_silent(group, now, effects)
        if _is_due(group.join_deadline_ms, now):
            self._end_wait_for_joins(group, now, effects)
        if _is_due(group.sync_deadline_ms, now):
            self._end_wait_for_syncs(group, now, effects)
        for deadline_ms in _deadlines(group):
            effects.wake_at(deadline_ms)

    def _drop_silent(self, group: Group, now: Instant, effects: GroupEffects) -> None:
        gone = [member_id for member_id, due in group.pending.items() if _is_due(due, now)]
        for member in group.members.values():
            if _is_due(member.deadline_ms, now):
                member.deadline_ms = None
                if not member.is_excused:
                    gone.append(member.id)
        for member_id in gone:
            self.drop(group, member_id, effects)
        if gone:
            self.dropped(group, now, effects)

    def _wait_for_joins(
        self, group: Group, timeout_ms: int, now: Instant, effects: GroupEffects
    ) -> None:
        group.join_deadline_ms = now.monotonic_ms + timeout_ms
        effects.wake_at(group.join_deadline_ms)

    def _end_wait_for_joins(self, group: Group, now: Instant, effects: GroupEffects) -> None:
        if group.initial_wait_ms is not None and group.grew_while_waiting:
            waited_ms, rest_ms = group.initial_wait_ms
            if rest_ms:
                delay_ms = min(self._settings.initial_rebalance_delay_ms, rest_ms)
                group.grew_while_waiting = False
                group.initial_wait_ms = (delay_ms, max(rest_ms - waited_ms, 0))
                self._wait_for_joins(group, delay_ms, now, effects)
                return
        self.complete(group, now, effects)

    def _end_wait_for_syncs(self, group: Group, now: Instant, effects: GroupEffects) -> None:
        group.sync_deadline_ms = None
        if group.unsynced:
            for member_id in [m for m in group.members if m in group.unsynced]:
                self.drop(group, member_id, effects)
            self.start(group, now, effects)


def take_sync(member: ClassicMember) -> int | None:
    """The ticket of the member's sync, which is about to be answered."""
    ticket, member.sync_ticket = member.sync_ticket, None
    return ticket


def _is_due(deadline_ms: int | None, now: Instant) -> bool:
    return deadline_ms is not None and deadline_ms <= now.monotonic_ms


def _deadlines(group: Group) -> list[int]:
    every = [m.deadline_ms for m in group.members.values()]
    every += group.pending.values()
    every += (group.join_deadline_ms, group.sync_deadline_ms)
    return [deadline_ms for deadline_ms in every if deadline_ms is not None]
