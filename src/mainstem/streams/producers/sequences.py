"""The producers of one stream: their sequence numbers, to detect repetitions and gaps.

Guarantees:
* a batch that arrives again is answered with the offset of its first arrival (the last five batches
  of each producer are remembered, as many as a client may have in flight);
* a gap in the sequence or an older producer epoch is refused;
* the state at any offset can be saved and restored (``snapshot`` / ``restore``);
* if there are too many producers, the one that was used longest ago is forgotten first.

A producer expires by the clock of the node that writes the stream, never by the timestamps of its
records, which a backfill takes from the past. A batch only marks its producer as used; the
next call of ``expire`` records when. That time is not saved: after a restore, on
a restart or on another node, every producer has a whole period from then on.
"""

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable

from msgspec import Struct

from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest
from mainstem.model.limits import PRODUCER_BATCHES_REMEMBERED, PRODUCERS_PER_STREAM_MAX
from mainstem.model.records.batch import SEQUENCE_MODULUS


class ProducerSnapshot(Struct, array_like=True):
    """One producer as it is saved."""

    producer_id: int
    epoch: int
    last_timestamp: int
    batches: list[tuple[int, int, int]]
    coordinator_epoch: int = -1


class ProducerEntry:
    """The last batches of one producer as (first sequence, last sequence, offset), oldest first."""

    __slots__ = (
        "batches", "coordinator_epoch", "epoch", "is_used", "last_timestamp", "next_sequence",
        "used_ms",
    )  # fmt: skip

    def __init__(self, epoch: int, last_timestamp: int) -> None:
        self.epoch = epoch
        self.last_timestamp = last_timestamp  # of its records, for DescribeProducers
        self.is_used = True  # since the last call of ``expire``
        self.used_ms = 0  # at which call that was last so
        self.next_sequence = 0
        self.coordinator_epoch = -1
        self.batches: deque[tuple[int, int, int]] = deque(maxlen=PRODUCER_BATCHES_REMEMBERED)


