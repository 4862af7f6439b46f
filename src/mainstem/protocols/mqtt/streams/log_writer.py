"""Writes the messages of one burst in few batches, and reports when they are stored.

Not one coroutine per message: ``add`` queues, ``flush`` writes the queue as one batch per
stream, and each message's ``settled`` is called once its batch is committed or refused. Messages of
one stream keep their order. Messages for streams of other nodes are forwarded.

A publisher repeats a message that failed with a retriable error, and everything after it. So
messages queued behind it for the same stream fail with it: they would be stored before it.
"""

from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Final

from mainstem.broker.api.broker import Settled, Streams
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.ids import Offset
from mainstem.model.message import Message
from mainstem.model.records.murmur2 import partition_of_key
from mainstem.model.records.record import build_batch
from mainstem.model.topic_name import MQTT_SESSIONS_TOPIC
from mainstem.protocols.mqtt.streams.remote_writer_driver import (
    BATCH_BYTES_TARGET,
    BATCH_MESSAGES_MAX,
    Noted,
    RemoteStreamWriter,
    settle_all,
    size_of,
    split_answered,
)

# Session states are written by the node that serves the sessions, or not at all.
_ONLY_HERE: Final = frozenset({MQTT_SESSIONS_TOPIC})


class LogWriter:
    """Appends the messages of one burst in few batches.

    Args:
        streams: the log.
        partitions: returns the number of partitions of a topic.
        soon: calls back at the end of the current turn.
        written: called with topic, partition, base offset and messages of a written batch.
    """

    def __init__(
        self,
        streams: Streams,
        partitions: Callable[[str], int],
        soon: Callable[[Callable[[], None]], object],
        written: Callable[[str, int, int, list[Message]], None],
    ) -> None:
        self._streams = streams
        self._partitions = partitions
        self._soon = soon
        self._written = written
        self._far = RemoteStreamWriter(streams, self._withdraw)
        self._noted: dict[tuple[str, int], list[Noted]] = {}
        self._before: list[Callable[[], None]] = []
        self._is_due = False

    def before_flush(self, call: Callable[[], None]) -> None:
        """Call back at the end of this turn, before the queue is written."""
        self._before.append(call)
        self._come_soon()

    def add(self, topic: str, message: Message, settled: Settled | None = None) -> None:
        """Write a message at the end of this turn."""
        count = self._partitions(topic)
        partition = 0 if count <= 1 else partition_of_key(message.key or b"", count)
        self._noted.setdefault((topic, partition), []).append((message, settled))
        self._come_soon()

    def _come_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._soon(self.flush)

    def flush(self) -> None:
        """Write all queued messages."""
        self._is_due = False
        before, self._before = self._before, []
        for call in before:
            call()
        noted, self._noted = self._noted, {}
        staged: list[tuple[str, int, Offset, list[Noted]]] = []
        for (topic, partition), messages in noted.items():
            self._stage(topic, partition, messages, staged)
        self._streams.flush()
        for topic, partition, base, piece in staged:
            self._await(topic, partition, base, piece)

    def close(self) -> None:
        """Write the queued messages, and stop forwarding."""
        self.flush()
        self._far.close()

    def _stage(
        self,
        topic: str,
        partition: int,
        messages: list[Noted],
        staged: list[tuple[str, int, Offset, list[Noted]]],
    ) -> None:
        if self._far.has(topic, partition):
            self._far.put(topic, partition, messages)
            return
        try:
            writer = self._streams.partition(topic, partition)
        except MainstemError as error:
            if error.code is ErrorCode.NOT_WRITER and topic not in _ONLY_HERE:
                self._far.put(topic, partition, messages)
            else:
                settle_all(messages, error)
            return
        pieces = deque(_pieces(messages))
        while pieces:
            piece = pieces.popleft()
            batch = build_batch([message.to_record() for message, _ in piece])
            try:
                base = writer.stage(memoryview(batch), 0, len(batch))
            except MainstemError as error:
                if error.retriable:
                    settle_all([*piece, *chain.from_iterable(pieces)], error)
                    return
                if len(piece) > 1:
                    # One message that cannot be stored must not make the others fail.
                    pieces.extendleft([each] for each in reversed(piece))
                else:
                    settle_all(piece, error)
            else:
                staged.append((topic, partition, base, piece))

    def _withdraw(self, topic: str, partition: int) -> list[Noted]:
        """Remove the queued messages of a stream that are acknowledged; others are not repeated."""
        taken, kept = split_answered(self._noted.pop((topic, partition), ()))
        if kept:
            self._noted[topic, partition] = kept
        return taken

    def _await(self, topic: str, partition: int, base: Offset, piece: list[Noted]) -> None:
        def settled(error: MainstemError | None) -> None:
            behind: list[Noted] = []
            if error is not None and error.retriable:
                behind = self._withdraw(topic, partition)
            settle_all(piece + behind, error)

        try:
            writer = self._streams.partition(topic, partition)
            failure = writer.failure(base)
            if failure is None:
                self._written(topic, partition, base, [message for message, _ in piece])
                if not writer.when_written(base, settled):
                    return
        except MainstemError as error:
            failure = error
        settle_all(piece, failure)


def _pieces(noted: list[Noted]) -> list[list[Noted]]:
    """The messages of one stream, split into batches."""
    pieces: list[list[Noted]] = []
    size = BATCH_BYTES_TARGET
    for each in noted:
        added = size_of(each[0])
        if size + added > BATCH_BYTES_TARGET or len(pieces[-1]) >= BATCH_MESSAGES_MAX:
            pieces.append([])
            size = 0
        pieces[-1].append(each)
        size += added
    return pieces
