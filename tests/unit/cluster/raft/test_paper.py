"""The rules of the Raft paper, section by section, each as a story of one node."""

import pytest
from tests.unit.cluster.raft.kit import (
    FIVE,
    FOUR,
    ONE,
    THREE,
    TWO,
    Fixture,
    durable,
    kinds,
    node,
)

from mainstem.cluster.raft.messages import (
    NO_NODE,
    Entry,
    MessageType,
    StateType,
)
from mainstem.model.ids import NodeId

M = MessageType
S = StateType


def in_role(role: StateType, *, pre_vote: bool = True) -> Fixture:
    story = node(durable(), pre_vote=pre_vote)
    if role is S.StateLeader:
        story.lead()
    elif role is not S.StateFollower:
        story.tick()
        story.work()
        if role is S.StateCandidate and story.state is S.StatePreCandidate:
            story.step(M.MsgPreVoteResp, TWO, story.term + 1)
            story.work()
    assert story.state is role
    return story


# 5.1 Terms


@pytest.mark.parametrize("role", list(S))
@pytest.mark.parametrize("kind", [M.MsgApp, M.MsgHeartbeat])
def test_a_node_that_sees_a_later_term_follows_it(role: StateType, kind: MessageType) -> None:
    story = in_role(role)
    story.step(kind, TWO, story.term + 7, commit=0)
    assert (story.state, story.core.state.lead) == (S.StateFollower, TWO)
    assert story.core.state.vote == NO_NODE


@pytest.mark.parametrize("role", list(S))
def test_a_message_of_an_earlier_term_changes_nothing(role: StateType) -> None:
    story = in_role(role)
    story.core.state.term += 3
    before = story.core.state.log.last_id
    story.step(M.MsgApp, TWO, 1, index=1, log_term=1, entries=(Entry(1, 2),), commit=2)
    story.step(M.MsgVoteResp, TWO, 1)
    assert story.state is role
    assert story.core.state.log.last_id == before
    assert story.committed <= before.index


def test_whoever_leads_in_an_earlier_term_is_told() -> None:
    story = node(durable(term=5))
    story.step(M.MsgHeartbeat, TWO, 3)
    [answer] = story.work()
    assert (answer.type, answer.to, answer.term, answer.reject) == (M.MsgAppResp, TWO, 5, True)


# 5.2 Leader election


def test_a_node_starts_as_a_follower() -> None:
    assert node().state is S.StateFollower


def test_a_leader_shows_itself_at_every_heartbeat() -> None:
    story = in_role(S.StateLeader)
    story.tick(0.1)
    assert kinds(story.work()) == [(M.MsgHeartbeat, TWO), (M.MsgHeartbeat, THREE)]


@pytest.mark.parametrize("role", [S.StateFollower, S.StateCandidate])
def test_silence_makes_a_node_campaign_in_a_new_term(role: StateType) -> None:
    story = in_role(role, pre_vote=False)
    before = story.term
    story.tick()
    messages = story.work()
    assert (story.state, story.term, story.core.state.vote) == (S.StateCandidate, before + 1, ONE)
    assert kinds(messages) == [(M.MsgVote, TWO), (M.MsgVote, THREE)]
    assert {message.term for message in messages} == {before + 1}


@pytest.mark.parametrize(
    ("voters", "granted", "refused", "outcome"),
    [
        (1, 0, 0, S.StateLeader),
        (3, 2, 0, S.StateLeader),
        (3, 1, 0, S.StateLeader),
        (5, 4, 0, S.StateLeader),
        (5, 3, 0, S.StateLeader),
        (5, 2, 0, S.StateLeader),
        (5, 2, 2, S.StateLeader),
        (3, 0, 2, S.StateFollower),
        (5, 0, 4, S.StateFollower),
        (5, 1, 3, S.StateFollower),
        (3, 0, 0, S.StateCandidate),
        (5, 1, 0, S.StateCandidate),
        (5, 1, 2, S.StateCandidate),
        (5, 0, 2, S.StateCandidate),
    ],
)
def test_a_majority_elects(voters: int, granted: int, refused: int, outcome: StateType) -> None:
    everybody = (ONE, TWO, THREE, FOUR, FIVE)[:voters]
    story = node(durable(voters=everybody), pre_vote=False)
    story.tick()
    story.work()
    others = list(everybody[1:])
    answers = [False] * granted + [True] * refused
    for voter, reject in zip(others, answers, strict=False):
        story.step(M.MsgVoteResp, voter, story.term, reject=reject)
    assert story.state is outcome


