"""One decision about a consumer group while it is being made.

A draft holds the facts so far and shows the group as it will be once they hold; the group itself is
not touched.

Facts come in an order that is safe to cut anywhere, should a crash keep only the first of them:
members, then the epoch, then the target of each member, then the target's epoch. A target without
its epoch is made again.
"""

from collections import Counter

from mainstem.coordination.consumer.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Subscriber
from mainstem.coordination.consumer.facts import (
    NOTHING,
    ConsumerFact,
    EpochMoved,
    FactRemoved,
    Kind,
    Partitions,
    PatternResolved,
    TargetMoved,
    TargetSet,
)
from mainstem.coordination.consumer.group import ConsumerGroup, ConsumerMember
from mainstem.coordination.consumer.reconciliation import TargetAssignment, reconcile
from mainstem.coordination.consumer.requests import TopicVisibility
from mainstem.coordination.consumer.topics import GroupTopics
from mainstem.coordination.shards.state_machine import Instant
from mainstem.model.ids import TopicId


class DecisionBuilder:
    """A decision in the making. ``refreshed``: what topics look like has been taken in.

    ``may_see`` tells which topics whoever asks may see, and so which ones expressions find. Where
    nobody asks - a member is gone - they find no new ones until somebody does.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        topics: GroupTopics,
        now: Instant,
        may_see: TopicVisibility | None = None,
    ) -> None:
        self.group = group
        self.facts: list[ConsumerFact] = []
        self.epoch = group.epoch
        self.target_epoch = group.target_epoch
        self.refreshed = False
        self._topics = topics
        self._now = now
        self._may_see = may_see
        self._hash = group.topics_hash
        self._changed: dict[str, ConsumerMember | None] = {}
        self._targets: dict[str, Partitions | None] = {}
        self._patterns: dict[str, PatternResolved | None] = {}

    def member(self, member_id: str) -> ConsumerMember | None:
        """A member as it will be."""
        if member_id in self._changed:
            return self._changed[member_id]
        return self.group.members.get(member_id)

    def members(self) -> dict[str, ConsumerMember]:
        """Everybody who will be in."""
        merged = self.group.members | self._changed
        return {member_id: member for member_id, member in merged.items() if member is not None}

    def update(self, member: ConsumerMember) -> bool:
        """A member is in or says something new; whether that changes what it reads."""
        before = self.member(member.id)
        self._changed[member.id] = member
        if before is not None and before.subscribed(self.group.id) == member.subscribed(
            self.group.id
        ):
            return False
        self.facts.append(member.subscribed(self.group.id))
        if before is None:
            return True
        return (before.topics, before.pattern or None) != (member.topics, member.pattern or None)

    def remove(self, member_id: str) -> None:
        """A member goes, and with it what it had and should have had."""
        self._changed[member_id] = None
        self._targets[member_id] = None
        self.facts += [
            FactRemoved(kind, self.group.id, member_id)
            for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER)
        ]

    def replace(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """A static member takes over all that its former self had."""
        target = self.group.target.get(old.id, NOTHING)
        self.remove(old.id)
        self._changed[new.id] = new
        self._targets[new.id] = target
        self.facts += [
            new.subscribed(self.group.id),
            TargetSet(self.group.id, new.id, target),
            new.moved(self.group.id),
        ]

    def refresh(self, *, moves_epoch: bool) -> None:
        """Take in what topics look like now; the epoch moves if that or the caller demands it."""
        used = {member.pattern for member in self.members().values() if member.pattern}
        self.refreshed = self._may_see is not None or not used
        for pattern in sorted(used):
            self._resolve(pattern)
        for pattern in sorted(self.group.patterns.keys() - used):
            self._patterns[pattern] = None
            self.facts.append(FactRemoved(Kind.PATTERN, self.group.id, pattern))
        hashed = self._topics.hash(self._subscribed_names())
        if moves_epoch or hashed != self._hash:
            self._hash = hashed
            self.epoch += 1
            self.facts.append(EpochMoved(self.group.id, self.epoch, hashed))

    def retarget(self) -> None:
        """Decide anew what each member shall have, if the epoch has moved since."""
        if self.epoch <= self.target_epoch:
            return
        members = self.members()
        for member_id, wanted in self._share(members).items():
            if self.target_of(member_id) != wanted or not self._has_target(member_id):
                self._targets[member_id] = wanted
                self.facts.append(TargetSet(self.group.id, member_id, wanted))
        self.target_epoch = self.epoch
        self.facts.append(TargetMoved(self.group.id, self.epoch))

    def target_of(self, member_id: str) -> Partitions:
        """What a member shall have."""
        if member_id in self._targets:
            return self._targets[member_id] or NOTHING
        return self.group.target.get(member_id, NOTHING)

    def reconcile(self, member_id: str, reported: Partitions | None) -> ConsumerMember:
        """Let a member take its next step towards that."""
        before = self.member(member_id)
        assert before is not None, "a member that is in takes steps"
        target = TargetAssignment(self.target_epoch, self.target_of(member_id))
        after = reconcile(before, target, self._owner, reported)
        if after is not before:
            self._changed[member_id] = after
            self.facts.append(after.moved(self.group.id))
        return after

    def assignor(self) -> str:
        """The assignor that most members ask for."""
        return preferred_assignor(self.members())

    def _owner(self, topic: TopicId, partition: int) -> str | None:
        owner = self.group.owner(topic, partition)
        return None if owner is None or self.member(owner) is None else owner

    def _resolve(self, pattern: str) -> None:
        known = self.group.patterns.get(pattern)
        topics = self._visible(pattern, () if known is None else known.topics)
        if known is not None and known.topics == topics:
            return
        version = 0 if known is None else known.version + 1
        found = PatternResolved(self.group.id, pattern, topics, version, self._now.wall_ms)
        self._patterns[pattern] = found
        self.facts.append(found)

    def _visible(self, pattern: str, found_before: tuple[str, ...]) -> tuple[str, ...]:
        may_see = self._may_see
        matching = self._topics.matching(pattern)
        if may_see is None:
            return tuple(name for name in matching if name in found_before)
        return tuple(name for name in matching if may_see(name))

    def _pattern_topics(self, pattern: str | None) -> tuple[str, ...]:
        if not pattern:
            return ()
        known = self._patterns.get(pattern) or self.group.patterns.get(pattern)
        return () if known is None else known.topics

    def _subscribed_names(self) -> set[str]:
        names: set[str] = set()
        for topics, pattern in {(m.topics, m.pattern) for m in self.members().values()}:
            names.update(topics, self._pattern_topics(pattern))
        return names

    def _share(
        self, members: dict[str, ConsumerMember]
    ) -> dict[str, dict[TopicId, frozenset[int]]]:
        counts: dict[TopicId, int] = {}
        wanted: dict[tuple[tuple[str, ...], str | None], frozenset[TopicId]] = {}
        subscribers = {}
        for member_id, member in members.items():
            # Most members of a group want the same: look their topics up once.
            key = (member.topics, member.pattern)
            if key not in wanted:
                found = self._topics.ids((*member.topics, *self._pattern_topics(member.pattern)))
                counts.update(found)
                wanted[key] = frozenset(found)
            subscribers[member_id] = Subscriber(
                wanted[key], self.target_of(member_id), member.instance_id
            )
        return ASSIGNORS[preferred_assignor(members)](subscribers, counts)

    def _has_target(self, member_id: str) -> bool:
        if member_id in self._targets:
            return self._targets[member_id] is not None
        return member_id in self.group.target


def preferred_assignor(members: dict[str, ConsumerMember]) -> str:
    """The assignor that most members ask for; the first of the alphabet where that is undecided."""
    votes = Counter(m.assignor for m in members.values() if m.assignor is not None)
    if not votes:
        return DEFAULT_ASSIGNOR
    return min(votes, key=lambda name: (-votes[name], name))
