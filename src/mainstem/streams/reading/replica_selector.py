"""The replica that a reader is sent to: one in the reader's rack, if it has all records."""

from collections.abc import Callable, Sequence

from mainstem.model.ids import NO_NODE, NodeId
from mainstem.model.metadata import Stream
from mainstem.placement.state.tables import CatalogueTables
from mainstem.streams.writer.replication import ReplicaProgress


def nearest_replica(
    tables: CatalogueTables,
    stream: Stream,
    rack: str,
    offset: int,
    progress: Callable[[], Sequence[ReplicaProgress]],
) -> NodeId:
    """The replica in ``rack`` that is furthest and can serve from ``offset`` on; or ``NO_NODE``.

    Args:
        tables: the catalogue.
        stream: its entry of the stream, whose writer got the request.
        rack: the rack of the reader.
        offset: where it reads.
        progress: how far the replicas of the open range are.
    """
    if _stands_in(tables, stream.writer, rack):
        return NO_NODE  # the writer is in the same rack
    near = [
        node
        for node in stream.last.replicas
        if node != stream.writer and tables.is_live(node) and _stands_in(tables, node, rack)
    ]
    if not near:
        return NO_NODE
    able = [
        one
        for one in progress()
        if one.replica in near
        and one.is_in_sync
        and one.end >= offset
        and _holds_all(stream, one.replica, offset)
    ]
    return max(able, key=lambda one: one.end).replica if able else NO_NODE


def _stands_in(tables: CatalogueTables, node: NodeId, rack: str) -> bool:
    known = tables.node(node)
    return known is not None and known.node.rack == rack


def _holds_all(stream: Stream, node: NodeId, offset: int) -> bool:
    """Whether a node has every sealed range from an offset on."""
    return all(
        node in range_info.holders and node not in range_info.replicating
        for range_info in stream.ranges
        if range_info.end is not None and range_info.end > offset
    )
