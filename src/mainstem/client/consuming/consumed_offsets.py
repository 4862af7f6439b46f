"""Progress of a consumer: returned records, consumed records and the offsets to commit.

Pure. A record counts as consumed when the caller requests more; the offset to commit is the one
after the last consumed record.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from mainstem.client.values import CommittedOffset, ConsumerRecord, TopicPartition


class ConsumedOffsets:
    """Tracks the returned and consumed offsets of one consumer."""

    def __init__(self) -> None:
        self.waiting: deque[ConsumerRecord] = deque()  # fetched for an iterator, not yet returned
        self._given: dict[TopicPartition, int] = {}
        self._consumed: dict[TopicPartition, CommittedOffset] = {}

    def give(self, records: Iterable[ConsumerRecord]) -> None:
        """Notes that these records are returned."""
        for record in records:
            self._given[TopicPartition(record.topic, record.partition)] = record.offset + 1

    def give_next(self) -> ConsumerRecord | None:
        """Returns the next record that waits for an iterator, if any."""
        if not self.waiting:
            return None
        self.consume()
        record = self.waiting.popleft()
        self.give([record])
        return record

    def consume(self) -> None:
        """Marks all returned records as consumed, because the caller requests more."""
        for partition, offset in self._given.items():
            self._consumed[partition] = CommittedOffset(offset)
        self._given.clear()

    def next_waiting(self, partition: TopicPartition) -> int | None:
        """The offset of the first record of a partition that waits for the iterator."""
        for record in self.waiting:
            if (record.topic, record.partition) == partition:
                return record.offset
        return None

    def jump(self, partition: TopicPartition, offset: int) -> None:
        """Notes a seek in one partition."""
        kept = [r for r in self.waiting if (r.topic, r.partition) != partition]
        self.waiting.clear()
        self.waiting.extend(kept)
        self._given.pop(partition, None)
        self._consumed[partition] = CommittedOffset(offset)

    def forget(self) -> None:
        """Drops everything, because the partitions are no longer assigned."""
        self.waiting.clear()
        self._given.clear()
        self._consumed.clear()

    def take_consumed(self) -> dict[TopicPartition, CommittedOffset]:
        """Removes and returns the offsets to commit."""
        taken, self._consumed = self._consumed, {}
        return taken

    def put_back(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Restores the offsets of a failed commit; newer ones stay."""
        self._consumed = {**offsets, **self._consumed}
