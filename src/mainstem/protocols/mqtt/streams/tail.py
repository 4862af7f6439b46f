"""Reads the streams of MQTT topics, each once for all sessions.

    stream ──(committed)──▶ Tail ──▶ dispatch(place, topic, message)

Pure except for what is passed in: ``soon`` yields to other work between pieces. Batches that this
node has just written are dispatched from memory; all others are read from the log, here or from the
writing node. When the writer of a stream changes, reading continues at the same offset. A damaged
batch is skipped, counted and logged: MQTT cannot report it to a subscriber.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from mainstem.broker.api.broker import Broker
from mainstem.model.errors import Corrupt, MainstemError
from mainstem.model.ids import NO_NODE, StreamId
from mainstem.model.limits import KIB
from mainstem.model.message import Message
from mainstem.protocols.mqtt.convert import Incoming, topic_of
from mainstem.protocols.mqtt.sessions.backlog import READ_PENDING, ReadPending, StreamPosition
from mainstem.protocols.mqtt.streams.remote_stream_driver import RemoteStream
from mainstem.protocols.mqtt.streams.tail_partitions import (
    OpenFar,
    StreamNumbers,
    TailPartition,
    TailPartitions,
    leave,
    name_of,
)
from mainstem.protocols.mqtt.streams.visibility import visible_batches

log = logging.getLogger(__name__)

READ_BYTES: Final = 256 * KIB
BATCHES_PER_TURN: Final = 16
FRESH_MAX: Final = 64  # batches in memory between writing and dispatch
CACHED_MAX: Final = 64  # messages read for readers that lag

Dispatch = Callable[[StreamPosition, str, Message], None]
Soon = Callable[[Callable[[], None]], object]


class TailedStream:
    """One stream and how far it was read."""

    def __init__(self, number: int, name: str, tail_partition: TailPartition) -> None:
        self.number = number
        self.name = name
        self.tail_partition = tail_partition
        self.position = tail_partition.last_stable
        self.fresh: dict[int, list[Message]] = {}


class Tail:
    """Reads each stream once for all MQTT sessions.

    ``is_idle``: there are no subscriptions, so nothing is read.
    """

    def __init__(
        self, broker: Broker, soon: Soon, dispatch: Dispatch, far: OpenFar | None = None
    ) -> None:
        self._broker = broker
        self._soon = soon
        self._tail_partitions = TailPartitions(broker, far)
        self._dispatch = dispatch
        self._due: dict[TailedStream, None] = {}
        self._wakers: dict[int, Callable[[], None]] = {}
        self._cache: dict[StreamPosition, Message] = {}
        self.streams: dict[int, TailedStream] = {}
        self._numbers = StreamNumbers()
        self.names = self._numbers.names
        self._by_partition: dict[tuple[str, int], TailedStream] = {}
        self._coming: dict[tuple[str, int], RemoteStream] = {}  # not reached yet
        self.is_idle = True

    @property
    def numbers(self) -> dict[str, int]:
        """The streams that are read, and those that are not reached yet, by name."""
        found = {stream.name: stream.number for stream in self.streams.values()}
        for tail_partition in self._coming.values():
            found[name_of(tail_partition.id)] = self._numbers.of(tail_partition.id)
        return found

    def ends(self) -> dict[int, int]:
        """How far each stream was read."""
        coming = {self._numbers.of(each.id): 0 for each in self._coming.values()}
        return coming | {number: stream.position for number, stream in self.streams.items()}

    def refresh(self, topics: Iterable[str]) -> tuple[list[int], list[int]]:
        """Start reading new partitions, and stop reading deleted ones; returns the numbers of both.

        A stream that another node writes now is read from that node.
        """
        there: dict[tuple[str, int], StreamId] = {}
        for topic in topics:
            known = self._broker.topics.by_name(topic)
            for partition, found in enumerate(() if known is None else known.streams):
                there[topic, partition] = found.id
        gone = []
        for key, stream in list(self._by_partition.items()):
            if there.get(key) != stream.tail_partition.id:
                gone.append(stream.number)
                self._drop(stream.number)
            else:
                self._reopen(stream)
        for key, tail_partition in list(self._coming.items()):
            if there.get(key) != tail_partition.id or self._tail_partitions.are_here(
                tail_partition.id, tail_partition.topic
            ):
                self._coming.pop(key).close()
        new = []
        for key, stream_id in there.items():
            if key not in self._by_partition:
                new += self._add(*key, stream_id)
        return new, gone

    def _add(self, topic: str, partition: int, stream_id: StreamId) -> list[int]:
        """Start reading a stream at its end; returns its number, if it can be read already."""
        tail_partition: TailPartition | None = self._coming.get((topic, partition))
        if tail_partition is None:
            tail_partition = self._tail_partitions.open(stream_id, topic)
        if isinstance(tail_partition, RemoteStream) and not tail_partition.opened.is_set():
            self._coming[topic, partition] = tail_partition
            return []
        self._coming.pop((topic, partition), None)
        if tail_partition is None:
            return []
        number = self._numbers.of(stream_id)
        stream = TailedStream(number, name_of(stream_id), tail_partition)
        self.streams[number] = stream
        self._by_partition[topic, partition] = stream

        def wake() -> None:
            self._wake(stream)

        self._wakers[number] = wake
        tail_partition.add_waiter(wake)
        return [number]

    def _reopen(self, stream: TailedStream) -> None:
        """Continue reading a stream at its new writer, if that has changed."""
        old = stream.tail_partition
        is_far = isinstance(old, RemoteStream)
        if (
            old.closed is None
            if not is_far
            else not self._tail_partitions.are_here(old.id, old.topic)
        ):
            return
        tail_partition = self._tail_partitions.open(old.id, old.topic)
        if tail_partition is None:
            return
        wake = self._wakers[stream.number]
        leave(old, wake)
        stream.tail_partition = tail_partition
        stream.fresh.clear()
        tail_partition.add_waiter(wake)
        self._wake(stream)

    def open(self, topics: Iterable[str]) -> bool:
        """Read all these topics from their ends; False if more of them can be read soon.

        Streams without a writer are not waited for.
        """
        topics = list(topics)
        self.refresh(topics)
        for topic in topics:
            known = self._broker.topics.by_name(topic)
            for partition, found in enumerate(() if known is None else known.streams):
                if (topic, partition) not in self._by_partition and found.writer != NO_NODE:
                    return False
        for stream in self.streams.values():
            stream.position = stream.tail_partition.last_stable
        return True

    def _drop(self, number: int) -> None:
        stream = self.streams.pop(number)
        leave(stream.tail_partition, self._wakers.pop(number))
        self._by_partition = {k: v for k, v in self._by_partition.items() if v is not stream}

    def close(self) -> None:
        """Stop reading."""
        for number in list(self.streams):
            self._drop(number)
        for tail_partition in self._coming.values():
            tail_partition.close()
        self._coming.clear()

    def written(self, topic: str, partition: int, base: int, messages: list[Message]) -> None:
        """Keep messages that this node has written in memory, so that they are not read again."""
        stream = self._by_partition.get((topic, partition))
        if stream is not None and not self.is_idle and len(stream.fresh) < FRESH_MAX:
            stream.fresh[base] = messages

    def start_from(self, number: int, offset: int) -> None:
        """Read a stream from an offset, or from its start if that is later."""
        stream = self.streams.get(number)
        if stream is None:
            return  # not reached yet; will be read from there later
        stream.position = max(offset, stream.tail_partition.start_offset)
        self._wake(stream)

    def catch_up(self) -> None:
        """Read what is committed now, up to the limit of one turn."""
        for stream in list(self.streams.values()):
            for _ in range(BATCHES_PER_TURN):
                if not self._read_on(stream):
                    break

    def committed(self) -> dict[int, int]:
        """The last stable offset of each stream."""
        return {
            number: stream.tail_partition.last_stable for number, stream in self.streams.items()
        }

    def fetch(self, place: StreamPosition) -> Incoming | ReadPending | None:
        """The message at a position; None if it no longer exists."""
        stream = self.streams.get(place.stream)
        if stream is None:
            is_coming = any(
                self._numbers.of(each.id) == place.stream for each in self._coming.values()
            )
            return READ_PENDING if is_coming else None
        message = self._cache.pop(place, None)
        if message is None:
            if not self._fill(stream, place.offset):
                return READ_PENDING
            message = self._cache.pop(place, None)
        return (
            None
            if message is None
            else Incoming(message, topic_of(message, stream.tail_partition.topic))
        )

    def scan(self, number: int, offset: int, found: Dispatch) -> int:
        """Read one piece of the log for a reader that is behind; returns how far it went."""
        stream = self.streams[number]
        offset = max(offset, stream.tail_partition.start_offset)
        return self._read(stream, min(offset, stream.position), stream.position, found)

    def _wake(self, stream: TailedStream) -> None:
        if not self._due:
            self._soon(self._pump)
        self._due[stream] = None

    def _pump(self) -> None:
        due, self._due = self._due, {}
        for stream in due:
            for _ in range(BATCHES_PER_TURN):
                if not self._read_on(stream):
                    break
            else:
                self._wake(stream)

    def _read_on(self, stream: TailedStream) -> bool:
        """Dispatch one piece; returns whether there may be more."""
        end = stream.tail_partition.last_stable
        start = stream.position
        if start >= end or stream.tail_partition.closed is not None:
            return False
        if self.is_idle:
            stream.position = end
            stream.fresh.clear()
            return False
        messages = stream.fresh.pop(start, None)
        if messages is not None and start + len(messages) <= end:
            topic, number = stream.tail_partition.topic, stream.number
            stream.position = start + len(messages)
            for offset, message in enumerate(messages, start):
                self._dispatch(StreamPosition(number, offset), topic_of(message, topic), message)
            return True
        stream.position = self._read(stream, start, end, self._dispatch)
        if stream.fresh:
            stream.fresh = {k: v for k, v in stream.fresh.items() if k >= stream.position}
        return stream.position > start

    def _read(self, stream: TailedStream, start: int, end: int, found: Dispatch) -> int:
        """Read one piece from the log; returns the offset after it."""
        tail_partition, number = stream.tail_partition, stream.number
        start = max(start, tail_partition.start_offset)
        reached = beyond = start
        try:
            piece = tail_partition.read(
                start, max_bytes=READ_BYTES, committed_only=True, min_one=True
            )
            if piece is None:
                return reached
            for until, records in visible_batches(tail_partition, piece, start):
                beyond = until
                for record in records:
                    if record.offset < end:
                        message = Message.of_record(record)
                        found(
                            StreamPosition(number, record.offset),
                            topic_of(message, tail_partition.topic),
                            message,
                        )
                reached = min(until, end)
        except Corrupt as damage:
            log.warning(
                "%s: a batch at offset %d is skipped: %s", tail_partition.topic, reached, damage
            )
            return max(beyond, reached + 1)
        except MainstemError as error:
            log.warning("%s cannot be read: %s", tail_partition.topic, error)
        return reached

    def _fill(self, stream: TailedStream, offset: int) -> bool:
        """Cache messages from an offset on, as reads are sequential; False if not available now.

        Not limited to the read position of the stream, which may be lower after a restart.
        """
        if offset < stream.tail_partition.start_offset:
            return True
        found: list[tuple[StreamPosition, Message]] = []

        def keep(place: StreamPosition, _topic: str, message: Message) -> None:
            if len(found) < CACHED_MAX:
                found.append((place, message))

        if self._read(stream, offset, stream.tail_partition.last_stable, keep) <= offset:
            return False
        if len(self._cache) + len(found) > 4 * CACHED_MAX:
            self._cache.clear()
        self._cache.update(found)
        return True
