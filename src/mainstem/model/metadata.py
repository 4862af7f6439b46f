"""Immutable facts about topics, streams, ranges and nodes, as the catalogue holds them.

    topic ── stream (one per partition) ── range ─ range ─ range (only the last may be open)

A stream's epoch is what Kafka calls the leader epoch; its writer is Kafka's leader. A range keeps
the epoch under which it was created, so the epochs along a stream never decrease.
"""

from msgspec import Struct
from msgspec.structs import replace

from mainstem.model.ids import Epoch, NodeId, Offset, RangeIndex, StreamId, TopicId


def majority(replicas: int) -> int:
    """How many replicas acknowledge unless the topic sets it."""
    return replicas // 2 + 1


class Node(Struct, frozen=True, forbid_unknown_fields=True):
    """One process of the cluster and where it can be reached.

    ``advertised``: the address was configured, so clients get it whatever address they connected
    to. ``machine``: nodes of one machine fail together. Other nodes reach it at
    ``peer_host`` and ``peer_port``, over TCP and UDP. ``listeners`` are those of Kafka clients, as
    (kind, host, port); ``host`` and ``port`` are the first one's.
    """

    id: NodeId
    host: str
    port: int
    rack: str | None = None
    advertised: bool = False
    machine: str = ""
    peer_host: str = ""
    peer_port: int = 0
    listeners: tuple[tuple[str, str, int], ...] = ()


class Range(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A contiguous piece of a stream, held by a fixed set of nodes under one epoch.

    ``end`` is None while the range is open. What a sealed range holds in bytes, batches and largest
    timestamp is recorded here, so that its files need not be read for that.

    ``directories`` names the disk that was assigned on each replica, in their order; nothing: disks
    are not checked. ``acks`` is how many replicas acknowledge (0: a majority). Of a sealed range,
    ``done`` have all of it on disk, ``replicating`` are to copy it. ``suspect``: a power loss may
    have taken records; ``unclean``: an election without enough replicas may have.
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
    directories: tuple[str, ...] = ()
    done: tuple[NodeId, ...] = ()
    replicating: tuple[NodeId, ...] = ()
    acks: int = 0
    unclean: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the writer may still append."""
        return self.end is None

    @property
    def acks_needed(self) -> int:
        """How many replicas acknowledge, as a number."""
        return min(self.acks or majority(len(self.replicas)), len(self.replicas))

    @property
    def holders(self) -> tuple[NodeId, ...]:
        """The replicas with all of a sealed range on disk; a single replica is not recorded."""
        return self.done if len(self.replicas) > 1 else self.replicas

    def directory_of(self, node: NodeId) -> str | None:
        """The disk that was assigned on a replica; None: disks are not checked."""
        return (self.directories[self.replicas.index(node)] or None) if self.directories else None


class Stream(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One partition: its ranges in order, its single writer and the epoch of that writer.

    A stream whose epoch is newer than that of its last range is being taken over: its writer was
    elected and has yet to seal that range. The writer of an offline stream is ``NO_NODE``.
    ``target`` are the intended replicas, the preferred writer first (empty: the current ones).
    """

    id: StreamId
    epoch: Epoch
    writer: NodeId
    start: Offset
    ranges: tuple[Range, ...]
    target: tuple[NodeId, ...] = ()

    @property
    def last(self) -> Range:
        """The range that takes appends."""
        return self.ranges[-1]

    @property
    def wanted(self) -> tuple[NodeId, ...]:
        """The intended replicas, the preferred writer first."""
        return self.target or self.last.replicas

    @property
    def is_taken_over(self) -> bool:
        """Whether a new writer was elected and has not sealed the last range yet."""
        return self.epoch > self.last.epoch


class Topic(Struct, frozen=True, forbid_unknown_fields=True):
    """A named set of streams. ``configs`` holds only what was set, without defaults.

    ``replication`` is how many replicas a stream should have (0: as many as its first has).
    """

    id: TopicId
    name: str
    created_ms: int
    streams: tuple[Stream, ...]
    configs: dict[str, str] = {}
    internal: bool = False
    replication: int = 0

    @property
    def replicas_wanted(self) -> int:
        """How many replicas a stream should have, as a number."""
        return self.replication or len(self.streams[0].wanted)

    def with_stream(self, stream: Stream) -> "Topic":
        """This topic with one of its streams replaced."""
        streams = list(self.streams)
        streams[stream.id.partition] = stream
        return replace(self, streams=tuple(streams))
