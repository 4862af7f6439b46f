"""What counts as consumed."""

from mainstem.client.consuming.consumed_offsets import ConsumedOffsets
from mainstem.client.values import CommittedOffset, ConsumerRecord, TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def record(partition: TopicPartition, offset: int) -> ConsumerRecord:
    return ConsumerRecord(*partition, offset, 0, None, b"")


def test_records_count_when_the_next_are_asked_for() -> None:
    progress = ConsumedOffsets()
    progress.give([record(FIRST, 4), record(FIRST, 5), record(SECOND, 9)])
    assert progress.take_consumed() == {}
    progress.consume()
    assert progress.take_consumed() == {FIRST: CommittedOffset(6), SECOND: CommittedOffset(10)}
    assert progress.take_consumed() == {}


def test_a_failed_commit_does_not_undo_newer_progress() -> None:
    progress = ConsumedOffsets()
    progress.give([record(FIRST, 4), record(SECOND, 9)])
    progress.consume()
    failed = progress.take_consumed()
    progress.give([record(FIRST, 5)])
    progress.consume()
    progress.put_back(failed)
    assert progress.take_consumed() == {FIRST: CommittedOffset(6), SECOND: CommittedOffset(10)}


def test_a_jump_replaces_what_was_given_and_drops_what_waits() -> None:
    progress = ConsumedOffsets()
    progress.waiting.extend([record(FIRST, 5), record(SECOND, 1)])
    progress.give([record(FIRST, 4)])
    progress.jump(FIRST, 100)
    progress.consume()
    assert progress.next_waiting(FIRST) is None
    assert progress.next_waiting(SECOND) == 1
    assert progress.take_consumed() == {FIRST: CommittedOffset(100)}


def test_partitions_that_were_taken_away_are_forgotten() -> None:
    progress = ConsumedOffsets()
    progress.waiting.append(record(FIRST, 5))
    progress.give([record(FIRST, 4)])
    progress.forget()
    progress.consume()
    assert progress.take_consumed() == {}
    assert not progress.waiting
