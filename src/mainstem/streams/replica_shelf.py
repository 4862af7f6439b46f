"""The replicas of ranges that this node holds: opened from the catalogue, found by name."""

import logging
from collections.abc import Callable

from mainstem.log.checkpoint import Trust
from mainstem.log.damage import Damage
from mainstem.log.naming import RangeName, range_directory, segment_bases
from mainstem.log.range_log import RangeLog
from mainstem.model.errors import Corrupt, ErrorCode, Unavailable
from mainstem.model.ids import Epoch, Offset, RangeIndex, StreamId
from mainstem.model.metadata import Range, Stream, Topic
from mainstem.streams.held_replica_driver import HeldReplica
from mainstem.streams.promise_storage import Promise
from mainstem.streams.range_replica import RangeReplica, ReplicaState, is_in_limbo
from mainstem.streams.recovery import found_log, opening_state, range_log
from mainstem.streams.replica_messages import RangeKey, key_of
from mainstem.streams.surroundings import Surroundings, is_lone

_log = logging.getLogger(__name__)


class ReplicaShelf:
    """See the module's text.

    Args:
        around: the node's rooms.
        on_held: told of every replica that was opened.
    """

    def __init__(self, around: Surroundings, on_held: Callable[[RangeKey], None]) -> None:
        self._around = around
        self._on_held = on_held
        self._held: dict[RangeKey, HeldReplica] = {}
        self._indexes: dict[StreamId, dict[RangeIndex, HeldReplica]] = {}
        # Files that were opened for the catalogue's ranges, held as a replica or not.
        self._logs: dict[StreamId, dict[RangeIndex, RangeLog]] = {}
        self._promises: dict[StreamId, Promise] = {}
        self._is_starting = True

    def begun(self) -> None:
        """All that was here before this start has been opened; what follows is new."""
        self._is_starting = False

    def held(self, stream: StreamId, index: RangeIndex) -> HeldReplica | None:
        """The replica of a range, if this node has opened one."""
        return self._held.get(key_of(stream, index))

    def held_of(self, stream: StreamId) -> list[HeldReplica]:
        """Every replica of a stream's ranges that is opened here."""
        return list(self._indexes.get(stream, {}).values())

    def hold(
        self, topic: Topic, stream: Stream, facts: Range, log: RangeLog | None = None
    ) -> HeldReplica:
        """Open the replica of a range, or find it open; ``log`` are its files if they are open.

        Raises:
            Corrupt: its files, or the promise, cannot be believed.
        """
        key = key_of(stream.id, facts.index)
        found = self._held.get(key)
        if found is not None:
            return found
        around = self._around
        settings = around.settings_of(topic)
        promise = self._promise(topic, stream.id)
        log = log or self.log_of(topic, stream, facts)
        # What was assigned here before the machine went down may have lost its tail, or all of it.
        if log.damage or is_in_limbo(
            acks_unsynced=not settings.fsync,
            unclean=around.store.trust is Trust.OTHER_BOOT and self._is_starting,
            sync_failed=around.store.sync_failed and self._is_starting,
            done=around.node in facts.done,
        ):
            promise.set_limbo(facts.index, is_in_limbo=True)
        state = ReplicaState(
            facts.start,
            Offset(log.written_end),
            Epoch(max(facts.epoch, promise.epoch)),
            around.store.directory_id.hex(),
            limbo=facts.index in promise.limbo,
        )
        machine = RangeReplica(state, acks_unsynced=not settings.fsync)
        machine.synced_end = Offset(log.synced_end)  # files that were open already may be ahead
        held = self._held[key] = HeldReplica(log, machine, promise, around.flusher)
        self._indexes.setdefault(stream.id, {})[facts.index] = held
        self._on_held(key)
        return held

    def log_of(self, topic: Topic, stream: Stream, facts: Range) -> RangeLog:
        """The files of a range, opened now or before.

        Files that cannot be opened are set aside: the range is begun anew, as a damaged one.

        Raises:
            Corrupt: they cannot be opened, and no other node has any.
        """
        around = self._around
        log = found_log(around.store, topic, stream, facts)
        if log is None:
            settings = around.settings_of(topic)
            try:
                log = range_log(around.store, topic, stream, facts, settings)
            except Corrupt as error:
                if is_lone(stream):
                    raise
                if facts.is_open:
                    # Noted first: the next start finds nothing, and would take that for all.
                    self._promise(topic, stream.id).set_limbo(facts.index, is_in_limbo=True)
                name = RangeName(stream.id, topic.name, facts.index, facts.generation)
                damage = Damage(around.store.set_aside(name), 0, str(error))
                _log.error("a range cannot be opened and is set aside: %s", damage)
                log = range_log(around.store, topic, stream, facts, settings)
                log.damage.append(damage)
                log.missing = not facts.is_open
        self._logs.setdefault(stream.id, {})[facts.index] = log
        return log

    def logs_of(self, stream: StreamId) -> dict[RangeIndex, RangeLog]:
        """The files of every range of a stream that was opened here."""
        logs = {
            index: held.log for index, held in self._indexes.get(stream, {}).items()
        } | self._logs.get(stream, {})
        return {index: log for index, log in logs.items() if not log.closed}

    def is_there(self, topic: Topic, stream: Stream, facts: Range) -> bool:
        """Whether the disk has something of a range."""
        store = self._around.store
        if found_log(store, topic, stream, facts) is not None:
            return True
        name = RangeName(stream.id, topic.name, facts.index, facts.generation)
        directory = range_directory(store.data_dir, name)
        return directory.is_dir() and bool(segment_bases(directory))

    def forget(self, stream: StreamId, index: RangeIndex) -> HeldReplica | None:
        """Let go of a replica; its files stay as they are."""
        self._indexes.get(stream, {}).pop(index, None)
        self._logs.get(stream, {}).pop(index, None)
        return self._held.pop(key_of(stream, index), None)

    def forget_stream(self, stream: StreamId) -> None:
        """The stream is gone, and its files with it."""
        for index in self._indexes.pop(stream, {}):
            del self._held[key_of(stream, index)]
        self._logs.pop(stream, None)
        self._promises.pop(stream, None)

    def _promise(self, topic: Topic, stream: StreamId) -> Promise:
        promise = self._promises.get(stream)
        if promise is None:
            name = RangeName(stream, topic.name, 0, 0)
            partition = range_directory(self._around.store.data_dir, name).parent
            promise = self._promises[stream] = Promise(partition)
        return promise

    def state_before(self, topic: Topic, stream: Stream, facts: Range) -> bytes:
        """What was known where a range begins, from the files of this node.

        Raises:
            Unavailable: this node does not hold what it takes.
        """

        def log_of(one: Range) -> RangeLog | None:
            is_here = self._around.node in (*one.replicas, *one.replicating)
            return self.log_of(topic, stream, one) if is_here else None

        return opening_state(stream, facts, log_of).snapshot()

    def range_of(self, key: RangeKey) -> tuple[Topic, Stream, Range] | None:
        """What the catalogue says of a range."""
        topic = self._around.placement.catalogue.topic_by_id(key.stream.topic)
        if topic is None or key.partition >= len(topic.streams):
            return None
        stream = topic.streams[key.partition]
        for facts in reversed(stream.ranges):
            if facts.index == key.index:
                return topic, stream, facts
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
        return not directory or directory == self._around.store.directory_id.hex()
