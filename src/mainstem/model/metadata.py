"""Immutable facts about topics, streams, ranges and nodes, as the catalogue holds them.

    topic ── stream (one per partition) ── range ─ range ─ range (only the last may be open)

A stream's epoch is what Kafka calls the leader epoch; its writer is Kafka's leader. A range keeps
the epoch under which it was created, so the epochs along a stream never decrease.
"""

from msgspec import Struct
from msgspec.structs import replace

from mainstem.model.ids import Epoch, NodeId, Offset, RangeIndex, StreamId, TopicId


class Node(Struct, frozen=True):
    """One process of the cluster and where it can be reached.

    ``advertised``: the address was chosen by its operator, so clients are told it whatever they
    dialled themselves.
    """

    id: NodeId
    host: str
    port: int
    rack: str | None = None
    advertised: bool = False


class Range(Struct, frozen=True):
    """A contiguous piece of a stream, held by a fixed set of nodes under one epoch.

    ``end`` is None while the range is open. What a sealed range holds in bytes, batches and largest
    timestamp is recorded here, so that no question about it needs its files.
    """

    index: RangeIndex
    start: Offset
    epoch: Epoch
    replicas: tuple[NodeId, ...]
    end: Offset | None = None
    generation: int = 0
    size_bytes: int = 0
    batch_count: int = 0
    max_timestamp: int = -1
    max_timestamp_offset: int = -1
    sealed_ms: int = 0
    suspect: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the writer may still append."""
        return self.end is None


class Stream(Struct, frozen=True):
    """One partition: its ranges in order, its single writer and the epoch of that writer."""

    id: StreamId
    epoch: Epoch
    writer: NodeId
    start: Offset
    ranges: tuple[Range, ...]

    @property
    def last(self) -> Range:
        """The range that takes appends."""
        return self.ranges[-1]


class Topic(Struct, frozen=True):
    """A named set of streams. ``configs`` holds only what was set; defaults are elsewhere."""

    id: TopicId
    name: str
    created_ms: int
    streams: tuple[Stream, ...]
    configs: dict[str, str] = {}
    internal: bool = False

    def with_stream(self, stream: Stream) -> "Topic":
        """This topic with one of its streams replaced."""
        streams = list(self.streams)
        streams[stream.id.partition] = stream
        return replace(self, streams=tuple(streams))
