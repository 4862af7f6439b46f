"""Elections that disturb nobody: pre-vote, check-quorum, leases, transfers."""

import pytest
from tests.unit.cluster.raft.kit import FOUR, ONE, THREE, TWO, durable, kinds, node

from mainstem.cluster.raft.core import NotLeader
from mainstem.cluster.raft.election import CAMPAIGN_TRANSFER
from mainstem.cluster.raft.messages import (
    NO_NODE,
    ConfChange,
    ConfChangeType,
    Entry,
    EntryType,
    MessageType,
    StateType,
    encode_change,
)
from mainstem.model.ids import NodeId

M = MessageType
S = StateType
ADD_FOUR = encode_change(ConfChange(ConfChangeType.ConfChangeAddNode, FOUR))


# Pre-vote


def test_a_pre_campaign_changes_neither_term_nor_vote() -> None:
    story = node()
    story.tick()
    messages = story.work()
    assert (story.state, story.term, story.core.state.vote) == (S.StatePreCandidate, 1, NO_NODE)
    assert kinds(messages) == [(M.MsgPreVote, TWO), (M.MsgPreVote, THREE)]
    assert {message.term for message in messages} == {2}


def test_a_pre_campaign_that_a_majority_supports_becomes_a_campaign() -> None:
    story = node()
    story.tick()
    story.work()
    story.step(M.MsgPreVoteResp, TWO, 2)
    assert (story.state, story.term) == (S.StateCandidate, 2)
    assert kinds(story.work()) == [(M.MsgVote, TWO), (M.MsgVote, THREE)]


def test_a_pre_campaign_that_a_majority_refuses_is_given_up() -> None:
    story = node()
    story.tick()
    story.work()
    story.step(M.MsgPreVoteResp, TWO, 1, reject=True)
    story.step(M.MsgPreVoteResp, THREE, 1, reject=True)
    assert (story.state, story.term) == (S.StateFollower, 1)


def test_consent_to_an_earlier_pre_campaign_does_not_count() -> None:
    story = node(durable(term=4))
    story.tick()
    story.work()
    story.step(M.MsgPreVoteResp, TWO, 4)
    assert story.state is S.StatePreCandidate


def test_a_candidate_does_not_count_consent_to_its_pre_campaign() -> None:
    story = node(durable(voters=(ONE, TWO, THREE, FOUR)))
    story.tick()
    story.work()
    for voter in (TWO, THREE):
        story.step(M.MsgPreVoteResp, voter, 2)
    story.work()
    for voter in (TWO, THREE, FOUR):
        story.step(M.MsgPreVoteResp, voter, 2)
    assert story.state is S.StateCandidate


def test_a_pre_vote_is_given_without_voting_and_to_several() -> None:
    story = node()
    for candidate in (TWO, THREE):
        story.step(M.MsgPreVote, candidate, 2, index=1, log_term=1)
    answers = story.work()
    assert [(answer.to, answer.term, answer.reject) for answer in answers] == [
        (TWO, 2, False),
        (THREE, 2, False),
    ]
    assert (story.term, story.core.state.vote) == (1, NO_NODE)


def test_a_pre_vote_of_an_earlier_term_is_refused_with_the_later_one() -> None:
    story = node(durable(term=5))
    story.step(M.MsgPreVote, TWO, 3, index=1, log_term=1)
    [answer] = story.work()
    assert (answer.type, answer.term, answer.reject) == (M.MsgPreVoteResp, 5, True)


def test_a_refusal_with_a_later_term_ends_a_pre_campaign() -> None:
    story = node()
    story.tick()
    story.work()
    story.step(M.MsgPreVoteResp, TWO, 8, reject=True)
    assert (story.state, story.term) == (S.StateFollower, 8)


# Leases and check-quorum


@pytest.mark.parametrize("kind", [M.MsgVote, M.MsgPreVote])
def test_a_follower_that_hears_its_leader_ignores_candidates(kind: MessageType) -> None:
    story = node()
    story.step(M.MsgHeartbeat, TWO, 1)
    story.work()
    story.now_s += 0.9
    story.step(kind, THREE, 2, index=9, log_term=1)
    assert story.work() == []
    assert (story.term, story.core.state.lead) == (1, TWO)
    story.now_s += 0.2
    story.step(kind, THREE, 2, index=9, log_term=1)
    assert len(story.work()) == 1


