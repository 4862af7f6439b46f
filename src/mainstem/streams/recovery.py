"""Taking a stream up again: its files, and what its producers had sent when it was left.

The state at the end of a stream comes from the nearest of three places: the node's
checkpoint (written at start and stop), the opening snapshot of the last range, or that of the range
before, each followed by the batches that came after it.
"""

from mainstem.log.range_log import RangeLog
from mainstem.log.store import LogStore
from mainstem.model.metadata import Range, Stream, Topic
from mainstem.model.topic_config import TopicSettings
from mainstem.streams.checkpoint_storage import Checkpoint
from mainstem.streams.markers import marker_of
from mainstem.streams.segment_age import segment_settings
from mainstem.streams.state import StreamState


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
        config=segment_settings(settings, stream.id),
    )


def recovered_state(
    store: LogStore,
    topic: Topic,
    stream: Stream,
    last: RangeLog,
    checkpoint: Checkpoint,
) -> StreamState:
    """What was known of producers and transactions when the last range of a stream ended."""
    offset, data = checkpoint.get(str(stream.id), (-1, b""))
    if offset == last.written_end:
        return StreamState.restore(data)
    if offset == last.start_offset:
        return _replayed(StreamState.restore(data), last)
    opening = last.opening_snapshot()
    if opening is not None:
        return _replayed(StreamState.restore(opening), last)
    if len(stream.ranges) < 2:
        return _replayed(StreamState(), last)
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
    states = _replayed(StreamState.restore(before.opening_snapshot() or b""), before)
    before.close(sync=False)
    return _replayed(states, last)


def _replayed(state: StreamState, log: RangeLog) -> StreamState:
    for header, _ in log.batches(skip_damage=True):
        marker = None
        if header.is_control:
            part = log.read(
                header.base_offset, max_bytes=1, until=header.until_offset, min_one=True
            )
            marker = None if part is None else marker_of(part.read())
        state.replay(header, marker)
    return state
