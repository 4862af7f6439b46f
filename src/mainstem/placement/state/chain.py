"""The chain of ranges of one stream and the steps it can take.

    [0 .. 100) e0   [100 .. 250) e0   [250 .. 900) e2   [900 .. open) e3

Ranges touch, indexes grow, epochs never decrease, only the last is open. A range that ends where it
starts is replaced by its successor instead of kept. An index is never used twice, not even by the
successor of an empty range, so that a folder found on disk belongs to one epoch for good.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise

from msgspec.structs import replace

from mainstem.model.ids import Epoch, NodeId, Offset, PartitionIndex, RangeIndex, StreamId
from mainstem.model.metadata import Range, Stream, Topic
from mainstem.placement.changes.commands import (
    GenerationSwapped,
    PartitionsAdded,
    RangeEnd,
    RangeSealed,
    RangesMerged,
    TopicConfigsSet,
    TopicCreated,
)
from mainstem.placement.changes.replication_commands import (
    CopyOrdered,
    Election,
    ReplicaCompleted,
    ReplicaDropped,
)


def new_topic(fact: TopicCreated) -> Topic:
    """A topic whose streams are empty."""
    disks = dict(fact.disks)
    streams = tuple(
        new_stream(StreamId(fact.id, PartitionIndex(at)), replicas, disks, fact.acks)
        for at, replicas in enumerate(fact.replicas)
    )
    return Topic(
        id=fact.id,
        name=fact.name,
        created_ms=fact.at_ms,
        streams=streams,
        configs=fact.configs,
        internal=fact.internal,
        replication=len(fact.replicas[0]),
    )


def grown(topic: Topic, fact: PartitionsAdded) -> Topic:
    """The topic with further empty streams."""
    count = len(topic.streams)
    disks = dict(fact.disks)
    added = tuple(
        new_stream(StreamId(topic.id, PartitionIndex(count + at)), replicas, disks, fact.acks)
        for at, replicas in enumerate(fact.replicas)
    )
    return replace(topic, streams=topic.streams + added)


def configured(topic: Topic, fact: TopicConfigsSet) -> Topic:
    """The topic with other settings."""
    return replace(topic, configs=fact.configs)


def new_stream(
    stream: StreamId,
    replicas: tuple[NodeId, ...],
    disks: Mapping[NodeId, str] = {},
    acks: int = 0,
) -> Stream:
    """An empty stream; its writer is the first of its replicas."""
    first = Range(
        index=RangeIndex(0),
        start=Offset(0),
        epoch=Epoch(0),
        replicas=replicas,
        directories=tuple(disks[node] for node in replicas) if disks else (),
        acks=acks,
    )
    return Stream(
        id=stream,
        epoch=Epoch(0),
        writer=replicas[0],
        start=Offset(0),
        ranges=(first,),
        target=replicas if len(replicas) > 1 else (),
    )


def rolled(stream: Stream, fact: RangeSealed) -> Stream:
    """The stream after its open range was sealed and the next opened, by its writer or another."""
    epoch = stream.epoch if fact.epoch is None else fact.epoch
    opened = Range(
        index=RangeIndex(stream.last.index + 1),
        start=fact.end.end,
        epoch=epoch,
        replicas=fact.replicas,
        directories=fact.directories,
        acks=fact.acks,
    )
    writer = stream.writer if fact.writer is None else fact.writer
    closed = replace(_closed(stream, fact.end, fact.at_ms), done=fact.done, unclean=fact.unclean)
    return _followed(replace(stream, epoch=epoch, writer=writer), closed, opened)


def restarted(stream: Stream, end: RangeEnd, at_ms: int) -> Stream:
    """The stream after its writer came back: the next epoch, in a new range."""
    epoch = Epoch(stream.epoch + 1)
    opened = Range(
        index=RangeIndex(stream.last.index + 1),
        start=end.end,
        epoch=epoch,
        replicas=stream.last.replicas,
    )
    return _followed(replace(stream, epoch=epoch), _closed(stream, end, at_ms), opened)


def _closed(stream: Stream, end: RangeEnd, at_ms: int) -> Range:
    return replace(
        stream.last,
        # What lies below the start is trimmed, whether its bytes survived a power cut or not: those
        # offsets were assigned and are not assigned again.
        end=max(end.end, stream.start),
        size_bytes=end.size_bytes,
        batch_count=end.batch_count,
        max_timestamp=end.max_timestamp,
        max_timestamp_offset=end.max_timestamp_offset,
        sealed_ms=at_ms,
        suspect=end.suspect,
    )


def _followed(stream: Stream, closed: Range, opened: Range) -> Stream:
    """The stream with its open range ended and the next one open; an empty one is not kept."""
    assert closed.end is not None, "it has just been closed"
    kept = stream.ranges[:-1] if closed.end == closed.start else (*stream.ranges[:-1], closed)
    moved = replace(stream, ranges=(*kept, replace(opened, start=closed.end)))
    return trimmed(moved, stream.start)


def elected(stream: Stream, election: Election) -> Stream:
    """The stream with another writer, which has yet to seal the open range."""
    return replace(stream, epoch=election.epoch, writer=election.writer)


def targeted(stream: Stream, target: tuple[NodeId, ...]) -> Stream:
    """The stream with other target nodes."""
    return replace(stream, target=target)


def completed(stream: Stream, fact: ReplicaCompleted) -> Stream:
    """The stream with one more complete copy of a sealed range."""
    return _changed(stream, fact.index, lambda known: _with_replica(known, fact))


def _with_replica(known: Range, fact: ReplicaCompleted) -> Range:
    node = fact.node
    disks = dict(zip(known.replicas, known.directories, strict=False))
    replicas = known.replicas if node in known.replicas else (*known.replicas, node)
    # Copies that were never recorded have to be from now on.
    done = known.holders if node in known.holders else (*known.holders, node)
    directories: tuple[str, ...] = ()
    if len(replicas) > 1:
        directories = tuple({**disks, node: fact.directory}.get(each, "") for each in replicas)
    return replace(
        known,
        replicas=replicas,
        directories=directories,
        done=done,
        replicating=tuple(each for each in known.replicating if each != node),
    )


def ordered(stream: Stream, fact: CopyOrdered) -> Stream:
    """The stream with a node assigned to copy a sealed range."""
    return _changed(
        stream,
        fact.index,
        lambda known: replace(
            known,
            done=tuple(each for each in known.done if each != fact.node),
            replicating=(*known.replicating, fact.node),
        ),
    )


def dropped(stream: Stream, fact: ReplicaDropped) -> Stream:
    """The stream without a node's copy of a sealed range."""
    return _changed(stream, fact.index, lambda known: _without_replica(known, fact.node))


