"""The next step of one member towards what it shall have.

                 has to give up partitions ──▶ UNREVOKED, old epoch ──reports that it did──┐
    any member ──┤                                                                          ▼
                 otherwise: takes what is free ──▶ target epoch, STABLE, or UNRELEASED while others
                                                   still have some of it

A member gives up before it takes, and takes only what nobody else has: no partition ever has two
owners. Until it has given up it stays in its epoch, so that it can still commit positions.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from mainstem.coordination.consumer.facts import NOTHING, MemberState, Partitions
from mainstem.coordination.consumer.group import ConsumerMember
from mainstem.model.ids import TopicId

PartitionOwner = Callable[[TopicId, int], str | None]


class TargetAssignment(Struct, frozen=True):
    """What a member shall have in which epoch."""

    epoch: int
    partitions: Partitions


def reconcile(
    member: ConsumerMember,
    target: TargetAssignment,
    owner: PartitionOwner,
    reported: Partitions | None,
) -> ConsumerMember:
    """The member after its next step, or as it is.

    Args:
        member: what it has now.
        target: what it shall have.
        owner: who has a partition now.
        reported: what the member says it has; None if it does not say.
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
    """Whether something the member shall have is still another's."""
    *_, awaits = _compare(member, target, owner)
    return awaits


def is_within(part: Partitions | None, whole: Partitions) -> bool:
    """Whether the member said what it has, and has no more than ``whole``."""
    if part is None:
        return False
    return all(indexes <= whole.get(topic, frozenset()) for topic, indexes in part.items())


def _holds(reported: Partitions | None, partitions: Partitions) -> bool:
    """Whether the member still has one of these, as far as it has said."""
    if reported is None:
        return True
    return any(reported.get(topic, frozenset()) & each for topic, each in partitions.items())


def _compare(
    member: ConsumerMember, target: Partitions, owner: PartitionOwner
) -> tuple[Partitions, Partitions, Partitions, bool]:
    """What stays, what has to go, what is free to take, and whether more is to come."""
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
