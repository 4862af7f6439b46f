"""State of one Raft node, and the few steps that every part of the core uses.

The parts (``election``, ``replication``, ``reads``, ``membership``, ``transfer``) are functions
over this state; ``core`` calls them. Time is passed in with every call and kept as ``now_s``.
"""

from collections.abc import Callable

import msgspec

from mainstem.cluster.raft.messages import (
    NO_NODE,
    DurableState,
    HardState,
    MessageType,
    RaftMessage,
    ReadState,
    SoftState,
    StateType,
)
from mainstem.cluster.raft.raft_log import RaftLog
from mainstem.cluster.raft.read_rounds import ReadRounds
from mainstem.cluster.raft.tracker import Tracker
from mainstem.model.ids import NodeId
from mainstem.model.limits import KIB, MIB

# These messages depend on a term, a vote or entries that a crash must not revert. A request for
# votes is among them: it names the end of the log, and a grant that comes late would otherwise
# elect a node which has lost that end.
AFTER_APPEND = frozenset(
    {
        MessageType.MsgAppResp,
        MessageType.MsgVote,
        MessageType.MsgVoteResp,
        MessageType.MsgPreVote,
        MessageType.MsgPreVoteResp,
    }
)


class RaftSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one node behaves.

    Attributes:
        node_id: this node.
        election_timeout_s: silence after which a follower may campaign; each waits up to twice as
            long, at random. Raise it where disks stall for longer.
        heartbeat_s: how often a leader sends heartbeats.
        pre_vote: check whether a campaign could succeed before starting a new term.
        check_quorum: a leader without answers of a majority steps down; followers of a live leader
            ignore candidates.
        append_bytes_max: size of one message with entries.
        inflight_max: messages under way to one follower.
        uncommitted_bytes_max: proposals beyond this are refused.
        reads_max: reads that wait for a round of heartbeats.
    """

    node_id: NodeId
    election_timeout_s: float = 1.0
    heartbeat_s: float = 0.15
    pre_vote: bool = True
    check_quorum: bool = True
    append_bytes_max: int = 512 * KIB
    inflight_max: int = 32
    uncommitted_bytes_max: int = 64 * MIB
    reads_max: int = 10_000

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_s < self.election_timeout_s:
            raise ValueError("a heartbeat must be quicker than an election")
        if min(self.append_bytes_max, self.inflight_max, self.uncommitted_bytes_max) < 1:
            raise ValueError("limits must be positive")


class RaftState:
    """Holds the state of one Raft node and the steps that all its parts share."""

    __slots__ = (
        "_chance",
        "durable",
        "election_due_s",
        "heartbeat_due_s",
        "last_contact_s",
        "lead",
        "lead_transferee",
        "log",
        "messages",
        "messages_after_append",
        "now_s",
        "pending_conf_index",
        "quick_campaigns",
        "quorum_due_s",
        "read_states",
        "reads",
        "settings",
        "state",
        "term",
        "tracker",
        "transfer_due_s",
        "uncommitted_bytes",
        "vote",
    )  # fmt: skip

    def __init__(
        self,
        settings: RaftSettings,
        durable: DurableState,
        chance: Callable[[], float],
        now_s: float,
    ) -> None:
        self.settings = settings
        self.log = RaftLog(durable)
        self.term = durable.hard_state.term
        self.vote = durable.hard_state.vote
        self.durable = durable.hard_state  # the last one that is known to be on disk
        self.tracker = Tracker(
            durable.snapshot.conf_state, settings.inflight_max, self.log.last_index + 1
        )
        self.state = StateType.StateFollower
        self.lead = NO_NODE
        self.lead_transferee = NO_NODE
        self.pending_conf_index = 0
        self.uncommitted_bytes = 0
        self.reads = ReadRounds(settings.reads_max)
        self.read_states: list[ReadState] = []
        self.messages: list[RaftMessage] = []
        self.messages_after_append: list[RaftMessage] = []
        self._chance = chance
        self.now_s = now_s
        self.last_contact_s = float("-inf")
        self.heartbeat_due_s = self.quorum_due_s = self.transfer_due_s = now_s
        self.election_due_s = now_s
        self.quick_campaigns = 0  # remaining pre-campaigns in quick succession
        self.become_follower(self.term, NO_NODE)

    @property
    def id(self) -> NodeId:
        """This node."""
        return self.settings.node_id

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, as far as it knows."""
        return self.state is StateType.StateLeader

    @property
    def led_term(self) -> int | None:
        """The term in which this node leads; None: it does not lead."""
        return self.term if self.is_leader else None

    @property
    def hard_state(self) -> HardState:
        """The durable state, as of now."""
        return HardState(self.term, self.vote, self.log.committed)

    @property
    def soft_state(self) -> SoftState:
        """Leader and role, as of now."""
        return SoftState(self.lead, self.state, self.term)

    @property
    def is_promotable(self) -> bool:
        """Whether this node may become a leader at all."""
        voter = self.id in self.tracker.voters
        return voter and self.log.pending_snapshot is None

    @property
    def in_lease(self) -> bool:
        """Whether a leader made contact so recently that candidates are ignored."""
        if not self.settings.check_quorum or self.lead == NO_NODE:
            return False
        silence_s = self.now_s - self.last_contact_s
        return self.is_leader or silence_s < self.settings.election_timeout_s

    @property
    def committed_in_term(self) -> bool:
        """Whether an entry of this term is committed: only then a leader knows all that is."""
        return self.log.term(self.log.committed) == self.term

    def send(self, message: RaftMessage) -> None:
        """Send a message, now or once the state it depends on is durable."""
        waits = message.type in AFTER_APPEND
        if message.type is MessageType.MsgHeartbeatResp:
            # The answer to a heartbeat must not wait for a slow disk, or a stalled one would cost a
            # leader its majority. It depends on the term only.
            waits = (self.durable.term, self.durable.vote) != (self.term, self.vote)
        (self.messages_after_append if waits else self.messages).append(message)

    def reply(
        self,
        to: RaftMessage,
        kind: MessageType,
        *,
        index: int = 0,
        reject: bool = False,
        context: int = 0,
    ) -> None:
        """Answer a message in this node's term."""
        self.send(
            RaftMessage(
                kind, to.from_, self.id, self.term, index=index, reject=reject, context=context
            )
        )

    def become_follower(self, term: int, lead: NodeId) -> None:
        """Follow ``lead``, or no leader yet."""
        self.reset(term)
        self.lead = lead
        self.state = StateType.StateFollower

    def reset(self, term: int) -> None:
        """Start a term, or restart it in another role."""
        assert term >= self.term, "terms do not go back"
        if term != self.term:
            self.term, self.vote = term, NO_NODE
        self.lead = self.lead_transferee = NO_NODE
        self.reset_election_timer()
        self.tracker.reset(self.log.last_index + 1)
        self.acknowledge_own_log()
        self.pending_conf_index = 0
        self.uncommitted_bytes = 0
        self.reads = ReadRounds(self.settings.reads_max)

    def acknowledge_own_log(self) -> bool:
        """Count what this node's own disk holds; whether that is more than before."""
        progress = self.tracker.progress.get(self.id)
        return progress is not None and progress.maybe_update(self.log.stable)

    def reset_election_timer(self) -> None:
        """Wait once or twice the time-out, at random, before the next campaign."""
        wait_s = self.settings.election_timeout_s * (1 + self._chance())
        self.election_due_s = self.now_s + wait_s

    def shorten_election_timeout(self, least: float, most: float) -> None:
        """Campaign sooner, after such shares of the time-out, at random."""
        share = least + (most - least) * self._chance()
        self.election_due_s = self.now_s + self.settings.election_timeout_s * share

    def note_leader(self, lead: NodeId) -> None:
        """The leader of this term made contact."""
        self.lead = lead
        self.quick_campaigns = 0
        self.last_contact_s = self.now_s
        self.reset_election_timer()
