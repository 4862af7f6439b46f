"""Raft cores under faults: any order of ticks, deliveries, losses, writes and crashes.

There is no clock, no socket and no disk here, so a step costs microseconds and an hour of faults
takes a second. After every step the properties of the Raft paper (figure 3) are checked:

* **election safety**: at most one leader in a term;
* **leader completeness**: a leader has all entries committed in earlier terms;
* **state machine safety**: no two nodes apply different entries at the same index;
* **log matching**: entries with the same index and term have the same log before them;
* **linearisable reads**: a read sees everything that any node had applied when it started.
"""

from collections.abc import Callable
from random import Random

import msgspec

from mainstem.cluster.raft.core import NotLeader, Raft
from mainstem.cluster.raft.messages import (
    ConfChange,
    DurableState,
    Entry,
    EntryId,
    EntryType,
    HardState,
    MessageType,
    RaftMessage,
    Ready,
    SnapshotMeta,
    decode_change,
    initial_state,
)
from mainstem.cluster.raft.state import RaftSettings
from mainstem.model.errors import MainstemError
from mainstem.model.ids import NodeId

POOL_MAX = 400


class Disk(msgspec.Struct):
    """The durable state of a node."""

    hard_state: HardState
    snapshot: SnapshotMeta
    start: EntryId
    entries: list[Entry]

    def durable(self) -> DurableState:
        """The durable state that a node loads at start."""
        last = self.start.index + len(self.entries)
        commit = min(max(self.hard_state.commit, self.snapshot.index), last)
        kept = HardState(self.hard_state.term, self.hard_state.vote, commit)
        return DurableState(kept, self.snapshot, self.start, tuple(self.entries))

    def save(self, ready: Ready) -> None:
        """Store the changes of a ``Ready``."""
        self.hard_state = ready.hard_state or self.hard_state
        if ready.snapshot is not None:
            self.snapshot, self.start = ready.snapshot, ready.snapshot.id
            self.entries.clear()
        if ready.entries:
            place = ready.entries[0].index - self.start.index - 1
            if place < 0:  # entries already covered by a local snapshot
                self.entries[:] = ready.entries[-place:]
            else:
                assert place <= len(self.entries), "a gap in the stored log"
                self.entries[place:] = ready.entries

    def compact(self, snapshot: SnapshotMeta, start: EntryId) -> None:
        """Store a local snapshot instead of entries."""
        self.snapshot = snapshot
        if start.index > self.start.index:
            del self.entries[: start.index - self.start.index]
            self.start = start


class SimulatedMember:
    """One node: its core, its disk, and the ``Ready`` that is being stored."""

    def __init__(self, node_id: NodeId, disk: Disk) -> None:
        self.id = node_id
        self.disk = disk
        self.core: Raft
        self.ready: Ready | None = None
        self.lives = 0
        self.up = True


