"""Handles each message and each timer: the term first, then the role."""

from mainstem.cluster.raft import election, membership, reads, replication, transfer
from mainstem.cluster.raft.election import CAMPAIGN_TRANSFER, CampaignType
from mainstem.cluster.raft.messages import NO_NODE, MessageType, RaftMessage, ReadState
from mainstem.cluster.raft.read_rounds import ReadRequest
from mainstem.cluster.raft.state import RaftState
from mainstem.model.ids import NodeId

FROM_LEADER = frozenset({MessageType.MsgApp, MessageType.MsgHeartbeat, MessageType.MsgSnap})
VOTE_REQUESTS = frozenset({MessageType.MsgVote, MessageType.MsgPreVote})
VOTE_RESPONSES = frozenset({MessageType.MsgVoteResp, MessageType.MsgPreVoteResp})


def tick(state: RaftState) -> None:
    """Time has passed."""
    if state.is_leader:
        _tick_leader(state)
    elif state.now_s >= state.election_due_s:
        pre = state.settings.pre_vote
        election.hup(
            state, CampaignType.CampaignPreElection if pre else CampaignType.CampaignElection
        )


def _tick_leader(state: RaftState) -> None:
    if state.now_s >= state.quorum_due_s:
        state.quorum_due_s = state.now_s + state.settings.election_timeout_s
        if state.settings.check_quorum and not state.tracker.quorum_active(state.id):
            state.become_follower(state.term, NO_NODE)
            return
        for progress in state.tracker.progress.values():
            progress.recent_active = False
    if state.lead_transferee != NO_NODE and state.now_s >= state.transfer_due_s:
        state.lead_transferee = NO_NODE
        if state.id not in state.tracker.voters:
            membership.hand_over(state)
    if state.now_s >= state.heartbeat_due_s:
        reads.broadcast_heartbeat(state)


def step(state: RaftState, message: RaftMessage) -> None:
    """Handle a message; one that is out of date is dropped."""
    if message.term > state.term and not _enter_term(state, message):
        return
    if message.term < state.term:
        _answer_the_past(state, message)
    elif message.type in VOTE_REQUESTS:
        election.handle_vote_request(state, message)
    elif message.type in VOTE_RESPONSES:
        if message.reject or message.type is MessageType.MsgVoteResp:
            election.handle_vote_response(state, message)
    elif message.type in FROM_LEADER:
        _step_follower(state, message)
    elif state.is_leader:
        _step_leader(state, message)
    elif message.type is MessageType.MsgTimeoutNow:
        election.hup(state, CampaignType.CampaignTransfer)
    elif message.type is MessageType.MsgReadIndexResp:
        state.read_states.append(ReadState(message.context, message.index))


def _enter_term(state: RaftState, message: RaftMessage) -> bool:
    """Follow a later term; False when there is nothing more to do."""
    if message.type in VOTE_REQUESTS:
        forced = message.context == CAMPAIGN_TRANSFER
        if state.in_lease and not forced:
            return False
    # A pre-vote request for a term, and the answer to it, do not start that term.
    if message.type is MessageType.MsgPreVote:
        election.handle_vote_request(state, message)
        return False
    if message.type is MessageType.MsgPreVoteResp and not message.reject:
        if message.term == state.term + 1:
            election.handle_vote_response(state, message)
        return False
    state.become_follower(message.term, message.from_ if message.type in FROM_LEADER else NO_NODE)
    return True


def _answer_the_past(state: RaftState, message: RaftMessage) -> None:
    """A sender is behind; without an answer it would not find out."""
    if message.type in FROM_LEADER:
        state.reply(message, MessageType.MsgAppResp, reject=True)
    elif message.type is MessageType.MsgPreVote:
        state.reply(message, MessageType.MsgPreVoteResp, reject=True)


def _step_follower(state: RaftState, message: RaftMessage) -> None:
    assert not state.is_leader, "two leaders in one term"
    if state.lead != message.from_:
        state.become_follower(message.term, message.from_)
    state.note_leader(message.from_)
    if message.type is MessageType.MsgApp:
        replication.handle_append(state, message)
    elif message.type is MessageType.MsgSnap:
        replication.handle_snapshot(state, message)
    else:
        state.log.commit_to(message.commit)
        state.reply(message, MessageType.MsgHeartbeatResp, context=message.context)


def _step_leader(state: RaftState, message: RaftMessage) -> None:
    if message.from_ not in state.tracker.progress:
        return
    if message.type is MessageType.MsgAppResp:
        if replication.handle_append_response(state, message):
            reads.release_waiting(state)
    elif message.type is MessageType.MsgHeartbeatResp:
        replication.handle_heartbeat_response(state, message)
        if message.context:
            reads.handle_heartbeat_context(state, message)
    elif message.type is MessageType.MsgReadIndex:
        reads.read_index(state, ReadRequest(message.from_, message.context))
    elif message.type is MessageType.MsgTransferLeader:
        transfer.transfer(state, NodeId(message.index))
