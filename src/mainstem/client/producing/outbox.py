"""The batches of one partition: an open one, ready ones, those in flight.

    add -> open -> ready -> in flight -> done
                     ^          |
                     +-returned-+   all of them together, in order

Pure: time is passed in and nothing is sent from here. Guarantees: batches are sent in the order in
which they were filled; a batch keeps its sequence numbers through every retry; after a failure
nothing new is sent before everything in flight has returned, and then one at a time until every
returned batch is settled, so that a broker sees the sequences in order and forgets none of them.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from mainstem.client.values import RecordMetadata, TopicPartition
from mainstem.model.errors import MainstemError
from mainstem.model.records.batch import SEQUENCE_MODULUS
from mainstem.model.records.columns import EncodedRecords, seal_body
from mainstem.model.records.record import Header, ProducerStamp, Record, records_of

RECORD_OVERHEAD_BYTES: Final = 21  # upper bound of the varints of a record
HEADER_OVERHEAD_BYTES: Final = 10


class ProducerBatch:
    """Records that are sent together, and their result."""

    __slots__ = (
        "_listeners",
        "base_offset",
        "created_at",
        "deadline",
        "encoded",
        "error",
        "is_done",
        "is_observed",
        "is_retry",
        "log_append_time_ms",
        "parent",
        "partition",
        "parts",
        "records",
        "serial",
        "size_bytes",
        "stamp",
    )

    def __init__(
        self, partition: TopicPartition, serial: tuple[int, ...], now: float, deadline: float
    ) -> None:
        self.partition = partition
        self.serial = serial  # its position in the order of the partition
        self.parent: ProducerBatch | None = None
        self.parts: tuple[ProducerBatch, ProducerBatch] | None = None
        self.created_at = now
        self.deadline = deadline
        self.records: list[Record] = []
        self.encoded: EncodedRecords | None = None  # instead of records
        self.size_bytes = 0
        self.stamp: ProducerStamp | None = None
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.error: MainstemError | None = None
        self.is_done = False
        self.is_observed = False
        self.is_retry = False  # the broker may have it already
        self._listeners: list[Callable[[], None]] = []

    @property
    def record_count(self) -> int:
        """The number of records in the batch."""
        return len(self.records) if self.encoded is None else self.encoded.record_count

    def on_done(self, listener: Callable[[], None]) -> None:
        """Calls the listener when the batch is settled, at once if it is."""
        if self.is_done:
            listener()
        else:
            self._listeners.append(listener)

    def settle(self, base_offset: int, log_append_time_ms: int) -> None:
        """Settles the batch: the broker has stored the records."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._finish()

    def fail(self, error: MainstemError) -> None:
        """Settles the batch: the records will not be delivered."""
        self.error = error
        self._finish()

    def place(self, index: int) -> RecordMetadata:
        """Partition and offset of the record at ``index`` of the batch.

        Raises:
            MainstemError: it was not stored.
        """
        if self.parts is not None:
            first, second = self.parts
            half = len(first.records)
            return first.place(index) if index < half else second.place(index - half)
        if self.error is not None:
            raise self.error
        timestamp = self.log_append_time_ms
        if timestamp < 0:
            timestamp = self.records[index].timestamp
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        return RecordMetadata(self.partition.topic, self.partition.partition, offset, timestamp)

    def is_awaited(self) -> bool:
        """Whether the result of a record of the batch was awaited."""
        batch: ProducerBatch | None = self
        while batch is not None:
            if batch.is_observed:
                return True
            batch = batch.parent
        return False

    def split(self) -> tuple["ProducerBatch", "ProducerBatch"]:
        """Two batches of half the records each, because the whole is too large for the broker.

        The broker refused all of them, so their sequence numbers are still free for the halves.
        """
        if self.encoded is not None:
            self.records = list(records_of(seal_body(self.encoded)))
            self.encoded = None
        half = len(self.records) // 2
        parts = (self._part(0, 0, half), self._part(1, half, len(self.records)))
        self.parts = parts
        for part in parts:
            part.on_done(self._part_done)
        return parts

    def _part(self, place: int, start: int, until: int) -> "ProducerBatch":
        part = ProducerBatch(self.partition, (*self.serial, place), self.created_at, self.deadline)
        part.parent = self
        part.records = self.records[start:until]
        part.size_bytes = sum(record_size_bytes(r.key, r.value, r.headers) for r in part.records)
        if self.stamp is not None:
            sequence = (self.stamp.base_sequence + start) % SEQUENCE_MODULUS
            part.stamp = self.stamp._replace(base_sequence=sequence)
        return part

    def _part_done(self) -> None:
        assert self.parts is not None, "only a split batch has parts"
        if all(part.is_done for part in self.parts):
            self.error = self.parts[0].error or self.parts[1].error
            self._finish()

    def _finish(self) -> None:
        assert not self.is_done, "a batch is settled once"
        self.is_done = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()


