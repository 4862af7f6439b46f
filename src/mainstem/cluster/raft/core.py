"""One Raft node as a pure machine: messages and time go in, ``Ready`` comes out.

::

      tick ──┐                                ┌── ready()        what to store, send, apply
      step ──┼──▶  Raft (decides, no I/O) ────┤
   propose ──┘            ▲                   └── take_messages()   what may leave meanwhile
                          └── persisted(ready), applied_to(index)

One ``Ready`` is out at a time: the next one is taken after ``persisted``. Messages are still
handled in between, so a slow disk delays no heartbeat.
"""

from collections.abc import Callable, Sequence

from mainstem.cluster.raft import election, membership, reads, replication, stepping, transfer
from mainstem.cluster.raft.messages import (
    NO_NODE,
    ConfChange,
    ConfState,
    DurableState,
    EntryId,
    EntryType,
    HardState,
    RaftMessage,
    Ready,
    SnapshotMeta,
    encode_change,
)
from mainstem.cluster.raft.read_rounds import ReadRequest
from mainstem.cluster.raft.state import RaftSettings, RaftState
from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.model.ids import NodeId


class NotLeader(Unavailable):
    """Only the leader accepts proposals; nothing was recorded."""

    def __init__(self, leader: NodeId, cause: str = "") -> None:
        known = f"node {leader} leads" if leader != NO_NODE else "no leader is known"
        super().__init__(ErrorCode.NOT_COORDINATOR, cause or known)
        self.leader = leader


