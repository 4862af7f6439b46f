"""Which streams to move so that nodes hold and write about as many as their share. Pure.

Only as many move as a fair share needs: an empty node takes from the fullest, in the order of
the hash scores. Nothing moves between two nodes that both have their share, and
nothing moves onto a machine or rack where the stream already is, unless there is no other. Streams
that one node must write together (``together``) count, and are not moved.
"""

from collections.abc import Callable, Sequence
from typing import Final

from mainstem.model.ids import NodeId, StreamId
from mainstem.model.metadata import Node, Stream
from mainstem.placement.planning import co_location
from mainstem.placement.planning.replica_placement import Replicas, scores
from mainstem.placement.state.tables import CatalogueTables

Move = tuple[StreamId, Replicas]

GAP_MIN: Final = 3
GAP_PER_CENT: Final = 20
"""Nodes may differ by so much of their share before anything moves; then the gap is closed."""


def moves(tables: CatalogueTables, limit: int) -> list[Move]:
    """Up to ``limit`` streams and their new target nodes."""
    nodes = {known.node.id: known.node for known in tables.nodes() if known.status == "live"}
    if len(nodes) < 2:
        return []
    streams = [
        stream
        for topic in tables.topics()
        for stream in topic.streams
        if set(stream.wanted) <= nodes.keys()
    ]
    fixed = co_location.fixed(tables)
    found = _Balance(nodes, streams, tables.busy, fixed).of_copies(limit)
    return found or _Balance(nodes, streams, tables.busy, fixed).of_writers(limit)


class _Balance:
    """The target nodes of streams, updated with each move."""

    def __init__(
        self,
        nodes: dict[NodeId, Node],
        streams: Sequence[Stream],
        busy: Callable[[NodeId], int],
        fixed: frozenset[StreamId],
    ) -> None:
        self._fixed = fixed
        self._nodes = nodes
        self._busy = busy
        self._wanted = {stream.id: stream.wanted for stream in streams}
        self._moves: dict[StreamId, Replicas] = {}

    def of_copies(self, limit: int) -> list[Move]:
        """Moves from nodes that hold the most to those that hold the least."""
        held: dict[NodeId, set[StreamId]] = {node: set() for node in self._nodes}
        for stream, wanted in self._wanted.items():
            for node in wanted:
                held[node].add(stream)
        while len(self._moves) < limit:
            low, high = self._ends({node: len(streams) for node, streams in held.items()})
            gap = len(held[high]) - len(held[low])
            if gap < (2 if self._moves else _gap(sum(map(len, held.values())), len(held))):
                break
            best = self._best(held[high] - held[low] - self._moves.keys() - self._fixed, high, low)
            if best is None:
                break
            wanted = tuple(low if node == high else node for node in self._wanted[best])
            self._move(best, wanted)
            held[high].discard(best)
            held[low].add(best)
        return list(self._moves.items())

    def of_writers(self, limit: int) -> list[Move]:
        """Other preferred writers among those that hold the stream: no record moves."""
        writes: dict[NodeId, set[StreamId]] = {node: set() for node in self._nodes}
        for stream, wanted in self._wanted.items():
            writes[wanted[0]].add(stream)
        while len(self._moves) < limit:
            low, high = self._ends({node: len(streams) for node, streams in writes.items()})
            gap = len(writes[high]) - len(writes[low])
            if gap < (2 if self._moves else _gap(len(self._wanted), len(writes))):
                break
            free = writes[high] - self._moves.keys() - self._fixed
            able = [stream for stream in free if low in self._wanted[stream]]
            if not able:
                break
            stream = min(able)
            rest = [node for node in self._wanted[stream] if node != low]
            self._move(stream, (low, *rest))
            writes[high].discard(stream)
            writes[low].add(stream)
        return list(self._moves.items())

    def _ends(self, counts: dict[NodeId, int]) -> tuple[NodeId, NodeId]:
        """The node with the least and the one with the most, the less busy one counting as less."""
        ordered = sorted(counts, key=lambda node: (counts[node], self._busy(node), node))
        return ordered[0], ordered[-1]

    def _move(self, stream: StreamId, wanted: Replicas) -> None:
        self._wanted[stream] = self._moves[stream] = wanted

    def _best(self, able: set[StreamId], high: NodeId, low: NodeId) -> StreamId | None:
        """The stream with the best score for the new node that stays as spread as it is."""
        spread = [stream for stream in able if self._stays_apart(stream, high, low)]
        target = self._nodes[low]
        return max(spread, key=lambda stream: (scores(stream)(target), stream), default=None)

    def _stays_apart(self, stream: StreamId, high: NodeId, low: NodeId) -> bool:
        beside = [self._nodes[node] for node in self._wanted[stream] if node != high]
        new, old = self._nodes[low], self._nodes[high]
        return _clashes(new, beside) <= _clashes(old, beside)


def _clashes(node: Node, beside: Sequence[Node]) -> tuple[int, int]:
    machines = sum(bool(node.machine) and node.machine == other.machine for other in beside)
    racks = sum(bool(node.rack) and node.rack == other.rack for other in beside)
    return machines, racks


def _gap(total: int, nodes: int) -> int:
    return max(GAP_MIN, total * GAP_PER_CENT // (100 * nodes))
