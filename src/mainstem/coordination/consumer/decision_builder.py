"""Builds one decision about a consumer group.

A draft holds the facts so far and shows the group as it will be once they are replayed; the group
itself is not changed.

The order of facts is safe if a crash keeps only the first of them: members, then the epoch, then
the target of each member, then the target's epoch. A target without its epoch is computed again.
"""

from collections import Counter

from mainstem.coordination.consumer.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Subscriber
from mainstem.coordination.consumer.facts import (
    NOTHING,
    ConsumerFact,
    ConsumerRecordKind,
    EpochMoved,
    FactRemoved,
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
    """Collects the facts of a decision. ``refreshed``: it is based on the current topic metadata.

    ``may_see`` returns whether the requester may see a topic, and so whether patterns match it.
    Without a requester (a member timed out) patterns match no new topics until the next request.
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
        """A member as it will be after the decision."""
        if member_id in self._changed:
            return self._changed[member_id]
        return self.group.members.get(member_id)

    def members(self) -> dict[str, ConsumerMember]:
        """All members as they will be after the decision."""
        merged = self.group.members | self._changed
        return {member_id: member for member_id, member in merged.items() if member is not None}

    def update(self, member: ConsumerMember) -> bool:
        """Add or update a member; returns whether its subscription changed."""
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
        """Remove a member with its current and its target assignment."""
        self._changed[member_id] = None
        self._targets[member_id] = None
        self.facts += [
            FactRemoved(kind, self.group.id, member_id)
            for kind in (
                ConsumerRecordKind.CURRENT,
                ConsumerRecordKind.TARGET,
                ConsumerRecordKind.MEMBER,
            )
        ]

    def replace(self, old: ConsumerMember, new: ConsumerMember) -> None:
        """Replace a static member by its new incarnation, which takes over all its state."""
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
        """Apply the current topic metadata; bump the epoch if it changed or if ``moves_epoch``."""
        used = {member.pattern for member in self.members().values() if member.pattern}
        self.refreshed = self._may_see is not None or not used
        for pattern in sorted(used):
            self._resolve(pattern)
        for pattern in sorted(self.group.patterns.keys() - used):
            self._patterns[pattern] = None
            self.facts.append(FactRemoved(ConsumerRecordKind.PATTERN, self.group.id, pattern))
        hashed = self._topics.hash(self._subscribed_names())
        if moves_epoch or hashed != self._hash:
            self._hash = hashed
            self.epoch += 1
            self.facts.append(EpochMoved(self.group.id, self.epoch, hashed))

    def retarget(self) -> None:
        """Compute a new target assignment if the group epoch is ahead of the target epoch."""
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
        """The target assignment of a member."""
        if member_id in self._targets:
            return self._targets[member_id] or NOTHING
        return self.group.target.get(member_id, NOTHING)

    def reconcile(self, member_id: str, reported: Partitions | None) -> ConsumerMember:
        """Let a member take its next step towards its target."""
        before = self.member(member_id)
        assert before is not None, "only members are reconciled"
        target = TargetAssignment(self.target_epoch, self.target_of(member_id))
        after = reconcile(before, target, self._owner, reported)
        if after is not before:
            self._changed[member_id] = after
            self.facts.append(after.moved(self.group.id))
        return after

    def assignor(self) -> str:
        """The assignor that most members request."""
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
            # Most members of a group have the same subscription: look up its topics once.
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
    """The assignor that most members request; on a tie the first in alphabetical order."""
    votes = Counter(m.assignor for m in members.values() if m.assignor is not None)
    if not votes:
        return DEFAULT_ASSIGNOR
    return min(votes, key=lambda name: (-votes[name], name))