class ProducerStates:
    """Every producer of one stream. The order of the table is the order of last use."""

    def __init__(self) -> None:
        self._producers: OrderedDict[int, ProducerEntry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, producer_id: int, epoch: int, first: int, count: int) -> int | None:
        """Check a batch: None when it is the next one, its old base offset when it is a repetition.

        Raises:
            Fenced: a newer epoch of this producer has written.
            InvalidRequest: the sequence has a gap, or there is none.
        """
        if first < 0:
            raise InvalidRequest(
                ErrorCode.INVALID_RECORD,
                "a batch of a producer without a sequence number",
                subject=f"producer {producer_id}",
            )
        producer = self._producers.get(producer_id)
        if producer is None:
            return None
        if epoch == producer.epoch:
            if first == producer.next_sequence:
                return None
            last = (first + count - 1) % SEQUENCE_MODULUS
            for seen_first, seen_last, offset in producer.batches:
                if seen_first == first and seen_last == last:
                    self._use(producer_id, producer)
                    return offset
            raise _out_of_order(producer_id, first, producer.next_sequence)
        if epoch < producer.epoch:
            raise Fenced(
                ErrorCode.FENCED_PRODUCER,
                f"epoch {epoch} is older than {producer.epoch}",
                subject=f"producer {producer_id}",
            )
        if first != 0:
            raise _out_of_order(producer_id, first, 0)
        return None

    def record(
        self, producer_id: int, epoch: int, first: int, count: int, offset: int, timestamp: int
    ) -> None:
        """Remember a batch that ``check`` accepted, stored at ``offset``."""
        producer = self.seen(producer_id, epoch, timestamp)
        last = (first + count - 1) % SEQUENCE_MODULUS
        producer.batches.append((first, last, offset))
        producer.next_sequence = (last + 1) % SEQUENCE_MODULUS

    def epoch_of(self, producer_id: int) -> int:
        """The epoch a producer wrote with last; -1 unknown."""
        producer = self._producers.get(producer_id)
        return -1 if producer is None else producer.epoch

    def coordinator_epoch_of(self, producer_id: int) -> int:
        """The epoch of the coordinator that ended a transaction of the producer last; -1 none."""
        producer = self._producers.get(producer_id)
        return -1 if producer is None else producer.coordinator_epoch

    def seen(self, producer_id: int, epoch: int, timestamp: int) -> ProducerEntry:
        """Register a producer under that epoch; a newer epoch fences the older one."""
        producers = self._producers
        producer = producers.get(producer_id)
        if producer is None or producer.epoch != epoch:
            producers[producer_id] = producer = ProducerEntry(epoch, timestamp)
            if len(producers) > PRODUCERS_PER_STREAM_MAX:
                producers.popitem(last=False)
        producer.last_timestamp = timestamp
        producer.is_used = True
        producers.move_to_end(producer_id)
        return producer

    def _use(self, producer_id: int, producer: ProducerEntry) -> None:
        producer.is_used = True
        self._producers.move_to_end(producer_id)

    def marked(self, producer_id: int, epoch: int, coordinator_epoch: int, timestamp: int) -> None:
        """A transaction of the producer ended; a marker of a newer epoch fences the older one."""
        self.seen(producer_id, epoch, timestamp).coordinator_epoch = coordinator_epoch

    def forget_from(self, offset: int) -> None:
        """Remove every batch at or above ``offset``: it could not be written."""
        for producer_id, producer in list(self._producers.items()):
            kept = [batch for batch in producer.batches if batch[2] < offset]
            if len(kept) == len(producer.batches):
                continue
            if not kept:
                del self._producers[producer_id]
                continue
            producer.batches = deque(kept, maxlen=PRODUCER_BATCHES_REMEMBERED)
            producer.next_sequence = (kept[-1][1] + 1) % SEQUENCE_MODULUS

    def expire(self, now_ms: int, idle_ms: int, keep: Collection[int] = ()) -> int:
        """Forget producers that were idle for longer, but for those to ``keep``; how many.

        A use counts from the next call, so that no producer is forgotten too early.
        """
        old = []
        for key, producer in self._producers.items():
            if producer.is_used:
                producer.is_used = False
                producer.used_ms = now_ms
            elif now_ms - producer.used_ms > idle_ms and key not in keep:
                old.append(key)
        for key in old:
            del self._producers[key]
        return len(old)

    def last_offsets(self) -> list[int]:
        """The last offset of each producer's newest batch, which compaction leaves in place."""
        return [
            offset + (last - first) % SEQUENCE_MODULUS
            for producer in self._producers.values()
            if producer.batches
            for first, last, offset in [producer.batches[-1]]
        ]

    def active(self) -> Iterable[tuple[int, ProducerEntry]]:
        """Every producer with its id."""
        return self._producers.items()

    def snapshot(self) -> list[ProducerSnapshot]:
        """Every producer, for ``restore``."""
        return [
            ProducerSnapshot(
                key,
                producer.epoch,
                producer.last_timestamp,
                list(producer.batches),
                producer.coordinator_epoch,
            )
            for key, producer in self._producers.items()
        ]

    @classmethod
    def restore(cls, found: Iterable[ProducerSnapshot]) -> "ProducerStates":
        """The state that ``snapshot`` wrote."""
        states = cls()
        for entry in found:
            key, epoch, timestamp = entry.producer_id, entry.epoch, entry.last_timestamp
            states.marked(key, epoch, entry.coordinator_epoch, timestamp)
            for first, last, offset in entry.batches:
                count = (last - first) % SEQUENCE_MODULUS + 1
                states.record(key, epoch, first, count, offset, timestamp)
        return states


def _out_of_order(producer_id: int, found: int, expected: int) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        f"sequence {found} where {expected} is expected",
        subject=f"producer {producer_id}",
    )
