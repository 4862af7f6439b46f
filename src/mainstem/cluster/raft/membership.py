"""Who belongs to the group, changed one node at a time.

A change takes effect on a node when that node applies it. That is safe because a leader proposes
the next one only after it applied the last, and every follower that is sent the next one is told in
the same message that the last is committed, and keeps both in one write: so nobody campaigns under
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

# A learner that is further behind would, as a voter, hold up everybody's commits.
PROMOTION_LAG_ENTRIES_MAX = 1_000
VOTERS_MAX = 7


def changed(conf_state: ConfState, change: ConfChange) -> ConfState:
    """The membership after a change; the same when there is nothing to change.

    Raises:
        InvalidRequest: nobody would be left to vote, or there are too many voters.
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
            ErrorCode.INVALID_REQUEST, f"without node {node} nobody would vote", subject=str(node)
        )
    if len(voters) > VOTERS_MAX:
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, f"more than {VOTERS_MAX} voters")
    return ConfState(tuple(sorted(voters)), tuple(sorted(learners)))


def check_proposal(state: RaftState, change: ConfChange) -> None:
    """Refuse a change that a leader may not begin now.

    Raises:
        Unavailable: another change is under way, or this leader is too new, or the learner is too
            far behind.
        InvalidRequest: the change makes no sense.
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
    """A change is committed: let it hold. The membership from now on."""
    conf_state = changed(state.tracker.conf_state, change)
    # The newcomer's log is probably empty; the first answer tells where to begin.
    state.tracker.switch_to(conf_state, max(state.log.last_index, 1))
    if not state.is_leader:
        return conf_state
    if state.id not in conf_state.voters:
        # Left by an earlier leader. Until somebody else has everything and takes over, this node
        # leads on without counting itself: of two, the other may not know yet that it is alone.
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
    """Whether a node would not be a voter any more."""
    return change.node_id == node and change.type is not ConfChangeType.ConfChangeAddNode


def hand_over(state: RaftState) -> NodeId:
    """Let the voter that is furthest lead; who that is."""
    others = [node for node in state.tracker.voters if node != state.id]
    successor = max(others, key=lambda node: state.tracker.progress[node].match)
    transfer.transfer(state, successor)
    return successor


def _probe_members(state: RaftState) -> None:
    for node in state.tracker.progress:
        if node != state.id:
            replication.send_append(state, node, if_empty=False)


def members(conf_state: ConfState) -> tuple[NodeId, ...]:
    """Everybody who is sent the log."""
    return tuple(sorted({*conf_state.voters, *conf_state.learners}))
