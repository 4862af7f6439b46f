"""ConsumerGroupHeartbeat: admission of members, validation, and the answer (KIP-848).

unknown member, epoch 0      joins under its id, or a generated one for older clients
static, known instance       replaces its earlier incarnation if that has left (epoch -2)
current epoch                extends the session; may change topics or report revoked partitions
previous epoch               an answer got lost; accepted if it owns no more than it should
any other epoch              fenced: it has to revoke all partitions and join again
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
"""Limit of the memory for the subscriptions of one group; each is stored in its own record."""
MEMBER_BYTES_MAX = MIB // 2
"""Limit of one member's subscription: its record has to fit a batch of the internal topic."""


class HeartbeatHandler:
    """Decides heartbeats; only the facts of the decision change the group."""

    def __init__(self, settings: GroupSettings, new_id: Callable[[], str]) -> None:
        self._settings = settings
        self._new_id = new_id

    def check(self, request: ConsumerHeartbeat) -> None:
        """Validate the fields of a heartbeat that do not depend on the group."""
        for given, name in (
            (request.instance_id, "instance id"),
            (request.rack_id, "rack"),
            (request.group_id, "group id"),
        ):
            if given is not None and not 0 < len(given) <= GROUP_NAME_LENGTH_MAX:
                raise _invalid(
                    f"the {name} must have 1 to {GROUP_NAME_LENGTH_MAX} characters", request
                )
        if len(request.member_id) > GROUP_NAME_LENGTH_MAX:
            raise _invalid(
                f"a member id must have at most {GROUP_NAME_LENGTH_MAX} characters", request
            )
        if not request.member_id and (request.makes_id or request.epoch != JOINING):
            raise _invalid("the member id is missing", request)
        if request.epoch == JOINING:
            _check_first(request)
        elif request.epoch < AWAY:
            raise _invalid(f"invalid member epoch {request.epoch}", request)
        elif request.epoch == AWAY and request.instance_id is None:
            raise _invalid("only a static member can leave temporarily", request)
        if request.assignor is not None and request.assignor not in ASSIGNORS:
            raise InvalidRequest(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"unknown assignor {request.assignor!r}",
                subject=request.group_id,
                remedy=f"use one of: {', '.join(ASSIGNORS)}",
            )
        if request.pattern:
            matcher(request.pattern)

    def heartbeat(
        self, draft: DecisionBuilder, request: ConsumerHeartbeat, heartbeat_interval_ms: int
    ) -> ConsumerGroupDecision:
        """Decide a heartbeat that joins or extends the session."""
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
        """The member that sent a leave heartbeat."""
        if request.instance_id is not None:
            return check_static(group, request.member_id, request.instance_id)
        member = group.members.get(request.member_id)
        if member is None:
            raise unknown_consumer(group.id, f"no member {request.member_id!r}")
        return member

    def leave_temporarily(
        self, group: ConsumerGroup, member: ConsumerMember
    ) -> ConsumerGroupDecision:
        """Decide the temporary leave of a static member, which stays until its session ends."""
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
            # The same member id with epoch 0: the same process, which starts again.
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
    """Refuse a member beyond the limits of members or subscription size."""
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
            f"a subscription of {member.size_bytes} bytes exceeds the limit of {MEMBER_BYTES_MAX}",
            subject=group.id,
        )


def is_leave_heartbeat(request: ConsumerHeartbeat) -> bool:
    """Whether the heartbeat leaves the group, for good or temporarily."""
    return request.epoch in (LEFT, AWAY)


def _check_first(request: ConsumerHeartbeat) -> None:
    if request.rebalance_timeout_ms == NOT_SPECIFIED:
        raise _invalid("a joining member must send its rebalance timeout", request)
    if request.owned is None or request.owned:
        raise _invalid("a joining member must own no partitions", request)
    if request.topics is None and request.pattern is None:
        raise _invalid("a joining member must send its subscription", request)


def check_static(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """The static member with these ids; raises if it is unknown or fenced."""
    known = group.static(instance_id)
    if known is None:
        raise unknown_consumer(group.id, f"unknown instance {instance_id!r}")
    if known.id != member_id:
        raise Fenced(
            ErrorCode.FENCED_MEMBER,
            f"instance {instance_id} is now member {known.id}, not {member_id}",
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
            remedy="revoke all partitions and join again",
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
