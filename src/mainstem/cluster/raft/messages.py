"""Messages between Raft nodes and their durable state: values only, and their bytes.

An index counts entries from 1; a term counts elections. ``Ready`` is what the core requests of its
driver: the order is *store, send, apply*, and only ``messages`` may leave before the storing is
done.
"""

from enum import IntEnum

import msgspec

from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt
from mainstem.model.ids import NodeId
from mainstem.model.limits import MIB

NO_NODE = NodeId(-1)
MESSAGE_BYTES_MAX = 64 * MIB


class MessageType(IntEnum):
    """Every kind of message between two nodes."""

    MsgApp = 0
    MsgAppResp = 1
    MsgVote = 2
    MsgVoteResp = 3
    MsgPreVote = 4
    MsgPreVoteResp = 5
    MsgHeartbeat = 6
    MsgHeartbeatResp = 7
    MsgSnap = 8
    MsgTimeoutNow = 9
    MsgReadIndex = 10
    MsgReadIndexResp = 11
    MsgTransferLeader = 12
    # A snapshot's bytes are sent in chunks; the core gets ``MsgSnap`` once they have all arrived.
    MsgSnapChunk = 13
    MsgSnapChunkResp = 14


class StateType(IntEnum):
    """Role of a node."""

    StateFollower = 0
    StatePreCandidate = 1
    StateCandidate = 2
    StateLeader = 3


class EntryType(IntEnum):
    """What an entry contains."""

    EntryNormal = 0
    EntryConfChange = 1


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One entry of the log. A normal entry without data is a new leader's first."""

    term: int
    index: int
    type: EntryType = EntryType.EntryNormal
    data: bytes = b""