def _without_replica(known: Range, node: NodeId) -> Range:
    kept = [at for at, each in enumerate(known.replicas) if each != node]
    return replace(
        known,
        replicas=tuple(known.replicas[at] for at in kept),
        directories=tuple(known.directories[at] for at in kept) if known.directories else (),
        done=tuple(each for each in known.done if each != node),
        replicating=tuple(each for each in known.replicating if each != node),
    )


def blank(stream: Stream, node: NodeId) -> Stream:
    """The stream after a node came back on another disk, without any sealed range."""
    if not any(node in known.done for known in stream.ranges):
        return stream
    ranges = tuple(
        replace(known, done=tuple(each for each in known.done if each != node))
        if node in known.done
        else known
        for known in stream.ranges
    )
    return replace(stream, ranges=ranges)


def _changed(stream: Stream, index: RangeIndex, change: Callable[[Range], Range]) -> Stream:
    ranges = tuple(change(known) if known.index == index else known for known in stream.ranges)
    return replace(stream, ranges=ranges)


def trimmed(stream: Stream, start: Offset) -> Stream:
    """The stream from ``start`` on, without the ranges that end there or before."""
    start = max(start, stream.start)
    kept = tuple(r for r in stream.ranges if r.end is None or r.end > start)
    return replace(stream, start=start, ranges=kept)


def swapped(stream: Stream, fact: GenerationSwapped) -> Stream:
    """The stream with one sealed range read from a rewritten copy."""
    return _changed(
        stream,
        fact.index,
        lambda known: replace(
            known,
            generation=fact.generation,
            size_bytes=fact.size_bytes,
            batch_count=fact.batch_count,
            max_timestamp=fact.max_timestamp,
            max_timestamp_offset=fact.max_timestamp_offset,
            done=fact.done,
            replicating=(),
        ),
    )


def merged(stream: Stream, fact: RangesMerged) -> Stream:
    """The stream with neighbouring sealed ranges joined.

    The joined range keeps the first, lowest epoch: a client that queries the end of a later one of
    the joined epochs gets an offset that is not too small, so it never takes the merge for a loss.
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
        unclean=any(r.unclean for r in joined),
        done=fact.done,
        replicating=(),
    )
    at = stream.ranges.index(joined[0])
    ranges = (*stream.ranges[:at], whole, *stream.ranges[at + len(joined) :])
    return replace(stream, ranges=ranges)


def flaw(stream: Stream) -> str | None:
    """What is wrong with a chain; None for a valid one. Every replay leaves it valid."""
    ranges = stream.ranges
    if not ranges or not stream.last.is_open:
        return "the last range is not open"
    if ranges[0].start > stream.start:
        return f"the stream starts at {stream.start}, its first range at {ranges[0].start}"
    if stream.epoch < stream.last.epoch:
        return f"epoch {stream.epoch} is older than that of the last range"
    if any(r.directories and len(r.directories) != len(r.replicas) for r in ranges):
        return "a range names other disks than replicas"
    if any(not set(r.done) <= set(r.replicas) for r in ranges):
        return "a range is done on a node that is no replica"
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
