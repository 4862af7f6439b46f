"""What may leave before the disk has it, and what must not. Each rule is one that a crash tests."""

import pytest
from tests.unit.cluster.raft.kit import ONE, THREE, TWO, durable, kinds, node

from mainstem.cluster.raft.messages import Entry, MessageType, StateType

M = MessageType
S = StateType


def test_a_leader_does_not_count_its_own_entry_before_it_is_durable() -> None:
    story = node(pre_vote=False)
    story.tick()
    story.work()
    story.step(M.MsgVoteResp, TWO, story.term)
    ready = story.core.ready()  # the new leader's first entry, on its way to the disk
    story.step(M.MsgAppResp, TWO, story.term, index=2)
    assert story.committed == 1
    story.finish(ready)
    assert story.committed == 2


def test_two_followers_commit_what_their_leader_has_not_stored() -> None:
    """Then the leader applies it only after its own disk has it."""
    story = node(pre_vote=False)
    story.lead()
    story.core.propose([b"x"], story.now_s)
    ready = story.core.ready()
    for follower in (TWO, THREE):
        story.step(M.MsgAppResp, follower, story.term, index=3)
    assert story.committed == 3
    assert [entry.data for entry in story.applied] == []
    story.finish(ready)
    story.work()
    assert [entry.data for entry in story.applied] == [b"", b"x"]


def test_a_candidate_does_not_count_its_own_vote_before_it_is_durable() -> None:
    story = node(durable(voters=(ONE,)), pre_vote=False)
    story.tick()
    ready = story.core.ready()
    before = story.state
    story.finish(ready)
    assert (before, story.state) == (S.StateCandidate, S.StateLeader)


def test_a_vote_leaves_after_it_is_durable() -> None:
    story = node()
    story.step(M.MsgVote, TWO, 2, index=1, log_term=1)
    ready = story.core.ready()
    assert ready.hard_state is not None
    assert (ready.hard_state.term, ready.hard_state.vote) == (2, TWO)
    assert ready.messages == ()
    assert kinds(ready.messages_after_append) == [(M.MsgVoteResp, TWO)]


def test_an_acknowledgement_leaves_after_the_entries_are_durable() -> None:
    story = node()
    story.step(M.MsgApp, TWO, 1, index=1, log_term=1, entries=(Entry(1, 2),))
    ready = story.core.ready()
    assert [entry.index for entry in ready.entries] == [2]
    assert ready.messages == ()
    assert kinds(ready.messages_after_append) == [(M.MsgAppResp, TWO)]


@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_request_for_votes_leaves_after_the_log_it_speaks_of_is_durable(pre_vote: bool) -> None:
    """Otherwise a candidate that crashes could win with a log that it no longer has."""
    story = node(pre_vote=pre_vote)
    story.step(M.MsgApp, TWO, 1, index=1, log_term=1, entries=(Entry(1, 2),))
    story.tick()
    ready = story.core.ready()
    assert ready.messages == ()
    asked = M.MsgPreVote if pre_vote else M.MsgVote
    assert kinds(ready.messages_after_append) == [
        (M.MsgAppResp, TWO),
        (asked, TWO),
        (asked, THREE),
    ]


def test_entries_leave_before_their_leader_has_stored_them() -> None:
    story = node(pre_vote=False)
    story.lead()
    for follower in (TWO, THREE):
        story.step(M.MsgAppResp, follower, story.term, index=2)
    story.work()
    story.core.propose([b"x"], story.now_s)
    ready = story.core.ready()
    assert kinds(ready.messages) == [(M.MsgApp, TWO), (M.MsgApp, THREE)]
    assert ready.must_sync


def test_the_answer_to_a_heartbeat_does_not_wait_for_entries() -> None:
    story = node(durable(term=1))
    story.step(M.MsgApp, TWO, 1, index=1, log_term=1, entries=(Entry(1, 2),))
    story.core.ready()  # being stored, slowly
    story.step(M.MsgHeartbeat, TWO, 1, commit=1, context=5)
    [answer] = story.core.take_messages()
    assert (answer.type, answer.context) == (M.MsgHeartbeatResp, 5)


def test_the_answer_to_a_heartbeat_waits_for_a_new_term() -> None:
    story = node(durable(term=1))
    story.step(M.MsgHeartbeat, TWO, 2, commit=1)
    assert story.core.take_messages() == ()
    ready = story.core.ready()
    assert kinds(ready.messages_after_append) == [(M.MsgHeartbeatResp, TWO)]
    story.finish(ready)
    story.step(M.MsgHeartbeat, TWO, 2, commit=1)
    assert kinds(story.core.take_messages()) == [(M.MsgHeartbeatResp, TWO)]


def test_entries_that_were_replaced_while_they_were_stored_do_not_count() -> None:
    story = node(durable(term=2))
    first = tuple(Entry(2, index) for index in (2, 3, 4))
    story.step(M.MsgApp, TWO, 2, index=1, log_term=1, entries=first)
    ready = story.core.ready()
    story.step(M.MsgApp, THREE, 3, index=2, log_term=2, entries=(Entry(3, 3),), commit=3)
    story.finish(ready)
    log = story.core.state.log
    assert log.stable <= 2
    assert log.committed == 3
    story.work()
    assert [entry.term for entry in story.applied] == [2, 3]


def test_only_one_ready_is_out_at_a_time() -> None:
    story = node(pre_vote=False)
    story.tick()
    story.core.ready()
    with pytest.raises(AssertionError, match="not persisted"):
        story.core.ready()


def test_how_much_is_committed_is_kept_along_with_the_next_entries() -> None:
    """A follower that holds the second change of membership knows that the first is committed."""
    story = node()
    story.step(M.MsgApp, TWO, 1, index=1, log_term=1, entries=(Entry(1, 2),), commit=1)
    story.work()
    story.step(M.MsgApp, TWO, 1, index=2, log_term=1, entries=(Entry(1, 3),), commit=2)
    ready = story.core.ready()
    assert ready.hard_state is not None
    assert ready.hard_state.commit == 2


def test_a_commit_alone_asks_for_no_write() -> None:
    story = node()
    story.step(M.MsgApp, TWO, 1, index=1, log_term=1, entries=(Entry(1, 2),), commit=1)
    story.work()
    story.step(M.MsgHeartbeat, TWO, 1, commit=2)
    ready = story.core.ready()
    assert not ready.must_sync
    assert [entry.index for entry in ready.committed_entries] == [2]


def test_a_write_that_is_done_counts_for_itself_and_not_for_the_next_one() -> None:
    story = node(pre_vote=False)
    story.tick()
    story.work()
    story.step(M.MsgVoteResp, TWO, story.term)
    ready = story.core.ready()  # the new leader's first entry
    story.core.propose([b"x"], story.now_s)  # not yet handed to the disk
    story.step(M.MsgAppResp, TWO, story.term, index=2)
    story.step(M.MsgAppResp, TWO, story.term, index=3)
    story.finish(ready)
    assert story.committed == 2