class Raft:
    """Decides for one Raft node; does no I/O.

    Args:
        settings: how this node behaves.
        durable: what its storage holds.
        chance: returns a new random number in [0, 1) each time.
        now_s: seconds of a clock that never goes back, as in every later call.
    """

    def __init__(
        self,
        settings: RaftSettings,
        durable: DurableState,
        *,
        chance: Callable[[], float],
        now_s: float,
    ) -> None:
        self.state = RaftState(settings, durable, chance, now_s)
        self._soft_state = self.state.soft_state
        self._handed_state = durable.hard_state
        self._own_messages: list[RaftMessage] = []
        self._outstanding: Ready | None = None

    @property
    def next_deadline_s(self) -> float:
        """When ``tick`` has something to do."""
        state = self.state
        if not state.is_leader:
            return state.election_due_s
        due_s = min(state.heartbeat_due_s, state.quorum_due_s)
        return due_s if state.lead_transferee == NO_NODE else min(due_s, state.transfer_due_s)

    @property
    def conf_state(self) -> ConfState:
        """The membership as applied."""
        return self.state.tracker.conf_state

    def tick(self, now_s: float) -> None:
        """Time has passed."""
        self.state.now_s = now_s
        stepping.tick(self.state)

    def step(self, message: RaftMessage, now_s: float) -> None:
        """Handle a message; one that is out of date is dropped."""
        self.state.now_s = now_s
        stepping.step(self.state, message)

    def campaign(self, now_s: float) -> None:
        """Campaign without waiting for the election timer."""
        self.state.now_s = now_s
        self.state.election_due_s = now_s
        if not self.state.is_leader:
            self.tick(now_s)

    def step_down(self, now_s: float) -> None:
        """Step down: this node cannot do what a leader must."""
        self.state.now_s = now_s
        if self.state.is_leader:
            self.state.become_follower(self.state.term, NO_NODE)

    def propose(self, payloads: Sequence[bytes], now_s: float) -> EntryId:
        """Append entries to the log; the last one. They are committed later, or never.

        Raises:
            NotLeader: nothing was recorded; another node may lead.
            Unavailable: too much is waiting to be committed; nothing was recorded.
        """
        assert payloads, "nothing to propose"
        state = _leading(self.state, now_s)
        size = sum(len(data) for data in payloads)
        limit = state.settings.uncommitted_bytes_max
        if state.uncommitted_bytes and state.uncommitted_bytes + size > limit:
            raise Unavailable(
                ErrorCode.OVERLOADED, f"{state.uncommitted_bytes} bytes wait to be committed"
            )
        state.uncommitted_bytes += size
        last = replication.append_entries(state, EntryType.EntryNormal, list(payloads))
        replication.broadcast_append(state)
        return last

    def propose_change(self, change: ConfChange, now_s: float) -> EntryId:
        """Append a change of membership to the log.

        A leader does not remove itself: it transfers leadership, and its successor removes it.

        Raises:
            NotLeader: nothing was recorded.
            Unavailable: the change is not possible now.
            InvalidRequest: the change is not possible at all.
        """
        state = _leading(self.state, now_s)
        membership.check_proposal(state, change)
        if membership.drops(change, state.id):
            raise NotLeader(membership.hand_over(state), "leadership must be transferred first")
        last = replication.append_entries(state, EntryType.EntryConfChange, [encode_change(change)])
        state.pending_conf_index = last.index
        replication.broadcast_append(state)
        return last

    def read_index(self, context: int, now_s: float) -> None:
        """Request the index from which on a read is linearisable; the answer is a ``ReadState``.

        It may never come, when the leader is lost or changes: repeat the request.
        """
        self.state.now_s = now_s
        reads.read_index(self.state, ReadRequest(self.state.id, context))

    def transfer_leadership(self, to: NodeId, now_s: float) -> bool:
        """Transfer leadership to ``to``; False if that is not possible."""
        self.state.now_s = now_s
        return transfer.transfer(self.state, to)

    @property
    def has_ready(self) -> bool:
        """Whether ``ready`` has something to return."""
        state = self.state
        log = state.log
        return bool(
            state.messages
            or state.messages_after_append
            or state.read_states
            or log.handed < log.last_index
            or log.pending_snapshot
            or log.applying < min(log.committed, log.stable)
            or _vote_differs(state, self._handed_state)
            or state.soft_state != self._soft_state
        )

    def ready(self) -> Ready:
        """What is to be done now. Answer with ``persisted`` once it is stored."""
        assert self._outstanding is None, "the last Ready was not persisted"
        state = self.state
        snapshot = state.log.pending_snapshot
        entries = state.log.next_unstable()
        committed = state.log.next_committed(state.settings.append_bytes_max)
        # The commit index is stored only along with something else, as it can be learnt again.
        # But not from a node that was removed, so a change of membership always stores it.
        changes = any(entry.type is EntryType.EntryConfChange for entry in committed)
        keep = bool(entries or snapshot or changes or _vote_differs(state, self._handed_state))
        hard_state = state.hard_state if keep and state.hard_state != self._handed_state else None
        self._handed_state = hard_state or self._handed_state
        state.uncommitted_bytes -= min(
            state.uncommitted_bytes, sum(len(entry.data) for entry in committed)
        )
        soft_state = state.soft_state if state.soft_state != self._soft_state else None
        self._soft_state = soft_state or self._soft_state
        after = state.messages_after_append
        state.messages_after_append = []
        self._own_messages = [message for message in after if message.to == state.id]
        read_states, state.read_states = state.read_states, []
        self._outstanding = Ready(
            hard_state,
            snapshot,
            entries,
            self.take_messages(),
            tuple(message for message in after if message.to != state.id),
            committed,
            tuple(read_states),
            soft_state,
        )
        return self._outstanding

    def take_messages(self) -> tuple[RaftMessage, ...]:
        """Messages that may leave at once, also while a ``Ready`` is being stored."""
        messages, self.state.messages = self.state.messages, []
        return tuple(messages)

    def persisted(self, ready: Ready, now_s: float) -> None:
        """A ``Ready`` is durable: this node's own vote and entries count from now on."""
        assert ready is self._outstanding, "not the Ready that is out"
        self._outstanding = None
        state = self.state
        state.now_s = now_s
        if ready.hard_state is not None:
            state.durable = ready.hard_state
        if ready.snapshot is not None and state.log.pending_snapshot == ready.snapshot:
            state.log.pending_snapshot = None
        if ready.entries:
            last = ready.entries[-1]
            state.log.stable_to(EntryId(last.index, last.term))
        own, self._own_messages = self._own_messages, []
        for message in own:
            self.step(message, now_s)
        if state.is_leader and state.acknowledge_own_log() and replication.maybe_commit(state):
            replication.broadcast_append(state)
            reads.release_waiting(state)

    def applied_to(self, index: int) -> None:
        """Everything until ``index`` is applied."""
        log = self.state.log
        assert index <= log.applying, "applied before it was committed"
        log.applied = max(log.applied, index)

    def apply_change(self, change: ConfChange) -> ConfState:
        """A committed change of membership takes effect; the new membership."""
        return membership.apply_change(self.state, change)

    def compact(self, snapshot: SnapshotMeta, *, keep: int = 0) -> None:
        """A snapshot of what is applied is durable; drop entries, but for the last ``keep``."""
        self.state.log.compact(snapshot, keep=keep)

    def report_unreachable(self, node: NodeId, *, gone_s: float | None = None) -> None:
        """Messages to a member were probably lost; ``gone_s``: as of now its process has ended."""
        replication.report_unreachable(self.state, node)
        if gone_s is not None:
            self.state.now_s = gone_s
            election.leader_gone(self.state, node)

    def report_snapshot(self, node: NodeId, *, arrived: bool) -> None:
        """A snapshot transfer to a member succeeded or failed."""
        replication.report_snapshot(self.state, node, arrived=arrived)


def _leading(state: RaftState, now_s: float) -> RaftState:
    state.now_s = now_s
    if not state.is_leader:
        raise NotLeader(state.lead)
    if state.lead_transferee != NO_NODE:
        raise NotLeader(state.lead_transferee, "leadership is being transferred")
    return state


def _vote_differs(state: RaftState, known: HardState) -> bool:
    return (state.term, state.vote) != (known.term, known.vote)
