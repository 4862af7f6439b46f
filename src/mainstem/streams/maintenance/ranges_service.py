"""Maintenance of the ranges of a stream: trims, replaces and copies them."""

from mainstem.log.range_log import RangeLog
from mainstem.model.ids import NodeId, Offset, RangeIndex, StreamId
from mainstem.model.metadata import Stream
from mainstem.placement.changes import commands
from mainstem.streams.context import NodeContext
from mainstem.streams.failover.roles_service import StreamRoles
from mainstem.streams.replica.messages import key_of
from mainstem.streams.writer.stream_driver import StreamWriter


class RangeMaintenance:
    """Changes the ranges of streams that this node writes, and their copies on other nodes.

    Args:
        context: the services of the node.
        roles: replicated streams; None: there are no other nodes.
    """

    def __init__(self, context: NodeContext, roles: StreamRoles | None) -> None:
        self._context = context
        self._roles = roles

    async def trim(self, stream: StreamWriter, start: int) -> None:
        """Move the start of a stream up, durably, then free the space."""
        known = await self._context.placement.submit(
            commands.TrimStream(stream.id, stream.known.epoch, Offset(start))
        )
        stream.state.transactions.trim(start)
        for log in _trimmed(stream, known):
            self.let_go(stream, log)

    def let_go(self, stream: StreamWriter, log: RangeLog) -> None:
        """Delete the files of a range that is no longer part of a stream."""
        if self._roles is not None:
            self._roles.replicas.registry.forget(stream.id, RangeIndex(log.identity.name.index))
        self._context.store.drop_range(log)

    def lost(self, stream: StreamId, index: RangeIndex) -> None:
        """Damage was found in a sealed range: it is copied again, if other nodes have it."""
        if self._roles is not None:
            self._roles.reconciler.lost(stream, index)

    async def spread(self, stream: StreamWriter, index: int, generation: int) -> tuple[NodeId, ...]:
        """Copy a rewritten range to the other nodes that hold it; the nodes that have it then.

        Raises:
            Unavailable: too few have it.
        """
        # The catalogue's list, not the writer's: copies may have become complete since it sealed.
        ranges = self._context.placement.catalogue.need_stream(stream.id).ranges
        range_info = next((one for one in ranges if one.index == index), None)
        if self._roles is None or range_info is None or len(range_info.replicas) == 1:
            return ()
        key = key_of(stream.id, range_info.index)
        return await self._roles.replicas.folders.spread(key, range_info, generation)


def _trimmed(writer: StreamWriter, stream: Stream) -> list[RangeLog]:
    """Move the start of a writer's stream up; the ranges that are now wholly below it."""
    writer.known = stream
    writer.start_offset = stream.start
    kept = [log for log in writer.ranges[:-1] if log.written_end > stream.start]
    dropped = [log for log in writer.ranges[:-1] if log.written_end <= stream.start]
    writer.hold([*kept, writer.log])
    writer.ranges[0].trim(writer.start_offset)
    return dropped
