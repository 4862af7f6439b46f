"""Streams by name and by id, one row per topic; those of other nodes have a closed door.

Whoever keeps something in a stream is told when this node begins and ceases to write it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from mainstem.log.range_log import RangeLog
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.ids import StreamId, TopicId, topic_id_text
from mainstem.streams.writer_driver import StreamWriter

Opened = Callable[[StreamWriter], None]
Closed = Callable[[StreamId], None]


class StreamTable:
    """See the module's text."""

    def __init__(self) -> None:
        self._by_name: dict[str, list[StreamWriter]] = {}
        self._by_id: dict[TopicId, list[StreamWriter]] = {}
        self._serving: dict[StreamId, StreamWriter] = {}
        self._watchers: list[tuple[Opened, Closed]] = []

    def all(self) -> Sequence[StreamWriter]:
        """Every stream that this node writes, by topic and partition."""
        return list(self._written())

    def door(self, topic: str, partition: int) -> StreamWriter:
        """The stream of a topic by its name.

        Raises:
            InvalidRequest: there is no such partition.
            Unavailable: another node writes it.
        """
        streams = self._by_name.get(topic)
        if streams is None or not 0 <= partition < len(streams):
            raise unknown(ErrorCode.UNKNOWN_TOPIC, f"{topic}-{partition}")
        stream = streams[partition]
        if stream.closed is not None and is_elsewhere(stream.closed):
            raise stream.closed
        return stream

    def door_by_id(self, topic: TopicId, partition: int) -> StreamWriter:
        """The stream of a topic by its id; raises as ``door`` does."""
        return self.door(self.name_of(topic), partition)

    def name_of(self, topic: TopicId) -> str:
        """The name of a topic.

        Raises:
            InvalidRequest: there is no such topic.
        """
        streams = self._by_id.get(topic)
        if streams is None:
            raise unknown(ErrorCode.UNKNOWN_TOPIC_ID, topic_id_text(topic))
        return streams[0].topic

    def sizes(self, topic: str | None = None) -> Sequence[tuple[str, int, int]]:
        """(topic, partition, bytes on disk) of every stream held here, or of one topic's."""
        names = self._by_name if topic is None else (topic,)
        return [
            (name, stream.id.partition, sum(log.size_bytes for log in self._files_of(stream)))
            for name in names
            for stream in self._by_name.get(name, ())
        ]

    def _files_of(self, stream: StreamWriter) -> Iterable[RangeLog]:
        return stream.ranges

    def writer(self, stream: StreamId) -> StreamWriter | None:
        """The stream, if this node writes it now."""
        found = self._serving.get(stream)
        return found if found is not None and found.closed is None else None

    def watch(self, opened: Opened, closed: Closed) -> None:
        """Tell of every stream that this node writes, now and later, and of those it ceases to."""
        self._watchers.append((opened, closed))
        for stream in self._written():
            if stream.closed is None:
                opened(stream)

    def _written(self) -> Iterator[StreamWriter]:
        for streams in self._by_name.values():
            for stream in streams:
                if stream.closed is None or not is_elsewhere(stream.closed):
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
        """This node does not write a stream, now or any more."""
        row = self._by_id.get(stream.topic, [])
        if stream.partition < len(row):
            found = row[stream.partition]
            if found.closed is None:
                found.close(reason)
            found.closed = reason
        if self._serving.pop(stream, None) is not None:
            for _, closed in self._watchers:
                closed(stream)

    def _take_out(self, topic: TopicId, name: str) -> list[StreamWriter]:
        """The streams of a topic that is gone."""
        for stream in self._by_id.get(topic, []):
            gone = unknown(ErrorCode.UNKNOWN_TOPIC, f"{name}-{stream.id.partition}")
            self.depose(stream.id, gone)
        self._by_name.pop(name, None)
        return self._by_id.pop(topic, [])


def unknown(code: ErrorCode, subject: str) -> InvalidRequest:
    """The answer to who names a partition that does not exist."""
    return InvalidRequest(code, "there is no such partition here", subject=subject)


def is_elsewhere(error: MainstemError) -> bool:
    """Whether a stream is closed here because another node writes it."""
    return error.code is ErrorCode.NOT_WRITER
