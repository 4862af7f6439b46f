"""Rebuilds topics from the folders of their records, when the catalogue itself is lost.

The folders contain names, ids, partitions, ranges and epochs; the export, where readable, adds what
folders do not hold: settings, creation times, partitions without records. Every assumption is
noted, so that the operator can review it.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from mainstem.model.ids import (
    Epoch,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerId,
    RangeIndex,
    StreamId,
    TopicId,
    topic_id_text,
)
from mainstem.model.metadata import Range, Stream, Topic
from mainstem.model.topic_name import is_reserved_name
from mainstem.placement.state.chain import new_stream

PRODUCER_IDS_PER_MS_BITS = 20
"""A lost catalogue has no allocated producer ids; ids derived from the clock are higher."""


EPOCH_LEAP = 1_000
"""Ranges without records leave no folder, but clients may know their epochs: skip these."""


class RebuildableRange(Struct, frozen=True, order=True):
    """One range folder. ``end`` is where its records end, as far as the files show."""

    topic: str
    topic_id: TopicId
    partition: int
    index: int
    generation: int
    epoch: int
    start: int
    end: int
    size_bytes: int = 0
    batch_count: int = 0
    max_timestamp: int = -1
    max_timestamp_offset: int = -1


class KnownTopic(Struct, frozen=True):
    """A topic in the export; ``positions`` is (start, epoch) of each partition."""

    name: str
    id: TopicId
    created_ms: int
    internal: bool
    configs: dict[str, str]
    positions: tuple[tuple[int, int], ...]

    def position(self, partition: int) -> tuple[int, int]:
        """Start and epoch of a partition, as far as the export has them."""
        return self.positions[partition] if partition < len(self.positions) else (0, 0)


class RebuiltTopics(NamedTuple):
    """The topics, the first producer id that is certainly unused, and the assumptions."""

    topics: tuple[Topic, ...]
    next_producer_id: ProducerId
    notes: tuple[str, ...]


def rebuild(
    found: Iterable[RebuildableRange], known: Sequence[KnownTopic], *, node: NodeId, now_ms: int
) -> RebuiltTopics:
    """Topics of a node that holds ``found`` and whose last export was ``known``."""
    notes: list[str] = []
    found = list(found)
    newest: dict[TopicId, int] = {}
    for entry in found:
        newest[entry.topic_id] = max(newest.get(entry.topic_id, -1), entry.max_timestamp)
    known_by_id = {topic.id: topic for topic in known}
    topics: dict[str, Topic] = {}
    of_topic = groupby(sorted(found, key=lambda r: (r.topic, r.topic_id)), key=lambda r: r.topic_id)
    for topic_id, ranges in of_topic:
        topic = _topic(list(ranges), known_by_id.get(topic_id), node, now_ms, notes)
        other = topics.get(topic.name)
        if other is not None:
            # The one in the export; else the one with newer records.
            rivals = sorted((other, topic), key=lambda t: (t.id in known_by_id, newest[t.id]))
            left, topic = rivals
            notes.append(
                f"topic {topic.name}: two incarnations, kept {topic_id_text(topic.id)}, left out "
                f"{topic_id_text(left.id)}"
            )
        topics[topic.name] = topic
    absent = [topic for topic in known if topic.name not in topics]
    for topic_known in absent:
        topics[topic_known.name] = _without_folder(topic_known, node)
    if absent:
        notes.append(f"{len(absent)} topics of the export have no folder, restored empty")
    ordered = sorted(topics.values(), key=lambda topic: (topic.created_ms, topic.name))
    first_free = ProducerId(now_ms << PRODUCER_IDS_PER_MS_BITS)
    return RebuiltTopics(tuple(ordered), first_free, tuple(notes))


def _topic(
    found: list[RebuildableRange],
    known: KnownTopic | None,
    node: NodeId,
    now_ms: int,
    notes: list[str],
) -> Topic:
    name, topic_id = found[0].topic, found[0].topic_id
    if known is None:
        notes.append(f"topic {name}: not in the export, restored with default settings")
    by_partition: dict[int, list[RebuildableRange]] = {}
    for entry in found:
        by_partition.setdefault(entry.partition, []).append(entry)
    count = max(max(by_partition) + 1, len(known.positions) if known else 0)
    streams = []
    for partition in range(count):
        stream_id = StreamId(topic_id, PartitionIndex(partition))
        start, epoch = known.position(partition) if known else (0, 0)
        if partition in by_partition:
            chain = _ranges(by_partition[partition], node, f"{name}-{partition}", notes)
            streams.append(_stream(stream_id, chain, start, epoch))
        else:
            streams.append(_empty_stream(stream_id, node, start, epoch))
    return Topic(
        id=topic_id,
        name=name,
        created_ms=known.created_ms if known else now_ms,
        streams=tuple(streams),
        configs=known.configs if known else {},
        internal=known.internal if known else is_reserved_name(name),
    )


def _ranges(
    found: list[RebuildableRange], node: NodeId, subject: str, notes: list[str]
) -> tuple[Range, ...]:
    """A valid chain of the ranges that were found; the last range is open."""
    newest = {entry.index: entry for entry in sorted(found, key=lambda r: (r.index, r.generation))}
    ranges: list[Range] = []
    for entry in sorted(newest.values(), key=lambda r: r.index):
        if ranges and _covered(entry, ranges[-1]):
            notes.append(f"{subject}: range {entry.index} lies inside an earlier one, left out")
            continue
        if ranges and ranges[-1].end != entry.start:
            notes.append(
                f"{subject}: range {ranges[-1].index} ends at {ranges[-1].end}, range "
                f"{entry.index} starts at {entry.start}; offsets between them hold no records"
            )
            ranges[-1] = replace(ranges[-1], end=Offset(entry.start), suspect=True)
        ranges.append(_range(entry, node))
    kept = [r for r in ranges[:-1] if r.end is not None and r.end > r.start]
    last = ranges[-1]
    opened = Range(index=last.index, start=last.start, epoch=last.epoch, replicas=last.replicas,
                   generation=last.generation)  # fmt: skip
    return (*kept, opened)


def _covered(entry: RebuildableRange, before: Range) -> bool:
    assert before.end is not None
    return entry.start < before.end and (entry.end <= before.end or entry.start <= before.start)


def _range(entry: RebuildableRange, node: NodeId) -> Range:
    return Range(
        index=RangeIndex(entry.index),
        start=Offset(entry.start),
        epoch=Epoch(entry.epoch),
        replicas=(node,),
        end=Offset(max(entry.start, entry.end)),
        generation=entry.generation,
        size_bytes=entry.size_bytes,
        batch_count=entry.batch_count,
        max_timestamp=entry.max_timestamp,
        max_timestamp_offset=entry.max_timestamp_offset,
    )


def _stream(stream: StreamId, ranges: tuple[Range, ...], start: int, epoch: int) -> Stream:
    # An outdated export may name a start below the first record.
    begins = Offset(max(start, ranges[0].start))
    kept = tuple(r for r in ranges if r.end is None or r.end > begins)
    last = kept[-1]
    leapt = Epoch(max(epoch, last.epoch) + EPOCH_LEAP)
    return Stream(id=stream, epoch=leapt, writer=last.replicas[0], start=begins, ranges=kept)


def _empty_stream(stream: StreamId, node: NodeId, start: int, epoch: int) -> Stream:
    fresh = new_stream(stream, (node,))
    leapt = Epoch(epoch + EPOCH_LEAP)
    first = replace(fresh.last, start=Offset(start), epoch=leapt)
    return replace(fresh, epoch=leapt, start=Offset(start), ranges=(first,))


def _without_folder(known: KnownTopic, node: NodeId) -> Topic:
    streams = tuple(
        _empty_stream(StreamId(known.id, PartitionIndex(at)), node, start, epoch)
        for at, (start, epoch) in enumerate(known.positions)
    )
    return Topic(
        id=known.id,
        name=known.name,
        created_ms=known.created_ms,
        streams=streams,
        configs=known.configs,
        internal=known.internal,
    )
