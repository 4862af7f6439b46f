"""Topic metadata for consumer groups: lookup by name, by id and by pattern.

A group stores a hash of the metadata of its topics. When the hash changes because a topic was
created, deleted, extended or re-created, the group has to compute a new assignment.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from struct import Struct as Layout
from typing import Protocol

from mainstem.coordination.consumer.facts import Partitions
from mainstem.coordination.pattern import Matches, compile_pattern
from mainstem.model.ids import TopicId
from mainstem.model.metadata import Topic

PATTERNS_REMEMBERED = 1_024
_HASH_BYTES = 8
_count = Layout(">i").pack


class TopicSource(Protocol):
    """Lookup of topics."""

    def by_name(self, name: str) -> Topic | None:
        """The topic with that name."""
        ...

    def by_id(self, topic: TopicId) -> Topic | None:
        """The topic with that id."""
        ...

    def all(self) -> Iterable[Topic]:
        """Every topic."""
        ...

    def group_texts(self, group: str) -> Mapping[str, str]:
        """The settings of a group, by Kafka's names."""
        ...


class GroupTopics:
    """Topic lookups for groups, answered from the current metadata."""

    def __init__(self, source: TopicSource) -> None:
        self._source = source

    def set_on(self, group: str, name: str) -> int | None:
        """The numeric value of a group's setting, or None if it is not set."""
        text = self._source.group_texts(group).get(name)
        return None if text is None else int(text)

    def ids(self, names: Iterable[str]) -> dict[TopicId, int]:
        """The partition count of each of these topics; topics that do not exist are omitted."""
        found = (self._source.by_name(name) for name in names)
        return {topic.id: len(topic.streams) for topic in found if topic is not None}

    def id_of(self, name: str) -> TopicId | None:
        """The id of a topic."""
        topic = self._source.by_name(name)
        return None if topic is None else topic.id

    def name_of(self, topic_id: TopicId) -> str | None:
        """The name of a topic."""
        topic = self._source.by_id(topic_id)
        return None if topic is None else topic.name

    def hash(self, names: Iterable[str]) -> int:
        """Hash of the metadata of these topics; 0 if none of them exists."""
        digest = blake2b(digest_size=_HASH_BYTES)
        is_empty = True
        for name in sorted(set(names)):
            topic = self._source.by_name(name)
            if topic is not None:
                is_empty = False
                encoded = name.encode()
                count = _count(len(topic.streams))
                digest.update(_count(len(encoded)) + encoded + topic.id + count)
        # Never 0 by chance: 0 means that none of the topics exists.
        return 0 if is_empty else int.from_bytes(digest.digest(), "big", signed=True) | 1

    def matching(self, pattern: str) -> tuple[str, ...]:
        """The topics whose whole name matches a pattern, without internal topics."""
        if not pattern:
            return ()
        matches = matcher(pattern)
        names = (topic.name for topic in self._source.all() if not topic.internal)
        return tuple(sorted(name for name in names if matches(name)))

    def by_name(self, partitions: Partitions) -> dict[str, frozenset[int]]:
        """Partitions by topic name, without those of deleted topics."""
        named = ((self.name_of(topic), indexes) for topic, indexes in partitions.items())
        return {name: indexes for name, indexes in named if name is not None}

    def by_id(self, partitions: dict[str, frozenset[int]]) -> Partitions:
        """Partitions by topic id, without those of deleted topics."""
        known = ((self.id_of(name), indexes) for name, indexes in partitions.items())
        return {topic: indexes for topic, indexes in known if topic is not None}


@lru_cache(maxsize=PATTERNS_REMEMBERED)
def matcher(pattern: str) -> Matches:
    """The match function of a pattern, compiled once.

    Raises:
        InvalidRequest: the pattern is not a valid regular expression.
    """
    return compile_pattern(pattern)
