"""The streams that are read from the replicas of this node, opened on demand."""

from collections.abc import Callable, Iterable
from functools import partial

from mainstem.log.range_log import RangeLog
from mainstem.model.errors import Corrupt, MainstemError, Unavailable
from mainstem.model.ids import RangeIndex, StreamId
from mainstem.model.metadata import Stream, Topic
from mainstem.streams.context import StreamsContext
from mainstem.streams.reading.follower_driver import StreamFollower
from mainstem.streams.replica.registry import ReplicaRegistry
from mainstem.streams.writer.replication_driver import not_writer

Lapsed = Callable[[], MainstemError | None]


class FollowerRegistry:
    """Opens streams that are read from replicas on this node.

    Args:
        context: the services of the node.
        replicas: the replicas on this node.
        lost: called with damage in a sealed range.
    """

    def __init__(
        self,
        context: StreamsContext,
        replicas: ReplicaRegistry,
        lost: Callable[[StreamId, RangeIndex], None],
    ) -> None:
        self._context = context
        self._replicas = replicas
        self._lost = lost
        self._open: dict[StreamId, StreamFollower] = {}
        # Why the state here may be out of date; None: there is no check.
        self.lapsed: Lapsed | None = None

    def find(self, topic: Topic, stream: Stream) -> StreamFollower:
        """The stream, read from its replica here.

        Raises:
            Unavailable: there is none that can be read.
        """
        found = self._open.get(stream.id)
        if found is not None and found.closed is None:
            found.advance()
            return found
        held = self._replicas.held(stream.id, stream.last.index)
        if not self._is_replica(stream) or held is None or held.machine.limbo:
            raise not_writer(stream, topic.name)
        try:
            follower = StreamFollower(stream, topic.name, held, self._whole(topic, stream))
            follower.start()
        except Corrupt as damage:
            raise not_writer(stream, topic.name) from damage
        if isinstance(follower.closed, Unavailable):
            raise follower.closed
        follower.lapsed = self.lapsed
        follower.on_damage = partial(self._damaged, follower)
        self._open[stream.id] = follower
        return follower

    def update(self, topic: Topic, stream: Stream) -> None:
        """Apply the catalogue's current entry of a stream."""
        found = self._open.get(stream.id)
        if found is None:
            return
        held = self._replicas.held(stream.id, stream.last.index)
        if found.closed is None and self._is_replica(stream) and found.held is held:
            found.renew(stream, self._whole(topic, stream))
        else:
            self._end(stream.id, not_writer(stream, topic.name))

    def forget(self, streams: Iterable[StreamId], reason: MainstemError) -> None:
        """These streams were deleted, or the node stops."""
        for stream in streams:
            self._end(stream, reason)

    def close(self, reason: MainstemError) -> None:
        """Stop serving readers."""
        self.forget(list(self._open), reason)

    def _end(self, stream: StreamId, reason: MainstemError) -> None:
        found = self._open.pop(stream, None)
        if found is not None:
            found.close(reason)

    def _is_replica(self, stream: Stream) -> bool:
        node = self._context.node
        return stream.writer != node and node in stream.last.replicas

    def _whole(self, topic: Topic, stream: Stream) -> list[RangeLog]:
        """The files of the open range, after those of sealed ones that are complete here."""
        node = self._context.node
        found = [self._replicas.log_of(topic, stream, stream.last)]
        for range_info in reversed(stream.ranges[:-1]):
            is_done = node in range_info.holders and node not in range_info.replicating
            if not is_done or not self._replicas.is_there(topic, stream, range_info):
                break
            log = self._replicas.log_of(topic, stream, range_info)
            if log.missing or log.damage:
                break
            found.insert(0, log)
        return found

    def _damaged(self, follower: StreamFollower, log: RangeLog) -> None:
        """A reader found damage: a sealed range is copied again, an open one read at the writer."""
        if log is not follower.log:
            self._lost(follower.id, RangeIndex(log.identity.name.index))
