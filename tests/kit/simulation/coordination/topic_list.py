"""Topics in a list: the topic metadata for groups, without a cluster."""

from collections.abc import Iterable, Mapping
from hashlib import md5

from mainstem.model.ids import Epoch, NodeId, Offset, PartitionIndex, StreamId, TopicId
from mainstem.model.metadata import Stream, Topic


class TopicList:
    """Topics by name with their partition counts; tests may change ``counts``."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self.counts = dict(counts or {})
        self.incarnations: dict[str, int] = {}
        self.of_groups: dict[str, dict[str, str]] = {}

    def id_of(self, name: str) -> TopicId:
        """The id a topic has, or would have; a re-created topic has another."""
        incarnation = self.incarnations.get(name, 0)
        return TopicId(md5(f"{name}/{incarnation}".encode(), usedforsecurity=False).digest())

    def by_name(self, name: str) -> Topic | None:
        """The topic with that name."""
        count = self.counts.get(name)
        if count is None:
            return None
        topic_id = self.id_of(name)
        streams = tuple(
            Stream(StreamId(topic_id, PartitionIndex(p)), Epoch(0), NodeId(0), Offset(0), ())
            for p in range(count)
        )
        return Topic(topic_id, name, 0, streams, internal=name.startswith("__"))

    def by_id(self, topic: TopicId) -> Topic | None:
        """The topic with that id."""
        return next((each for each in self.all() if each.id == topic), None)

    def all(self) -> Iterable[Topic]:
        """Every topic."""
        return [topic for name in self.counts if (topic := self.by_name(name)) is not None]

    def group_texts(self, group: str) -> Mapping[str, str]:
        """The settings of a group; tests may change ``of_groups``."""
        return self.of_groups.get(group, {})

    def recreate(self, name: str, count: int) -> None:
        """Delete a topic and create another of the same name."""
        self.incarnations[name] = self.incarnations.get(name, 0) + 1
        self.counts[name] = count
