"""One core at a time, and the few steps that most stories share."""

from collections.abc import Sequence

import msgspec

from mainstem.cluster.raft.core import Raft
from mainstem.cluster.raft.messages import (
    NO_NODE,
    ConfState,
    DurableState,
    Entry,
    EntryId,
    EntryType,
    HardState,
    MessageType,
    RaftMessage,
    Ready,
    SnapshotMeta,
    StateType,
    decode_change,
)
from mainstem.cluster.raft.state import RaftSettings
from mainstem.model.ids import NodeId

ONE, TWO, THREE, FOUR, FIVE = (NodeId(number) for number in range(1, 6))
GENESIS = EntryId(1, 1)


class Fixture:
    """A core with its own clock; ``work`` does what a driver does."""

    def __init__(self, core: Raft) -> None:
        self.core = core
        self.now_s = 0.0
        self.applied: list[Entry] = []

    @property
    def state(self) -> StateType:
        return self.core.state.state

    @property
    def term(self) -> int:
        return self.core.state.term

    @property
    def committed(self) -> int:
        return self.core.state.log.committed

    def step(self, kind: MessageType, from_: NodeId, term: int, **fields: object) -> None:
        message = msgspec.structs.replace(
            RaftMessage(kind, self.core.state.id, from_, term), **fields
        )
        self.core.step(message, self.now_s)

    def tick(self, wait_s: float | None = None) -> None:
        self.now_s = self.core.next_deadline_s if wait_s is None else self.now_s + wait_s
        self.core.tick(self.now_s)

    def work(self) -> list[RaftMessage]:
        """Carry out everything that is asked for; the messages that left."""
        left: list[RaftMessage] = []
        while self.core.has_ready:
            ready = self.core.ready()
            left += ready.messages
            left += self.finish(ready)
        return left

    def finish(self, ready: Ready) -> list[RaftMessage]:
        """A Ready is durable; what leaves then."""
        self.core.persisted(ready, self.now_s)
        for entry in ready.committed_entries:
            if entry.type is EntryType.EntryConfChange:
                self.core.apply_change(decode_change(entry.data))
            self.core.applied_to(entry.index)
            self.applied.append(entry)
        return list(ready.messages_after_append)

    def lead(self) -> list[RaftMessage]:
        """Win an election by everybody's vote; what the new leader says first."""
        voters = self.core.conf_state.voters
        self.tick()
        self.work()
        for kind in (MessageType.MsgPreVoteResp, MessageType.MsgVoteResp):
            for voter in voters:
                asked = self.term + (kind is MessageType.MsgPreVoteResp)
                if voter != self.core.state.id and self.state is not StateType.StateLeader:
                    self.step(kind, voter, asked)
            left = self.work()
        assert self.state is StateType.StateLeader
        return left


def durable(
    *terms: int,
    term: int | None = None,
    vote: NodeId = NO_NODE,
    commit: int = 1,
    voters: Sequence[NodeId] = (ONE, TWO, THREE),
    learners: Sequence[NodeId] = (),
) -> DurableState:
    """A log after the founding snapshot, whose entries from index 2 on have these terms."""
    entries = tuple(Entry(of, index, data=b"%d" % index) for index, of in enumerate(terms, start=2))
    meta = SnapshotMeta(1, 1, ConfState(tuple(voters), tuple(learners)))
    current = max([1, *terms]) if term is None else term
    return DurableState(HardState(current, vote, commit), meta, GENESIS, entries)


def node(
    kept: DurableState | None = None,
    *,
    node_id: NodeId = ONE,
    chance: float = 0.0,
    **settings: object,
) -> Fixture:
    """A core that always waits the same time."""
    chosen = msgspec.structs.replace(
        RaftSettings(node_id=node_id, election_timeout_s=1.0, heartbeat_s=0.1), **settings
    )
    return Fixture(Raft(chosen, kept or durable(), chance=lambda: chance, now_s=0.0))


def kinds(messages: Sequence[RaftMessage]) -> list[tuple[MessageType, NodeId]]:
    return [(message.type, message.to) for message in messages]
