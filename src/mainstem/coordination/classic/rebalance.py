"""Transitions of one group between generations: which members are awaited, how long, and answers.

Joins are parked until every member has joined or the rebalance timeout ends, syncs until the leader
has sent the assignments. Every parked request is answered exactly once: with the generation, with
the assignment, or with an error. Effects collect what the caller has to store and answer.
"""

from msgspec import Struct

from mainstem.coordination.classic import generation
from mainstem.coordination.classic.group import ClassicMember, Group, GroupState, unknown_member
from mainstem.coordination.groups.facts import Fact
from mainstem.coordination.groups.requests import JoinAnswer, JoinedMember, JoinRequest, SyncAnswer
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.shards.state_machine import Instant, MachineEffects
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable


class Assigned(Struct, frozen=True):
    """The leader's assignments take effect once they are stored."""

    group_id: str


class Replaced(Struct, frozen=True):
    """A static member's new id takes effect once it is stored."""

    group_id: str
    old_id: str
    new_id: str
    request: JoinRequest
    ticket: int


AfterStored = Assigned | Replaced
ClassicAnswer = JoinAnswer | SyncAnswer
GroupEffects = MachineEffects[Fact, AfterStored, ClassicAnswer]


def rebalance_in_progress(group_id: str) -> Unavailable:
    """The error that makes a member join again and keep its id."""
    return Unavailable(ErrorCode.REBALANCE_IN_PROGRESS, subject=group_id)


def join_answer(
    group: Group,
    member: ClassicMember,
    *,
    with_members: bool | None = None,
    skip_assignment: bool = False,
) -> JoinAnswer:
    """JoinGroup answer for ``member``; only the leader gets the list of members."""
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
    """SyncGroup answer with the assignment of ``member``."""
    return SyncAnswer(group.protocol_type, group.protocol_name, member.assignment)


def expect(member: ClassicMember, timeout_ms: int, now: Instant, effects: GroupEffects) -> None:
    """Set the deadline after which the member is removed."""
    member.deadline_ms = now.monotonic_ms + timeout_ms
    effects.wake_at(member.deadline_ms)


def expect_heartbeat(member: ClassicMember, now: Instant, effects: GroupEffects) -> None:
    """Restart the member's session timeout."""
    expect(member, member.session_timeout_ms, now, effects)


class Rebalancer:
    """Rules of a rebalance; the state is in the group."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings

    def start_or_continue(self, group: Group, now: Instant, effects: GroupEffects) -> None:
        """After a change, start a rebalance or check whether the current one can end."""
        if group.state is GroupState.PREPARING:
            self.complete_if_all_joined(group, now, effects)
        else:
            self.start(group, now, effects)

    def start(self, group: Group, now: Instant, effects: GroupEffects) -> None:
        """Start a rebalance: every member has to join again."""
        if group.state is GroupState.COMPLETING:
            for member in group.members.values():
                member.assignment = b""
            self.answer_syncs(group, now, effects, refusal=rebalance_in_progress(group.id))
        group.unsynced.clear()
        group.sync_deadline_ms = None
        is_first = group.state is GroupState.EMPTY
        group.move(GroupState.PREPARING, now.wall_ms)
        if is_first:
            # The first member of an empty group waits for others: one rebalance instead of many.
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
        """Start the next generation unless a member is still awaited."""
        # The initial delay is not cut short unless no member is left.
        waits = group.initial_wait_ms is not None and group.members
        if group.state is GroupState.PREPARING and group.all_joined and not waits:
            self.complete(group, now, effects)

    def complete(self, group: Group, now: Instant, effects: GroupEffects) -> None:
        """End the join phase: remove members that did not join, answer the others."""
        group.join_deadline_ms = None
        group.initial_wait_ms = None
        for member in [m for m in group.members.values() if m.join_ticket is None]:
            # A static member may be restarting: it stays a member until its session ends.
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
        """Remove a member and fail its parked requests, so that a live client joins again."""
        member = group.members.get(member_id)
        if member is not None:
            refusal = unknown_member(group.id, member_id)
            effects.answer(group.take_join(member), refusal)
            effects.answer(take_sync(member), refusal)
        group.remove(member_id)

    def dropped(self, group: Group, now: Instant, effects: GroupEffects) -> None:
        """Rebalance the remaining members after members were removed."""
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
                # While its request was parked the member could not send heartbeats.
                expect_heartbeat(member, now, effects)

    def on_time(self, group: Group, now: Instant, effects: GroupEffects) -> None:
        """Act on deadlines that have passed, then set the next wake-up time."""
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
    """Take the ticket of the member's parked sync, which the caller answers."""
    ticket, member.sync_ticket = member.sync_ticket, None
    return ticket


def _is_due(deadline_ms: int | None, now: Instant) -> bool:
    return deadline_ms is not None and deadline_ms <= now.monotonic_ms


def _deadlines(group: Group) -> list[int]:
    every = [m.deadline_ms for m in group.members.values()]
    every += group.pending.values()
    every += (group.join_deadline_ms, group.sync_deadline_ms)
    return [deadline_ms for deadline_ms in every if deadline_ms is not None]
