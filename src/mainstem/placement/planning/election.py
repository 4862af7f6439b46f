"""Which nodes may write a stream, and which is the best. Pure.

Only a live replica of the open range on the disk that was assigned may be elected: it can find the
end of the range and has what it needs to continue. The best of them is not draining, has the most
of the older ranges, and is first in the order of the target nodes. An unclean
election takes a replica of older ranges when there is no other; the open range is lost then.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from mainstem.model.ids import NO_NODE, Epoch, NodeId
from mainstem.model.metadata import Stream
from mainstem.placement.changes.replication_commands import Election
from mainstem.placement.state.tables import CatalogueTables


class NodeChange(Struct, frozen=True):
    """A change that is being decided: a node that has failed, or one that returned on a disk."""

    gone: NodeId = NO_NODE
    back: NodeId = NO_NODE
    directory: str = ""


NO_NODE_CHANGE = NodeChange()


def candidates(
    tables: CatalogueTables, stream: Stream, change: NodeChange = NO_NODE_CHANGE
) -> list[NodeId]:
    """The nodes that may write a stream, the best first."""
    able = [node for node in stream.last.replicas if _may_write(tables, stream, node, change)]
    return sorted(able, key=lambda node: _rank(tables, stream, node))


def elected(
    tables: CatalogueTables, stream: Stream, change: NodeChange = NO_NODE_CHANGE
) -> Election:
    """The election that gives a stream its best writer, or none."""
    able = candidates(tables, stream, change)
    return Election(stream.id, Epoch(stream.epoch + 1), able[0] if able else NO_NODE)


def elections_without(tables: CatalogueTables, node: NodeId) -> Iterator[Election]:
    """A node has failed: the streams it wrote are given to others."""
    change = NodeChange(gone=node)
    for stream in tables.streams_of(node):
        yield elected(tables, stream, change)


def elections_with(
    tables: CatalogueTables, node: NodeId, directory: str, *, restarted: bool
) -> Iterator[Election]:
    """A node is back: streams that it wrote with others, and those without a writer, get one.

    A restarted node never reuses its old epoch; streams that only it held it seals itself.
    """
    change = NodeChange(back=node, directory=directory)
    if restarted:
        for stream in tables.streams_of(node):
            if any(known.replicas != (node,) for known in stream.ranges):
                able = candidates(tables, stream, change)
                others = [other for other in able if other != node]
                writer = next(iter(others or able), NO_NODE)
                yield Election(stream.id, Epoch(stream.epoch + 1), writer)
    for stream in tables.streams_of(NO_NODE):
        if candidates(tables, stream, change):
            yield elected(tables, stream, change)


def preferred(tables: CatalogueTables, stream: Stream) -> NodeId | None:
    """The preferred writer of a stream, if it can write it now without a gap."""
    node = stream.wanted[0]
    known = tables.node(node)
    if known is None or known.status != "live" or node not in candidates(tables, stream):
        return None
    return node if not _lacks(stream, node) else None


def successor(
    tables: CatalogueTables, stream: Stream, without: Iterable[NodeId] = ()
) -> NodeId | None:
    """The best new writer of a stream whose writer gives it up; None: there is none."""
    excluded = {stream.writer, *without}
    able = [node for node in candidates(tables, stream) if node not in excluded]
    return able[0] if able else None


def safe_successor(tables: CatalogueTables, stream: Stream) -> NodeId | None:
    """A live node that stays and lacks nothing, for a writer that is to go."""
    node = successor(tables, stream)
    known = None if node is None else tables.node(node)
    if node is None or known is None or known.draining or _lacks(stream, node):
        return None
    return node


def unclean_writer(tables: CatalogueTables, stream: Stream) -> NodeId | None:
    """Any live node that holds something of a stream; the open range's replicas first."""
    held = dict.fromkeys(stream.last.replicas)
    for known in reversed(stream.ranges):
        held.update(dict.fromkeys(known.holders))
    return next((node for node in held if tables.is_live(node)), None)


def _may_write(tables: CatalogueTables, stream: Stream, node: NodeId, change: NodeChange) -> bool:
    if node == change.gone:
        return False
    if node == change.back:
        directory = change.directory
    else:
        known = tables.node(node)
        if known is None or known.fenced:
            return False
        directory = known.directory
    return stream.last.directory_of(node) in (None, directory)


def _rank(tables: CatalogueTables, stream: Stream, node: NodeId) -> tuple[bool, int, int]:
    known = tables.node(node)
    wanted = stream.wanted
    place = wanted.index(node) if node in wanted else len(wanted)
    return known is None or known.draining, _lacks(stream, node), place


def _lacks(stream: Stream, node: NodeId) -> int:
    """How many sealed ranges a node does not have completely."""
    return sum(node not in known.holders for known in stream.ranges[:-1])
