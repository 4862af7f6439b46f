"""The topics of the cluster as consumer groups see them: by name, by id, by expression.

A group remembers what its topics looked like as one number. When the number changes - a topic came,
went, grew or is another one of the same name - the group has to share its partitions anew.
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
    """Where topics are looked up."""

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
        """What is set on a group, by Kafka's names."""
        ...


class GroupTopics:
    """Questions of groups, answered from the topics as they are now."""

    def __init__(self, source: TopicSource) -> None:
        self._source = source

    def set_on(self, group: str, name: str) -> int | None:
        """The number that a group has for one of its settings, if one is set."""
        text = self._source.group_texts(group).get(name)
        return None if text is None else int(text)

    def ids(self, names: Iterable[str]) -> dict[TopicId, int]:
        """How many partitions each of these topics has; those that do not exist are left out."""
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
        """What these topics look like, as one number; 0 if none of them exists."""
        digest = blake2b(digest_size=_HASH_BYTES)
        is_empty = True
        for name in sorted(set(names)):
            topic = self._source.by_name(name)
            if topic is not None:
                is_empty = False
                encoded = name.encode()
                count = _count(len(topic.streams))
                digest.update(_count(len(encoded)) + encoded + topic.id + count)
        # Never 0 by accident: that would look as if there was nothing.
        return 0 if is_empty else int.from_bytes(digest.digest(), "big", signed=True) | 1

    def matching(self, pattern: str) -> tuple[str, ...]:
        """The topics that match an expression as a whole; internal ones do not count."""
        if not pattern:
            return ()
        matches = matcher(pattern)
        names = (topic.name for topic in self._source.all() if not topic.internal)
        return tuple(sorted(name for name in names if matches(name)))

    def by_name(self, partitions: Partitions) -> dict[str, frozenset[int]]:
        """Partitions under the names of their topics; those of topics that are gone are not."""
        named = ((self.name_of(topic), indexes) for topic, indexes in partitions.items())
        return {name: indexes for name, indexes in named if name is not None}

    def by_id(self, partitions: dict[str, frozenset[int]]) -> Partitions:
        """Partitions under the ids of their topics; those of topics that are gone are not."""
        known = ((self.id_of(name), indexes) for name, indexes in partitions.items())
        return {topic: indexes for topic, indexes in known if topic is not None}


@lru_cache(maxsize=PATTERNS_REMEMBERED)
def matcher(pattern: str) -> Matches:
    """The test for an expression, compiled once.

    Raises:
        InvalidRequest: it is no expression.
    """
    return compile_pattern(pattern)
