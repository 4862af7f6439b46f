"""Index from topics to the consumer groups that subscribe to them, by name or by pattern."""

from collections.abc import Mapping

from mainstem.coordination.consumer.facts import (
    ConsumerFact,
    ConsumerRecordKind,
    FactRemoved,
    MemberSubscribed,
)
from mainstem.coordination.consumer.group import ConsumerGroup
from mainstem.coordination.consumer.topics import matcher


class GroupsByTopic:
    """Updated as facts are replayed into the groups of a shard."""

    def __init__(self) -> None:
        self._by_name: dict[str, set[str]] = {}
        self._with_patterns: set[str] = set()

    def replay(self, group: ConsumerGroup, fact: ConsumerFact) -> None:
        """Replay a fact into its group and update the index if the subscriptions changed."""
        if isinstance(fact, MemberSubscribed):
            member_id = fact.member_id
        elif isinstance(fact, FactRemoved) and fact.kind is ConsumerRecordKind.MEMBER:
            member_id = fact.name
        else:
            group.replay(fact)
            return
        before = group.members.get(member_id)
        group.replay(fact)
        after = group.members.get(member_id)
        was = set(before.topics) if before else set()
        now = set(after.topics) if after else set()
        for name in was ^ now:
            self._note(name, group.id, reads=group.reads(name))
        if group.has_patterns:
            self._with_patterns.add(group.id)
        else:
            self._with_patterns.discard(group.id)

    def discard(self, group: ConsumerGroup) -> None:
        """Remove a group from the index."""
        for name in group.named_topics():
            self._note(name, group.id, reads=False)
        self._with_patterns.discard(group.id)

    def concerned(self, topic: str, groups: Mapping[str, ConsumerGroup]) -> set[str]:
        """The groups whose subscriptions match a topic."""
        found = set(self._by_name.get(topic, ()))
        for group_id in self._with_patterns - found:
            group = groups[group_id]
            if group.is_subscribed(topic) or any(matcher(p)(topic) for p in group.used_patterns()):
                found.add(group_id)
        return found

    def _note(self, name: str, group_id: str, *, reads: bool) -> None:
        if reads:
            self._by_name.setdefault(name, set()).add(group_id)
            return
        readers = self._by_name.get(name)
        if readers is not None:
            readers.discard(group_id)
            if not readers:
                del self._by_name[name]