class RaftCoreSimulator:
    """Runs Raft cores with any order of ticks, deliveries, losses and crashes.

    Args:
        nodes: the number of nodes, numbered from 1.
        voters: how many of them are initial voters; the others may be added later.
        random: decides timeouts.
        settings: returns the settings of a core, for each of its incarnations.
    """

    def __init__(
        self,
        nodes: int,
        voters: int,
        random: Random,
        settings: Callable[[NodeId], RaftSettings] | None = None,
    ) -> None:
        self.now_s = 0.0
        self.pool: list[RaftMessage] = []
        self.members: dict[NodeId, SimulatedMember] = {}
        self.leaders: dict[int, NodeId] = {}
        self.committed: dict[int, Entry] = {}
        self.highest_applied = 1
        self.reads_done = 0
        self._reads: dict[tuple[NodeId, int, int], int] = {}
        self._read_number = 0
        self._random = random
        self._settings = settings or (lambda node: RaftSettings(node_id=node))
        first_voters = tuple(NodeId(number) for number in range(1, voters + 1))
        for number in range(1, nodes + 1):
            durable = initial_state(first_voters) if number <= voters else DurableState()
            disk = Disk(durable.hard_state, durable.snapshot, durable.start, [])
            self.members[NodeId(number)] = SimulatedMember(NodeId(number), disk)
        for member in self.members.values():
            self.boot(member)

    def boot(self, member: SimulatedMember) -> None:
        """Start a node from its disk; what was in memory is lost."""
        member.ready = None
        member.lives += 1
        member.up = True
        member.core = Raft(
            self._settings(member.id),
            member.disk.durable(),
            chance=self._random.random,
            now_s=self.now_s,
        )

    def tick(self, member: SimulatedMember) -> None:
        """Advance the time to the next deadline of a node."""
        self.now_s = max(self.now_s, member.core.next_deadline_s)
        member.core.tick(self.now_s)
        self.check(member)

    def deliver(self, message: RaftMessage) -> None:
        """Deliver a message, unless its receiver is down."""
        member = self.members[message.to]
        if member.up:
            member.core.step(message, self.now_s)
            self.check(member)

    def take(self, member: SimulatedMember) -> Ready | None:
        """Take the ``Ready`` of a node; messages that need no storage are sent at once."""
        if member.ready is None and member.core.has_ready:
            member.ready = member.core.ready()
            self.send(member.ready.messages)
        else:
            self.send(member.core.take_messages())
        return member.ready

    def finish(self, member: SimulatedMember) -> None:
        """Store the taken ``Ready``, send the other messages and apply entries."""
        ready = member.ready
        assert ready is not None, "nothing was taken"
        member.ready = None
        member.disk.save(ready)
        member.core.persisted(ready, self.now_s)
        self.send(ready.messages_after_append)
        if ready.snapshot is not None:
            self._applied(ready.snapshot.index)
        for entry in ready.committed_entries:
            self._apply(member, entry)
        for read in ready.read_states:
            self._served(member, read.context, read.index)
        self.check(member)

    def propose(self, member: SimulatedMember, data: bytes) -> bool:
        """Propose a value; returns whether the node accepted it."""
        try:
            member.core.propose([data], self.now_s)
        except NotLeader:
            return False
        return True

    def change(self, member: SimulatedMember, change: ConfChange) -> bool:
        """Propose a change of membership; returns whether the node accepted it."""
        try:
            member.core.propose_change(change, self.now_s)
        except MainstemError:
            return False
        return True

    def read(self, member: SimulatedMember) -> None:
        """Start a read, which must see everything that any node has applied by now."""
        self._read_number += 1
        self._reads[member.id, member.lives, self._read_number] = self.highest_applied
        member.core.read_index(self._read_number, self.now_s)

    def compact(self, member: SimulatedMember, keep: int) -> bool:
        """Take a snapshot of a node's applied state; returns whether there was anything new."""
        log = member.core.state.log
        term = log.term(log.applied)
        if member.ready is not None or log.applied <= log.snapshot.index or term is None:
            return False
        if log.pending_snapshot is not None:
            return False
        snapshot = SnapshotMeta(log.applied, term, member.core.conf_state)
        member.core.compact(snapshot, keep=keep)
        member.disk.compact(snapshot, log.start)
        return True

    def send(self, messages: tuple[RaftMessage, ...]) -> None:
        """Put messages into the pool; the oldest are dropped if there are too many."""
        self.pool += messages
        if len(self.pool) > POOL_MAX:
            del self.pool[: POOL_MAX // 2]
            self.forget_lost_snapshots()

    def lose_snapshot(self, message: RaftMessage) -> None:
        """Report a lost snapshot to its sender, as the transport does."""
        sender = self.members[message.from_]
        if sender.up:
            sender.core.report_snapshot(message.to, arrived=False)

    def snapshot_arrived(self, message: RaftMessage) -> None:
        """Report an arrived snapshot to its sender, as the transport does."""
        self.members[message.from_].core.report_snapshot(message.to, arrived=True)

    def check(self, member: SimulatedMember) -> None:
        """Check election safety and leader completeness after a node may have changed."""
        state = member.core.state
        if not state.is_leader:
            return
        known = self.leaders.setdefault(state.term, member.id)
        assert known == member.id, f"ELECTION SAFETY: {known} and {member.id} lead {state.term}"
        if member.lives * 1_000_000 + state.term != getattr(member, "checked", None):
            member.checked = member.lives * 1_000_000 + state.term  # type: ignore[attr-defined]
            self._check_completeness(member)

    def check_logs(self) -> None:
        """Check log matching for every pair of nodes."""
        members = [member for member in self.members.values() if member.up]
        for place, one in enumerate(members):
            for other in members[place + 1 :]:
                _check_pair(one, other)

    def _check_completeness(self, member: SimulatedMember) -> None:
        log = member.core.state.log
        for index, entry in self.committed.items():
            if index <= log.start.index:
                continue
            held = log.term(index)
            assert held == entry.term, (
                f"LEADER COMPLETENESS: {member.id} leads {member.core.state.term} with "
                f"{held} at {index}, committed was {entry.term}"
            )

    def _apply(self, member: SimulatedMember, entry: Entry) -> None:
        known = self.committed.setdefault(entry.index, entry)
        assert known == entry, f"STATE MACHINE SAFETY at {entry.index}: {known} and {entry}"
        if entry.type is EntryType.EntryConfChange:
            member.core.apply_change(decode_change(entry.data))
        member.core.applied_to(entry.index)
        self._applied(entry.index)

    def _applied(self, index: int) -> None:
        self.highest_applied = max(self.highest_applied, index)

    def _served(self, member: SimulatedMember, context: int, index: int) -> None:
        floor = self._reads.pop((member.id, member.lives, context), None)
        if floor is None:  # answered twice
            return
        self.reads_done += 1
        assert index >= floor, f"STALE READ on {member.id}: {index}, though {floor} was applied"

    def forget_lost_snapshots(self) -> None:
        """Report all snapshots that are no longer in flight as lost."""
        under_way = {
            (message.from_, message.to)
            for message in self.pool
            if message.type is MessageType.MsgSnap
        }
        for member in self.members.values():
            for node in member.core.state.tracker.progress:
                if (member.id, node) not in under_way:
                    member.core.report_snapshot(node, arrived=False)


def _check_pair(one: SimulatedMember, other: SimulatedMember) -> None:
    first, second = one.core.state.log, other.core.state.log
    start = max(first.start.index, second.start.index)
    agree_until = start
    for index in range(min(first.last_index, second.last_index), start, -1):
        if first.term(index) == second.term(index):
            agree_until = index
            break
    if agree_until > start:
        span = (start + 1, agree_until + 1)
        assert first.slice(*span) == second.slice(*span), f"LOG MATCHING: {one.id}, {other.id}"
