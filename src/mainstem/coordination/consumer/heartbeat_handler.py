"""The heartbeat of a member: how it comes in, what it may say, what it is told (KIP-848).

no such member, epoch 0      joins under its id, or one that is made here for older clients
static, instance known       takes the place of its former self, if that has left (epoch -2)
epoch as known               lives; may want other topics, may have given up partitions
the epoch before             an answer got lost; accepted if it has no more than it should
any other epoch              fenced: it has to give up everything and join again
"""

from collections.abc import Callable

from msgspec.structs import replace

from mainstem.coordination.consumer.assignors import ASSIGNORS
from mainstem.coordination.consumer.decision import ConsumerGroupDecision
from mainstem.coordination.consumer.decision_builder import DecisionBuilder
from mainstem.coordination.consumer.facts import MemberState
from mainstem.coordination.consumer.group import (
    AWAY,
    JOINING,
    LEFT,
    ConsumerGroup,
    ConsumerMember,
    unknown_consumer,
)
from mainstem.coordination.consumer.reconciliation import is_within
from mainstem.coordination.consumer.requests import (
    NOT_SPECIFIED,
    ConsumerAnswer,
    ConsumerHeartbeat,
)
from mainstem.coordination.consumer.topics import matcher
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest
from mainstem.model.limits import CLIENT_ID_LENGTH_MAX, GROUP_NAME_LENGTH_MAX, MIB

GROUP_BYTES_MAX = 64 * MIB
"""What the subscriptions of one group may take in memory; a record keeps each of them apart."""
MEMBER_BYTES_MAX = MIB // 2
"""What one member may say: a record, which has to fit a batch of the internal topic."""


class HeartbeatHandler:
    """Decides heartbeats; the group is changed by the facts of the decision alone."""

    def __init__(self, settings: GroupSettings, new_id: Callable[[], str]) -> None:
        self._settings = settings
        self._new_id = new_id

    def check(self, request: ConsumerHeartbeat) -> None:
        """Refuse what no group would accept."""
        for given, name in (
            (request.instance_id, "instance id"),
            (request.rack_id, "rack"),
            (request.group_id, "group id"),
        ):
            if given is not None and not 0 < len(given) <= GROUP_NAME_LENGTH_MAX:
                raise _invalid(f"the {name} has 1 to {GROUP_NAME_LENGTH_MAX} characters", request)
        if len(request.member_id) > GROUP_NAME_LENGTH_MAX:
            raise _invalid(f"a member id has at most {GROUP_NAME_LENGTH_MAX} characters", request)
        if not request.member_id and (request.makes_id or request.epoch != JOINING):
            raise _invalid("a member has an id", request)
        if request.epoch == JOINING:
            _check_first(request)
        elif request.epoch < AWAY:
            raise _invalid(f"there is no epoch {request.epoch}", request)
        elif request.epoch == AWAY and request.instance_id is None:
            raise _invalid("only a static member leaves for a while", request)
        if request.assignor is not None and request.assignor not in ASSIGNORS:
            raise InvalidRequest(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"no assignor {request.assignor!r}",
                subject=request.group_id,
                remedy=f"the assignors are {', '.join(ASSIGNORS)}",
            )
        if request.pattern:
            matcher(request.pattern)

    def heartbeat(
        self, draft: DecisionBuilder, request: ConsumerHeartbeat, heartbeat_interval_ms: int
    ) -> ConsumerGroupDecision:
        """A member joins, or says that it lives."""
        group = draft.group
        before = self._admit(draft, request)
        member = _as_requested(before, request)
        check_capacity(group, before, member, self._settings.consumer_members_max)
        moves = draft.update(member)
        if moves or group.is_stale:
            draft.refresh(moves_epoch=moves)
        draft.retarget()
        after = draft.reconcile(member.id, request.owned)
        is_sent = request.is_full or request.epoch != before.epoch
        return ConsumerGroupDecision(
            group_id=group.id,
            facts=draft.facts,
            reply=ConsumerAnswer(
                after.id,
                after.epoch,
                heartbeat_interval_ms,
                after.assigned if is_sent or after.assigned != before.assigned else None,
            ),
            refreshed_member=after.id,
            refreshed=draft.refreshed,
        )

    def leaving_member(self, group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
        """The member that wants to go."""
        if request.instance_id is not None:
            return check_static(group, request.member_id, request.instance_id)
        member = group.members.get(request.member_id)
        if member is None:
            raise unknown_consumer(group.id, f"no member {request.member_id!r}")
        return member

    def leave_temporarily(
        self, group: ConsumerGroup, member: ConsumerMember
    ) -> ConsumerGroupDecision:
        """A static member leaves for a while: its place is kept as long as its session lasts."""
        away = replace(member, epoch=AWAY, state=MemberState.STABLE, revoking={})
        reply = ConsumerAnswer(member.id, AWAY)
        return ConsumerGroupDecision(group_id=group.id, facts=[away.moved(group.id)], reply=reply)

    def _admit(self, draft: DecisionBuilder, request: ConsumerHeartbeat) -> ConsumerMember:
        group, joins = draft.group, request.epoch == JOINING
        member_id = request.member_id or self._new_id()
        static = group.static(request.instance_id)
        if request.instance_id is None or (joins and static is None):
            member = group.members.get(member_id)
            if member is None and not joins:
                raise unknown_consumer(group.id, f"no member {member_id!r}")
            member = member or ConsumerMember(member_id)
        elif joins:
            assert static is not None, "otherwise it is a new member"
            member = self._return(draft, static, member_id)
        else:
            member = check_static(group, member_id, request.instance_id)
        if not joins:
            _check_epoch(group, member, request)
        return member

    def _return(
        self, draft: DecisionBuilder, static: ConsumerMember, member_id: str
    ) -> ConsumerMember:
        fresh = replace(static, epoch=JOINING, previous_epoch=JOINING)
        if static.id == member_id:
            # It lost its epoch but not its id: the same process, which begins anew.
            return fresh
        if static.classic is None and static.epoch != AWAY:
            raise Fenced(
                ErrorCode.UNRELEASED_INSTANCE,
                f"instance {static.instance_id} is member {static.id}, which has not left",
                subject=draft.group.id,
                remedy="wait until it has left or its session has ended",
            )
        member = replace(fresh, id=member_id)
        draft.replace(static, member)
        return member


def check_capacity(
    group: ConsumerGroup, before: ConsumerMember, member: ConsumerMember, members_max: int
) -> None:
    """Refuse a member too many, or one that says too much."""
    is_known = member.id in group.members or group.static(member.instance_id) is not None
    is_full = not is_known and len(group.members) >= members_max
    brings = member.size_bytes - (before.size_bytes if is_known else 0)
    if is_full or group.size_bytes + brings > GROUP_BYTES_MAX:
        raise InvalidRequest(
            ErrorCode.GROUP_FULL,
            f"{len(group.members)} members with {group.size_bytes} bytes",
            subject=group.id,
        )
    if member.size_bytes > MEMBER_BYTES_MAX:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            f"a subscription of {member.size_bytes} bytes, {MEMBER_BYTES_MAX} are allowed",
            subject=group.id,
        )