@pytest.mark.parametrize("kind", [M.MsgVote, M.MsgPreVote])
def test_a_leader_with_a_majority_ignores_candidates(kind: MessageType) -> None:
    story = node()
    story.lead()
    story.step(kind, THREE, 9, index=9, log_term=1)
    assert story.work() == []
    assert story.state is S.StateLeader


def test_without_check_quorum_every_candidate_is_listened_to() -> None:
    story = node(check_quorum=False)
    story.step(M.MsgHeartbeat, TWO, 1)
    story.step(M.MsgVote, THREE, 2, index=9, log_term=1)
    assert story.term == 2


def test_a_campaign_that_the_leader_asked_for_breaks_the_lease() -> None:
    story = node()
    story.step(M.MsgHeartbeat, TWO, 1)
    story.work()
    story.step(M.MsgVote, THREE, 2, index=1, log_term=1, context=CAMPAIGN_TRANSFER)
    [answer] = story.work()
    assert (answer.type, answer.reject) == (M.MsgVoteResp, False)


# A leader whose process has ended


@pytest.mark.parametrize(
    ("node_id", "leader", "least_s", "most_s"),
    [
        (ONE, TWO, 0.0, 0.05),
        (ONE, THREE, 0.0, 0.05),
        (THREE, ONE, 0.12, 0.17),
        (THREE, TWO, 0.12, 0.17),
    ],
)
@pytest.mark.parametrize("chance", [0.0, 0.999])
def test_followers_of_a_leader_that_is_gone_take_turns(
    node_id: NodeId, leader: NodeId, least_s: float, most_s: float, chance: float
) -> None:
    story = node(node_id=node_id, chance=chance)
    story.step(M.MsgHeartbeat, leader, 1)
    story.work()
    story.core.report_unreachable(leader, gone_s=story.now_s)
    assert story.core.state.lead == NO_NODE
    assert least_s < story.core.next_deadline_s < most_s
    story.tick()
    assert (story.state, story.term) == (S.StatePreCandidate, 1)


def test_the_lease_of_a_leader_that_is_gone_stands_against_nobody() -> None:
    story = node()
    story.step(M.MsgHeartbeat, TWO, 1)
    story.work()
    story.step(M.MsgPreVote, THREE, 2, index=9, log_term=1)
    assert story.work() == []
    story.core.report_unreachable(TWO, gone_s=story.now_s)
    story.step(M.MsgPreVote, THREE, 2, index=9, log_term=1)
    [answer] = story.work()
    assert (answer.type, answer.to, answer.reject) == (M.MsgPreVoteResp, THREE, False)


def test_that_another_than_the_leader_is_gone_changes_nothing() -> None:
    story = node()
    story.step(M.MsgHeartbeat, TWO, 1)
    story.work()
    due_s = story.core.next_deadline_s
    story.core.report_unreachable(THREE, gone_s=story.now_s)
    assert (story.core.state.lead, story.core.next_deadline_s) == (TWO, due_s)
    story.step(M.MsgPreVote, THREE, 2, index=9, log_term=1)
    assert story.work() == []


def test_a_leader_does_not_step_down_because_a_follower_is_gone() -> None:
    story = node()
    story.lead()
    for gone in (ONE, TWO, THREE):
        story.core.report_unreachable(gone, gone_s=story.now_s)
    assert story.state is S.StateLeader


def test_a_vote_that_was_given_is_not_given_again_when_the_leader_is_gone() -> None:
    story = node(durable(term=2, vote=TWO))
    story.step(M.MsgHeartbeat, TWO, 2)
    story.core.report_unreachable(TWO, gone_s=story.now_s)
    story.work()
    story.step(M.MsgVote, THREE, 2, index=9, log_term=2)
    [answer] = story.work()
    assert (answer.type, answer.reject) == (M.MsgVoteResp, True)


