"""Reads that see everything that was committed before they began."""

import pytest
from tests.unit.cluster.raft.kit import FOUR, ONE, THREE, TWO, Fixture, durable, kinds, node

from mainstem.cluster.raft.messages import MessageType, ReadState
from mainstem.cluster.raft.read_rounds import ReadRequest, ReadRounds

M = MessageType


def leading(*, committed: bool = True, **kept: object) -> Fixture:
    story = node(durable(**kept))  # type: ignore[arg-type]
    story.lead()
    if committed:
        story.step(M.MsgAppResp, TWO, story.term, index=2)
    story.work()
    return story


def served(story: Fixture) -> list[ReadState]:
    states: list[ReadState] = []
    while story.core.has_ready:
        ready = story.core.ready()
        states += ready.read_states
        story.finish(ready)
    return states


def test_a_read_is_safe_once_a_majority_has_confirmed_the_leader() -> None:
    story = leading()
    story.core.read_index(7, story.now_s)
    assert kinds(story.core.take_messages()) == [(M.MsgHeartbeat, TWO), (M.MsgHeartbeat, THREE)]
    assert served(story) == []
    story.step(M.MsgHeartbeatResp, TWO, story.term, context=1)
    assert served(story) == [ReadState(7, 2)]


def test_the_answer_to_an_earlier_heartbeat_confirms_nothing() -> None:
    story = leading()
    story.core.read_index(7, story.now_s)
    story.step(M.MsgHeartbeatResp, TWO, story.term, context=0)
    assert served(story) == []


def test_a_later_round_confirms_the_earlier_ones() -> None:
    story = leading()
    for context in (7, 8, 9):
        story.core.read_index(context, story.now_s)
    story.step(M.MsgHeartbeatResp, THREE, story.term, context=2)
    assert served(story) == [ReadState(7, 2), ReadState(8, 2)]


def test_a_new_leader_serves_no_read_before_it_has_committed() -> None:
    """It may not know yet what earlier leaders have committed."""
    story = leading(committed=False)
    story.core.read_index(7, story.now_s)
    story.step(M.MsgHeartbeatResp, TWO, story.term, context=1)
    assert served(story) == []
    story.step(M.MsgAppResp, TWO, story.term, index=2)
    story.step(M.MsgHeartbeatResp, TWO, story.term, context=1)
    assert served(story) == [ReadState(7, 2)]


def test_a_lone_voter_serves_reads_at_once() -> None:
    story = node(durable(voters=(ONE,)))
    story.tick()
    story.work()
    story.core.read_index(7, story.now_s)
    assert served(story) == [ReadState(7, 2)]


def test_a_learner_confirms_nothing() -> None:
    story = leading(voters=(ONE, TWO, THREE), learners=(FOUR,))
    story.core.read_index(7, story.now_s)
    story.step(M.MsgHeartbeatResp, FOUR, story.term, context=1)
    assert served(story) == []


def test_a_follower_asks_its_leader() -> None:
    story = node(node_id=TWO)
    story.step(M.MsgHeartbeat, ONE, 1)
    story.work()
    story.core.read_index(7, story.now_s)
    [ask] = story.core.take_messages()
    assert (ask.type, ask.to, ask.context) == (M.MsgReadIndex, ONE, 7)
    story.step(M.MsgReadIndexResp, ONE, 1, index=5, context=7)
    assert served(story) == [ReadState(7, 5)]


def test_a_leader_answers_a_follower_after_the_same_round() -> None:
    story = leading()
    story.step(M.MsgReadIndex, THREE, story.term, context=7)
    assert (M.MsgReadIndexResp, THREE) not in kinds(story.work())
    story.step(M.MsgHeartbeatResp, TWO, story.term, context=1)
    [answer] = [message for message in story.work() if message.type is M.MsgReadIndexResp]
    assert (answer.to, answer.index, answer.context) == (THREE, 2, 7)


def test_without_a_leader_nobody_is_asked() -> None:
    story = node()
    story.core.read_index(7, story.now_s)
    assert story.core.take_messages() == ()


def test_reads_are_forgotten_with_the_leadership() -> None:
    story = leading()
    story.core.read_index(7, story.now_s)
    story.work()
    story.step(M.MsgHeartbeat, TWO, story.term + 1)
    story.step(M.MsgHeartbeatResp, THREE, story.term, context=1)
    assert served(story) == []


@pytest.mark.parametrize("committed", [True, False])
def test_reads_beyond_the_limit_are_dropped(committed: bool) -> None:
    story = leading(committed=committed)
    story.core.state.reads = ReadRounds(2)
    for context in range(5):
        story.core.read_index(context, story.now_s)
    story.step(M.MsgAppResp, TWO, story.term, index=2)
    story.step(M.MsgHeartbeatResp, TWO, story.term, context=9)
    assert [state.context for state in served(story)] == [0, 1]


def test_rounds_are_counted_per_node() -> None:
    rounds = ReadRounds(10)
    voters = (ONE, TWO, THREE, FOUR)
    rounds.open(ReadRequest(ONE, 1), 5, ONE)
    assert rounds.acknowledge(TWO, 1, voters) == []
    assert rounds.acknowledge(TWO, 1, voters) == []
    assert rounds.acknowledge(THREE, 1, voters) == [(ReadRequest(ONE, 1), 5)]
