"""Online migration of a group between the classic and the consumer protocol.

upgrade     a consumer-protocol member joins a classic group of consumers: the generation becomes
            the epoch, and each member's assignment becomes its target
downgrade   the last consumer-protocol member leaves: the others form a classic group and rebalance

``MigrationPolicy`` sets which of the two are allowed. An empty group of either protocol is
replaced by one of the other.
"""

from enum import Enum

from mainstem.coordination.classic import generation
from mainstem.coordination.classic.consumer_protocol import (
    assignment_bytes,
    read_assignment,
    read_subscription,
)
from mainstem.coordination.classic.group import ClassicMember, Group
from mainstem.coordination.classic.subscription import CONSUMER_PROTOCOL
from mainstem.coordination.consumer.decision import GroupDecisionFact
from mainstem.coordination.consumer.decision_builder import DecisionBuilder
from mainstem.coordination.consumer.facts import (
    ClassicMemberData,
    ConsumerFact,
    ConsumerRecordKind,
    EpochMoved,
    FactRemoved,
    TargetMoved,
    TargetSet,
)
from mainstem.coordination.consumer.group import ConsumerGroup, ConsumerMember
from mainstem.coordination.consumer.topics import GroupTopics
from mainstem.coordination.groups.facts import GroupRemoved
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest


class MigrationPolicy(Enum):
    """Allowed protocol changes of a group with members."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        """Whether a classic group may become a consumer group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        """Whether a consumer group may become a classic one."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


def check_upgrade(group: Group, policy: MigrationPolicy, members_max: int) -> None:
    """Raise unless this classic group can become a consumer group."""
    if not policy.upgrades:
        raise not_a_consumer_group(
            group.id, "the migration policy does not allow upgrades of classic groups"
        )
    if not group.is_consumer:
        raise not_a_consumer_group(
            group.id, f"its members have the protocol type {group.protocol_type}"
        )
    if len(group.members) > members_max:
        raise not_a_consumer_group(
            group.id, f"its {len(group.members)} members exceed the limit of {members_max}"
        )


def upgrade(group: Group, topics: GroupTopics) -> tuple[list[GroupDecisionFact], ConsumerGroup]:
    """The facts that turn a classic group into a consumer group, and that group."""
    try:
        members = [_as_consumer(group, member, topics) for member in group.members.values()]
    except Corrupt as error:
        raise not_a_consumer_group(group.id, error.cause) from error
    facts: list[ConsumerFact] = [member.subscribed(group.id) for member in members]
    facts.append(EpochMoved(group.id, group.generation))
    facts += [TargetSet(group.id, member.id, member.assigned) for member in members]
    facts.append(TargetMoved(group.id, group.generation))
    facts += [member.moved(group.id) for member in members]
    upgraded = ConsumerGroup(group.id)
    for fact in facts:
        upgraded.replay(fact)
    return [GroupRemoved(group.id), *facts], upgraded


def downgrade(draft: DecisionBuilder, topics: GroupTopics, wall_ms: int) -> list[GroupDecisionFact]:
    """The facts that turn a consumer group into a classic group of the draft's members."""
    group = draft.group
    classic = Group(group.id, state_ms=wall_ms, generation=draft.epoch)
    for member in draft.members().values():
        classic.add(_as_classic(member), CONSUMER_PROTOCOL)
    classic.protocol_name = classic.select_protocol()
    assignments = {}
    for stays in classic.members.values():
        version = read_subscription(stays.metadata(classic.protocol_name)).version
        target = topics.by_name(draft.target_of(stays.id))
        assignments[stays.id] = assignment_bytes(target, version)
    saved = generation.save(classic, wall_ms, assignments=assignments)
    return [*removal(group), saved]


def can_downgrade(members: dict[str, ConsumerMember], policy: MigrationPolicy, most: int) -> bool:
    """Whether all remaining members are classic and the policy allows a downgrade."""
    return (
        policy.downgrades
        and 0 < len(members) <= most
        and all(member.classic is not None for member in members.values())
    )


def removal(group: ConsumerGroup) -> list[ConsumerFact]:
    """The facts that delete a consumer group; committed offsets stay."""
    forgotten: list[ConsumerFact] = [
        FactRemoved(kind, group.id, member_id)
        for kind in (
            ConsumerRecordKind.CURRENT,
            ConsumerRecordKind.TARGET,
            ConsumerRecordKind.MEMBER,
        )
        for member_id in sorted(group.members.keys() | group.target.keys())
    ]
    forgotten += [
        FactRemoved(ConsumerRecordKind.PATTERN, group.id, pattern)
        for pattern in sorted(group.patterns)
    ]
    forgotten += [
        FactRemoved(ConsumerRecordKind.TARGET_EPOCH, group.id),
        FactRemoved(ConsumerRecordKind.EPOCH, group.id),
    ]
    return forgotten


def not_a_consumer_group(group_id: str, cause: str) -> InvalidRequest:
    """The error for a heartbeat to a group that is not a consumer group."""
    return InvalidRequest(
        ErrorCode.UNKNOWN_GROUP, f"not a consumer group: {cause}", subject=group_id
    )


def _as_consumer(group: Group, member: ClassicMember, topics: GroupTopics) -> ConsumerMember:
    # In its first rebalance a group has not chosen a protocol; any protocol has the same topics.
    name = group.protocol_name or member.protocols[0][0]
    subscription = read_subscription(member.metadata(name))
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise Corrupt("the user data of a custom assignor would be lost")
    return ConsumerMember(
        member.id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMemberData(member.session_timeout_ms, member.protocols),
        epoch=group.generation,
        previous_epoch=group.generation,
        assigned=topics.by_id(assignment.partitions),
    )


def _as_classic(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None, "a classic group has only classic members"
    return ClassicMember(
        member.id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        member.classic.protocols,
    )
