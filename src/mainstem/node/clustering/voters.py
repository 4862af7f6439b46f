"""Chooses the voters of the catalogue: 1, 3 or 5 nodes, at most one per machine. Pure.

The leader takes one step at a time. Two voters would be worse than one, since the loss of either
stops the group: no node becomes the second voter before a third has caught up as well, and the two
are added right after each other.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from mainstem.cluster.raft.messages import ConfChange, ConfChangeType
from mainstem.cluster.raft.status import MemberStatus, RaftStatus
from mainstem.model.ids import NodeId

VOTERS_MAX = 5
# A learner that lacks so few entries has caught up: more come all the while.
LAG_ENTRIES_MAX = 64


class MemberObservations(NamedTuple):
    """What the leader has observed of the members for some time.

    ``machines``: the machine of each registered node; a node without a name for it counts as one.
    ``away``: members that do not answer; ``gone``: those that are no longer waited for.
    """

    machines: Mapping[NodeId, str]
    away: Collection[NodeId] = ()
    gone: Sequence[NodeId] = ()

    def machine(self, member: MemberStatus) -> str:
        """The machine of a member."""
        return self.machines.get(member.node_id) or f"node {member.node_id}"


def next_change(status: RaftStatus, seen: MemberObservations) -> ConfChange | None:
    """The next step, as the leader sees it; None when nothing has to change."""
    if seen.gone:
        return ConfChange(ConfChangeType.ConfChangeRemoveNode, seen.gone[0])
    voters = [m for m in status.members if not m.is_learner]
    learners = [m for m in status.members if m.is_learner and m.node_id in seen.machines]
    lost = [m for m in voters if m.node_id in seen.away]
    wanted = _wanted(voters, learners, seen)
    if len(voters) > wanted:
        leaving = lost or [m for m in voters if m.node_id != status.node_id]
        return ConfChange(ConfChangeType.ConfChangeAddLearnerNode, leaving[-1].node_id)
    if len(voters) < wanted or lost:
        successors = _successors(status, voters, learners, seen)
        # An even number of voters must not last, so both missing ones have to be available.
        needed = 2 if len(voters) < wanted and len(voters) % 2 else 1
        if len(successors) >= needed:
            return ConfChange(ConfChangeType.ConfChangeAddNode, successors[0])
    return None


def _wanted(
    voters: Sequence[MemberStatus], learners: Sequence[MemberStatus], seen: MemberObservations
) -> int:
    """How many voters there should be: an odd number, bounded by the machines that run."""
    running = {seen.machine(m) for m in (*voters, *learners) if m.node_id not in seen.away}
    # Voters that are away still count for the target size: they are replaced, not dropped.
    kept = {seen.machine(m) for m in voters}
    count = min(VOTERS_MAX, max(len(running), len(kept)))
    return count if count % 2 else max(1, count - 1)


def _successors(
    status: RaftStatus,
    voters: Sequence[MemberStatus],
    learners: Sequence[MemberStatus],
    seen: MemberObservations,
) -> list[NodeId]:
    """Learners that can vote now: caught up, and on a machine without a voter."""
    taken = {seen.machine(m) for m in voters if m.node_id not in seen.away}
    found = []
    for learner in learners:
        machine = seen.machine(learner)
        match = learner.match or 0
        is_ready = match > 0 and match >= status.committed - LAG_ENTRIES_MAX
        if is_ready and learner.node_id not in seen.away and machine not in taken:
            found.append(learner.node_id)
            taken.add(machine)
    return found
