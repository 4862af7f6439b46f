"""Views of the cluster for people: rows of nodes, ranges and moves. Pure, made on request."""

from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

from msgspec import Struct

from mainstem.model.ids import NO_NODE, NodeId, StreamId
from mainstem.model.metadata import Range, Stream
from mainstem.placement.changes.replication_commands import NodeStatus
from mainstem.placement.state.tables import CatalogueTables

RangeState = Literal["open", "taking over", "offline", "sealed", "incomplete", "moving"]


Seen = Literal["alive", "suspected", "dead", "left", "unknown"]


class GossipStatus(NamedTuple):
    """State of a node according to gossip: a hint; ``cpu`` is its use of one core, if known."""

    seen: Seen
    cpu: float | None


class NodeRow(Struct, frozen=True):
    """A node, how many streams it writes, and what it holds; open ranges count without bytes.

    ``seen`` and ``cpu`` come from the gossip of the node that got the request.
    """

    node: NodeId
    host: str
    port: int
    status: NodeStatus
    incarnation: int
    rack: str
    machine: str
    writes: int
    ranges: int
    size_bytes: int
    copying: int
    seen: Seen = "unknown"
    cpu: float | None = None


class RangeRow(Struct, frozen=True):
    """A range: its writer, its complete replicas, and its target replicas.

    Of an open range ``done`` are its replicas that are not fenced.
    """

    topic: str
    partition: int
    index: int
    start: int
    end: int | None
    epoch: int
    writer: NodeId | None
    replicas: tuple[NodeId, ...]
    done: tuple[NodeId, ...]
    replicating: tuple[NodeId, ...]
    acks: int
    generation: int
    size_bytes: int
    state: RangeState
    suspect: bool
    unclean: bool


class MoveRow(Struct, frozen=True):
    """A stream that is not yet on its target nodes, as Kafka's tools show a reassignment."""

    topic: str
    partition: int
    stream: StreamId
    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]


def node_rows(tables: CatalogueTables) -> list[NodeRow]:
    """Every node, by its id."""
    writes: Counter[NodeId] = Counter()
    ranges: Counter[NodeId] = Counter()
    sizes: Counter[NodeId] = Counter()
    copying: Counter[NodeId] = Counter()
    for topic in tables.topics():
        for stream in topic.streams:
            writes[stream.writer] += 1
            for known in stream.ranges:
                copying.update(known.replicating)
                for node in known.replicas:
                    ranges[node] += 1
                    sizes[node] += known.size_bytes
    return [
        NodeRow(
            known.node.id,
            known.node.host,
            known.node.port,
            known.status,
            known.incarnation,
            known.node.rack or "",
            known.node.machine,
            writes[known.node.id],
            ranges[known.node.id],
            sizes[known.node.id],
            copying[known.node.id],
        )
        for known in sorted(tables.nodes(), key=lambda known: known.node.id)
    ]


def range_rows(tables: CatalogueTables, topic: str | None = None) -> Iterator[RangeRow]:
    """Every range, or those of one topic, by name, partition and offset."""
    for known in sorted(tables.topics(), key=lambda each: each.name):
        if topic is not None and known.name != topic:
            continue
        for stream in known.streams:
            for held in stream.ranges:
                yield _range_row(tables, known.name, stream, held)


def incomplete(tables: CatalogueTables) -> Counter[RangeState]:
    """How many ranges are in each state."""
    return Counter(row.state for row in range_rows(tables))


def move_rows(tables: CatalogueTables) -> Iterator[MoveRow]:
    """Streams that are being moved; those that wait for a node that is down are not."""
    for topic in tables.topics():
        for stream in topic.streams:
            wanted = stream.wanted
            held = dict.fromkeys(
                node for known in stream.ranges for node in (*known.replicas, *known.replicating)
            )
            adding = [n for n in wanted if tables.is_live(n) and _lacks_some(stream, n)]
            removing = [node for node in held if node not in wanted]
            if adding or removing:
                rest = [node for node in held if node not in wanted]
                everyone = (*wanted, *rest)
                yield MoveRow(
                    topic.name,
                    stream.id.partition,
                    stream.id,
                    everyone,
                    tuple(adding),
                    tuple(removing),
                )


def is_garbage(tables: CatalogueTables, node: NodeId, stream: StreamId, index: int) -> bool:
    """Whether a node may remove its copy of a range, because the catalogue has released it.

    Only what the catalogue knows counts: its topic was deleted, or the stream has continued and the
    range was trimmed, joined to another or given to other nodes. An unknown range is kept.
    """
    known = tables.stream(stream)
    if known is None:
        return stream.topic in tables.deleted
    if index > known.last.index:
        return False
    listed = next((one for one in known.ranges if one.index == index), None)
    return listed is None or node not in (*listed.replicas, *listed.replicating)


def _lacks_some(stream: Stream, node: NodeId) -> bool:
    return any(
        node not in (known.replicas if known.is_open else known.holders) for known in stream.ranges
    )


def _range_row(tables: CatalogueTables, topic: str, stream: Stream, known: Range) -> RangeRow:
    up = tuple(node for node in known.replicas if tables.is_live(node))
    return RangeRow(
        topic,
        stream.id.partition,
        known.index,
        known.start,
        known.end,
        known.epoch,
        stream.writer if known.is_open and stream.writer != NO_NODE else None,
        known.replicas,
        up if known.is_open else known.holders,
        known.replicating,
        known.acks_needed,
        known.generation,
        known.size_bytes,
        _state(stream, known),
        known.suspect,
        known.unclean,
    )


def _state(stream: Stream, known: Range) -> RangeState:
    if known.is_open:
        if stream.writer == NO_NODE:
            return "offline"
        return "taking over" if stream.is_taken_over else "open"
    if any(node not in known.holders for node in known.replicas):
        return "incomplete"
    return "sealed" if set(known.replicas) == set(stream.wanted) else "moving"
