"""Majorities."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.cluster.raft.quorum import VoteResult, committed_index, majority, vote_result
from mainstem.model.ids import NodeId

NODES = [NodeId(number) for number in range(1, 8)]


@pytest.mark.parametrize(
    ("count", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)]
)
def test_a_majority_is_more_than_half(count: int, needed: int) -> None:
    assert majority(NODES[:count]) == needed


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ([12], 12),
        ([5, 12], 5),
        ([100, 101, 103], 101),
        ([100, 101], 100),
        ([0, 0, 7], 0),
        ([1, 2, 3, 4], 2),
        ([99, 98, 97, 1, 1], 97),
        ([], 0),
    ],
)
def test_what_a_majority_holds(held: list[int], expected: int) -> None:
    match = dict(zip(NODES, held, strict=False))
    assert committed_index(NODES[: len(held)], match) == expected


def test_a_voter_that_was_not_heard_holds_nothing() -> None:
    assert committed_index(NODES[:3], {NODES[0]: 9}) == 0
    assert committed_index(NODES[:3], {NODES[0]: 9, NODES[2]: 4}) == 4


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7), st.integers(0, 9))
def test_an_index_is_committed_exactly_when_more_than_half_hold_it(
    held: list[int], index: int
) -> None:
    voters = NODES[: len(held)]
    match = dict(zip(voters, held, strict=True))
    holders = sum(1 for value in held if value >= index)
    assert (committed_index(voters, match) >= index) == (2 * holders > len(held))


@given(st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=7))
def test_an_election_is_decided_exactly_when_no_further_vote_can_change_it(
    votes: list[bool | None],
) -> None:
    voters = NODES[: len(votes)]
    cast = {node: vote for node, vote in zip(voters, votes, strict=True) if vote is not None}
    granted = votes.count(True)
    possible = granted + votes.count(None)
    result = vote_result(voters, cast)
    assert (result is VoteResult.VoteWon) == (2 * granted > len(votes))
    assert (result is VoteResult.VoteLost) == (2 * possible <= len(votes))


def test_votes_of_strangers_do_not_count() -> None:
    votes = {NODES[0]: True, NODES[5]: True, NODES[6]: True}
    assert vote_result(NODES[:3], votes) is VoteResult.VotePending
