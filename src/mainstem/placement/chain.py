"""The chain of ranges of one stream and the steps it can take.

    [0 .. 100) e0   [100 .. 250) e0   [250 .. 900) e2   [900 .. open) e3

Ranges touch, indexes grow, epochs never decrease, only the last is open. A range that ends where it
began is replaced by its successor instead of kept. An index is never used twice, not even by the
successor of an empty range, so that a folder found on disk belongs to one epoch for good.
"""

from itertools import pairwise

from msgspec.structs import replace

from mainstem.model.ids import Epoch, NodeId, Offset, PartitionIndex, RangeIndex, StreamId
from mainstem.model.metadata import Range, Stream, Topic
from mainstem.placement.records import (
    GenerationSwapped,
    PartitionsAdded,
    RangeEnd,
    RangeSealed,
    RangesMerged,
    TopicConfigsSet,
    TopicCreated,
)


def new_topic(fact: TopicCreated) -> Topic:
    """A topic whose streams are empty."""
    streams = tuple(
        new_stream(StreamId(fact.id, PartitionIndex(at)), replicas)
        for at, replicas in enumerate(fact.replicas)
    )
    return Topic(
        id=fact.id,
        name=fact.name,
        created_ms=fact.at_ms,
        streams=streams,
        configs=fact.configs,
        internal=fact.internal,
    )


def grown(topic: Topic, fact: PartitionsAdded) -> Topic:
    """The topic with further empty streams."""
    count = len(topic.streams)
    added = tuple(
        new_stream(StreamId(topic.id, PartitionIndex(count + at)), replicas)
        for at, replicas in enumerate(fact.replicas)
    )
    return replace(topic, streams=topic.streams + added)


def configured(topic: Topic, fact: TopicConfigsSet) -> Topic:
    """The topic with other settings."""
    return replace(topic, configs=fact.configs)


def new_stream(stream: StreamId, replicas: tuple[NodeId, ...]) -> Stream:
    """An empty stream; its writer is the first of its replicas."""
    first = Range(index=RangeIndex(0), start=Offset(0), epoch=Epoch(0), replicas=replicas)
    return Stream(id=stream, epoch=Epoch(0), writer=replicas[0], start=Offset(0), ranges=(first,))


def rolled(stream: Stream, fact: RangeSealed) -> Stream:
    """The stream after its writer sealed the open range and went on in the next."""
    return _sealed(stream, fact.end, stream.epoch, fact.replicas, fact.at_ms)


def restarted(stream: Stream, end: RangeEnd, at_ms: int) -> Stream:
    """The stream after its writer came back: the next epoch, in a new range."""
    return _sealed(stream, end, Epoch(stream.epoch + 1), stream.last.replicas, at_ms)


def _sealed(
    stream: Stream, end: RangeEnd, epoch: Epoch, replicas: tuple[NodeId, ...], at_ms: int
) -> Stream:
    """The stream with its open range ended and the next one open under ``epoch``."""
    last = stream.last
    # What lies below the start is trimmed, whether its bytes survived a power cut or not: those
    # offsets were given out and are not given out again.
    until = max(end.end, stream.start)
    closed = replace(
        last,
        end=until,
        size_bytes=end.size_bytes,
        batch_count=end.batch_count,
        max_timestamp=end.max_timestamp,
        max_timestamp_offset=end.max_timestamp_offset,
        sealed_ms=at_ms,
        suspect=end.suspect,
    )
    opened = Range(index=RangeIndex(last.index + 1), start=until, epoch=epoch, replicas=replicas)
    kept = stream.ranges[:-1] if until == last.start else (*stream.ranges[:-1], closed)
    moved = replace(stream, epoch=epoch, writer=replicas[0], ranges=(*kept, opened))
    return trimmed(moved, stream.start)


def trimmed(stream: Stream, start: Offset) -> Stream:
    """The stream from ``start`` on, without the ranges that end there or before."""
    start = max(start, stream.start)
    kept = tuple(r for r in stream.ranges if r.end is None or r.end > start)
    return replace(stream, start=start, ranges=kept)


def swapped(stream: Stream, fact: GenerationSwapped) -> Stream:
    """The stream with one sealed range read from a rewritten copy."""
    ranges = tuple(
        replace(
            r,
            generation=fact.generation,
            size_bytes=fact.size_bytes,
            batch_count=fact.batch_count,
            max_timestamp=fact.max_timestamp,
            max_timestamp_offset=fact.max_timestamp_offset,
        )
        if r.index == fact.index
        else r
        for r in stream.ranges
    )
    return replace(stream, ranges=ranges)


def merged(stream: Stream, fact: RangesMerged) -> Stream:
    """The stream with neighbouring sealed ranges joined.

    The joined range keeps the first, lowest epoch: a client that asks where a later of the joined
    epochs ended is told an offset that is not too small, so it never takes the merge for a loss.
    """
    joined = [r for r in stream.ranges if fact.first <= r.index <= fact.last]
    newest = max(joined, key=lambda r: (r.max_timestamp, -r.max_timestamp_offset))
    whole = replace(
        joined[0],
        end=joined[-1].end,
        generation=fact.generation,
        size_bytes=fact.size_bytes,
        batch_count=sum(r.batch_count for r in joined),
        max_timestamp=newest.max_timestamp,
        max_timestamp_offset=newest.max_timestamp_offset,
        sealed_ms=max(r.sealed_ms for r in joined),
        suspect=any(r.suspect for r in joined),
    )
    at = stream.ranges.index(joined[0])
    ranges = (*stream.ranges[:at], whole, *stream.ranges[at + len(joined) :])
    return replace(stream, ranges=ranges)


def flaw(stream: Stream) -> str | None:
    """What is wrong with a chain; None for a sound one. Every replay leaves it sound."""
    ranges = stream.ranges
    if not ranges or not stream.last.is_open:
        return "the last range is not open"
    if ranges[0].start > stream.start:
        return f"the stream starts at {stream.start}, its first range at {ranges[0].start}"
    if stream.epoch < stream.last.epoch:
        return f"epoch {stream.epoch} is older than that of the last range"
    flaws = (_joint_flaw(before, after) for before, after in pairwise(ranges))
    return next((found for found in flaws if found), None)


def _joint_flaw(before: Range, after: Range) -> str | None:
    if before.end is None or before.end != after.start:
        return f"range {before.index} ends at {before.end}, the next starts at {after.start}"
    if before.end <= before.start:
        return f"range {before.index} is empty and kept"
    if before.index >= after.index or before.epoch > after.epoch:
        return f"range {after.index} has a lower index or epoch than the one before"
    return None
