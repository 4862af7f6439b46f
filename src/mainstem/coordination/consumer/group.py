"""State of one consumer group, whose members are assigned partitions by the coordinator.

    members change, topics change ──▶ epoch + 1 ──▶ target assignment ──▶ each member, by its own
                                                       heartbeats, revokes, then is assigned

The group epoch counts changes of members and topics, the target epoch is the group epoch for which
the target was computed, and a member's epoch is the target epoch it has reached. All state is
rebuilt by ``replay``, except deadlines: after a restart every member gets a full session timeout.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from mainstem.coordination.consumer.facts import (
    NOTHING,
    ClassicMemberData,
    ConsumerFact,
    ConsumerRecordKind,
    EpochMoved,
    FactRemoved,
    MemberMoved,
    MemberState,
    MemberSubscribed,
    Partitions,
    PatternResolved,
    TargetMoved,
    TargetSet,
)
from mainstem.model.errors import ErrorCode, Fenced
from mainstem.model.ids import TopicId

JOINING = 0
LEFT = -1
AWAY = -2  # a static member that left temporarily
NO_TARGET = -1

# The removal of a member that could not be stored is retried after this time.
RETRY_MS = 1_000


class GroupPhase(Enum):
    """State of a group; the values are those that Kafka tools print."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerMember(Struct, frozen=True):
    """One member: its subscription and its assignment."""

    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMemberData | None = None
    epoch: int = JOINING
    previous_epoch: int = JOINING
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    revoking: Partitions = NOTHING

    def has_arrived(self, target_epoch: int) -> bool:
        """Whether the member has exactly the partitions of that target epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def subscribed(self, group_id: str) -> MemberSubscribed:
        """The fact that stores its subscription."""
        return MemberSubscribed(
            group_id,
            self.id,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            self.topics,
            self.pattern,
            self.rebalance_timeout_ms,
            self.assignor,
            self.classic,
        )

    def moved(self, group_id: str) -> MemberMoved:
        """The fact that stores its assignment."""
        return MemberMoved(
            group_id,
            self.id,
            self.epoch,
            self.previous_epoch,
            self.state,
            self.assigned,
            self.revoking,
        )

    @property
    def size_bytes(self) -> int:
        """Approximate size of its subscription."""
        size = len(self.client_id) + len(self.client_host) + len(self.pattern or "")
        size += sum(map(len, self.topics))
        if self.classic is not None:
            size += sum(len(metadata) for _, metadata in self.classic.protocols)
        return size


@dataclass(slots=True)
class MemberDeadlines:
    """Deadlines of a member in monotonic time; None where none is set."""

    session_ms: int | None = None
    revoke_ms: int | None = None
    join_ms: int | None = None
    sync_ms: int | None = None
    revoke_epoch: int = LEFT

    def joined(self, sync_ms: int) -> None:
        """Set the sync deadline of a classic member that joined."""
        self.join_ms, self.sync_ms = None, sync_ms

    def synced(self) -> None:
        """Clear the sync deadline of a classic member that synced."""
        self.sync_ms = None

    def asked_to_join(self, join_ms: int) -> None:
        """Set the join deadline of a classic member unless one is set."""
        if self.join_ms is None:
            self.join_ms = join_ms

    def postpone(self, now_ms: int, again_ms: int) -> None:
        """Move deadlines that have passed to ``again_ms``."""
        due = self.earliest()
        if due is not None and due <= now_ms:
            self.session_ms = again_ms
            self.revoke_ms = self.join_ms = self.sync_ms = None

    def earliest(self) -> int | None:
        """The earliest deadline."""
        every = (self.session_ms, self.revoke_ms, self.join_ms, self.sync_ms)
        return min((at_ms for at_ms in every if at_ms is not None), default=None)


@dataclass(slots=True)
class ConsumerGroup:
    """Holds the state of a consumer group (KIP-848), replayed from facts.

    ``is_stale``: topic metadata may have changed since the epoch was last bumped.
    """

    id: str
    epoch: int = 0
    topics_hash: int = 0
    target_epoch: int = NO_TARGET
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    statics: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    target: dict[str, Partitions] = field(default_factory=dict)
    patterns: dict[str, PatternResolved] = field(default_factory=dict)
    timers: dict[str, MemberDeadlines] = field(default_factory=dict)
    is_stale: bool = True
    size_bytes: int = 0
    classic_members: int = 0
    _owners: dict[TopicId, dict[int, str]] = field(default_factory=dict)
    _readers: Counter[str] = field(default_factory=Counter)  # topic name -> members that name it
    _users: Counter[str] = field(default_factory=Counter)  # pattern -> members that use it

    @property
    def phase(self) -> GroupPhase:
        """State of the group."""
        if not self.members:
            return GroupPhase.EMPTY
        if self.epoch > self.target_epoch:
            return GroupPhase.ASSIGNING
        if all(member.has_arrived(self.target_epoch) for member in self.members.values()):
            return GroupPhase.STABLE
        return GroupPhase.RECONCILING

    def owner(self, topic: TopicId, partition: int) -> str | None:
        """The member that owns a partition or has not yet revoked it."""
        return self._owners.get(topic, {}).get(partition)

    def static(self, instance_id: str | None) -> ConsumerMember | None:
        """The member with that instance id."""
        return None if instance_id is None else self.members.get(self.statics.get(instance_id, ""))

    def target_of(self, member_id: str, instance_id: str | None) -> Partitions:
        """The target of a member; a static member inherits that of its earlier incarnation."""
        former = self.statics.get(instance_id or "", member_id)
        return self.target.get(member_id, self.target.get(former, NOTHING))

    def is_subscribed(self, topic: str) -> bool:
        """Whether any member reads ``topic``."""
        return topic in self._readers or any(
            topic in self.patterns[pattern].topics
            for pattern in self._users
            if pattern in self.patterns
        )

    def expiry_start_ms(self, commit_ms: int) -> int | None:
        """Time from which the retention of an unused offset counts."""
        return commit_ms

    def reads(self, topic: str) -> bool:
        """Whether any member subscribes to that topic by name."""
        return topic in self._readers

    def named_topics(self) -> Iterable[str]:
        """All topic names that members subscribe to, whether the topics exist or not."""
        return self._readers.keys()

    @property
    def has_patterns(self) -> bool:
        """Whether any member subscribes to a pattern."""
        return bool(self._users)

    def used_patterns(self) -> Iterable[str]:
        """All patterns that members subscribe to."""
        return self._users.keys()

    def next_ms(self) -> int | None:
        """Time of the next deadline."""
        every = (timers.earliest() for timers in self.timers.values())
        return min((at_ms for at_ms in every if at_ms is not None), default=None)

    def postpone(self, now_ms: int) -> None:
        """Postpone passed deadlines whose decision could not be stored."""
        for timers in self.timers.values():
            timers.postpone(now_ms, now_ms + RETRY_MS)

    def replay(self, fact: ConsumerFact) -> None:
        """Apply a stored fact."""
        match fact:
            case EpochMoved(_, epoch, topics_hash):
                self.epoch, self.topics_hash = epoch, topics_hash
            case MemberSubscribed(_, member_id):
                self._put(_subscribed(self._known(member_id), fact))
            case TargetMoved(_, epoch):
                self.target_epoch = epoch
            case TargetSet(_, member_id, partitions):
                self.target[member_id] = partitions
            case MemberMoved(_, member_id):
                self._put(_moved(self._known(member_id), fact))
            case PatternResolved(_, pattern):
                self.patterns[pattern] = fact
            case FactRemoved(kind, _, name):
                self._forget(kind, name)

    def _forget(self, kind: ConsumerRecordKind, name: str) -> None:
        match kind:
            case ConsumerRecordKind.MEMBER:
                self._drop(name)
            case ConsumerRecordKind.TARGET_EPOCH:
                self.target_epoch = NO_TARGET
            case ConsumerRecordKind.TARGET:
                self.target.pop(name, None)
            case ConsumerRecordKind.CURRENT:
                if name in self.members:
                    gone = replace(
                        self.members[name],
                        epoch=LEFT,
                        previous_epoch=LEFT,
                        state=MemberState.STABLE,
                        assigned=NOTHING,
                        revoking=NOTHING,
                    )
                    self._put(gone)
            case ConsumerRecordKind.PATTERN:
                self.patterns.pop(name, None)
            case ConsumerRecordKind.EPOCH:
                pass  # the table removes the whole group

    def _known(self, member_id: str) -> ConsumerMember:
        return self.members.get(member_id) or ConsumerMember(member_id)

    def _put(self, member: ConsumerMember) -> None:
        before = self.members.get(member.id)
        if before is not None:
            self._count(before, -1)
        self.members[member.id] = member
        self._count(member, 1)

    def _drop(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
        self.timers.pop(member_id, None)

    def _count(self, member: ConsumerMember, sign: int) -> None:
        self.size_bytes += sign * member.size_bytes
        self.classic_members += sign * (member.classic is not None)
        for name in member.topics:
            _add(self._readers, name, sign)
        if member.pattern:
            _add(self._users, member.pattern, sign)
        self._own(member, member.assigned, is_owner=sign > 0)
        self._own(member, member.revoking, is_owner=sign > 0)
        if member.instance_id is not None:
            if sign > 0:
                self.statics[member.instance_id] = member.id
            elif self.statics.get(member.instance_id) == member.id:
                del self.statics[member.instance_id]

    def _own(self, member: ConsumerMember, partitions: Partitions, *, is_owner: bool) -> None:
        for topic, indexes in partitions.items():
            owners = self._owners.setdefault(topic, {})
            for index in indexes:
                if is_owner:
                    owners[index] = member.id
                # A compacted log may contain the next owner before the last owner's revocation.
                elif owners.get(index) == member.id:
                    del owners[index]
            if not owners:
                del self._owners[topic]


def _add(counter: Counter[str], name: str, sign: int) -> None:
    counter[name] += sign
    if not counter[name]:
        del counter[name]


def _subscribed(member: ConsumerMember, fact: MemberSubscribed) -> ConsumerMember:
    return replace(
        member,
        instance_id=fact.instance_id,
        rack_id=fact.rack_id,
        client_id=fact.client_id,
        client_host=fact.client_host,
        topics=fact.topics,
        pattern=fact.pattern,
        rebalance_timeout_ms=fact.rebalance_timeout_ms,
        assignor=fact.assignor,
        classic=fact.classic,
    )


def _moved(member: ConsumerMember, fact: MemberMoved) -> ConsumerMember:
    return replace(
        member,
        epoch=fact.epoch,
        previous_epoch=fact.previous_epoch,
        state=fact.state,
        assigned=fact.assigned,
        revoking=fact.revoking,
    )


def unknown_consumer(group_id: str, cause: str) -> Fenced:
    """The error that makes a client join again as a new member."""
    return Fenced(ErrorCode.UNKNOWN_MEMBER, cause, subject=group_id)
