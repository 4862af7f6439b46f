"""One classic consumer group: its members, their votes, its generation.

    Empty ──join──▶ PreparingRebalance ──all joined──▶ CompletingRebalance ──leader's sync──▶ Stable
      ▲                    ▲  │                               │                                │
      └──no member joined──┼──┘                               │ a member changes, leaves, joins│
                           └──────────────────────────────────┴────────────────────────────────┘

What is stored (``GroupSaved``) is the last complete generation. Parked requests, members that have
been given an id but have not joined, and deadlines are not stored: after a restart members detect
it by their next heartbeat. ``GroupTable`` decides state changes; this class keeps the fields
consistent.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from mainstem.coordination.classic.subscription import CONSUMER_PROTOCOL, subscribed_topics
from mainstem.model.errors import ErrorCode, Fenced

# Bytes of lengths and timeouts in a stored member, beside its strings, metadata and assignment.
_FIXED_BYTES = 32
_UNSTAMPED = -1

Protocols = tuple[tuple[str, bytes], ...]


class GroupState(Enum):
    """State of a group; the values are those that Kafka tools print."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True)
class ClassicMember:
    """One member. Tickets identify its parked requests; without a deadline it does not expire."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    join_ticket: int | None = None
    sync_ticket: int | None = None
    deadline_ms: int | None = None

    def metadata(self, protocol_name: str | None) -> bytes:
        """The metadata that the member sent for that protocol."""
        return next((data for name, data in self.protocols if name == protocol_name), b"")

    @property
    def size_bytes(self) -> int:
        """Lower bound of the bytes that the member adds to the record of its generation."""
        names = (self.id, self.instance_id or "", self.client_id, self.client_host)
        metadata = sum(len(data) for _, data in self.protocols)
        return _FIXED_BYTES + sum(len(name.encode()) for name in names) + metadata

    @property
    def is_excused(self) -> bool:
        """Whether the member waits for a response and so cannot send heartbeats."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)