class EntryId(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Identity of an entry: two logs that hold the same one agree on everything before it."""

    index: int
    term: int


class ConfState(msgspec.Struct, array_like=True, frozen=True):
    """Members of the group. Learners receive everything and do not count for majorities."""

    voters: tuple[NodeId, ...] = ()
    learners: tuple[NodeId, ...] = ()


class ConfChangeType(IntEnum):
    """Kinds of a membership change, one node at a time."""

    ConfChangeAddNode = 0
    ConfChangeRemoveNode = 1
    ConfChangeAddLearnerNode = 2


class ConfChange(msgspec.Struct, array_like=True, frozen=True):
    """A change; adding a learner as a node promotes it, adding a voter as a learner demotes it."""

    type: ConfChangeType
    node_id: NodeId


class HardState(msgspec.Struct, array_like=True, frozen=True):
    """State of a node that must survive a restart."""

    term: int = 0
    vote: NodeId = NO_NODE
    commit: int = 0


class SoftState(msgspec.Struct, array_like=True, frozen=True):
    """State of a node that need not survive a restart."""

    lead: NodeId
    state: StateType
    term: int


class SnapshotMeta(msgspec.Struct, array_like=True, frozen=True):
    """What a snapshot covers: every entry until ``index``, included."""

    index: int = 0
    term: int = 0
    conf_state: ConfState = ConfState()

    @property
    def id(self) -> EntryId:
        """The last entry that it covers."""
        return EntryId(self.index, self.term)


class ReadState(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A read may be served once everything until ``index`` is applied."""

    context: int
    index: int


class RaftMessage(msgspec.Struct, array_like=True, frozen=True):
    """One message; which fields are used depends on the type.

    ``index`` and ``log_term`` name an entry (the one before ``entries``, the last of a candidate's
    log, the one acknowledged); ``reject_hint`` is the follower's guess where both logs agree;
    ``context`` numbers a read round, and marks campaigns that the leader itself asked for.
    """

    type: MessageType
    to: NodeId
    from_: NodeId
    term: int = 0
    index: int = 0
    log_term: int = 0
    entries: tuple[Entry, ...] = ()
    commit: int = 0
    reject: bool = False
    reject_hint: int = 0
    context: int = 0
    snapshot: SnapshotMeta | None = None
    # A chunk of a snapshot: its position, and the total number of bytes.
    position: int = 0
    total_bytes: int = 0
    data: bytes = b""


class Ready(msgspec.Struct, frozen=True):
    """What is to be done now.

    Attributes:
        hard_state: to be stored, when it changed.
        snapshot: to be installed before the entries; it replaces the whole log.
        entries: to be stored; they replace whatever stands at or after the first one's index.
        messages: may leave at once.
        messages_after_append: may leave only when all of the above is durable.
        committed_entries: to be applied, in this order.
        read_states: reads that may be served.
        soft_state: leader and role, when they changed.
    """

    hard_state: HardState | None
    snapshot: SnapshotMeta | None
    entries: tuple[Entry, ...]
    messages: tuple[RaftMessage, ...]
    messages_after_append: tuple[RaftMessage, ...]
    committed_entries: tuple[Entry, ...]
    read_states: tuple[ReadState, ...]
    soft_state: SoftState | None

    @property
    def must_sync(self) -> bool:
        """Whether anything is to be made durable; everything that is stored is synced."""
        return bool(self.entries or self.hard_state or self.snapshot)


class DurableState(msgspec.Struct, frozen=True):
    """The stored state that a node starts from.

    ``start`` is the entry before the first of ``entries``; it is at or before the snapshot's end,
    because some entries are kept for followers that are a little behind.
    """

    hard_state: HardState = HardState()
    snapshot: SnapshotMeta = SnapshotMeta()
    start: EntryId = EntryId(0, 0)
    entries: tuple[Entry, ...] = ()


GENESIS = EntryId(1, 1)


def initial_state(voters: tuple[NodeId, ...]) -> DurableState:
    """How every initial member of a group starts, all with the same voters.

    The log starts after an empty snapshot, so that a node which joins later, with an empty
    log, is always sent a snapshot and learns the initial members from it.
    """
    meta = SnapshotMeta(GENESIS.index, GENESIS.term, ConfState(tuple(sorted(voters))))
    return DurableState(HardState(GENESIS.term, NO_NODE, GENESIS.index), meta, GENESIS)


_encoder = msgspec.msgpack.Encoder()
_messages = msgspec.msgpack.Decoder(RaftMessage)
_changes = msgspec.msgpack.Decoder(ConfChange)


def encode_message(message: RaftMessage) -> bytes:
    """The bytes of a message."""
    return _encoder.encode(message)


def decode_message(data: bytes | memoryview) -> RaftMessage:
    """Decode a message of another node.

    Raises:
        Corrupt: it is not a message, or no correct node can have sent it.
    """
    if len(data) > MESSAGE_BYTES_MAX:
        raise Corrupt(f"a Raft message of {len(data)} bytes")
    try:
        message = _messages.decode(data)
    except DECODE_ERRORS as error:
        raise Corrupt(f"not a Raft message: {error}") from error
    _check(message)
    return message


def _check(message: RaftMessage) -> None:
    numbers = (message.term, message.index, message.log_term, message.commit, message.reject_hint)
    if min(*numbers, message.context, message.position, message.total_bytes) < 0:
        raise Corrupt("a Raft message with a negative number")
    index, term = message.index, message.log_term
    for entry in message.entries:
        index += 1
        if entry.index != index or not term <= entry.term <= message.term:
            raise Corrupt(f"entry {entry.index} of term {entry.term} does not follow {index - 1}")
        term = entry.term
        if entry.type is EntryType.EntryConfChange:
            decode_change(entry.data)
    carries = message.type in (MessageType.MsgSnap, MessageType.MsgSnapChunk)
    if carries and message.snapshot is None:
        raise Corrupt(f"a {message.type.name} without a snapshot")


def encode_change(change: ConfChange) -> bytes:
    """The data of an entry that changes the membership."""
    return _encoder.encode(change)


def decode_change(data: bytes) -> ConfChange:
    """The change that an entry holds."""
    try:
        return _changes.decode(data)
    except DECODE_ERRORS as error:
        raise Corrupt(f"not a change of membership: {error}") from error
