"""The streams of this node as the broker API offers them, and the parts that they consist of.

StreamService ──▶ StreamTable        which streams there are, by name and by id
──▶ StreamLifecycle    opens them, follows the catalogue
──▶ RangeMaintenance   trims them, lets rewritten ranges replace others
──▶ StreamRoles        those that other nodes hold as well
"""

import asyncio
from collections.abc import Sequence

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.ids import NO_NODE, NodeId, Offset, StreamId, TopicId
from mainstem.streams.context import NodeContext, PeerMessaging, with_peers
from mainstem.streams.failover.roles_service import StreamRoles
from mainstem.streams.lifecycle_driver import StreamLifecycle
from mainstem.streams.maintenance.ranges_service import RangeMaintenance
from mainstem.streams.reading.follower_driver import StreamFollower
from mainstem.streams.reading.followers import Lapsed
from mainstem.streams.reading.local_reader_driver import LocalReader
from mainstem.streams.reading.replica_selector import nearest_replica
from mainstem.streams.stream_table import StreamTable, is_on_other_node
from mainstem.streams.writer.replication_driver import ReplicationDriver
from mainstem.streams.writer.stream_driver import StreamWriter


class StreamService:
    """Every stream of this node, and the operations of the broker API on them.

    Args:
        context: the services of the node.
        peers: access to other nodes; None: there are none.
    """

    def __init__(self, context: NodeContext, peers: PeerMessaging | None = None) -> None:
        self._context = context
        self.table = StreamTable()
        self._roles: StreamRoles | None = None
        if peers is not None:
            self._roles = StreamRoles(with_peers(context, peers), self.table)
        self.lifecycle = StreamLifecycle(context, self.table, self._roles)
        self.ranges = RangeMaintenance(context, self._roles)
        # Bound, not wrapped: every append and every read looks up its partition.
        self.partition = self.table.partition
        self.partition_by_id = self.table.partition_by_id

    # Reading

    def reader(self, topic: str, partition: int) -> StreamWriter | StreamFollower:
        """The stream for reading: as it is written here, or as far as a replica here has it.

        Raises:
            MainstemError: as ``partition`` does.
        """
        try:
            return self.partition(topic, partition)
        except MainstemError as error:
            known = self._context.placement.catalogue.topic(topic)
            if self._roles is None or known is None or not is_on_other_node(error):
                raise
            return self._roles.followers.find(known, known.streams[partition])

    def reader_by_id(self, topic: TopicId, partition: int) -> StreamWriter | StreamFollower:
        """The same by topic id."""
        return self.reader(self.table.name_of(topic), partition)

    async def open_reader(
        self, topic: str, partition: int, until: int | None = None
    ) -> LocalReader:
        """A reader of a stream that is written here; raises as ``partition`` does."""
        del until  # everything is visible here
        return LocalReader(self.partition(topic, partition))

    def stable_reader(self, topic: str, partition: int) -> LocalReader:
        """A reader of what can be read here, which may end earlier than at the writer."""
        return LocalReader(self.reader(topic, partition))

    def nearest(self, stream: StreamId, rack: str, offset: int) -> NodeId:
        """The replica in a rack that readers of a stream may use; ``NO_NODE``: none."""
        writer = self.table.writer(stream)
        known = self._context.placement.catalogue.stream(stream)
        if writer is None or known is None or not isinstance(writer.replication, ReplicationDriver):
            return NO_NODE
        progress = writer.replication.progress
        return nearest_replica(self._context.placement.catalogue, known, rack, offset, progress)

    def set_lapsed_check(self, lapsed: Lapsed) -> None:
        """Ask ``lapsed`` before anything is read from a replica."""
        if self._roles is not None:
            self._roles.followers.lapsed = lapsed

    def sizes(self, topic: str | None = None) -> Sequence[tuple[str, int, int]]:
        """(topic, partition, bytes on disk) of every stream held here, or of one topic's."""
        rows = self.table.rows()
        return [
            (name, stream.id.partition, self._size_of(stream))
            for name in (rows if topic is None else (topic,))
            for stream in rows.get(name, ())
        ]

    def _size_of(self, stream: StreamWriter) -> int:
        """If another node writes, the copies that are here count."""
        if self._roles is None or stream.closed is None:
            return sum(log.size_bytes for log in stream.ranges)
        logs = self._roles.replicas.registry.logs_of(stream.id)
        return sum(log.size_bytes for log in logs.values())

    # Writing

    def flush(self) -> None:
        """Write all that is staged, one vectored write per stream."""
        self._context.flusher.flush()

    async def append(
        self, topic: str, partition: int, batch: bytearray, *, verified: bool = False
    ) -> Offset:
        """Stage, flush and wait until committed.

        ``verified``: the coordinator has just confirmed that the partition is in the transaction.
        """
        stream = self.partition(topic, partition)
        base = stream.stage(memoryview(batch), 0, len(batch), verified=verified)
        self._context.flusher.flush()
        failure = stream.failure(base)
        if failure is not None:
            raise failure
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settled(error: MainstemError | None) -> None:
            if not done.done():
                done.set_exception(error) if error is not None else done.set_result(None)

        if not stream.when_written(base, settled):
            await done
        return base

    async def delete_records(self, topic: str, partition: int, before: int) -> Offset:
        """Move the start of the stream to ``before`` (-1: to the end); the new start."""
        stream = self.partition(topic, partition)
        start = stream.committed if before == -1 else before
        if not 0 <= start <= stream.committed:
            raise InvalidRequest(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {before} is outside [{stream.start_offset}, {stream.committed}]",
                subject=f"{topic}-{partition}",
            )
        if start > stream.start_offset:
            await self.ranges.trim(stream, start)
        return Offset(stream.start_offset)

    def roll(
        self,
        stream: StreamId,
        *,
        exclude: Sequence[NodeId] = (),
        new_writer: NodeId | None = None,
    ) -> None:
        """Continue a stream that is written here in another range, or on another node."""
        writer = self.table.writer(stream)
        if writer is None:
            return
        if isinstance(writer.replication, ReplicationDriver):
            writer.replication.request_roll(exclude=exclude, new_writer=new_writer)
        else:
            self._context.flusher.roll(writer)
