"""Linearisable reads without writing: read-index (Raft thesis §6.4).

A read that relies on clocks alone (a leader's lease) is not offered: it trades safety
for one round of heartbeats, and the catalogue is read from memory most of the time anyway.
"""

from mainstem.cluster.raft.messages import NO_NODE, MessageType, RaftMessage, ReadState
from mainstem.cluster.raft.read_rounds import ReadRequest
from mainstem.cluster.raft.state import RaftState
from mainstem.model.ids import NodeId


def broadcast_heartbeat(state: RaftState) -> None:
    """Send a heartbeat to every member, with the number of the read round that waits."""
    # A read round is a heartbeat too: the next one is due a full interval later.
    state.heartbeat_due_s = state.now_s + state.settings.heartbeat_s
    for node in state.tracker.progress:
        if node != state.id:
            _send_heartbeat(state, node, state.reads.last_number)


def _send_heartbeat(state: RaftState, to: NodeId, context: int) -> None:
    # Never beyond what the follower is known to hold: later entries may be another leader's.
    commit = min(state.tracker.progress[to].match, state.log.committed)
    heartbeat = MessageType.MsgHeartbeat
    state.send(RaftMessage(heartbeat, to, state.id, state.term, commit=commit, context=context))


def read_index(state: RaftState, request: ReadRequest) -> None:
    """Accept a read, or forward it to the leader; one that cannot be accepted is dropped."""
    if not state.is_leader:
        if state.lead != NO_NODE and request.node == state.id:
            ask = MessageType.MsgReadIndex
            state.send(RaftMessage(ask, state.lead, state.id, state.term, context=request.context))
    elif state.reads.is_full:
        return
    elif not state.committed_in_term:
        state.reads.wait(request)
    elif state.tracker.voters == (state.id,):
        _answer(state, request, state.log.committed)
    else:
        state.reads.open(request, state.log.committed, state.id)
        broadcast_heartbeat(state)


def release_waiting(state: RaftState) -> None:
    """The leader has committed in its term: reads that waited for that may start."""
    for request in state.reads.take_waiting():
        read_index(state, request)


def handle_heartbeat_context(state: RaftState, message: RaftMessage) -> None:
    """A follower answered a heartbeat that carried a read round."""
    settled = state.reads.acknowledge(message.from_, message.context, state.tracker.voters)
    for request, index in settled:
        _answer(state, request, index)


def _answer(state: RaftState, request: ReadRequest, index: int) -> None:
    if request.node == state.id:
        state.read_states.append(ReadState(request.context, index))
        return
    kind = MessageType.MsgReadIndexResp
    state.send(
        RaftMessage(kind, request.node, state.id, state.term, index=index, context=request.context)
    )