@dataclass(slots=True)
class Group:
    """Holds the members, votes and generation of a classic group.

    ``state_ms`` is wall-clock time, every deadline is monotonic time.
    """

    id: str
    state_ms: int
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, ClassicMember] = field(default_factory=dict)
    statics: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    pending: dict[str, int] = field(default_factory=dict)  # member id -> deadline
    unsynced: set[str] = field(default_factory=set)
    subscribed: frozenset[str] | None = None
    # The first rebalance of an empty group waits for more members: (delay, remaining wait).
    initial_wait_ms: tuple[int, int] | None = None
    grew_while_waiting: bool = False
    join_deadline_ms: int | None = None
    sync_deadline_ms: int | None = None
    is_saved: bool = False
    size_bytes: int = 0
    awaiting_join: int = 0
    _support: Counter[str] = field(default_factory=Counter)

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members and no pending member ids."""
        return self.state is GroupState.EMPTY and not self.pending

    @property
    def all_joined(self) -> bool:
        """Whether every member, including those with a pending id, has joined the generation."""
        return self.awaiting_join == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Add a member; the first one becomes leader and sets the protocol type."""
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type, (
            "all members of a group have the same protocol type"
        )
        if member.instance_id is not None:
            assert member.instance_id not in self.statics, "an instance id belongs to one member"
            self.statics[member.instance_id] = member.id
        self.leader = self.leader or member.id
        self.members[member.id] = member
        self._count(member, 1)
        self.pending.pop(member.id, None)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member or a pending member id; elect another leader if needed."""
        self.pending.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count(member, -1)
        self.unsynced.discard(member_id)
        if member.instance_id is not None:
            del self.statics[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace(self, old_id: str, new: ClassicMember) -> ClassicMember:
        """Replace a static member that rejoined under a new member id."""
        old = self.members[old_id]
        assert old.instance_id is not None
        assert old.instance_id == new.instance_id
        # Members are ordered by when they joined; the new id keeps the position of the old one.
        self.members = {m.id: m for m in (new if m is old else m for m in self.members.values())}
        self._count(old, -1)
        self._count(new, 1)
        self.statics[old.instance_id] = new.id
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(new.id)
        if self.leader == old_id:
            self.leader = new.id
        return old

    def update(self, member: ClassicMember, protocols: Protocols) -> None:
        """Update the protocols and metadata of a member."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def park_join(self, member: ClassicMember, ticket: int) -> int | None:
        """Park the member's join until the generation is complete; returns its earlier ticket."""
        before, member.join_ticket = member.join_ticket, ticket
        self.awaiting_join += before is None
        return before

    def take_join(self, member: ClassicMember) -> int | None:
        """Take the ticket of the member's parked join, which the caller answers."""
        ticket, member.join_ticket = member.join_ticket, None
        self.awaiting_join -= ticket is not None
        return ticket

    def _count(self, member: ClassicMember, sign: int) -> None:
        self.size_bytes += sign * member.size_bytes
        for name, _ in member.protocols:
            self._support[name] += sign
            if not self._support[name]:
                del self._support[name]
        if member.join_ticket is not None:
            self.awaiting_join += sign

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member with these ids; raises if it is unknown or fenced."""
        if instance_id is not None:
            known = self.statics.get(instance_id)
            if known is not None and known != member_id:
                raise Fenced(
                    ErrorCode.FENCED_MEMBER,
                    f"instance {instance_id} is now member {known}, not {member_id}",
                    subject=self.id,
                )
            if known is None:
                raise unknown_member(self.id, member_id)
        member = self.members.get(member_id)
        if member is None:
            raise unknown_member(self.id, member_id)
        return member

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with this protocol type and these protocols is compatible."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        all_members = len(self.members)
        return self.protocol_type == protocol_type and any(
            self._support[name] == all_members for name, _ in protocols
        )

    def select_protocol(self, changed: dict[str, Protocols] | None = None) -> str:
        """The protocol that all members support and most prefer, after applying ``changed``."""
        ballots = [
            changed.get(m.id, m.protocols) if changed else m.protocols
            for m in self.members.values()
        ]
        support = Counter(name for ballot in ballots for name, _ in ballot)
        votes: Counter[str] = Counter()
        for ballot in ballots:
            votes[next(name for name, _ in ballot if support[name] == len(ballots))] += 1
        # On a tie the protocol voted for first wins, so that the choice is deterministic.
        return votes.most_common(1)[0][0]

    def elect_leader(self) -> bool:
        """Ensure that the leader is a member that joined; False if no member has."""
        if self.leader is not None and self.members[self.leader].join_ticket is not None:
            return True
        joined = next((m.id for m in self.members.values() if m.join_ticket is not None), None)
        self.leader = joined or self.leader
        return joined is not None

    def next_generation(self, wall_ms: int) -> None:
        """Start the next generation with the members that joined."""
        self.generation += 1
        self.unsynced.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.move(GroupState.COMPLETING if self.members else GroupState.EMPTY, wall_ms)
        self.note_subscriptions()

    def move(self, state: GroupState, wall_ms: int) -> None:
        """Change the state."""
        self.state = state
        self.state_ms = wall_ms

    @property
    def is_consumer(self) -> bool:
        """Whether the members are consumers, whose metadata contains their topics."""
        return self.protocol_type == CONSUMER_PROTOCOL

    def is_subscribed(self, topic: str) -> bool:
        """Whether the group reads ``topic``; True if the subscription is not known."""
        return self.is_consumer if self.subscribed is None else topic in self.subscribed

    def expiry_start_ms(self, commit_ms: int) -> int | None:
        """Time from which the retention of an unused offset counts; None if it does not expire."""
        if self.protocol_type is None:
            return commit_ms
        if self.state is GroupState.EMPTY:
            # Groups stored by very old nodes lack the time at which they became empty.
            return commit_ms if self.state_ms == _UNSTAMPED else self.state_ms
        knows_topics = self.is_consumer and self.subscribed is not None
        return commit_ms if self.state is GroupState.STABLE and knows_topics else None

    def note_subscriptions(self) -> None:
        """Record the topics that this generation reads."""
        self.subscribed = None
        if not self.is_consumer:
            return
        topics: set[str] = set()
        for member in self.members.values():
            asked = subscribed_topics(member.metadata(self.protocol_name))
            if asked is None:
                return
            topics |= asked
        self.subscribed = frozenset(topics)


def unknown_member(group_id: str, member_id: str) -> Fenced:
    """The error that makes a client join again with a new member id."""
    return Fenced(ErrorCode.UNKNOWN_MEMBER, f"no member {member_id!r}", subject=group_id)
