"""Checks that the state a command is based on still holds: otherwise ``Fenced``."""

from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Range, Stream
from mainstem.placement.changes.commands import RangeEnd
from mainstem.placement.changes.replication_commands import RegisteredNode
from mainstem.placement.state.tables import CatalogueTables


def known_node(tables: CatalogueTables, node: NodeId) -> RegisteredNode:
    """A registered node, or a refusal."""
    known = tables.node(node)
    if known is None:
        raise InvalidRequest(
            ErrorCode.UNKNOWN_NODE, "no such node is registered", subject=f"node {node}"
        )
    return known


def current_incarnation(tables: CatalogueTables, node: NodeId, incarnation: int) -> None:
    """Refuse unless the node still runs under this incarnation."""
    known = tables.incarnation(node)
    if incarnation != known:
        raise Fenced(
            ErrorCode.FENCED_EPOCH,
            f"incarnation {incarnation} is not the current one, {known}",
            subject=f"node {node}",
        )


def current_epoch(stream: Stream, epoch: int) -> None:
    """Refuse if another writer was elected since."""
    if epoch != stream.epoch:
        raise Fenced(
            ErrorCode.FENCED_EPOCH,
            f"epoch {epoch} is not the current one, {stream.epoch}",
            subject=str(stream.id),
        )


def fits_open_range(stream: Stream, end: RangeEnd) -> None:
    """Refuse unless this is the open range, under the current epoch."""
    current_epoch(stream, end.epoch)
    if end.index != stream.last.index:
        raise Fenced(
            ErrorCode.FENCED_EPOCH,
            f"range {end.index} is not the open one, {stream.last.index}",
            subject=str(stream.id),
        )
    if end.end < stream.last.start:
        raise InvalidRequest(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"range {end.index} starts at {stream.last.start} and cannot end at {end.end}",
            subject=str(stream.id),
        )


def sealed_range(stream: Stream, index: int) -> Range:
    """The sealed range with that index, or a refusal."""
    for candidate in stream.ranges:
        if candidate.index == index and not candidate.is_open:
            return candidate
    raise Fenced(
        ErrorCode.FENCED_EPOCH, f"there is no sealed range {index}", subject=str(stream.id)
    )


def enough_copies(stream: Stream, target: Range, done: tuple[NodeId, ...]) -> None:
    """Refuse unless as many replicas have the new generation as acknowledge."""
    if len(target.replicas) == 1:
        return
    if not set(done) <= set(target.replicas) or len(set(done)) < target.acks_needed:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            f"{len(done)} of {len(target.replicas)} replicas of range {target.index} have it, "
            f"{target.acks_needed} must",
            subject=str(stream.id),
        )
