"""Admission of members to a group: new members, rejoining ones, static ones (KIP-345).

no id, no instance        gets a new id; newer clients have to join again with it (KIP-394)
no id, known instance     replaces the earlier member of that instance, which is fenced
a pending id              is admitted
the id of a member        its metadata is updated; the group rebalances if it changed
"""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from mainstem.coordination.classic import generation
from mainstem.coordination.classic.group import ClassicMember, Group, GroupState
from mainstem.coordination.classic.rebalance import (
    GroupEffects,
    Rebalancer,
    Replaced,
    expect,
    join_answer,
    rebalance_in_progress,
    take_sync,
)
from mainstem.coordination.groups.facts import GroupSaved
from mainstem.coordination.groups.requests import JoinRequest
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.shards.state_machine import Instant
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest
from mainstem.model.limits import (
    CLIENT_ID_LENGTH_MAX,
    GROUP_METADATA_BYTES_MAX,
    GROUP_NAME_LENGTH_MAX,
    TOPIC_NAME_LENGTH_MAX,
)


class JoinHandler:
    """Admits members; the rebalancer decides the state changes that follow."""

    def __init__(
        self, settings: GroupSettings, rebalancer: Rebalancer, new_id: Callable[[], str]
    ) -> None:
        self._settings = settings
        self._rebalancer = rebalancer
        self._new_id = new_id

    def check(self, request: JoinRequest) -> None:
        """Validate the fields of a join that do not depend on the group."""
        shortest, longest = (
            self._settings.session_timeout_min_ms,
            self._settings.session_timeout_max_ms,
        )
        if not shortest <= request.session_timeout_ms <= longest:
            raise InvalidRequest(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"{request.session_timeout_ms} ms is not between {shortest} and {longest} ms",
                subject=request.group_id,
            )
        names = [name for name, _ in request.protocols]
        longest_name = max(map(len, (request.protocol_type, *names)))
        if longest_name > GROUP_NAME_LENGTH_MAX or len(set(names)) < len(names):
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                "a protocol name occurs twice or is too long",
                subject=request.group_id,
            )
        if request.instance_id is not None and len(request.instance_id) > TOPIC_NAME_LENGTH_MAX:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                f"an instance id has at most {TOPIC_NAME_LENGTH_MAX} characters",
                subject=request.group_id,
            )

    def join(self, group: Group, request: JoinRequest, ticket: int, now: Instant) -> GroupEffects:
        """Admit a member, or answer with the reason why not."""
        arrival = _Joiner(group, request, ticket, now, GroupEffects())
        if not self._has_capacity(group, request):
            self._turn_away(arrival)
        elif not group.supports(request.protocol_type, request.protocols):
            raise InvalidRequest(
                ErrorCode.INCONSISTENT_PROTOCOL,
                f"{request.protocol_type} protocols {[name for name, _ in request.protocols]} do "
                f"not match the members, which are of type {group.protocol_type}",
                subject=group.id,
            )
        elif request.member_id in group.pending and request.instance_id is None:
            self._admit(arrival, request.member_id)
        elif request.member_id:
            self._rejoin(arrival, group.check_member(request.member_id, request.instance_id))
        elif request.instance_id is not None and request.instance_id in group.statics:
            self._return(arrival, group.statics[request.instance_id])
        else:
            self._join_new(arrival)
        return arrival.effects

    def replace(
        self, group: Group, old_id: str, new_id: str, request: JoinRequest, effects: GroupEffects
    ) -> ClassicMember:
        """Replace a static member by its new incarnation, and fence the old one."""
        member = _member(new_id, request)
        member.assignment = group.members[old_id].assignment
        old = group.replace(old_id, member)
        fenced = Fenced(
            ErrorCode.FENCED_MEMBER,
            f"instance {old.instance_id} rejoined as {new_id}",
            subject=group.id,
        )
        effects.answer(old.join_ticket, fenced)
        effects.answer(take_sync(old), fenced)
        return member

    def _has_capacity(self, group: Group, request: JoinRequest) -> bool:
        # While joins are collected only joined members count: the last to join exceed the limit.
        most = self._settings.members_max
        known = group.members.get(request.member_id)
        if known is None and request.instance_id is not None:
            known = group.members.get(group.statics.get(request.instance_id, ""))
        brings = sum(len(metadata) for _, metadata in request.protocols)
        takes = known.size_bytes if known else 0
        if group.size_bytes + brings - takes > GROUP_METADATA_BYTES_MAX:
            return False
        if not request.member_id and len(group.pending) >= most:
            return False
        if group.state is GroupState.PREPARING:
            waits = known is not None and known.join_ticket is not None
            return waits or group.awaiting_join < most
        return known is not None or len(group.members) < most

    def _turn_away(self, arrival: "_Joiner") -> None:
        group, request, ticket, now, effects = arrival
        if request.member_id in group.members or request.member_id in group.pending:
            self._rebalancer.drop(group, request.member_id, effects)
            self._rebalancer.dropped(group, now, effects)
        refusal = InvalidRequest(
            ErrorCode.GROUP_FULL,
            f"{len(group.members)} members with {group.size_bytes} bytes",
            subject=group.id,
        )
        effects.answer(ticket, refusal)

    def _join_new(self, arrival: "_Joiner") -> None:
        group, request, ticket, now, effects = arrival
        if request.instance_id is not None:
            self._admit(arrival, f"{request.instance_id}-{self._new_id()}")
            return
        member_id = f"{request.client_id[:CLIENT_ID_LENGTH_MAX]}-{self._new_id()}"
        if not request.id_required:
            self._admit(arrival, member_id)
            return
        # A client that times out now and joins again would otherwise leave a stale member behind.
        group.pending[member_id] = now.monotonic_ms + request.session_timeout_ms
        effects.wake_at(group.pending[member_id])
        effects.answer(ticket, Fenced(ErrorCode.MEMBER_ID_REQUIRED, subject=member_id))

    def _admit(self, arrival: "_Joiner", member_id: str) -> None:
        group, request, ticket, now, effects = arrival
        member = _member(member_id, request)
        member.is_new = True
        member.join_ticket = ticket
        group.grew_while_waiting = group.initial_wait_ms is not None
        group.add(member, request.protocol_type)
        # A new member cannot send heartbeats before it is answered, and a closed connection is not
        # noticed while its request is parked: remove the member after a timeout.
        expect(member, self._settings.new_member_timeout_ms, now, effects)
        self._rebalancer.start_or_continue(group, now, effects)

    def _rejoin(self, arrival: "_Joiner", member: ClassicMember) -> None:
        group, request, ticket, now, effects = arrival
        is_same = member.protocols == request.protocols
        leads = member.id == group.leader
        # A leader that rejoins a stable group requests a rebalance: its topics have changed.
        if is_same and (
            group.state is GroupState.COMPLETING or (group.state is GroupState.STABLE and not leads)
        ):
            # The answer to an earlier join got lost.
            effects.answer(ticket, join_answer(group, member))
            return
        group.update(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        effects.answer(group.park_join(member, ticket), rebalance_in_progress(group.id))
        self._rebalancer.start_or_continue(group, now, effects)

    def _return(self, arrival: "_Joiner", old_id: str) -> None:
        group, request, ticket, now, effects = arrival
        new_id = f"{request.instance_id}-{self._new_id()}"
        if group.state is GroupState.STABLE:
            chosen = group.select_protocol({old_id: request.protocols})
            if chosen == group.protocol_name:
                # No rebalance is needed: the new member id takes over the assignment.
                effects.facts.append(_saved_as(group, old_id, new_id, request, now))
                effects.then = Replaced(group.id, old_id, new_id, request, ticket)
                return
        member = self.replace(group, old_id, new_id, request, effects)
        expect(member, request.session_timeout_ms, now, effects)
        group.park_join(member, ticket)
        self._rebalancer.start_or_continue(group, now, effects)


class _Joiner(NamedTuple):
    """A join request and the context in which it is decided."""

    group: Group
    request: JoinRequest
    ticket: int
    now: Instant
    effects: GroupEffects


def _member(member_id: str, request: JoinRequest) -> ClassicMember:
    return ClassicMember(
        member_id,
        request.instance_id,
        request.client_id[:CLIENT_ID_LENGTH_MAX],
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocols,
    )


def _saved_as(
    group: Group, old_id: str, new_id: str, request: JoinRequest, now: Instant
) -> GroupSaved:
    """The current generation with a static member under its new id."""
    saved = generation.save(group, now.wall_ms)
    metadata = dict(request.protocols)[group.protocol_name or ""]
    members = tuple(
        replace(
            member,
            member_id=new_id,
            client_id=request.client_id[:CLIENT_ID_LENGTH_MAX],
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            subscription=metadata,
        )
        if member.member_id == old_id
        else member
        for member in saved.members
    )
    leader = new_id if saved.leader == old_id else saved.leader
    return replace(saved, members=members, leader=leader)
