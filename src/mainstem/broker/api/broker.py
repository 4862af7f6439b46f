"""The broker API: everything that a wire protocol may use of the node.

    broker.streams   append to and read from the streams this node writes
    broker.topics    topics, the cluster (``topics``), and their configuration (``configs``)
    broker.groups    consumer groups and their offsets (``groups``)
    broker.all_groups  groups of every kind and node, for administrators (``groups``)
    broker.transactions  transactions over streams and offsets (``transactions``)
    broker.producers producer ids
    broker.cluster   features, nodes and the catalogue as a whole (``cluster``)
    broker.client_metrics  metrics pushed by clients (``client_metrics``)
    broker.queues    queues, exchanges and bindings (``queues``)
    broker.shares    share groups (``share_groups``)
    broker.security  logins, rights, quotas and their administration (``security``)

Appending takes two steps, because one read from a connection brings many batches that should go to
the disk in one write: ``stage`` decides (offset, sequence) and ``flush`` writes everything staged
since the last flush. Staged buffers are borrowed until that flush, no longer.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from mainstem.broker.api.client_metrics import ClientMetrics
from mainstem.broker.api.cluster import Cluster
from mainstem.broker.api.groups import AllGroups, Groups
from mainstem.broker.api.queues import Queues
from mainstem.broker.api.security import Security
from mainstem.broker.api.share_groups import ShareGroups
from mainstem.broker.api.topics import Topics
from mainstem.broker.api.transactions import Transactions
from mainstem.model.errors import MainstemError
from mainstem.model.ids import NodeId, Offset, ProducerId, StreamId, TopicId
from mainstem.model.metadata import Node
from mainstem.streams.producers.stream_state import DescribedProducer
from mainstem.streams.reading.local_reader_driver import StreamPiece

Settled = Callable[[MainstemError | None], None]


class Slice(Protocol):
    """Whole batches in a file: sent by ``sendfile`` when ``verified``, read otherwise."""

    @property
    def fd(self) -> int:
        """The file."""
        ...

    @property
    def position(self) -> int:
        """Where in the file the slice starts."""
        ...

    @property
    def start_offset(self) -> int:
        """Offset of its first batch."""
        ...

    @property
    def until_offset(self) -> int:
        """The offset after its last batch."""
        ...

    def read(self) -> bytes:
        """The bytes of the slice."""
        ...

    def __len__(self) -> int: ...


class StreamProducers(Protocol):
    """The producers of a stream."""

    def described(self) -> Sequence[DescribedProducer]:
        """Every known producer, and the first offset of its open transaction."""
        ...


class PartitionReader(Protocol):
    """One stream that can be read on this node: it writes it, or has a replica of it."""

    id: StreamId
    topic: str
    closed: MainstemError | None  # why the stream accepts and returns nothing, None while open
    # Why the local state may be out of date; None: no other node can write the stream.
    lapsed: Callable[[], MainstemError | None] | None
    epoch: int
    start_offset: int
    next_offset: int
    committed: int
    last_stable: int

    def aborted_transactions(self, start: int, until: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions with records in [start, until)."""
        ...

    def read(
        self, offset: int, *, max_bytes: int, committed_only: bool, min_one: bool
    ) -> Slice | None:
        """Batches from the one that contains ``offset`` on; None where there is nothing yet."""
        ...

    def available(self, offset: int, *, max_bytes: int, committed_only: bool) -> int:
        """How many bytes a read from ``offset`` could return, up to ``max_bytes``.

        It is ``max_bytes`` where waiting cannot make the next read larger.
        """
        ...

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """First (offset, timestamp, epoch) that is not older than ``timestamp``."""
        ...

    def offset_of_max_timestamp(self) -> tuple[int, int, int] | None:
        """The (offset, timestamp, epoch) of the largest timestamp."""
        ...

    def epoch_of(self, offset: int) -> int:
        """The epoch under which ``offset`` was written; -1 unknown."""
        ...

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to ``epoch`` and the offset where it ended; (-1, -1) unknown."""
        ...

    def add_waiter(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` whenever committed moves, until it is removed."""
        ...

    def remove_waiter(self, wake: Callable[[], None]) -> None:
        """Stop calling ``wake``."""
        ...


