"""The replicas of ranges that this node holds: opened from the catalogue, found by key."""

import logging
from collections.abc import Callable

from mainstem.log.checkpoint import FileTrust
from mainstem.log.naming import RangeName, range_directory, segment_bases
from mainstem.log.range_log import RangeLog
from mainstem.log.verification.damage import Damage
from mainstem.model.errors import Corrupt, ErrorCode, Unavailable
from mainstem.model.ids import Epoch, Offset, RangeIndex, StreamId
from mainstem.model.metadata import Range, Stream, Topic
from mainstem.streams.context import StreamsContext, is_lone
from mainstem.streams.failover.state_recovery import found_log, opening_state, range_log
from mainstem.streams.replica.driver import ReplicaDriver
from mainstem.streams.replica.messages import RangeKey, key_of
from mainstem.streams.replica.promise_storage import Promise
from mainstem.streams.replica.state_machine import RangeReplica, ReplicaState, is_in_limbo

_log = logging.getLogger(__name__)


class ReplicaRegistry:
    """Opens and finds the replicas of ranges on this node.

    Args:
        context: the services of the node.
        on_held: called with every replica that was opened.
    """

    def __init__(self, context: StreamsContext, on_held: Callable[[RangeKey], None]) -> None:
        self._context = context
        self._on_held = on_held
        self._held: dict[RangeKey, ReplicaDriver] = {}
        self._indexes: dict[StreamId, dict[RangeIndex, ReplicaDriver]] = {}
        # Files that were opened for the catalogue's ranges, held as a replica or not.
        self._logs: dict[StreamId, dict[RangeIndex, RangeLog]] = {}
        self._promises: dict[StreamId, Promise] = {}
        self._is_starting = True

    def begun(self) -> None:
        """All that existed before this start has been opened; what follows is new."""
        self._is_starting = False

    def find(self, key: RangeKey) -> ReplicaDriver | None:
        """The replica of a range by its key, if this node has opened one."""
        return self._held.get(key)

    def held(self, stream: StreamId, index: RangeIndex) -> ReplicaDriver | None:
        """The replica of a range, if this node has opened one."""
        return self._held.get(key_of(stream, index))

    def hold(
        self, topic: Topic, stream: Stream, range_info: Range, log: RangeLog | None = None
    ) -> ReplicaDriver:
        """Open the replica of a range, or find it open; ``log`` are its files if they are open.

        Raises:
            Corrupt: its files, or the promise, cannot be trusted.
        """
        key = key_of(stream.id, range_info.index)
        found = self._held.get(key)
        if found is not None:
            return found
        context = self._context
        settings = context.settings_of(topic)
        promise = self._promise(topic, stream.id)
        log = log or self.log_of(topic, stream, range_info)
        # What was assigned here before the machine went down may have lost its tail, or all of it.
        if log.damage or is_in_limbo(
            acks_unsynced=not settings.fsync,
            unclean=context.store.trust is FileTrust.OTHER_BOOT and self._is_starting,
            sync_failed=context.store.sync_failed and self._is_starting,
            done=context.node in range_info.done,
        ):
            promise.set_limbo(range_info.index, is_in_limbo=True)
        state = ReplicaState(
            range_info.start,
            Offset(log.written_end),
            Epoch(max(range_info.epoch, promise.epoch)),
            context.store.directory_id.hex(),
            limbo=range_info.index in promise.limbo,
        )
        machine = RangeReplica(state, acks_unsynced=not settings.fsync)
        machine.synced_end = Offset(log.synced_end)  # files that were open already may be ahead
        held = self._held[key] = ReplicaDriver(log, machine, promise, context.flusher)
        held.attach()
        self._indexes.setdefault(stream.id, {})[range_info.index] = held
        self._on_held(key)
        return held

    def log_of(self, topic: Topic, stream: Stream, range_info: Range) -> RangeLog:
        """The files of a range, opened now or before.

        Files that cannot be opened are set aside: the range starts over, as a damaged one.

        Raises:
            Corrupt: they cannot be opened, and no other node has any.
        """
        context = self._context
        known = self._logs.get(stream.id, {}).get(range_info.index)
        if (
            known is not None
            and not known.closed
            and known.identity.name.generation == range_info.generation
        ):
            return known
        log = found_log(context.store, topic, stream, range_info)
        if log is None:
            settings = context.settings_of(topic)
            try:
                log = range_log(context.store, topic, stream, range_info, settings)
            except Corrupt as error:
                if is_lone(stream):
                    raise
                if range_info.is_open:
                    # Noted first: the next start finds nothing, and would count that as everything.
                    self._promise(topic, stream.id).set_limbo(range_info.index, is_in_limbo=True)
                name = RangeName(stream.id, topic.name, range_info.index, range_info.generation)
                damage = Damage(context.store.set_aside(name), 0, str(error))
                _log.error("a range cannot be opened and is set aside: %s", damage)
                log = range_log(context.store, topic, stream, range_info, settings)
                log.damage.append(damage)
                log.missing = not range_info.is_open
        self._logs.setdefault(stream.id, {})[range_info.index] = log
        return log

    def logs_of(self, stream: StreamId) -> dict[RangeIndex, RangeLog]:
        """The files of every range of a stream that was opened here."""
        logs = {
            index: held.log for index, held in self._indexes.get(stream, {}).items()
        } | self._logs.get(stream, {})
        return {index: log for index, log in logs.items() if not log.closed}

    def is_there(self, topic: Topic, stream: Stream, range_info: Range) -> bool:
        """Whether the disk has something of a range."""
        store = self._context.store
        if found_log(store, topic, stream, range_info) is not None:
            return True
        name = RangeName(stream.id, topic.name, range_info.index, range_info.generation)
        directory = range_directory(store.data_dir, name)
        return directory.is_dir() and bool(segment_bases(directory))

    def forget(self, stream: StreamId, index: RangeIndex) -> ReplicaDriver | None:
        """Close a replica; its files stay as they are."""
        self._indexes.get(stream, {}).pop(index, None)
        self._logs.get(stream, {}).pop(index, None)
        held = self._held.pop(key_of(stream, index), None)
        if held is not None:
            held.detach()
        return held

    def forget_stream(self, stream: StreamId) -> None:
        """The stream was deleted, and its files with it."""
        for index in self._indexes.pop(stream, {}):
            self._held.pop(key_of(stream, index)).detach()
        self._logs.pop(stream, None)
        self._promises.pop(stream, None)

    def _promise(self, topic: Topic, stream: StreamId) -> Promise:
        promise = self._promises.get(stream)
        if promise is None:
            name = RangeName(stream, topic.name, 0, 0)
            partition = range_directory(self._context.store.data_dir, name).parent
            promise = self._promises[stream] = Promise(partition)
        return promise

    def state_before(self, topic: Topic, stream: Stream, range_info: Range) -> bytes:
        """The state where a range starts, from the files of this node.

        Raises:
            Unavailable: this node does not hold the files it needs.
        """

        def log_of(one: Range) -> RangeLog | None:
            is_here = self._context.node in (*one.replicas, *one.replicating)
            return self.log_of(topic, stream, one) if is_here else None

        return opening_state(stream, range_info, log_of).snapshot()

    def range_of(self, key: RangeKey) -> tuple[Topic, Stream, Range] | None:
        """The catalogue's entry of a range."""
        topic = self._context.placement.catalogue.topic_by_id(key.stream.topic)
        if topic is None or key.partition >= len(topic.streams):
            return None
        stream = topic.streams[key.partition]
        for range_info in reversed(stream.ranges):
            if range_info.index == key.index:
                return topic, stream, range_info
        return None

    def need_range(self, key: RangeKey) -> tuple[Topic, Stream, Range]:
        """The same, or ``Unavailable``: it is not known here yet, or no longer."""
        found = self.range_of(key)
        if found is None:
            raise Unavailable(
                ErrorCode.WRITER_UNAVAILABLE,
                f"range {key.index} is not known here",
                subject=str(key.stream),
            )
        return found

    def is_this_disk(self, directory: str) -> bool:
        """Whether a range was assigned to the disk that this node has."""
        return not directory or directory == self._context.store.directory_id.hex()
