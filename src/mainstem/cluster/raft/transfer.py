"""Leadership transfer: bring one follower up to date, then ask it to campaign at once."""

from mainstem.cluster.raft import replication
from mainstem.cluster.raft.messages import NO_NODE, MessageType, RaftMessage
from mainstem.cluster.raft.state import RaftState
from mainstem.model.ids import NodeId


def transfer(state: RaftState, to: NodeId) -> bool:
    """Start a transfer, or forward the request to the leader; False if it is not possible."""
    if not state.is_leader:
        if state.lead == NO_NODE:
            return False
        # ``index`` carries the id of the new leader.
        kind = MessageType.MsgTransferLeader
        state.send(RaftMessage(kind, state.lead, state.id, state.term, index=to))
        return True
    if to == state.id or to not in state.tracker.voters:
        return False
    if to == state.lead_transferee:
        return True
    state.lead_transferee = to
    # Proposals are refused meanwhile, so a follower that is not ready in time is given up.
    state.transfer_due_s = state.now_s + state.settings.election_timeout_s
    if state.tracker.progress[to].match == state.log.last_index:
        replication.send_timeout_now(state, to)
    else:
        replication.send_append(state, to)
    return True