@pytest.mark.parametrize(
    ("vote", "candidate", "granted"),
    [(NO_NODE, TWO, True), (NO_NODE, THREE, True), (TWO, TWO, True), (THREE, THREE, True),
     (TWO, THREE, False), (THREE, TWO, False)],
)  # fmt: skip
def test_a_node_votes_once_in_a_term(vote: NodeId, candidate: NodeId, granted: bool) -> None:
    story = node(durable(term=2, vote=vote))
    story.step(M.MsgVote, candidate, 2, index=1, log_term=1)
    [answer] = story.work()
    assert (answer.type, answer.to, answer.reject) == (M.MsgVoteResp, candidate, not granted)


def test_a_vote_is_counted_once() -> None:
    story = node(durable(voters=(ONE, TWO, THREE, FOUR, FIVE)), pre_vote=False)
    story.tick()
    story.work()
    story.step(M.MsgVoteResp, TWO, story.term)
    story.step(M.MsgVoteResp, TWO, story.term)
    assert story.state is S.StateCandidate


@pytest.mark.parametrize("role", [S.StateCandidate, S.StatePreCandidate])
def test_a_candidate_gives_way_to_the_leader_of_its_term(role: StateType) -> None:
    story = in_role(role)
    story.step(M.MsgApp, TWO, story.term, index=1, log_term=1)
    assert (story.state, story.core.state.lead) == (S.StateFollower, TWO)


def test_time_outs_are_spread_by_chance() -> None:
    due = {node(chance=chance).core.next_deadline_s for chance in (0.0, 0.25, 0.5, 0.999)}
    assert due == {1.0, 1.25, 1.5, 1.999}


def test_each_campaign_draws_a_new_time_out() -> None:
    draws = iter([0.1, 0.2, 0.7, 0.3, 0.4, 0.5])
    story = node()
    story.core.state._chance = lambda: next(draws)
    story.tick()
    first_s = story.core.next_deadline_s - story.now_s
    story.tick()
    assert story.core.next_deadline_s - story.now_s != first_s


# 5.3 Log replication


def test_a_proposal_goes_to_every_follower_with_the_entry_before_it() -> None:
    story = in_role(S.StateLeader)
    for follower in (TWO, THREE):
        story.step(M.MsgAppResp, follower, story.term, index=2)
    story.work()
    story.core.propose([b"some data"], story.now_s)
    sent = [message for message in story.work() if message.entries]
    assert kinds(sent) == [(M.MsgApp, TWO), (M.MsgApp, THREE)]
    for message in sent:
        assert (message.index, message.log_term, message.commit) == (2, story.term, 2)
        assert message.entries == (Entry(story.term, 3, data=b"some data"),)


@pytest.mark.parametrize(
    ("voters", "acks", "committed"),
    [(1, 0, True), (3, 0, False), (3, 1, True), (3, 2, True), (5, 0, False), (5, 1, False),
     (5, 2, True), (5, 3, True), (5, 4, True)],
)  # fmt: skip
def test_an_entry_is_committed_once_a_majority_holds_it(
    voters: int, acks: int, committed: bool
) -> None:
    everybody = (ONE, TWO, THREE, FOUR, FIVE)[:voters]
    story = node(durable(voters=everybody), pre_vote=False)
    story.lead()
    story.core.propose([b"x"], story.now_s)
    story.work()
    for follower in everybody[1 : acks + 1]:
        story.step(M.MsgAppResp, follower, story.term, index=3)
    story.work()
    assert (story.committed == 3) == committed
    assert ([entry.data for entry in story.applied] == [b"", b"x"]) == committed


@pytest.mark.parametrize("terms", [(), (2,), (1, 2), (1,)])
def test_committing_an_entry_commits_all_before_it(terms: tuple[int, ...]) -> None:
    story = node(durable(*terms), pre_vote=False)
    story.lead()
    last = story.core.state.log.last_index
    story.step(M.MsgAppResp, TWO, story.term, index=last)
    story.work()
    assert [entry.index for entry in story.applied] == list(range(2, last + 1))


def test_followers_learn_what_is_committed_and_apply_it_in_order() -> None:
    story = node()
    entries = (Entry(1, 2, data=b"a"), Entry(1, 3, data=b"b"))
    story.step(M.MsgApp, TWO, 1, index=1, log_term=1, entries=entries, commit=2)
    story.work()
    assert [entry.data for entry in story.applied] == [b"a"]
    story.step(M.MsgHeartbeat, TWO, 1, commit=3)
    story.work()
    assert [entry.data for entry in story.applied] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("index", "log_term", "expected"),
    [
        (1, 1, None),  # what is committed matches
        (2, 1, None),
        (3, 2, None),
        (2, 2, (1, 1)),  # another term: everything until 2 has an earlier one
        (3, 3, (3, 2)),
        (4, 4, (3, 2)),  # beyond the end
    ],
)  # fmt: skip
def test_a_follower_checks_the_entry_before(
    index: int, log_term: int, expected: tuple[int, int] | None
) -> None:
    story = node(durable(1, 2, term=9))
    story.step(M.MsgApp, TWO, 9, index=index, log_term=log_term)
    [answer] = story.work()
    assert answer.reject is (expected is not None)
    if expected is None:
        assert answer.index == index
    elif (index, log_term) == (2, 2):
        assert answer.reject_hint in (1, 2)
    else:
        assert (answer.reject_hint, answer.log_term) == expected


