"""How far a reader has come: what it was given, what it has consumed, what may be committed.

Pure. A record counts as consumed when the reader asks for more; the offset to commit is the one
behind the last consumed record.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from mainstem.client.values import CommittedOffset, ConsumerRecord, TopicPartition


class ConsumedOffsets:
    """The bookkeeping of one consumer."""

    def __init__(self) -> None:
        self.waiting: deque[ConsumerRecord] = deque()  # fetched for an iterator, not yet given out
        self._given: dict[TopicPartition, int] = {}
        self._consumed: dict[TopicPartition, CommittedOffset] = {}

    def give(self, records: Iterable[ConsumerRecord]) -> None:
        """The reader gets these records."""
        for record in records:
            self._given[TopicPartition(record.topic, record.partition)] = record.offset + 1

    def give_next(self) -> ConsumerRecord | None:
        """The reader gets the next record that waits for an iterator, if one does."""
        if not self.waiting:
            return None
        self.consume()
        record = self.waiting.popleft()
        self.give([record])
        return record

    def consume(self) -> None:
        """The reader asks for more: what it was given is done."""
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
        """The reader goes elsewhere in one partition."""
        kept = [r for r in self.waiting if (r.topic, r.partition) != partition]
        self.waiting.clear()
        self.waiting.extend(kept)
        self._given.pop(partition, None)
        self._consumed[partition] = CommittedOffset(offset)

    def forget(self) -> None:
        """The partitions are no longer this reader's."""
        self.waiting.clear()
        self._given.clear()
        self._consumed.clear()

    def take_consumed(self) -> dict[TopicPartition, CommittedOffset]:
        """Takes out what is to be committed."""
        taken, self._consumed = self._consumed, {}
        return taken

    def put_back(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """A commit did not work out; newer progress stays."""
        self._consumed = {**offsets, **self._consumed}