def test_who_is_not_listened_to_yet_asks_again_soon_but_not_for_ever() -> None:
    story = node()
    story.step(M.MsgHeartbeat, TWO, 1)
    story.work()
    story.core.report_unreachable(TWO, gone_s=story.now_s)
    waits_s = []
    for _ in range(6):
        before_s = story.now_s
        story.tick()
        assert [kind for kind, _ in kinds(story.work())] == [M.MsgPreVote, M.MsgPreVote]
        waits_s.append(story.now_s - before_s)
    assert max(waits_s[:5]) < 0.5
    assert waits_s[5] >= 1.0


def test_a_leader_that_is_heard_again_is_followed_and_waited_for() -> None:
    story = node()
    story.step(M.MsgHeartbeat, TWO, 1)
    story.core.report_unreachable(TWO, gone_s=story.now_s)
    story.step(M.MsgHeartbeat, TWO, 1)
    assert story.core.state.lead == TWO
    assert story.core.next_deadline_s >= story.now_s + 1.0
    story.work()
    story.step(M.MsgPreVote, THREE, 2, index=9, log_term=1)
    assert story.work() == []


def test_a_learner_forgets_a_leader_that_is_gone_and_does_not_campaign() -> None:
    story = node(durable(voters=(TWO, THREE), learners=(ONE,)))
    story.step(M.MsgHeartbeat, TWO, 1)
    story.work()
    story.core.report_unreachable(TWO, gone_s=story.now_s)
    assert story.core.state.lead == NO_NODE
    assert story.core.next_deadline_s >= story.now_s + 1.0


def test_a_leader_that_hears_no_majority_steps_down() -> None:
    story = node()
    story.lead()
    story.step(M.MsgHeartbeatResp, TWO, story.term)
    story.tick(1.0)
    assert story.state is S.StateLeader
    story.tick(1.0)
    assert (story.state, story.core.state.lead) == (S.StateFollower, NO_NODE)


def test_a_leader_that_hears_a_majority_stays() -> None:
    story = node()
    story.lead()
    for _ in range(5):
        story.step(M.MsgHeartbeatResp, THREE, story.term)
        story.tick(1.0)
    assert story.state is S.StateLeader


def test_a_learner_that_is_heard_is_no_majority() -> None:
    story = node(durable(learners=(FOUR,)))
    story.lead()
    for _ in range(2):
        story.step(M.MsgHeartbeatResp, FOUR, story.term)
        story.tick(1.0)
    assert story.state is not S.StateLeader


def test_a_node_that_is_stuck_in_a_later_term_frees_itself() -> None:
    """Its answer makes the leader step down, and the next election takes it in again."""
    leader = node()
    leader.lead()
    leader.step(M.MsgAppResp, TWO, 7, reject=True)
    assert (leader.state, leader.term) == (S.StateFollower, 7)


# Who may campaign


def test_a_learner_never_campaigns_but_votes_when_asked() -> None:
    story = node(durable(voters=(TWO, THREE), learners=(ONE,)))
    story.tick()
    assert story.work() == []
    story.step(M.MsgVote, TWO, 2, index=1, log_term=1)
    [answer] = story.work()
    assert (answer.type, answer.reject) == (M.MsgVoteResp, False)


def test_a_node_that_does_not_belong_never_campaigns() -> None:
    story = node(durable(voters=(TWO, THREE)))
    story.tick()
    assert (story.work(), story.state) == ([], S.StateFollower)


def test_a_lone_voter_elects_itself() -> None:
    story = node(durable(voters=(ONE,)))
    story.tick()
    story.work()
    assert (story.state, story.committed) == (S.StateLeader, 2)


def test_of_two_candidates_the_one_with_the_majority_leads_and_the_other_follows() -> None:
    one, three = node(pre_vote=False), node(node_id=THREE, pre_vote=False)
    one.tick()
    three.tick()
    one.work()
    three.work()
    one.step(M.MsgVoteResp, TWO, 2)
    three.step(M.MsgVoteResp, TWO, 2, reject=True)
    assert (one.state, three.state) == (S.StateLeader, S.StateCandidate)
    for message in one.work():
        if message.to == THREE:
            three.core.step(message, 0.0)
    assert (three.state, three.core.state.lead) == (S.StateFollower, ONE)


