"""Reconciliation: the next step of one member towards its target assignment.

                 has to revoke partitions ──▶ UNREVOKED, old epoch ──reports that it did──┐
    any member ──┤                                                                         ▼
                 otherwise: gets what is free ──▶ target epoch, STABLE, or UNRELEASED while others
                                                  still own some of it

A member revokes before it is assigned, and is assigned only partitions without an owner: no
partition ever has two owners. Until it has revoked it keeps its epoch, so that it can still commit
offsets.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from mainstem.coordination.consumer.facts import NOTHING, MemberState, Partitions
from mainstem.coordination.consumer.group import ConsumerMember
from mainstem.model.ids import TopicId

PartitionOwner = Callable[[TopicId, int], str | None]


class TargetAssignment(Struct, frozen=True):
    """Target assignment of a member and its epoch."""

    epoch: int
    partitions: Partitions


def reconcile(
    member: ConsumerMember,
    target: TargetAssignment,
    owner: PartitionOwner,
    reported: Partitions | None,
) -> ConsumerMember:
    """The member after its next step; unchanged if there is none.

    Args:
        member: the current state.
        target: the target assignment.
        owner: returns the current owner of a partition.
        reported: the partitions that the member reports to own; None if it reports none.
    """
    if member.has_arrived(target.epoch):
        return member
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED:
        if _holds(reported, member.revoking):
            return member
        epoch += 1
    kept, extra, missing, awaits = _compare(member, target.partitions, owner)
    if extra and _holds(reported, extra):
        moved = replace(
            member, epoch=epoch, state=MemberState.UNREVOKED, assigned=kept, revoking=extra
        )
    else:
        moved = replace(
            member,
            epoch=target.epoch,
            state=MemberState.UNRELEASED if awaits else MemberState.STABLE,
            assigned=_union(kept, missing),
            revoking=NOTHING,
        )
    return member if moved == member else replace(moved, previous_epoch=member.epoch)


def awaits_others(member: ConsumerMember, target: Partitions, owner: PartitionOwner) -> bool:
    """Whether another member still owns a partition of the member's target."""
    *_, awaits = _compare(member, target, owner)
    return awaits


def is_within(part: Partitions | None, whole: Partitions) -> bool:
    """Whether the member reported its partitions and they are a subset of ``whole``."""
    if part is None:
        return False
    return all(indexes <= whole.get(topic, frozenset()) for topic, indexes in part.items())


def _holds(reported: Partitions | None, partitions: Partitions) -> bool:
    """Whether the member still owns one of these; True if it has not reported."""
    if reported is None:
        return True
    return any(reported.get(topic, frozenset()) & each for topic, each in partitions.items())


def _compare(
    member: ConsumerMember, target: Partitions, owner: PartitionOwner
) -> tuple[Partitions, Partitions, Partitions, bool]:
    """Partitions to keep, to revoke, free to assign, and whether others are still owned."""
    kept: dict[TopicId, frozenset[int]] = {}
    extra: dict[TopicId, frozenset[int]] = {}
    missing: dict[TopicId, frozenset[int]] = {}
    awaits = False
    for topic in target.keys() | member.assigned.keys():
        wanted = target.get(topic, frozenset())
        present = member.assigned.get(topic, frozenset())
        lacking = wanted - present
        free = frozenset(index for index in lacking if owner(topic, index) in (None, member.id))
        awaits = awaits or free != lacking
        for found, into in ((wanted & present, kept), (present - wanted, extra), (free, missing)):
            if found:
                into[topic] = found
    return kept, extra, missing, awaits


def _union(one: Partitions, other: Partitions) -> Partitions:
    none: frozenset[int] = frozenset()
    return {t: one.get(t, none) | other.get(t, none) for t in one.keys() | other.keys()}
