"""Changing who belongs, one node at a time."""

import msgspec
import pytest
from tests.unit.cluster.raft.kit import FIVE, FOUR, ONE, THREE, TWO, Fixture, durable, kinds, node

from mainstem.cluster.raft.core import NotLeader
from mainstem.cluster.raft.membership import PROMOTION_LAG_ENTRIES_MAX, changed, members
from mainstem.cluster.raft.messages import (
    ConfChange,
    ConfChangeType,
    ConfState,
    Entry,
    EntryType,
    MessageType,
    StateType,
    encode_change,
)
from mainstem.model.errors import InvalidRequest, Unavailable
from mainstem.model.ids import NodeId

M = MessageType
C = ConfChangeType
THREE_VOTERS = ConfState((ONE, TWO, THREE))


def add(node_id: NodeId) -> ConfChange:
    return ConfChange(C.ConfChangeAddNode, node_id)


def add_learner(node_id: NodeId) -> ConfChange:
    return ConfChange(C.ConfChangeAddLearnerNode, node_id)


def remove(node_id: NodeId) -> ConfChange:
    return ConfChange(C.ConfChangeRemoveNode, node_id)


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        (THREE_VOTERS, add(FOUR), ConfState((ONE, TWO, THREE, FOUR))),
        (THREE_VOTERS, add(TWO), THREE_VOTERS),
        (THREE_VOTERS, add_learner(FOUR), ConfState((ONE, TWO, THREE), (FOUR,))),
        (THREE_VOTERS, add_learner(TWO), ConfState((ONE, THREE), (TWO,))),
        (ConfState((ONE, TWO), (THREE,)), add(THREE), THREE_VOTERS),
        (ConfState((ONE, TWO), (THREE,)), add_learner(THREE), ConfState((ONE, TWO), (THREE,))),
        (THREE_VOTERS, remove(ONE), ConfState((TWO, THREE))),
        (ConfState((ONE,), (TWO,)), remove(TWO), ConfState((ONE,))),
        (THREE_VOTERS, remove(FIVE), THREE_VOTERS),
    ],
)
def test_one_step(before: ConfState, change: ConfChange, after: ConfState) -> None:
    assert changed(before, change) == after


@pytest.mark.parametrize("change", [remove(ONE), add_learner(ONE)])
def test_somebody_must_be_left_to_vote(change: ConfChange) -> None:
    with pytest.raises(InvalidRequest):
        changed(ConfState((ONE,), (TWO,)), change)


def test_there_is_a_limit_to_the_voters() -> None:
    seven = ConfState(tuple(NodeId(number) for number in range(1, 8)))
    with pytest.raises(InvalidRequest):
        changed(seven, add(NodeId(8)))


def leading(**options: object) -> Fixture:
    story = node(durable(learners=options.get("learners", ())))  # type: ignore[arg-type]
    story.lead()
    story.step(M.MsgAppResp, TWO, story.term, index=story.core.state.log.last_index)
    story.work()
    return story


def agree(story: Fixture, *followers: NodeId) -> None:
    for follower in followers:
        story.step(M.MsgAppResp, follower, story.term, index=story.core.state.log.last_index)
    story.work()


def test_a_change_holds_once_it_is_committed_and_applied() -> None:
    story = leading()
    story.core.propose_change(add(FOUR), story.now_s)
    story.work()
    assert members(story.core.conf_state) == (ONE, TWO, THREE)
    agree(story, TWO)
    assert members(story.core.conf_state) == (ONE, TWO, THREE, FOUR)


def test_a_newcomer_is_asked_at_once_how_far_it_is() -> None:
    story = leading()
    story.core.propose_change(add_learner(FOUR), story.now_s)
    story.work()
    story.step(M.MsgAppResp, TWO, story.term, index=3)
    assert (M.MsgApp, FOUR) in kinds(story.work())


def test_a_second_change_waits_for_the_first() -> None:
    story = leading()
    story.core.propose_change(add(FOUR), story.now_s)
    with pytest.raises(Unavailable, match="under way"):
        story.core.propose_change(add(FIVE), story.now_s)
    agree(story, TWO)
    story.core.propose_change(add(FIVE), story.now_s)


def test_a_new_leader_changes_nothing_before_it_has_committed() -> None:
    story = node(durable(1, 1))
    story.lead()
    with pytest.raises(Unavailable):
        story.core.propose_change(add(FOUR), story.now_s)
    agree(story, TWO)
    story.core.propose_change(add(FOUR), story.now_s)


def test_a_change_left_by_an_earlier_leader_counts_as_under_way() -> None:
    """Its own first entry is committed, but what stands before it is not yet applied."""
    story = node(durable(1, 1))
    story.lead()
    story.step(M.MsgAppResp, TWO, story.term, index=4)
    assert story.committed == 4
    with pytest.raises(Unavailable, match="under way"):
        story.core.propose_change(add(FOUR), story.now_s)


def test_a_learner_counts_for_nothing() -> None:
    story = leading(learners=(FOUR, FIVE))
    story.core.propose([b"x"], story.now_s)
    story.work()
    agree(story, FOUR, FIVE)
    assert story.committed == 2
    agree(story, TWO)
    assert story.committed == 3