@pytest.mark.parametrize(
    ("previous", "sent", "expected"),
    [
        ((3, 2), (3,), (1, 2, 3)),  # goes on at the end
        ((2, 1), (3, 4), (1, 3, 4)),  # replaces the end
        ((1, 1), (1,), (1, 2)),  # is there already: nothing is taken away
        ((1, 1), (3,), (3,)),  # replaces everything
        ((3, 2), (), (1, 2)),
    ],
)
def test_a_follower_keeps_what_agrees_and_replaces_what_does_not(
    previous: tuple[int, int], sent: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    story = node(durable(1, 2, term=9))
    index, log_term = previous
    entries = tuple(
        Entry(term, place, data=b"%d" % place) for place, term in enumerate(sent, start=index + 1)
    )
    story.step(M.MsgApp, TWO, 9, index=index, log_term=log_term, entries=entries)
    log = story.core.state.log
    assert tuple(entry.term for entry in log.slice(2, log.last_index + 1)) == expected
    assert log.handed - 1 <= len(expected)


# Figure 7: logs that a new leader may find. Its own is 1 1 1 4 4 5 5 6 6 6 (as of index 2 here).
FIGURE_7 = {
    "a": (1, 1, 1, 4, 4, 5, 5, 6, 6),
    "b": (1, 1, 1, 4),
    "c": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
    "d": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
    "e": (1, 1, 1, 4, 4, 4, 4),
    "f": (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
}


@pytest.mark.parametrize("name", sorted(FIGURE_7))
def test_a_leader_brings_every_log_of_figure_7_in_line(name: str) -> None:
    leader = node(durable(1, 1, 1, 4, 4, 5, 5, 6, 6, 6, term=7), pre_vote=False)
    follower = node(durable(*FIGURE_7[name], term=7), node_id=TWO, pre_vote=False)
    leader.lead()
    leader.core.propose([b"new"], leader.now_s)
    messages = leader.work()
    rounds = 0
    while rounds < 30:
        rounds += 1
        leader.tick(0.1)
        messages = [message for message in [*messages, *leader.work()] if message.to == TWO]
        for message in messages:
            follower.core.step(message, leader.now_s)
        for answer in follower.work():
            leader.core.step(answer, leader.now_s)
        messages = leader.work()
    ours, theirs = leader.core.state.log, follower.core.state.log
    assert theirs.last_id == ours.last_id
    assert [entry.term for entry in theirs.slice(2, theirs.last_index + 1)] == [
        entry.term for entry in ours.slice(2, ours.last_index + 1)
    ]


# 5.4.1 Election restriction


@pytest.mark.parametrize(
    ("own", "candidate", "granted"),
    [
        ((1,), (2, 1), True),
        ((1,), (3, 1), True),
        ((1, 1), (2, 1), False),
        ((1,), (2, 2), True),
        ((1,), (3, 2), True),
        ((1, 1), (2, 2), True),
        ((2,), (2, 1), False),
        ((2,), (3, 1), False),
        ((1, 2), (2, 1), False),
    ],
)
def test_nobody_votes_for_a_log_that_is_behind(
    own: tuple[int, ...], candidate: tuple[int, int], granted: bool
) -> None:
    story = node(durable(*own, term=2))
    story.step(M.MsgVote, TWO, 3, index=candidate[0], log_term=candidate[1])
    [answer] = story.work()
    assert answer.reject is not granted
    assert answer.term == 3


def test_a_request_for_votes_names_the_end_of_the_log() -> None:
    story = node(durable(1, 2), pre_vote=False)
    story.tick()
    requests = story.work()
    assert {(message.index, message.log_term) for message in requests} == {(3, 2)}


# 5.4.2 Entries of earlier terms


def test_an_entry_of_an_earlier_term_is_not_committed_by_counting() -> None:
    """Figure 8: a majority that holds it can still lose it to a later leader."""
    story = node(durable(1, 2), pre_vote=False)
    story.lead()
    story.step(M.MsgAppResp, TWO, story.term, index=3)
    story.work()
    assert story.committed == 1
    story.step(M.MsgAppResp, TWO, story.term, index=4)
    assert story.committed == 4