class ProducerIdState:
    """The producer id under which one partition is written, and its next sequence number."""

    __slots__ = ("epoch", "next_sequence", "producer_id")

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.next_sequence = 0

    def stamp(self, record_count: int) -> ProducerStamp:
        """Takes the next sequence numbers for a batch."""
        base = self.next_sequence
        self.next_sequence = (base + record_count) % SEQUENCE_MODULUS
        return ProducerStamp(self.producer_id, self.epoch, base)


class PartitionOutbox:
    """The undelivered batches of one producer for one partition."""

    __slots__ = (
        "_batch_bytes",
        "_in_flight_max",
        "_open",
        "_ready",
        "_returned",
        "identity",
        "in_flight",
        "is_recovering",
        "needs_identity",
        "not_before",
        "partition",
        "serial",
    )

    def __init__(self, partition: TopicPartition, *, batch_bytes: int, in_flight_max: int) -> None:
        self.partition = partition
        self.identity: ProducerIdState | None = None
        self.in_flight: list[ProducerBatch] = []
        self.is_recovering = False
        self.needs_identity = False
        self.not_before = 0.0
        self.serial = 0
        self._batch_bytes = batch_bytes
        self._in_flight_max = in_flight_max
        self._open: ProducerBatch | None = None
        self._ready: deque[ProducerBatch] = deque()
        self._returned: list[ProducerBatch] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not (self._open or self._ready or self._returned or self.in_flight)

    def can_take_producer_id(self, now: float) -> bool:
        """Whether a new producer id is needed and nothing is in flight with the old one."""
        return self.needs_identity and not self.in_flight and now >= self.not_before

    def add(self, record: Record, size_bytes: int, now: float, deadline: float) -> ProducerBatch:
        """Adds a record to the open batch, or to a new one if it would grow too large."""
        batch = self._open
        if batch is not None and batch.size_bytes + size_bytes > self._batch_bytes:
            self._ready.append(batch)
            batch = None
        if batch is None:
            self.serial += 1
            batch = self._open = ProducerBatch(self.partition, (self.serial,), now, deadline)
        batch.records.append(record)
        batch.size_bytes += size_bytes
        if batch.size_bytes >= self._batch_bytes:
            self.close_open()
        return batch

    def add_encoded(self, encoded: EncodedRecords, now: float, deadline: float) -> ProducerBatch:
        """Adds records that the caller encoded after everything else, as one batch."""
        self.close_open()
        self.serial += 1
        batch = ProducerBatch(self.partition, (self.serial,), now, deadline)
        batch.encoded = encoded
        batch.size_bytes = len(encoded.body)
        self._ready.append(batch)
        return batch

    def close_open(self) -> None:
        """Makes the open batch ready, full or not."""
        if self._open is not None:
            self._ready.append(self._open)
            self._open = None

    def next_batch(self, now: float, linger: float) -> ProducerBatch | None:
        """The batch that may be sent now, if any; it is not taken out."""
        if self._open is not None and now - self._open.created_at >= linger:
            self.close_open()
        if self._returned and not self.in_flight:
            self._take_back()
        if self._returned or self.needs_identity or len(self.in_flight) >= self._limit():
            return None
        if now < self.not_before:
            return None
        return self._ready[0] if self._ready else None

    def _limit(self) -> int:
        """How many batches may be in flight now.

        A batch whose response was lost is sent alone: were newer ones stored meanwhile, the broker
        would forget it and treat the next attempt as a gap in the sequence.
        """
        is_retry = any(batch.is_retry for batch in self.in_flight)
        if self.is_recovering or is_retry or (self._ready and self._ready[0].is_retry):
            return 1
        return self._in_flight_max

    def send_next(self) -> ProducerBatch:
        """Removes the batch that ``next_batch`` returned; it is in flight from now on."""
        batch = self._ready.popleft()
        if batch.stamp is None and self.identity is not None:
            batch.stamp = self.identity.stamp(batch.record_count)
        self.in_flight.append(batch)
        return batch

    def landed(self, batch: ProducerBatch) -> None:
        """Notes that a batch is settled, delivered or failed."""
        self.in_flight.remove(batch)

    def succeeded(self, batch: ProducerBatch) -> None:
        """Notes that a batch was stored, which ends a recovery."""
        self.in_flight.remove(batch)
        self.is_recovering = False

    def schedule_retry(self, batch: ProducerBatch, not_before: float) -> None:
        """Schedules a batch to be sent again, after those before it."""
        self.in_flight.remove(batch)
        self._returned.append(batch)
        batch.is_retry = True
        self.is_recovering = True
        self.not_before = max(self.not_before, not_before)

    def replace(self, batch: ProducerBatch, parts: tuple[ProducerBatch, ProducerBatch]) -> None:
        """Sends the halves of a batch instead of it."""
        self.in_flight.remove(batch)
        self._returned.extend(parts)
        self.is_recovering = True

    def has_earlier(self, batch: ProducerBatch) -> bool:
        """Whether a batch before this one is unsettled, which explains a gap in the sequence."""
        unsettled = [*self.in_flight, *self._returned]
        return any(other.serial < batch.serial for other in unsettled)

    def renew_identity(self, identity: ProducerIdState) -> None:
        """Continues under a new producer id; unsettled batches get new sequence numbers.

        Only correct if the broker refused the first unsettled batch: then it has none of them.
        """
        self._take_back()
        assert not self.in_flight, "sequence numbers in flight cannot be changed"
        self.identity = identity
        self.needs_identity = False
        # The broker accepts any sequence number from a producer it does not know: only once it
        # has the first batch does it refuse one that arrives too early.
        self.is_recovering = True
        for batch in self._ready:
            batch.stamp = None

    def expire(self, now: float) -> list[ProducerBatch]:
        """Removes batches that expired before they could be sent."""
        late = [batch for batch in self._ready if batch.deadline <= now]
        if late:
            self._ready = deque(batch for batch in self._ready if batch.deadline > now)
        return late

    def drop_all(self) -> list[ProducerBatch]:
        """Removes everything that is not in flight, because the producer gives up."""
        self.close_open()
        dropped = [*self._returned, *self._ready]
        self._returned.clear()
        self._ready.clear()
        return dropped

    def _take_back(self) -> None:
        self._returned.sort(key=lambda batch: batch.serial)
        self._ready.extendleft(reversed(self._returned))
        self._returned.clear()


def record_size_bytes(key: bytes | None, value: bytes | None, headers: tuple[Header, ...]) -> int:
    """The most bytes that a record can take in a batch."""
    size = RECORD_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        size += HEADER_OVERHEAD_BYTES + len(name.encode()) + (len(content) if content else 0)
    return size
