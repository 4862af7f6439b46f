"""Taking a stream up again: its files, and what its producers had sent when it was left.

The producer state at the end of a stream comes from the nearest of three places: the node's
checkpoint (written at start and stop), the opening snapshot of the last range, or that of the range
before, each followed by the batch headers that came after it.
"""

from mainstem.log.range_log import RangeLog, SegmentSettings
from mainstem.log.store import LogStore
from mainstem.model.metadata import Range, Stream, Topic
from mainstem.model.topic_config import TopicSettings
from mainstem.streams.checkpoint_storage import Checkpoint
from mainstem.streams.producer_state import ProducerStates


def segment_settings(settings: TopicSettings) -> SegmentSettings:
    """The part of a topic's settings that concerns its files."""
    return SegmentSettings(
        segment_bytes=settings.segment_bytes,
        segment_ms=settings.segment_ms,
        index_interval_bytes=settings.index_interval_bytes,
    )


def range_log(
    store: LogStore,
    topic: Topic,
    stream: Stream,
    facts: Range,
    settings: TopicSettings,
    snapshot: bytes | None = None,
) -> RangeLog:
    """The files of one range; made at the first append, with ``snapshot`` to open with."""
    return store.open_range(
        stream.id,
        topic.name,
        facts.index,
        epoch=facts.epoch,
        start_offset=facts.start,
        generation=facts.generation,
        snapshot=snapshot,
        config=segment_settings(settings),
    )


def recovered_producers(
    store: LogStore,
    topic: Topic,
    stream: Stream,
    last: RangeLog,
    checkpoint: Checkpoint,
) -> ProducerStates:
    """What the producers of a stream had sent when its last range ended."""
    offset, data = checkpoint.get(str(stream.id), (-1, b""))
    if offset == last.written_end:
        return ProducerStates.restore(data)
    if offset == last.start_offset:
        return _replayed(ProducerStates.restore(data), last)
    opening = last.opening_snapshot()
    if opening is not None:
        return _replayed(ProducerStates.restore(opening), last)
    if len(stream.ranges) < 2:
        return _replayed(ProducerStates(), last)
    before = store.open_range(
        stream.id,
        topic.name,
        stream.ranges[-2].index,
        epoch=stream.ranges[-2].epoch,
        start_offset=stream.ranges[-2].start,
        generation=stream.ranges[-2].generation,
        snapshot=None,
        config=last.settings,
    )
    states = _replayed(ProducerStates.restore(before.opening_snapshot() or b""), before)
    before.close(sync=False)
    return _replayed(states, last)


def _replayed(states: ProducerStates, log: RangeLog) -> ProducerStates:
    for header, _ in log.batches():
        if header.producer_id >= 0 and not header.is_control:
            states.record(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_offset_delta + 1,
                header.base_offset,
                header.max_timestamp,
            )
    return states
