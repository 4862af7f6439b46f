"""One node's view of the group: for people, metrics and Kafka's DescribeQuorum."""

import msgspec

from mainstem.cluster.raft.messages import StateType
from mainstem.cluster.raft.state import RaftState
from mainstem.model.ids import NodeId


class MemberStatus(msgspec.Struct, frozen=True):
    """One member; only its leader knows how far it is."""

    node_id: NodeId
    is_learner: bool
    match: int | None
    progress: str | None
    recently_active: bool | None


class RaftStatus(msgspec.Struct, frozen=True):
    """One node's view."""

    node_id: NodeId
    state: StateType
    term: int
    lead: NodeId
    committed: int
    applied: int
    first_index: int
    last_index: int
    snapshot_index: int
    members: tuple[MemberStatus, ...]


def status_of(state: RaftState) -> RaftStatus:
    """The current view."""
    leads = state.is_leader
    members = tuple(
        MemberStatus(
            node,
            known.is_learner,
            known.match if leads else None,
            known.state.name if leads else None,
            (known.recent_active or node == state.id) if leads else None,
        )
        for node, known in state.tracker.progress.items()
    )
    log = state.log
    return RaftStatus(
        state.id,
        state.state,
        state.term,
        state.lead,
        log.committed,
        log.applied,
        log.first_index,
        log.last_index,
        log.snapshot.index,
        members,
    )
