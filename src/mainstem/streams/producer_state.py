"""What one stream remembers of its producers: sequence numbers, and so what is a repetition.

Promises:
* a batch that arrives again is answered with the offset of its first arrival (the last five batches
  of each producer are remembered, as many as a client may have in flight);
* a gap in the sequence or an older producer epoch is refused;
* the state at any offset can be written down and taken up again (``snapshot`` / ``restore``).
"""

from collections import deque
from collections.abc import Collection, Iterable

from msgspec import Struct

from mainstem.model.batch import SEQUENCE_MODULUS
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest
from mainstem.model.limits import PRODUCER_BATCHES_REMEMBERED, PRODUCERS_PER_STREAM_MAX


class ProducerSnapshot(Struct, array_like=True):
    """One producer as it is written down."""

    producer_id: int
    epoch: int
    seen_ms: int
    batches: list[tuple[int, int, int]]
    coordinator_epoch: int = -1


class Producer:
    """The last batches of one producer as (first sequence, last sequence, offset), oldest first."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "next_sequence", "seen_ms")

    def __init__(self, epoch: int, seen_ms: int) -> None:
        self.epoch = epoch
        self.seen_ms = seen_ms
        self.next_sequence = 0
        self.coordinator_epoch = -1
        self.batches: deque[tuple[int, int, int]] = deque(maxlen=PRODUCER_BATCHES_REMEMBERED)


class ProducerStates:
    """Every producer of one stream. The order of the table is the order of last use."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, producer_id: int, epoch: int, first: int, count: int) -> int | None:
        """Judge a batch: None when it is the next one, its old base offset when it is a repetition.

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
        self, producer_id: int, epoch: int, first: int, count: int, offset: int, now_ms: int
    ) -> None:
        """Remember a batch that ``check`` let through, stored at ``offset``."""
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != epoch:
            self._producers[producer_id] = producer = Producer(epoch, now_ms)
            if len(self._producers) > PRODUCERS_PER_STREAM_MAX:
                del self._producers[next(iter(self._producers))]
        last = (first + count - 1) % SEQUENCE_MODULUS
        producer.batches.append((first, last, offset))
        producer.next_sequence = (last + 1) % SEQUENCE_MODULUS
        producer.seen_ms = now_ms

    def epoch_of(self, producer_id: int) -> int:
        """The epoch a producer wrote with last; -1 unknown."""
        producer = self._producers.get(producer_id)
        return -1 if producer is None else producer.epoch

    def seen(self, producer_id: int, epoch: int, now_ms: int) -> Producer:
        """A producer lives under that epoch; one of a newer epoch fences the older one."""
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != epoch:
            self._producers[producer_id] = producer = Producer(epoch, now_ms)
        producer.seen_ms = now_ms
        return producer

    def marked(self, producer_id: int, epoch: int, coordinator_epoch: int, now_ms: int) -> None:
        """A transaction of the producer ended; a marker of a newer epoch fences the older one."""
        self.seen(producer_id, epoch, now_ms).coordinator_epoch = coordinator_epoch

    def forget_from(self, offset: int) -> None:
        """Take back every batch at or above ``offset``: it could not be written."""
        for producer_id, producer in list(self._producers.items()):
            kept = [batch for batch in producer.batches if batch[2] < offset]
            if len(kept) == len(producer.batches):
                continue
            if not kept:
                del self._producers[producer_id]
                continue
            producer.batches = deque(kept, maxlen=PRODUCER_BATCHES_REMEMBERED)
            producer.next_sequence = (kept[-1][1] + 1) % SEQUENCE_MODULUS

    def expire(self, before_ms: int, keep: Collection[int] = ()) -> int:
        """Forget producers unseen since ``before_ms``, but for those to ``keep``; how many."""
        old = [
            key
            for key, producer in self._producers.items()
            if producer.seen_ms < before_ms and key not in keep
        ]
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

    def active(self) -> Iterable[tuple[int, Producer]]:
        """Every producer with its id."""
        return self._producers.items()

    def snapshot(self) -> list[ProducerSnapshot]:
        """Every producer, to be taken up by ``restore``."""
        return [
            ProducerSnapshot(
                key,
                producer.epoch,
                producer.seen_ms,
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
            states.marked(entry.producer_id, entry.epoch, entry.coordinator_epoch, entry.seen_ms)
            for first, last, offset in entry.batches:
                count = (last - first) % SEQUENCE_MODULUS + 1
                states.record(entry.producer_id, entry.epoch, first, count, offset, entry.seen_ms)
        return states


def _out_of_order(producer_id: int, found: int, expected: int) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        f"sequence {found} where {expected} is expected",
        subject=f"producer {producer_id}",
    )
