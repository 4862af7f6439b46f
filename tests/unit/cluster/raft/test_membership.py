"""Changing who belongs, one node at a time."""

import pytest
from tests.unit.cluster.raft.kit import FIVE, FOUR, ONE, THREE, TWO, Fixture, durable, kinds, node

from mainstem.cluster.raft.membership import PROMOTION_LAG_ENTRIES_MAX, changed, members
from mainstem.cluster.raft.messages import (
    ConfChange,
    ConfChangeType,
    ConfState,
    MessageType,
    StateType,
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


def test_a_leader_that_is_removed_follows() -> None:
    story = leading()
    story.core.propose_change(remove(ONE), story.now_s)
    story.work()
    for follower in (TWO, THREE):
        story.step(M.MsgAppResp, follower, story.term, index=3)
    assert kinds(story.work())[-1] == (M.MsgTimeoutNow, TWO)
    assert story.state is StateType.StateFollower
    story.tick()
    assert story.work() == []


def test_a_leader_that_is_demoted_follows() -> None:
    story = leading()
    story.core.propose_change(add_learner(ONE), story.now_s)
    story.work()
    agree(story, TWO, THREE)
    assert story.state is StateType.StateFollower


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
