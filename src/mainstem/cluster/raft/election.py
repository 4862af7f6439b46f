"""Elections: campaigns, votes, and the first steps of a new leader."""

from enum import Enum, auto

from mainstem.cluster.raft import replication
from mainstem.cluster.raft.messages import (
    NO_NODE,
    EntryId,
    EntryType,
    MessageType,
    RaftMessage,
    StateType,
)
from mainstem.cluster.raft.quorum import VoteResult
from mainstem.cluster.raft.state import RaftState
from mainstem.model.ids import NodeId

# In a vote request: the leader itself asked for this campaign, so its lease does not block it.
CAMPAIGN_TRANSFER = 1
# After a leader's process has ended, as shares of the election time-out: voters campaign one by
# one at this distance, plus up to this random delay, and retry so often without answers.
TURN = 0.12
TURN_CHANCE = 0.04
QUICK_CAMPAIGNS = 4


class CampaignType(Enum):
    """Kind of a campaign."""

    CampaignPreElection = auto()
    CampaignElection = auto()
    CampaignTransfer = auto()


def hup(state: RaftState, campaign_type: CampaignType) -> None:
    """Campaign, if this node may lead at all."""
    if state.is_leader:
        return
    state.reset_election_timer()
    if state.quick_campaigns and campaign_type is CampaignType.CampaignPreElection:
        state.quick_campaigns -= 1
        state.shorten_election_timeout(2 * TURN, 4 * TURN)
    # With a committed change not yet applied this node would count the wrong majority.
    if state.is_promotable and not state.log.has_unapplied_change():
        campaign(state, campaign_type)


def leader_gone(state: RaftState, node: NodeId) -> None:
    """The process of ``node`` has ended, as its machine reports: do not wait for it as leader.

    Terms and votes are unchanged, so a wrong hint costs an election and no more. A node
    without the hint keeps to the leader whose heartbeats it receives, and to its lease.
    """
    if state.is_leader or state.lead != node:
        return
    state.lead = NO_NODE
    others = sorted(voter for voter in state.tracker.voters if voter != node)
    if state.id in others:
        state.quick_campaigns = QUICK_CAMPAIGNS
        # One after the other: two concurrent campaigns would split the votes.
        turn = TURN * others.index(state.id)
        state.shorten_election_timeout(turn + TURN_CHANCE / 2, turn + TURN_CHANCE)


def campaign(state: RaftState, campaign_type: CampaignType) -> None:
    """Request the votes of all voters; this node's own vote counts once it is durable."""
    if campaign_type is CampaignType.CampaignPreElection:
        _become_pre_candidate(state)
        request, response = MessageType.MsgPreVote, MessageType.MsgPreVoteResp
        term = state.term + 1
    else:
        _become_candidate(state)
        request, response = MessageType.MsgVote, MessageType.MsgVoteResp
        term = state.term
    last = state.log.last_id
    context = CAMPAIGN_TRANSFER if campaign_type is CampaignType.CampaignTransfer else 0
    for voter in state.tracker.voters:
        if voter == state.id:
            state.send(RaftMessage(response, voter, state.id, term))
        else:
            asked = RaftMessage(
                request,
                voter,
                state.id,
                term,
                index=last.index,
                log_term=last.term,
                context=context,
            )
            state.send(asked)


def _become_pre_candidate(state: RaftState) -> None:
    # Neither term nor vote changes: a failed pre-campaign has no effect.
    state.state = StateType.StatePreCandidate
    state.lead = NO_NODE
    state.tracker.votes.clear()


def _become_candidate(state: RaftState) -> None:
    state.reset(state.term + 1)
    state.vote = state.id
    state.state = StateType.StateCandidate


def become_leader(state: RaftState) -> None:
    """Become leader; an empty entry of the new term commits what earlier leaders left."""
    state.reset(state.term)
    state.lead = state.id
    state.state = StateType.StateLeader
    state.heartbeat_due_s = state.now_s + state.settings.heartbeat_s
    state.quorum_due_s = state.now_s + state.settings.election_timeout_s
    own = state.tracker.progress[state.id]
    own.become_replicate()
    own.recent_active = True
    # There may be a change of membership among the entries that are not applied yet: no other may
    # be proposed before they are.
    state.pending_conf_index = state.log.last_index
    replication.append_entries(state, EntryType.EntryNormal, [b""])
    replication.broadcast_append(state)


def handle_vote_request(state: RaftState, message: RaftMessage) -> None:
    """Handle a request for a vote or a pre-vote."""
    pre = message.type is MessageType.MsgPreVote
    response = MessageType.MsgPreVoteResp if pre else MessageType.MsgVoteResp
    may_vote = (
        state.vote == message.from_
        or (state.vote == NO_NODE and state.lead == NO_NODE)
        or (pre and message.term > state.term)
    )
    # Learners vote too when they are asked: the candidate has applied their promotion, though
    # they may not have.
    if may_vote and _has_all(state, message):
        # In the term of the request: a candidate drops answers from terms that it has left.
        state.send(RaftMessage(response, message.from_, state.id, message.term))
        if not pre:
            state.vote = message.from_
            state.reset_election_timer()
    else:
        state.send(RaftMessage(response, message.from_, state.id, state.term, reject=True))


def _has_all(state: RaftState, message: RaftMessage) -> bool:
    """Whether a candidate's log holds everything that may be committed, as far as we know."""
    if state.log.is_up_to_date(EntryId(message.index, message.log_term)):
        return True
    # The only voter belongs to every majority since it was one of two, so it holds all
    # that is committed, although we, who were removed, may have written more than that. Without
    # our vote it would wait for ever, if it does not know yet that it is the only voter.
    alone = state.tracker.voters == (message.from_,)
    return alone and not state.log.has_change_after(state.log.applied)


def handle_vote_response(state: RaftState, message: RaftMessage) -> None:
    """Handle a vote, granted or refused."""
    wanted = {
        StateType.StatePreCandidate: MessageType.MsgPreVoteResp,
        StateType.StateCandidate: MessageType.MsgVoteResp,
    }
    if wanted.get(state.state) is not message.type:
        return
    # A refusal that carries our own term, or a grant for the term that we asked about.
    result = state.tracker.record_vote(message.from_, granted=not message.reject)
    if result is VoteResult.VoteWon:
        if state.state is StateType.StatePreCandidate:
            campaign(state, CampaignType.CampaignElection)
        else:
            become_leader(state)
    elif result is VoteResult.VoteLost:
        state.become_follower(state.term, NO_NODE)