class PartitionWriter(PartitionReader, Protocol):
    """One stream that this node writes. The attributes are plain and cheap to read."""

    is_internal: bool  # only the node itself writes it
    short_of_replicas: bool  # fewer copies than min.insync.replicas requires
    append_time_ms: int  # of the batch staged last; -1 where producers stamp the time

    @property
    def is_lone(self) -> bool:
        """Whether no other node has a copy of what is written now."""
        ...

    @property
    def state(self) -> StreamProducers:
        """The producers of this stream."""
        ...

    def stage(self, buf: memoryview, start: int, until: int, *, verified: bool = False) -> Offset:
        """Check, stamp and queue the batch in ``buf[start:until]``; its base offset.

        For a batch that was stored before (same producer and sequence) returns its first offset
        and queues nothing. The first batch of a transaction is refused unless the caller
        ``verified`` that the partition belongs to it.
        """
        ...

    def has_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether an ongoing transaction of this producer epoch has records here."""
        ...

    def failure(self, base: Offset) -> MainstemError | None:
        """Why the flush after ``stage`` could not write that batch, if it could not."""
        ...

    def when_written(self, base: Offset, settled: Settled) -> bool:
        """Whether the batch at ``base`` is committed; if not, ``settled`` is called once it is."""
        ...


class StableStreamReader(Protocol):
    """A reader of a local or remote stream, up to the last stable offset."""

    @property
    def start_offset(self) -> int:
        """Where the stream starts."""
        ...

    @property
    def last_stable(self) -> int:
        """Where it currently ends."""
        ...

    async def offset_at(self, timestamp: int) -> int | None:
        """The offset of the first record that is not older."""
        ...

    async def piece(self, offset: int, max_bytes: int) -> StreamPiece | None:
        """Batches from the one that contains ``offset`` on; None where there is nothing yet."""
        ...

    async def next_piece(self, offset: int, max_bytes: int, wait_ms: int) -> StreamPiece | None:
        """As ``piece``, but waits a while where there is nothing yet; the bounds follow.

        It may return None early. Refused if another node has become the writer.
        """
        ...


def check_fresh(reader: PartitionReader) -> None:
    """Refuse to answer from a stream that another node may already write.

    What is committed needs no such check: replicas refuse a writer that was replaced.

    Raises:
        Unavailable: this node was unreachable for so long that it may have been replaced.
    """
    if reader.lapsed is not None and (reason := reader.lapsed()) is not None:
        raise reason


class Streams(Protocol):
    """The streams of this node by name and by id."""

    def partition(self, topic: str, partition: int) -> PartitionWriter:
        """The stream, or an error: unknown topic, not the writer."""
        ...

    def partition_by_id(self, topic: TopicId, partition: int) -> PartitionWriter:
        """The same by topic id."""
        ...

    def reader(self, topic: str, partition: int) -> PartitionReader:
        """The stream to read: as ``partition`` finds it, or else the replica that this node has."""
        ...

    def reader_by_id(self, topic: TopicId, partition: int) -> PartitionReader:
        """The same by topic id."""
        ...

    async def open_reader(
        self, topic: str, partition: int, until: int | None = None
    ) -> StableStreamReader:
        """A reader of a local or remote stream; the caller needs offsets below ``until``."""
        ...

    def stable_reader(self, topic: str, partition: int) -> StableStreamReader:
        """A reader of the local replica, which may end before the writer's log does."""
        ...

    def nearest(self, stream: StreamId, rack: str, offset: int) -> NodeId:
        """The nearest replica for a reader in a rack, from ``offset`` on; or ``NO_NODE``.

        Only the writer of the stream can answer.
        """
        ...

    def flush(self) -> None:
        """Write everything staged, one vectored write per stream."""
        ...

    async def append(self, topic: str, partition: int, batch: bytearray) -> Offset:
        """Stage, flush and wait until committed: for protocols that send one message at a time."""
        ...

    async def delete_records(self, topic: str, partition: int, before: int) -> Offset:
        """Move the start of the stream to ``before`` (-1: to the end); the new start."""
        ...

    def sizes(self, topic: str | None = None) -> Sequence[tuple[str, int, int]]:
        """(topic, partition, bytes on disk) of every stream held here, or of one topic's."""
        ...


class Producers(Protocol):
    """Producer identities."""

    async def new_producer_id(self) -> tuple[ProducerId, int]:
        """A new producer id and its epoch."""
        ...


class Broker(Protocol):
    """What a protocol session may use."""

    streams: Streams
    topics: Topics
    groups: Groups
    all_groups: AllGroups
    transactions: Transactions
    producers: Producers
    security: Security
    cluster: Cluster
    client_metrics: ClientMetrics
    queues: Queues
    shares: ShareGroups
    node: Node
