"""Streams to be read: those that this node writes, and those of which it has a replica."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mainstem.log.range_log import RangeLog
from mainstem.model.errors import MainstemError
from mainstem.model.ids import NO_NODE, NodeId, StreamId, TopicId
from mainstem.placement.service import PlacementService
from mainstem.streams.follower_driver import StreamFollower
from mainstem.streams.followers import Lapsed
from mainstem.streams.look_driver import StreamLook
from mainstem.streams.nearest import nearest_replica
from mainstem.streams.replication_driver import ReplicationDriver
from mainstem.streams.stream_table import StreamTable, is_elsewhere
from mainstem.streams.writer_driver import StreamWriter

if TYPE_CHECKING:
    from mainstem.streams.roles_service import StreamRoles


class ReadingTable(StreamTable):
    """See the module's text.

    Args:
        placement: the catalogue.
    """

    def __init__(self, placement: PlacementService) -> None:
        super().__init__()
        self._placement = placement
        self._roles: StreamRoles | None = None  # None: there are no other nodes

    def reader(self, topic: str, partition: int) -> StreamWriter | StreamFollower:
        """The stream, to be read: as it is written here, or as far as a replica here knows it.

        Raises:
            MainstemError: as ``door`` does.
        """
        try:
            return self.door(topic, partition)
        except MainstemError as error:
            known = self._placement.catalogue.topic(topic)
            if self._roles is None or known is None or not is_elsewhere(error):
                raise
            return self._roles.followers.find(known, known.streams[partition])

    def reader_by_id(self, topic: TopicId, partition: int) -> StreamWriter | StreamFollower:
        """The same by topic id."""
        return self.reader(self.name_of(topic), partition)

    async def look(self, topic: str, partition: int, until: int | None = None) -> StreamLook:
        """A look into a stream that is written here; raises as ``door`` does."""
        del until  # all that there is can be seen here
        return StreamLook(self.door(topic, partition))

    def glance(self, topic: str, partition: int) -> StreamLook:
        """A look into what can be read here, which may end sooner than at the writer."""
        return StreamLook(self.reader(topic, partition))

    def nearest(self, stream: StreamId, rack: str, offset: int) -> NodeId:
        """The replica in a rack that readers of a stream may turn to; ``NO_NODE``: none."""
        writer = self.writer(stream)
        known = self._placement.catalogue.stream(stream)
        if writer is None or known is None or not isinstance(writer.replication, ReplicationDriver):
            return NO_NODE
        progress = writer.replication.progress
        return nearest_replica(self._placement.catalogue, known, rack, offset, progress)

    def _files_of(self, stream: StreamWriter) -> Iterable[RangeLog]:
        """Where another node writes, the copies that are here."""
        if self._roles is None or stream.closed is None:
            return super()._files_of(stream)
        return self._roles.replicas.logs_of(stream.id).values()

    def lapse(self, lapsed: Lapsed) -> None:
        """Ask ``lapsed`` before anything is read from a replica."""
        if self._roles is not None:
            self._roles.followers.lapsed = lapsed