# Handing leadership over


def test_an_heir_that_has_everything_is_told_at_once() -> None:
    story = node()
    story.lead()
    story.step(M.MsgAppResp, TWO, story.term, index=2)
    story.work()
    assert story.core.transfer_leadership(TWO, story.now_s)
    assert (M.MsgTimeoutNow, TWO) in kinds(story.work())


def test_an_heir_that_is_behind_is_brought_up_to_date_first() -> None:
    story = node()
    story.lead()
    assert story.core.transfer_leadership(TWO, story.now_s)
    assert (M.MsgTimeoutNow, TWO) not in kinds(story.work())
    story.step(M.MsgAppResp, TWO, story.term, index=2)
    assert (M.MsgTimeoutNow, TWO) in kinds(story.work())


def test_nothing_is_proposed_while_leadership_is_handed_over() -> None:
    story = node()
    story.lead()
    story.core.transfer_leadership(TWO, story.now_s)
    with pytest.raises(NotLeader) as refused:
        story.core.propose([b"x"], story.now_s)
    assert refused.value.leader == TWO


def test_a_transfer_that_takes_too_long_is_given_up() -> None:
    story = node()
    story.lead()
    story.core.transfer_leadership(TWO, story.now_s)
    story.step(M.MsgHeartbeatResp, THREE, story.term)
    story.tick(1.0)
    story.core.propose([b"x"], story.now_s)
    assert story.state is S.StateLeader


def test_a_second_transfer_replaces_the_first() -> None:
    story = node()
    story.lead()
    story.core.transfer_leadership(TWO, story.now_s)
    story.core.transfer_leadership(THREE, story.now_s)
    assert story.core.state.lead_transferee == THREE


@pytest.mark.parametrize("to", [ONE, FOUR])
def test_a_transfer_to_oneself_or_to_a_stranger_makes_no_sense(to: NodeId) -> None:
    story = node()
    story.lead()
    assert not story.core.transfer_leadership(to, story.now_s)


def test_a_learner_does_not_inherit() -> None:
    story = node(durable(learners=(FOUR,)))
    story.lead()
    assert not story.core.transfer_leadership(FOUR, story.now_s)


def test_a_follower_passes_the_wish_on() -> None:
    story = node()
    story.step(M.MsgHeartbeat, TWO, 1)
    story.work()
    assert story.core.transfer_leadership(THREE, story.now_s)
    [wish] = story.work()
    assert (wish.type, wish.to, wish.index) == (M.MsgTransferLeader, TWO, THREE)
    leader = node(node_id=TWO)
    leader.lead()
    leader.step(M.MsgTransferLeader, ONE, leader.term, index=THREE)
    assert leader.core.state.lead_transferee == THREE


def test_an_heir_campaigns_at_once_without_asking_first() -> None:
    story = node()
    story.step(M.MsgHeartbeat, TWO, 1)
    story.work()
    story.step(M.MsgTimeoutNow, TWO, 1)
    messages = story.work()
    assert (story.state, story.term) == (S.StateCandidate, 2)
    assert {(message.type, message.context) for message in messages} == {
        (M.MsgVote, CAMPAIGN_TRANSFER)
    }


def test_a_leader_that_cannot_do_its_work_steps_down() -> None:
    story = node()
    story.lead()
    story.core.step_down(story.now_s)
    assert (story.state, story.core.state.lead) == (S.StateFollower, NO_NODE)


def test_a_node_with_a_committed_change_that_it_has_not_applied_does_not_campaign() -> None:
    """It would count the votes of a membership that is over."""
    change = Entry(1, 2, EntryType.EntryConfChange, ADD_FOUR)
    story = node()
    story.step(M.MsgApp, TWO, 1, index=1, log_term=1, entries=(change,), commit=2)
    ready = story.core.ready()
    story.tick()
    before = story.state
    story.finish(ready)
    story.work()
    story.tick()
    assert (before, story.state) == (S.StateFollower, S.StatePreCandidate)
