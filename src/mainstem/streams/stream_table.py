"""Streams by name and by id, one row per topic; those of other nodes are closed.

Listeners are notified when this node starts and stops writing a stream.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.ids import StreamId, TopicId, topic_id_text
from mainstem.streams.writer.stream_driver import StreamWriter

Opened = Callable[[StreamWriter], None]
Closed = Callable[[StreamId], None]


class StreamTable:
    """Finds streams by topic name or id."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[StreamWriter]] = {}
        self._by_id: dict[TopicId, list[StreamWriter]] = {}
        self._serving: dict[StreamId, StreamWriter] = {}
        self._watchers: list[tuple[Opened, Closed]] = []

    def all(self) -> Sequence[StreamWriter]:
        """Every stream that this node writes, by topic and partition."""
        return list(self._written())

    def partition(self, topic: str, partition: int) -> StreamWriter:
        """The stream of a topic by its name.

        Raises:
            InvalidRequest: there is no such partition.
            Unavailable: another node writes it.
        """
        streams = self._by_name.get(topic)
        if streams is None or not 0 <= partition < len(streams):
            raise unknown(ErrorCode.UNKNOWN_TOPIC, f"{topic}-{partition}")
        stream = streams[partition]
        if stream.closed is not None and is_on_other_node(stream.closed):
            raise stream.closed
        return stream

    def partition_by_id(self, topic: TopicId, partition: int) -> StreamWriter:
        """The stream of a topic by its id; raises as ``partition`` does."""
        return self.partition(self.name_of(topic), partition)

    def name_of(self, topic: TopicId) -> str:
        """The name of a topic.

        Raises:
            InvalidRequest: there is no such topic.
        """
        streams = self._by_id.get(topic)
        if streams is None:
            raise unknown(ErrorCode.UNKNOWN_TOPIC_ID, topic_id_text(topic))
        return streams[0].topic

    def rows(self) -> Mapping[str, Sequence[StreamWriter]]:
        """Every partition of every topic, those that other nodes write included."""
        return self._by_name

    def topics(self) -> Sequence[TopicId]:
        """The topics that are listed."""
        return list(self._by_id)

    def row(self, topic: TopicId) -> Sequence[StreamWriter]:
        """The partitions of a topic that are listed."""
        return self._by_id.get(topic, ())

    def writer(self, stream: StreamId) -> StreamWriter | None:
        """The stream, if this node writes it now."""
        found = self._serving.get(stream)
        return found if found is not None and found.closed is None else None

    def watch(self, opened: Opened, closed: Closed) -> None:
        """Notify of every stream that this node writes, now and later, and when that ends."""
        self._watchers.append((opened, closed))
        for stream in self._written():
            if stream.closed is None:
                opened(stream)

    def _written(self) -> Iterator[StreamWriter]:
        for streams in self._by_name.values():
            for stream in streams:
                if stream.closed is None or not is_on_other_node(stream.closed):
                    yield stream

    def list_stream(self, stream: StreamWriter) -> None:
        """List a stream in its row, which is filled in order of the topic's partitions."""
        row = self._by_name.setdefault(stream.topic, [])
        self._by_id.setdefault(stream.id.topic, row)
        partition = stream.id.partition
        assert partition <= len(row), "partitions are listed in their order"
        if partition == len(row):
            row.append(stream)
        else:
            row[partition] = stream
        if stream.closed is None:
            self._serving[stream.id] = stream
            for opened, _ in self._watchers:
                opened(stream)

    def depose(self, stream: StreamId, reason: MainstemError) -> None:
        """This node does not, or no longer, write a stream."""
        row = self._by_id.get(stream.topic, [])
        if stream.partition < len(row):
            found = row[stream.partition]
            if found.closed is None:
                found.close(reason)
            found.closed = reason
        if self._serving.pop(stream, None) is not None:
            for _, closed in self._watchers:
                closed(stream)

    def take_out(self, topic: TopicId, name: str) -> list[StreamWriter]:
        """Remove the streams of a deleted topic."""
        for stream in self._by_id.get(topic, []):
            gone = unknown(ErrorCode.UNKNOWN_TOPIC, f"{name}-{stream.id.partition}")
            self.depose(stream.id, gone)
        self._by_name.pop(name, None)
        return self._by_id.pop(topic, [])


def unknown(code: ErrorCode, subject: str) -> InvalidRequest:
    """The refusal for a partition that does not exist."""
    return InvalidRequest(code, "there is no such partition here", subject=subject)


def is_on_other_node(error: MainstemError) -> bool:
    """Whether a stream is closed here because another node writes it."""
    return error.code is ErrorCode.NOT_WRITER
