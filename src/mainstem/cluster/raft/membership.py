"""Members of the group, changed one node at a time.

A change takes effect on a node when that node applies it. That is safe because a leader proposes
the next one only after it applied the last, and a follower receives the next one in the same
message as the commit of the last, and stores both in one write: so no node campaigns under
a membership older than the one before.
"""

from mainstem.cluster.raft import replication, transfer
from mainstem.cluster.raft.messages import (
    NO_NODE,
    ConfChange,
    ConfChangeType,
    ConfState,
)
from mainstem.cluster.raft.state import RaftState
from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.ids import NodeId

# A learner that is further behind would, as a voter, delay all commits.
PROMOTION_LAG_ENTRIES_MAX = 1_000
VOTERS_MAX = 7


def changed(conf_state: ConfState, change: ConfChange) -> ConfState:
    """The membership after a change; the same when there is nothing to change.

    Raises:
        InvalidRequest: no voter would be left, or there are too many voters.
    """
    node = change.node_id
    voters = {*conf_state.voters} - {node}
    learners = {*conf_state.learners} - {node}
    if change.type is ConfChangeType.ConfChangeAddNode:
        voters.add(node)
    elif change.type is ConfChangeType.ConfChangeAddLearnerNode:
        learners.add(node)
    if not voters:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST, f"node {node} is the only voter", subject=str(node)
        )
    if len(voters) > VOTERS_MAX:
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, f"more than {VOTERS_MAX} voters")
    return ConfState(tuple(sorted(voters)), tuple(sorted(learners)))


def check_proposal(state: RaftState, change: ConfChange) -> None:
    """Refuse a change that a leader may not start now.

    Raises:
        Unavailable: another change is under way, or this leader is too new, or the learner is too
            far behind.
        InvalidRequest: the change is not possible.
    """
    if change.node_id < 0:
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, f"no node has the id {change.node_id}")
    changed(state.tracker.conf_state, change)
    if state.pending_conf_index > state.log.applied:
        raise Unavailable(ErrorCode.OVERLOADED, "another change of membership is under way")
    if not state.committed_in_term:
        raise Unavailable(ErrorCode.OVERLOADED, "this leader has not committed anything yet")
    learner = state.tracker.progress.get(change.node_id)
    promotes = change.type is ConfChangeType.ConfChangeAddNode
    if promotes and learner is not None and learner.is_learner:
        behind = state.log.committed - learner.match
        if behind > PROMOTION_LAG_ENTRIES_MAX:
            raise Unavailable(
                ErrorCode.OVERLOADED,
                f"the learner is {behind} entries behind",
                subject=str(change.node_id),
                remedy="wait until it has caught up",
            )


def apply_change(state: RaftState, change: ConfChange) -> ConfState:
    """Apply a committed change; the new membership."""
    conf_state = changed(state.tracker.conf_state, change)
    # The new member's log is probably empty; its first answer contains where to start.
    state.tracker.switch_to(conf_state, max(state.log.last_index, 1))
    if not state.is_leader:
        return conf_state
    if state.id not in conf_state.voters:
        # Proposed by an earlier leader. Until another node has everything and takes over, this node
        # still leads without counting itself: of two, the other may not know yet that it is alone.
        hand_over(state)
        return conf_state
    if replication.maybe_commit(state):
        replication.broadcast_append(state)
    else:
        _probe_members(state)
    if state.lead_transferee not in conf_state.voters:
        state.lead_transferee = NO_NODE
    return conf_state


def drops(change: ConfChange, node: NodeId) -> bool:
    """Whether a change ends a node's vote."""
    return change.node_id == node and change.type is not ConfChangeType.ConfChangeAddNode


def hand_over(state: RaftState) -> NodeId:
    """Transfer leadership to the voter that is furthest; its id."""
    others = [node for node in state.tracker.voters if node != state.id]
    successor = max(others, key=lambda node: state.tracker.progress[node].match)
    transfer.transfer(state, successor)
    return successor


def _probe_members(state: RaftState) -> None:
    for node in state.tracker.progress:
        if node != state.id:
            replication.send_append(state, node, if_empty=False)


def members(conf_state: ConfState) -> tuple[NodeId, ...]:
    """Every member that receives the log."""
    return tuple(sorted({*conf_state.voters, *conf_state.learners}))
