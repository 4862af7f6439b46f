"""Choice of replicas: rendezvous hashing, spread over machines and racks, with bounded load.

    every node has a score for every stream (rendezvous hashing)
    one after the other: another machine ▸ another rack ▸ not above its share ▸ less busy ▸
                         the best score

Writers of one topic are spread first, then those of all. The load of nodes counts when a stream is
placed, in coarse steps so that it seldom decides, and never for a stream that is placed: loads
change often, and moving records is expensive. A node that joins takes streams from others and moves
nothing between them; a node that leaves leaves its streams to others. Assignments of an operator
are used as they are. Pure.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b

from mainstem.model.config.topic import topic_settings
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.ids import NO_NODE, NodeId, PartitionIndex, StreamId, TopicId
from mainstem.model.limits import PARTITIONS_PER_TOPIC_MAX
from mainstem.model.metadata import Node, Stream, Topic, majority
from mainstem.placement.state.tables import CatalogueTables

Replicas = tuple[NodeId, ...]
# The smaller, the better; compared after machine and rack.
Rank = Callable[[Node], tuple[int, ...]]

NAMED_MAX = 10
"""How many nodes of a rejected assignment an error message repeats."""
_DOWN = 1 << 40
"""Worse than any load."""


def place(
    tables: CatalogueTables,
    topic: TopicId,
    *,
    first: int,
    partitions: int,
    replication_factor: int,
    assignments: Sequence[Replicas] | None = None,
) -> tuple[Replicas, ...]:
    """The replicas of partitions ``first`` and following, the writer of each in front.

    Raises:
        InvalidRequest: too many or too few partitions or replicas, an assignment that names nodes
            that do not exist or the same one twice.
    """
    count = partitions if assignments is None else len(assignments)
    if count < 1 or first + count > PARTITIONS_PER_TOPIC_MAX:
        raise InvalidRequest(
            ErrorCode.INVALID_PARTITIONS,
            f"{first + count} partitions; a topic has 1 to {PARTITIONS_PER_TOPIC_MAX}",
        )
    if assignments is not None:
        return checked(tables, assignments)
    streams = [StreamId(topic, PartitionIndex(first + at)) for at in range(count)]
    return plan(tables, streams, replication_factor)


def plan(
    tables: CatalogueTables, streams: Sequence[StreamId], replication_factor: int
) -> tuple[Replicas, ...]:
    """Replicas for streams of one topic that are new, or are to be placed again.

    Raises:
        InvalidRequest: there are fewer nodes than replicas.
    """
    nodes = [known for known in tables.nodes() if not known.draining]
    live = [known.node for known in nodes if not known.fenced]
    # Nodes that are down are used only if there are not enough others.
    usable = live if replication_factor <= len(live) else [known.node for known in nodes]
    if replication_factor < 1 or replication_factor > len(usable):
        raise InvalidRequest(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} with {len(usable)} nodes",
            remedy=f"use 1 to {len(usable)}, or -1 for the default",
        )
    if len(usable) == 1:
        return ((usable[0].id,),) * len(streams)
    loads = NodeLoads(tables, usable, streams, replication_factor)
    down = {known.node.id for known in nodes if known.fenced}
    placed = []
    for stream in streams:
        score = scores(stream)
        writer = min(
            usable,
            key=lambda n: (n.id in down, *loads.leads(n), tables.busy(n.id), -score(n)),
        )
        replicas = (
            writer.id,
            *spread(
                [node for node in usable if node.id != writer.id],
                [writer],
                replication_factor - 1,
                lambda n: (
                    _DOWN * (n.id in down) + loads.excess(n),
                    tables.busy(n.id),
                    -score(n),  # noqa: B023
                ),
            ),
        )
        loads.add(stream, replicas)
        placed.append(replicas)
    return tuple(placed)


def next_set(
    tables: CatalogueTables, topic: Topic, stream: Stream, exclude: Collection[NodeId]
) -> Replicas:
    """The replicas of the next range of a stream: its target nodes, others for unavailable ones.

    The writer is always among them: it continues, or hands over later. A set that would be smaller
    than ``min.insync.replicas`` is completed with nodes that are down: records wait for them.
    """
    wanted = stream.wanted
    able = {
        known.node.id: known.node
        for known in tables.nodes()
        if known.status == "live" and known.node.id not in exclude
    }
    chosen = [node for node in wanted if node in able]
    missing = len(wanted) - len(chosen)
    if missing:
        score = scores(stream.id)
        others = [node for node in able.values() if node.id not in chosen]
        beside = [able[node] for node in chosen]
        chosen += spread(others, beside, missing, lambda n: (0, -score(n)))
    if stream.writer != NO_NODE and stream.writer not in chosen:
        chosen.append(stream.writer)
    fewest = min(min_insync(tables, topic.configs), len(wanted))
    for node in (*wanted, *stream.last.replicas):
        if len(chosen) < fewest and node not in chosen and tables.node(node) is not None:
            chosen.append(node)
    return tuple(chosen)


def acks_for(tables: CatalogueTables, configs: Mapping[str, str], replicas: int) -> int:
    """How many of so many replicas acknowledge in a topic; 0 means a majority."""
    most = majority(replicas)
    acks = min(max(min_insync(tables, configs), most), replicas)
    return 0 if acks == most else acks


def min_insync(tables: CatalogueTables, configs: Mapping[str, str]) -> int:
    """The smallest number of replicas of a range of a topic."""
    return topic_settings(configs, tables.cluster_configs()).min_insync_replicas


def allows_unclean(tables: CatalogueTables, configs: Mapping[str, str]) -> bool:
    """Whether a topic allows unclean elections instead of waiting for complete replicas."""
    return topic_settings(configs, tables.cluster_configs()).unclean_leader_election


def disks(tables: CatalogueTables, nodes: Iterable[NodeId]) -> tuple[tuple[NodeId, str], ...]:
    """The directories of nodes, each once."""
    return tuple(
        (node, known.directory)
        for node in sorted(set(nodes))
        if (known := tables.node(node)) is not None
    )


def scores(stream: StreamId) -> Callable[[Node], int]:
    """The hash score of a node for a stream; independent of all other nodes."""
    key = stream.topic + stream.partition.to_bytes(8, "big")

    def score(node: Node) -> int:
        digest = blake2b(node.id.to_bytes(8, "big"), key=key, digest_size=8).digest()
        return int.from_bytes(digest, "big")

    return score


def spread(nodes: Iterable[Node], beside: Sequence[Node], count: int, rank: Rank) -> list[NodeId]:
    """Up to ``count`` of ``nodes``, as far apart from each other and ``beside`` as possible."""
    left = list(nodes)
    machines = {_machine(node) for node in beside}
    racks = {_rack(node) for node in beside}
    chosen: list[NodeId] = []
    while left and len(chosen) < count:
        best = min(left, key=lambda n: (_machine(n) in machines, _rack(n) in racks, *rank(n)))
        left.remove(best)
        machines.add(_machine(best))
        racks.add(_rack(best))
        chosen.append(best.id)
    return chosen


def checked(tables: CatalogueTables, assignments: Sequence[Replicas]) -> tuple[Replicas, ...]:
    """The given assignments, or a refusal."""
    known = {node.node.id for node in tables.nodes()}
    for replicas in assignments:
        if (
            not replicas
            or len(set(replicas)) != len(replicas)
            or len(replicas) != len(assignments[0])
            or not set(replicas) <= known
        ):
            raise InvalidRequest(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"replicas {list(replicas[:NAMED_MAX])}: each partition needs the same number of "
                f"different nodes out of {sorted(known)}",
            )
    return tuple(tuple(replicas) for replicas in assignments)


class NodeLoads:
    """How many streams nodes write, and follow as replicas; and their share of that.

    What a node writes of one topic counts before what it writes of all: a busy topic is spread even
    if some nodes have fewer streams of other topics.
    """

    def __init__(
        self,
        tables: CatalogueTables,
        nodes: Sequence[Node],
        new: Sequence[StreamId],
        replication_factor: int,
    ) -> None:
        self._writes = {node.id: 0 for node in nodes}
        self._follows = dict(self._writes)
        self._writes_here = dict(self._writes)
        self._topic = new[0].topic
        for topic in tables.topics():
            for stream in topic.streams:
                self.add(stream.id, stream.wanted)
        self._writes_share = _share(self._writes, len(new))
        self._follows_share = _share(self._follows, len(new) * (replication_factor - 1))

    def add(self, stream: StreamId, replicas: Replicas) -> None:
        """Count a stream."""
        counts = [self._writes, *[self._follows] * (len(replicas) - 1)]
        placed = list(zip(counts, replicas, strict=True))
        if stream.topic == self._topic:
            placed.append((self._writes_here, replicas[0]))
        for count, node in placed:
            if node in count:
                count[node] += 1

    def leads(self, node: Node) -> tuple[int, bool]:
        """How many streams of the topic a node writes, and whether it has its share of all."""
        return self._writes_here[node.id], self._writes[node.id] >= self._writes_share

    def excess(self, node: Node) -> int:
        """By how many streams a node follows its share or more."""
        return max(0, self._follows[node.id] + 1 - self._follows_share)


def _share(counts: Mapping[NodeId, int], more: int) -> int:
    return -(-(sum(counts.values()) + more) // len(counts))


def _machine(node: Node) -> str:
    return node.machine or f"of node {node.id}"


def _rack(node: Node) -> str:
    return node.rack or f"of node {node.id}"
