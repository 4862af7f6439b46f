"""Message bodies: from memory if recent, otherwise from their stream.

Published messages are cached up to a number of bytes, the oldest evicted first; a queue whose
consumers keep up never reads from disk. A backlog is read in pieces, each of which serves the
following messages. The exchange of a message is that of its stream; a body that was moved to
another stream has its exchange in a header.
"""

import logging
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from mainstem.model.errors import Corrupt, InvalidRequest
from mainstem.model.ids import PartitionIndex, StreamId, TopicId
from mainstem.model.limits import KIB, MIB
from mainstem.model.message import Message
from mainstem.model.records.record import Record, batches_of, records_of
from mainstem.queues.routing.exchange import DEFAULT_EXCHANGE
from mainstem.queues.routing.message_routing import is_moved, unmoved
from mainstem.streams.producers.transaction_markers import marker_of
from mainstem.streams.writer.stream_driver import StreamWriter

BODIES_BYTES_MAX = 64 * MIB
READ_BYTES = 256 * KIB
# Size of an entry without the bytes of its message. Measured.
_ENTRY_BYTES = 400

_log = logging.getLogger(__name__)


class PartitionLookup(Protocol):
    """Streams by topic id."""

    def partition_by_id(self, topic: TopicId, partition: int) -> StreamWriter:
        """The writer of a partition."""
        ...


class MessageBodies:
    """Reads message bodies from memory or from their stream."""

    def __init__(self, partitions: PartitionLookup, bytes_max: int = BODIES_BYTES_MAX) -> None:
        self._partitions = partitions
        self._bytes_max = bytes_max
        self._used_bytes = 0
        self._fresh: dict[StreamId, dict[int, Message]] = {}
        # Messages cached together are evicted together: stream, offsets, bytes.
        self._order: deque[tuple[dict[int, Message], range, int]] = deque()
        self._exchanges: dict[StreamId, str] = {}

    def opened(self, stream: StreamId, exchange: str) -> None:
        """Assign a stream to an exchange."""
        self._exchanges[stream] = exchange

    def is_queue_stream(self, stream: StreamId) -> bool:
        """Whether queues may have messages in a stream."""
        return stream in self._exchanges

    def keep(self, stream: StreamId, base: int, messages: list[Message]) -> None:
        """Cache messages that were appended from an offset on."""
        fresh = self._fresh.get(stream)
        if fresh is None:
            fresh = self._fresh[stream] = {}
        offsets = range(base, base + len(messages))
        fresh.update(zip(offsets, messages, strict=True))
        size_bytes = _ENTRY_BYTES * len(messages)
        size_bytes += sum([len(message.value or b"") for message in messages])
        self._order.append((fresh, offsets, size_bytes))
        self._used_bytes += size_bytes
        while self._used_bytes > self._bytes_max:
            held, offsets, size_bytes = self._order.popleft()
            for offset in offsets:
                held.pop(offset, None)
            self._used_bytes -= size_bytes

    def forget(self, stream: StreamId) -> None:
        """Remove a stream."""
        gone = self._fresh.pop(stream, None)
        if gone is not None:
            gone.clear()

    def read(self, stream: StreamId, offset: int) -> Message | None:
        """The message at an offset; None if it can no longer be read."""
        fresh = self._fresh.get(stream)
        if fresh is not None:
            message = fresh.get(offset)
            if message is not None:
                return message
        return self._read_from_stream(stream, offset)

    def read_published(self, stream: StreamId, offset: int) -> tuple[Message, str] | None:
        """The message as published, and its exchange; None if it can no longer be read."""
        message = self.read(stream, offset)
        if message is None:
            return None
        exchange = self._exchanges.get(stream, DEFAULT_EXCHANGE)
        if exchange == DEFAULT_EXCHANGE and is_moved(message.headers):
            return unmoved(message)
        return message, exchange

    def _read_from_stream(self, stream: StreamId, offset: int) -> Message | None:
        try:
            writer = self._partitions.partition_by_id(
                stream.topic, PartitionIndex(stream.partition)
            )
            found: dict[int, Message] = {}
            for record in records_between(writer, offset, offset + 1):
                found[record.offset] = Message.of_record(record)
        except InvalidRequest:
            return None
        except Corrupt as error:
            _log.error("a message at offset %d of %s cannot be read: %s", offset, stream, error)
            return None
        fresh = self._fresh.setdefault(stream, {})
        for at, message in found.items():
            if at >= offset and at not in fresh:
                self.keep(stream, at, [message])
        return found.get(offset)


def records_between(writer: StreamWriter, start: int, until: int) -> Iterator[Record]:
    """The records of a stream from an offset on, at least up to ``until`` and the end of its piece.

    Control batches and aborted transactions are skipped.

    Raises:
        Corrupt: the bytes are damaged.
        InvalidRequest: the offset no longer exists.
    """
    aborted = _AbortedTransactions(writer, start, until)
    at = start
    while at < until:
        stored = writer.read(at, max_bytes=READ_BYTES, committed_only=False, min_one=True)
        if stored is None:
            return
        reached = at
        for header, batch in batches_of(stored.read()):
            reached = header.until_offset
            if header.is_control:
                aborted.ended(header.producer_id, is_commit=marker_of(batch).commit)
            elif not header.is_transactional or not aborted.covers(
                header.producer_id, header.base_offset
            ):
                for record in records_of(batch):
                    if record.offset >= start:
                        yield record
        if reached <= at:
            raise Corrupt(f"no whole batch at offset {at}", subject=writer.topic)
        at = reached


class _AbortedTransactions:
    """The aborted transactions in a part of a stream."""

    def __init__(self, writer: StreamWriter, start: int, until: int) -> None:
        self._begun = sorted(
            (first, producer) for producer, first in writer.aborted_transactions(start, until)
        )
        self._open: set[int] = set()

    def covers(self, producer: int, offset: int) -> bool:
        """Whether a batch belongs to an aborted transaction."""
        while self._begun and self._begun[0][0] <= offset:
            self._open.add(self._begun.pop(0)[1])
        return producer in self._open

    def ended(self, producer: int, *, is_commit: bool) -> None:
        """Handle a transaction marker."""
        if not is_commit:
            self._open.discard(producer)