def is_leave_heartbeat(request: ConsumerHeartbeat) -> bool:
    """Whether the member wants to go."""
    return request.epoch in (LEFT, AWAY)


def _check_first(request: ConsumerHeartbeat) -> None:
    if request.rebalance_timeout_ms == NOT_SPECIFIED:
        raise _invalid("a member that joins says its rebalance time-out", request)
    if request.owned is None or request.owned:
        raise _invalid("a member that joins has no partitions", request)
    if request.topics is None and request.pattern is None:
        raise _invalid("a member that joins says what it subscribes to", request)


def check_static(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """The static member that claims to call, or a refusal."""
    known = group.static(instance_id)
    if known is None:
        raise unknown_consumer(group.id, f"no instance {instance_id!r}")
    if known.id != member_id:
        raise Fenced(
            ErrorCode.FENCED_MEMBER,
            f"instance {instance_id} now is member {known.id}, not {member_id}",
            subject=group.id,
        )
    return known


def _check_epoch(group: ConsumerGroup, member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    if request.epoch == member.epoch:
        return
    is_late = request.epoch < member.epoch and request.epoch == member.previous_epoch
    if not (is_late and is_within(request.owned, member.assigned)):
        raise Fenced(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member {member.id} is in epoch {member.epoch}, not {request.epoch}",
            subject=group.id,
            remedy="give up all partitions and join again",
        )


def _as_requested(member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        client_id=request.client_id[:CLIENT_ID_LENGTH_MAX],
        client_host=request.client_host,
        topics=member.topics if request.topics is None else tuple(sorted(set(request.topics))),
        pattern=member.pattern if request.pattern is None else request.pattern or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if timeout_ms == NOT_SPECIFIED
        else timeout_ms,
        assignor=request.assignor or member.assignor,
        classic=None,
    )


def _invalid(cause: str, request: ConsumerHeartbeat) -> InvalidRequest:
    return InvalidRequest(ErrorCode.INVALID_REQUEST, cause, subject=request.group_id)
