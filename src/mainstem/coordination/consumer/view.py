"""Listing and description of a consumer group, and the checks of its offset commits and fetches."""

from mainstem.coordination.classic.subscription import CONSUMER_PROTOCOL
from mainstem.coordination.consumer.decision_builder import preferred_assignor
from mainstem.coordination.consumer.group import (
    ConsumerGroup,
    ConsumerMember,
    unknown_consumer,
)
from mainstem.coordination.consumer.requests import (
    DescribedConsumer,
    DescribedConsumerGroup,
    OffsetReader,
)
from mainstem.coordination.groups.requests import CommitRequest, ListedGroup
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest

CONSUMER_TYPE = "consumer"


def listed(group: ConsumerGroup) -> ListedGroup:
    """The entry of the group in a list of groups."""
    return ListedGroup(
        group.id,
        group.phase.value,
        CONSUMER_PROTOCOL,
        group.epoch,
        len(group.members),
        CONSUMER_TYPE,
    )


def described(group: ConsumerGroup, session_timeout_ms: int) -> DescribedConsumerGroup:
    """Describe the group; ``session_timeout_ms`` applies to members without their own."""
    return DescribedConsumerGroup(
        group.id,
        group.phase.value,
        group.epoch,
        group.target_epoch,
        preferred_assignor(group.members),
        tuple(
            DescribedConsumer(
                m.id,
                m.instance_id,
                m.rack_id,
                m.epoch,
                m.client_id,
                m.client_host,
                m.topics,
                m.pattern,
                session_timeout_ms if m.classic is None else m.classic.session_timeout_ms,
                m.rebalance_timeout_ms,
                m.assigned,
                group.target_of(m.id, m.instance_id),
                is_classic=m.classic is not None,
            )
            for m in group.members.values()
        ),
    )


def check_commit(group: ConsumerGroup, request: CommitRequest, *, in_transaction: bool) -> None:
    """Refuse offset commits except from a member in its current epoch."""
    if request.generation < 0 and not group.members:
        return
    is_anonymous = not request.member_id and request.instance_id is None
    if in_transaction and request.generation < 0 and is_anonymous:
        # The producer is fenced by its epoch; the member is checked only if the request names one.
        return
    member = _member(group, request.member_id)
    if member.classic is None and not in_transaction and not request.reports_unknown_group:
        raise InvalidRequest(
            ErrorCode.UNSUPPORTED_VERSION,
            "members of a consumer group commit with OffsetCommit version 9 or later",
            subject=group.id,
        )
    _check_epoch(group, member, request.generation)


def check_fetch(group: ConsumerGroup, reader: OffsetReader) -> None:
    """Refuse offset fetches with another epoch: newer commits may be in flight."""
    if reader.member_id is not None or reader.epoch >= 0:
        _check_epoch(group, _member(group, reader.member_id or ""), reader.epoch)


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    member = group.members.get(member_id)
    if member is None:
        raise unknown_consumer(group.id, f"no member {member_id!r}")
    return member


def _check_epoch(group: ConsumerGroup, member: ConsumerMember, given: int) -> None:
    if given != member.epoch:
        is_classic = member.classic is not None
        raise Fenced(
            ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH,
            f"member {member.id} is in epoch {member.epoch}, not {given}",
            subject=group.id,
        )