def test_a_learner_far_behind_is_not_promoted() -> None:
    story = leading(learners=(FOUR,))
    story.core.propose([b"x"] * (PROMOTION_LAG_ENTRIES_MAX + 1), story.now_s)
    story.work()
    agree(story, TWO)
    with pytest.raises(Unavailable, match="behind"):
        story.core.propose_change(add(FOUR), story.now_s)
    agree(story, FOUR)
    story.core.propose_change(add(FOUR), story.now_s)


def test_removing_a_voter_commits_what_only_waited_for_it() -> None:
    story = node(durable(voters=(ONE, TWO, THREE, FOUR)))
    story.lead()
    agree(story, TWO, THREE)
    story.core.propose_change(remove(FOUR), story.now_s)
    story.core.propose([b"x"], story.now_s)
    story.work()
    story.step(M.MsgAppResp, TWO, story.term, index=4)
    assert story.committed == 2
    story.step(M.MsgAppResp, THREE, story.term, index=3)
    story.work()
    assert story.committed == 4


@pytest.mark.parametrize("change", [remove(ONE), add_learner(ONE)])
def test_a_leader_does_not_remove_itself_but_hands_over(change: ConfChange) -> None:
    story = leading()
    with pytest.raises(NotLeader, match="transferred first") as refused:
        story.core.propose_change(change, story.now_s)
    assert refused.value.leader == TWO
    assert kinds(story.work()) == [(M.MsgTimeoutNow, TWO)]


def removed_by_an_earlier_leader(change: ConfChange) -> Fixture:
    """The change stands in the log that a new leader inherits."""
    entry = Entry(1, 2, EntryType.EntryConfChange, encode_change(change))
    kept = msgspec.structs.replace(durable(), entries=(entry,))
    story = node(kept)
    story.lead()
    return story


@pytest.mark.parametrize("change", [remove(ONE), add_learner(ONE)])
def test_a_leader_that_was_removed_leads_on_until_another_takes_over(change: ConfChange) -> None:
    story = removed_by_an_earlier_leader(change)
    for follower in (TWO, THREE):
        story.step(M.MsgAppResp, follower, story.term, index=2)
    story.step(M.MsgAppResp, TWO, story.term, index=3)
    story.work()
    assert ONE not in story.core.conf_state.voters
    assert story.state is StateType.StateLeader
    with pytest.raises(NotLeader):
        story.core.propose([b"x"], story.now_s)
    story.tick(1.0)
    story.step(M.MsgHeartbeatResp, TWO, story.term)
    story.step(M.MsgHeartbeatResp, THREE, story.term)
    story.tick(1.0)
    assert (M.MsgTimeoutNow, TWO) in kinds(story.work())
    story.step(M.MsgVote, TWO, story.term + 1, index=3, log_term=story.term, context=1)
    assert story.state is not StateType.StateLeader


def test_a_change_that_holds_is_never_forgotten() -> None:
    """Of two nodes, the one that is left could not learn again that it is alone."""
    story = leading()
    story.core.propose_change(add(FOUR), story.now_s)
    story.work()
    story.step(M.MsgAppResp, TWO, story.term, index=3)
    ready = story.core.ready()
    while not ready.committed_entries:
        story.finish(ready)
        ready = story.core.ready()
    assert ready.hard_state is not None
    assert ready.hard_state.commit == 3
    assert members(story.core.conf_state) == (ONE, TWO, THREE)


def test_an_heir_that_is_removed_inherits_nothing() -> None:
    story = leading()
    story.core.propose_change(remove(THREE), story.now_s)
    story.work()
    story.core.transfer_leadership(THREE, story.now_s)
    agree(story, TWO)
    story.core.propose([b"x"], story.now_s)


def test_a_stranger_is_not_listened_to_by_a_leader() -> None:
    story = leading()
    story.step(M.MsgAppResp, FIVE, story.term, index=2)
    story.step(M.MsgHeartbeatResp, FIVE, story.term, context=1)
    assert story.work() == []


def test_no_node_has_a_negative_id() -> None:
    with pytest.raises(InvalidRequest):
        leading().core.propose_change(add(NodeId(-1)), 0.0)


def test_who_was_removed_votes_for_the_only_voter_that_is_left() -> None:
    """Of two nodes the removed one may have written more than was ever committed."""
    story = node(durable(2, 2, 2, voters=(TWO,), term=2))
    story.step(M.MsgVote, TWO, 3, index=1, log_term=1)
    [answer] = story.work()
    assert (answer.type, answer.reject) == (M.MsgVoteResp, False)


def test_who_was_removed_votes_for_nobody_else_with_less() -> None:
    story = node(durable(2, 2, 2, voters=(TWO,), term=2))
    story.step(M.MsgVote, THREE, 3, index=1, log_term=1)
    [answer] = story.work()
    assert answer.reject


def test_the_only_voter_is_not_trusted_when_another_may_have_been_added() -> None:
    """Then something may be committed without it."""
    entry = Entry(2, 2, EntryType.EntryConfChange, encode_change(add(ONE)))
    kept = msgspec.structs.replace(durable(voters=(TWO,), term=2), entries=(entry,))
    story = node(kept)
    story.step(M.MsgVote, TWO, 3, index=1, log_term=1)
    [answer] = story.work()
    assert answer.reject
