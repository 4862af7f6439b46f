"""Reads that wait until a majority has confirmed the leader.

A leader notes the committed index, numbers the round, and sends the number with heartbeats. Once a
majority has answered it, or a later one, no other node can have led when the read started, so a
node that has applied that index has everything that was committed before.
"""

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from mainstem.cluster.raft.quorum import VoteResult, vote_result
from mainstem.model.ids import NodeId


class ReadRequest(NamedTuple):
    """The node that reads, and its own number for the read."""

    node: NodeId
    context: int


class _Round(msgspec.Struct):
    number: int
    request: ReadRequest
    index: int
    acks: dict[NodeId, bool]


class ReadRounds:
    """The reads of one term of one leader."""

    __slots__ = ("_limit", "_number", "_rounds", "_waiting")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._number = 0
        self._rounds: deque[_Round] = deque()
        self._waiting: list[ReadRequest] = []  # until the leader has committed in its term

    @property
    def is_full(self) -> bool:
        """Whether no further read may be taken on."""
        return len(self._rounds) + len(self._waiting) >= self._limit

    @property
    def last_number(self) -> int:
        """The round that the next heartbeat should carry; 0 when no read waits."""
        return self._rounds[-1].number if self._rounds else 0

    def wait(self, request: ReadRequest) -> None:
        """Keep a read until the leader knows what is committed."""
        self._waiting.append(request)

    def take_waiting(self) -> list[ReadRequest]:
        """The reads that waited for that."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def open(self, request: ReadRequest, index: int, myself: NodeId) -> int:
        """Start a round; its number."""
        self._number += 1
        self._rounds.append(_Round(self._number, request, index, {myself: True}))
        return self._number

    def acknowledge(
        self, node: NodeId, number: int, voters: Collection[NodeId]
    ) -> list[tuple[ReadRequest, int]]:
        """A node confirmed round ``number``; the reads that this completes."""
        confirmed = 0
        for place, waiting in enumerate(self._rounds, start=1):
            if waiting.number > number:
                break
            waiting.acks[node] = True
            if vote_result(voters, waiting.acks) is VoteResult.VoteWon:
                confirmed = place
        # A later round that is confirmed confirms the earlier ones.
        settled = [self._rounds.popleft() for _ in range(confirmed)]
        return [(waiting.request, waiting.index) for waiting in settled]
