"""Majorities: how many is enough, what they hold, how they voted."""

from collections.abc import Collection, Mapping
from enum import Enum, auto

from mainstem.model.ids import NodeId


class VoteResult(Enum):
    """Where an election stands."""

    VotePending = auto()
    VoteLost = auto()
    VoteWon = auto()


def majority(voters: Collection[NodeId]) -> int:
    """How many of the voters are more than half of them."""
    return len(voters) // 2 + 1


def committed_index(voters: Collection[NodeId], match: Mapping[NodeId, int]) -> int:
    """The largest index that more than half of the voters hold; voters not named hold nothing."""
    if not voters:
        return 0
    held = sorted((match.get(voter, 0) for voter in voters), reverse=True)
    return held[majority(voters) - 1]


def vote_result(voters: Collection[NodeId], votes: Mapping[NodeId, bool]) -> VoteResult:
    """What the votes so far mean; votes of others than the voters do not count."""
    granted = sum(1 for voter in voters if votes.get(voter) is True)
    refused = sum(1 for voter in voters if votes.get(voter) is False)
    needed = majority(voters)
    if voters and granted >= needed:
        return VoteResult.VoteWon
    if len(voters) - refused < needed:
        return VoteResult.VoteLost
    return VoteResult.VotePending
