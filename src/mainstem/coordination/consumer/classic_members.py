"""Classic members of a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

The coordinator assigns, so there is no leader and no request waits: a join takes the next step
towards the target at once, a sync returns the member's partitions, and a heartbeat answers
``REBALANCE_IN_PROGRESS`` when another step can be taken. The member's epoch is its generation.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from mainstem.coordination.classic.consumer_protocol import (
    EmbeddedSubscription,
    assignment_bytes,
    read_subscription,
)
from mainstem.coordination.classic.subscription import CONSUMER_PROTOCOL
from mainstem.coordination.consumer.decision import ConsumerGroupDecision
from mainstem.coordination.consumer.decision_builder import DecisionBuilder
from mainstem.coordination.consumer.facts import ClassicMemberData, MemberState
from mainstem.coordination.consumer.group import (
    JOINING,
    ConsumerGroup,
    ConsumerMember,
    unknown_consumer,
)
from mainstem.coordination.consumer.heartbeat_handler import check_capacity, check_static
from mainstem.coordination.consumer.reconciliation import awaits_others
from mainstem.coordination.consumer.topics import GroupTopics
from mainstem.coordination.groups.requests import (
    CommitResult,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    SyncAnswer,
    SyncRequest,
)
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.model.errors import (
    Corrupt,
    ErrorCode,
    Fenced,
    InvalidRequest,
    MainstemError,
    Unavailable,
)
from mainstem.model.limits import CLIENT_ID_LENGTH_MAX


class ClassicMembers:
    """Decides requests of classic members of a consumer group."""

    def __init__(
        self, settings: GroupSettings, topics: GroupTopics, new_id: Callable[[], str]
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._new_id = new_id

    def join(self, draft: DecisionBuilder, request: JoinRequest) -> ConsumerGroupDecision:
        """Handle JoinGroup: a classic member joins, or takes its next reconciliation step."""
        group = draft.group
        subscription = self._check_join(group, request)
        member_id = (
            request.member_id or f"{request.client_id[:CLIENT_ID_LENGTH_MAX]}-{self._new_id()}"
        )
        if not request.member_id and request.instance_id is None and request.id_required:
            raise Fenced(ErrorCode.MEMBER_ID_REQUIRED, subject=member_id)
        before = self._admit(draft, member_id, request)
        member = _as_requested(before, request, subscription)
        check_capacity(group, before, member, self._settings.consumer_members_max)
        moves = draft.update(member)
        if moves or group.is_stale:
            draft.refresh(moves_epoch=moves)
        draft.retarget()
        after = draft.reconcile(member.id, self._topics.by_id(subscription.owned))
        return ConsumerGroupDecision(
            group_id=group.id,
            facts=draft.facts,
            reply=JoinAnswer(
                after.id, after.epoch, CONSUMER_PROTOCOL, request.protocols[0][0], leader=""
            ),
            refreshed_member=after.id,
            joined=after.id,
            refreshed=draft.refreshed,
        )

    def sync(self, group: ConsumerGroup, request: SyncRequest) -> ConsumerGroupDecision:
        """Handle SyncGroup: answer with the partitions of a classic member."""
        member, classic = _classic(group, request.member_id, request.instance_id)
        _check_generation(group, member, request.generation)
        name, metadata = classic.protocols[0]
        for given, is_so in (
            (request.protocol_type, CONSUMER_PROTOCOL),
            (request.protocol_name, name),
        ):
            if given is not None and given != is_so:
                raise InvalidRequest(
                    ErrorCode.INCONSISTENT_PROTOCOL,
                    f"{given} is not the group's {is_so}",
                    subject=group.id,
                )
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            return ConsumerGroupDecision(group_id=group.id, rejoins=member.id)
        assignment = assignment_bytes(
            self._topics.by_name(member.assigned), read_subscription(metadata).version
        )
        reply = SyncAnswer(CONSUMER_PROTOCOL, name, assignment)
        return ConsumerGroupDecision(
            group_id=group.id, reply=reply, refreshed_member=member.id, synced=member.id
        )

    def heartbeat(self, draft: DecisionBuilder, request: HeartbeatRequest) -> ConsumerGroupDecision:
        """Handle Heartbeat; the member has to join again when it can take another step."""
        group = draft.group
        member, _ = _classic(group, request.member_id, request.instance_id)
        _check_generation(group, member, request.generation)
        if group.is_stale:
            # The group may have only classic members: then no other request notices topic changes.
            draft.refresh(moves_epoch=False)
        target = group.target_of(member.id, member.instance_id)
        can_go_on = (
            member.epoch < draft.epoch
            or member.state is MemberState.UNREVOKED
            or (
                member.state is MemberState.UNRELEASED
                and not awaits_others(member, target, group.owner)
            )
        )
        return ConsumerGroupDecision(
            group_id=group.id,
            facts=draft.facts,
            refreshed_member=member.id,
            refreshed=draft.refreshed,
            rejoins=member.id if can_go_on else None,
        )

    def leaving_members(
        self, group: ConsumerGroup, leaving_members: Sequence[LeavingMember]
    ) -> tuple[list[CommitResult], list[str]]:
        """Check which members may leave: an outcome for each, and the ids of those that leave."""
        outcomes: list[CommitResult] = []
        gone: list[str] = []
        for leaving_member in leaving_members:
            member_id = leaving_member.member_id
            if not member_id and leaving_member.instance_id is not None:
                member_id = group.statics.get(leaving_member.instance_id, "")
            try:
                _classic(group, member_id, leaving_member.instance_id)
            except MainstemError as refusal:
                outcomes.append(refusal.code)
                continue
            outcomes.append(None)
            if member_id not in gone:
                gone.append(member_id)
        return outcomes, gone

    def _check_join(self, group: ConsumerGroup, request: JoinRequest) -> EmbeddedSubscription:
        names = {name for name, _ in request.protocols}
        sides = [m.classic for m in group.members.values() if m.classic is not None]
        supported = [n for n in names if all(n in dict(side.protocols) for side in sides)]
        if request.protocol_type != CONSUMER_PROTOCOL or not supported:
            raise InvalidRequest(
                ErrorCode.INCONSISTENT_PROTOCOL,
                f"{request.protocol_type} protocols {sorted(names)} do not match the members",
                subject=group.id,
            )
        try:
            return read_subscription(request.protocols[0][1])
        except Corrupt as error:
            raise InvalidRequest(
                ErrorCode.INCONSISTENT_PROTOCOL, error.cause, subject=group.id
            ) from error

    def _admit(
        self, draft: DecisionBuilder, member_id: str, request: JoinRequest
    ) -> ConsumerMember:
        group = draft.group
        if request.instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        static = group.static(request.instance_id)
        if request.member_id:
            return check_static(group, member_id, request.instance_id)
        if static is None:
            return ConsumerMember(member_id)
        member = replace(static, id=member_id, epoch=JOINING, previous_epoch=JOINING)
        draft.replace(static, member)
        return member


def _classic(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMemberData]:
    if instance_id is not None:
        member: ConsumerMember | None = check_static(group, member_id, instance_id)
    else:
        member = group.members.get(member_id)
    if member is None or member.classic is None:
        raise unknown_consumer(group.id, f"no member {member_id!r} of the classic protocol")
    return member, member.classic


def _check_generation(group: ConsumerGroup, member: ConsumerMember, given: int) -> None:
    if given != member.epoch:
        raise Fenced(
            ErrorCode.ILLEGAL_GENERATION,
            f"generation {given} is not the current generation, {member.epoch}",
            subject=group.id,
        )


def rejoin_required(group_id: str) -> Unavailable:
    """The error that makes a classic member join again and keep its id."""
    return Unavailable(ErrorCode.REBALANCE_IN_PROGRESS, subject=group_id)


def _as_requested(
    member: ConsumerMember, request: JoinRequest, subscription: EmbeddedSubscription
) -> ConsumerMember:
    return replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        client_id=request.client_id[:CLIENT_ID_LENGTH_MAX],
        client_host=request.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        pattern=None,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        assignor=None,
        classic=ClassicMemberData(request.session_timeout_ms, request.protocols),
    )
