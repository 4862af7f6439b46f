"""Recovers a stream: its files, and the state of its producers at its end.

The state at the end of a stream comes from the nearest of three places: the node's
checkpoint (written at start and stop), the opening snapshot of the last range, or that of the range
before, each followed by the batches that came after it.
"""

from collections.abc import Callable

from mainstem.log.naming import RangeName, range_directory
from mainstem.log.range_log import RangeLog
from mainstem.log.store import LogStore
from mainstem.model.config.topic import TopicSettings
from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.model.metadata import Range, Stream, Topic
from mainstem.streams.producers.checkpoint_storage import Checkpoint
from mainstem.streams.producers.stream_state import StreamState
from mainstem.streams.producers.transaction_markers import marker_of
from mainstem.streams.writer.segment_settings import segment_settings


def range_log(
    store: LogStore,
    topic: Topic,
    stream: Stream,
    range_info: Range,
    settings: TopicSettings,
    snapshot: bytes | None = None,
) -> RangeLog:
    """The files of one range; created at the first append, with ``snapshot`` to open with."""
    return store.open_range(
        stream.id,
        topic.name,
        range_info.index,
        epoch=range_info.epoch,
        start_offset=range_info.start,
        generation=range_info.generation,
        snapshot=snapshot,
        config=segment_settings(settings, stream.id),
    )


def found_log(store: LogStore, topic: Topic, stream: Stream, range_info: Range) -> RangeLog | None:
    """The files of one range, if they are open."""
    name = RangeName(stream.id, topic.name, range_info.index, range_info.generation)
    return store.logs.get(range_directory(store.data_dir, name))


def recovered_state(
    store: LogStore,
    topic: Topic,
    stream: Stream,
    last: RangeLog,
    checkpoint: Checkpoint,
) -> StreamState:
    """The state of producers and transactions when the last range of a stream ended."""
    offset, data = checkpoint.get(str(stream.id), (-1, b""))
    if offset == last.written_end:
        return StreamState.restore(data)
    if offset == last.start_offset:
        return replayed(StreamState.restore(data), last)
    opening = last.opening_snapshot()
    if opening is not None:
        return replayed(StreamState.restore(opening), last)
    if len(stream.ranges) < 2:
        return replayed(StreamState(), last)
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
    states = replayed(StreamState.restore(before.opening_snapshot() or b""), before)
    before.close(sync=False)
    return replayed(states, last)


def opening_state(
    stream: Stream, range_info: Range, log_of: Callable[[Range], RangeLog | None]
) -> StreamState:
    """The state of producers and transactions where a range of a stream starts.

    Raises:
        Unavailable: an earlier range would be needed and is incomplete here.
        Corrupt: it is damaged here.
    """
    own = log_of(range_info)
    opening = None if own is None else own.opening_snapshot()
    if opening is not None:
        return StreamState.restore(opening)
    at = stream.ranges.index(range_info)
    if at == 0:
        return StreamState()
    before = stream.ranges[at - 1]
    log = log_of(before)
    if log is None or before.end is None or log.written_end < before.end:
        raise Unavailable(
            ErrorCode.WRITER_UNAVAILABLE,
            f"range {before.index} is incomplete here",
            subject=str(stream.id),
        )
    return replayed(opening_state(stream, before, log_of), log, skip_damage=False)


def replayed(
    state: StreamState,
    log: RangeLog,
    start: int | None = None,
    until: int | None = None,
    *,
    skip_damage: bool = True,
) -> StreamState:
    """The state after the batches of a log, or those from ``start`` on and below ``until``."""
    for header, _ in log.batches(start, skip_damage=skip_damage):
        if until is not None and header.base_offset >= until:
            break
        marker = None
        if header.is_control:
            part = log.read(
                header.base_offset, max_bytes=1, until=header.until_offset, min_one=True
            )
            marker = None if part is None else marker_of(part.read())
        state.replay(header, marker)
    return state
