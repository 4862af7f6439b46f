"""The streams this node writes: opened from the catalogue, found by name and by id.

On start every stream that only this node holds is taken up where its files end, and all of them get
their next epoch in one command, because a restarted writer never reuses an epoch. Afterwards the
service follows the catalogue's facts: topics come, grow, change and go. Streams that other nodes
hold as well are opened, taken over and let go by ``roles_service``.
"""

import asyncio
import logging
from collections.abc import Sequence
from uuid import uuid4

from mainstem.log.checkpoint import Trust
from mainstem.log.range_log import RangeLog
from mainstem.log.store import LogStore
from mainstem.model.clock import Clock
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, MainstemError
from mainstem.model.ids import NodeId, Offset, RangeIndex, StreamId
from mainstem.model.metadata import Stream, Topic
from mainstem.model.topic_config import TopicSettings
from mainstem.placement import records
from mainstem.placement.service import PlacementService
from mainstem.placement.tables import Tables
from mainstem.streams.checkpoint_storage import read_producers, write_producers
from mainstem.streams.flusher import Flusher
from mainstem.streams.reading_service import ReadingTable
from mainstem.streams.recovery import range_log, recovered_state
from mainstem.streams.replica_messages import key_of
from mainstem.streams.replication_driver import ReplicationDriver, not_writer
from mainstem.streams.roles_service import StreamRoles
from mainstem.streams.state import StreamState
from mainstem.streams.storage_retry_driver import refusal_of
from mainstem.streams.surroundings import PeerCalls, SettingsOf, Surroundings, is_lone
from mainstem.streams.writer_driver import StreamWriter

_log = logging.getLogger(__name__)


class StreamService(ReadingTable):
    """Every stream of this node, and the verbs of the counter that concern them.

    Args:
        peers: how other nodes are reached; None: there are none.
    """

    def __init__(  # noqa: PLR0913 -- the rooms around it
        self,
        placement: PlacementService,
        store: LogStore,
        flusher: Flusher,
        clock: Clock,
        settings_of: SettingsOf,
        node: NodeId,
        *,
        peers: PeerCalls | None = None,
    ) -> None:
        super().__init__(placement)
        self._store = store
        self._flusher = flusher
        self._clock = clock
        self._settings_of = settings_of
        self._node = node
        self._damaged: dict[StreamId, Corrupt] = {}
        if peers is not None:
            around = Surroundings(placement, store, flusher, clock, settings_of, node, peers)
            self._roles = StreamRoles(around, self)

    # Start and stop

    async def start(self, incarnation: int) -> None:
        """Open every stream under its next epoch, then follow the catalogue."""
        catalogue = self._placement.catalogue
        checkpoint = read_producers(self._store.data_dir)
        found: dict[StreamId, tuple[RangeLog, StreamState]] = {}
        ends = []
        for known in lone_streams(catalogue, self._node):
            stream = known
            topic = catalogue.need_topic(stream.id.topic)
            settings = self._settings_of(topic)
            try:
                log = range_log(self._store, topic, stream, stream.last, settings)
                stream, log = await _adopt_follower(
                    self._placement, self._store, topic, (stream, log), settings
                )
                state = recovered_state(self._store, topic, stream, log, checkpoint)
            except Corrupt as error:
                self._damaged[stream.id] = error
                continue
            found[stream.id] = (log, state)
            # Without a sync before the machine went down nobody knows what the end had been.
            unsure = self._store.trust is Trust.OTHER_BOOT and not settings.fsync
            ends.append(_end_of(stream, log, suspect=unsure))
        if ends:
            logs = [log for log, _ in found.values()]
            self._store.seal([log for log in logs if log.written_end > log.start_offset])
            await self._placement.submit(
                records.RestartStreams(self._node, incarnation, tuple(ends))
            )
        for topic in list(catalogue.topics()):
            self._list_row(topic)
        for stream in lone_streams(catalogue, self._node):
            topic = catalogue.need_topic(stream.id.topic)
            if stream.id in self._damaged:
                self._close_off(topic, stream, self._damaged[stream.id])
                continue
            log, state = found[stream.id]
            if log.written_end == log.start_offset:
                self._store.drop_range(log)  # replaced by an empty range of the new epoch
            self._open(topic, stream, log, state)
        self._placement.subscribe(self._on_fact)
        if self._roles is not None:
            self._roles.start()
        self._store.settle()  # which ends are suspect is recorded, and which copies are in limbo
        self.save_producers()

    def save_producers(self) -> None:
        """Write down every producer state with its offset, which spares the next start a scan."""
        states = {
            str(stream.id): (stream.next_offset, stream.state.snapshot())
            for stream in self.all()
            if stream.next_offset and stream.closed is None
        }
        try:
            write_producers(self._store.data_dir, states)
        except OSError as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            _log.warning("producer states are not saved, the next start scans: %s", refusal)

    def close(self) -> None:
        """Take nothing more."""
        if self._roles is not None:
            self._roles.close()
        reason = MainstemError(ErrorCode.SHUTTING_DOWN, "the node is stopping")
        for stream in self.all():
            stream.close(reason)

    # The counter's verbs

    def flush(self) -> None:
        """Write all that is staged, one vectored write per stream."""
        self._flusher.flush()

    async def append(
        self, topic: str, partition: int, batch: bytearray, *, verified: bool = False
    ) -> Offset:
        """Stage, flush and wait until committed.

        ``verified``: the coordinator has just said that the partition is in the transaction.
        """
        stream = self.door(topic, partition)
        base = stream.stage(memoryview(batch), 0, len(batch), verified=verified)
        self._flusher.flush()
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
        stream = self.door(topic, partition)
        start = stream.committed if before == -1 else before
        if not 0 <= start <= stream.committed:
            raise InvalidRequest(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {before} is outside [{stream.start_offset}, {stream.committed}]",
                subject=f"{topic}-{partition}",
            )
        if start > stream.start_offset:
            await self.trim(stream, start)
        return Offset(stream.start_offset)

    async def trim(self, stream: StreamWriter, start: int) -> None:
        """Let a stream start later, durably, then free the space."""
        known = await self._placement.submit(
            records.TrimStream(stream.id, stream.known.epoch, Offset(start))
        )
        stream.state.transactions.trim(start)
        for log in stream.trim(known):
            self.let_go(stream, log)

    def let_go(self, stream: StreamWriter, log: RangeLog) -> None:
        """Delete the files of a range that is no longer part of a stream."""
        if self._roles is not None:
            self._roles.replicas.forget(stream.id, RangeIndex(log.identity.name.index))
        self._store.drop_range(log)

    def lost(self, stream: StreamId, index: RangeIndex) -> None:
        """Damage was found in a sealed range: it is copied anew, if other nodes have it."""
        if self._roles is not None:
            self._roles.keeper.lost(stream, index)

    async def spread(self, stream: StreamWriter, index: int, generation: int) -> tuple[NodeId, ...]:
        """Let the other nodes that hold a range have it as it was rewritten; who has it then.

        Raises:
            Unavailable: too few have it.
        """
        # The catalogue's word, not the writer's: copies may have become whole since it sealed.
        ranges = self._placement.catalogue.need_stream(stream.id).ranges
        facts = next((one for one in ranges if one.index == index), None)
        if self._roles is None or facts is None or len(facts.replicas) == 1:
            return ()
        key = key_of(stream.id, facts.index)
        return await self._roles.replicas.folders.spread(key, facts, generation)

    def roll(
        self,
        stream: StreamId,
        *,
        exclude: Sequence[NodeId] = (),
        new_writer: NodeId | None = None,
    ) -> None:
        """Let a stream that is written here go on in another range, or on another node."""
        writer = self.writer(stream)
        if writer is None:
            return
        if isinstance(writer.replication, ReplicationDriver):
            writer.replication.want_roll(exclude=exclude, new_writer=new_writer)
        else:
            self._flusher.roll(writer)

    # Following the catalogue

    def _on_fact(self, fact: records.AnyFact) -> None:
        match fact:
            case records.TopicCreated() | records.PartitionsAdded():
                topic = self._placement.catalogue.need_topic(fact.id)
                opened = len(self._by_id.get(topic.id, ()))
                self._list_row(topic)
                self._open_new(topic, topic.streams[opened:])
            case records.TopicDeleted():
                self._drop(fact)
            case records.TopicConfigsSet():
                self._configure(self._placement.catalogue.need_topic(fact.id))
            case records.NodeConfigsSet():
                for topic in list(self._placement.catalogue.topics()):
                    self._configure(topic)
            case _:
                pass  # the others are answers to commands of this very service
        if self._roles is not None:
            self._roles.on_fact(fact)

    def resync(self) -> None:
        """The catalogue was replaced as a whole: look at everything."""
        known = {topic.id for topic in self._placement.catalogue.topics()}
        for topic_id in [one for one in self._by_id if one not in known]:
            self._drop(records.TopicDeleted(topic_id, self._by_id[topic_id][0].topic))
        for topic in list(self._placement.catalogue.topics()):
            opened = len(self._by_id.get(topic.id, ()))
            self._list_row(topic)
            self._configure(topic)
            self._open_new(topic, topic.streams[opened:])
        if self._roles is not None:
            self._roles.resync()

    def _list_row(self, topic: Topic) -> None:
        """List every partition of a topic: a closed door, until this node is found to write it."""
        settings = self._settings_of(topic)
        for stream in topic.streams[len(self._by_id.get(topic.id, ())) :]:
            door = _writer(stream, topic, settings, self._flusher, self._clock)
            door.close(not_writer(stream, topic.name))
            self.list_stream(door)

    def _open_new(self, topic: Topic, streams: Sequence[Stream]) -> None:
        """Write new streams that only this node holds."""
        settings = self._settings_of(topic)
        for stream in streams:
            if stream.writer == self._node and is_lone(stream):
                log = range_log(self._store, topic, stream, stream.last, settings)
                self._open(topic, stream, log, StreamState())

    def _open(self, topic: Topic, stream: Stream, last: RangeLog, state: StreamState) -> None:
        """Take a stream up; ``last`` is the range that was open when its end was determined."""
        settings = self._settings_of(topic)
        writer = _writer(stream, topic, settings, self._flusher, self._clock)
        try:
            ranges = [
                last
                if facts.index == last.identity.name.index and facts.epoch == last.identity.epoch
                else range_log(self._store, topic, stream, facts, settings, state.snapshot())
                for facts in stream.ranges
            ]
        except Corrupt as error:
            self._close_off(topic, stream, error)
            return
        self._store.drop_unknown(ranges)
        writer.open_at(ranges, state)
        if self._roles is not None:
            writer.replicate = self._roles.replicate
        self.list_stream(writer)

    def _close_off(self, topic: Topic, stream: Stream, error: Corrupt) -> None:
        """A stream whose files are damaged answers so; all others go on."""
        _log.error("%s-%d is closed off: %s", topic.name, stream.id.partition, error)
        self._flusher.metrics.log_corruptions += 1
        settings = self._settings_of(topic)
        writer = _writer(stream, topic, settings, self._flusher, self._clock)
        writer.close(error)
        self.list_stream(writer)

    def _drop(self, fact: records.TopicDeleted) -> None:
        streams = self._take_out(fact.id, fact.name)
        if self._roles is not None:
            self._roles.forget([stream.id for stream in streams])
        try:
            self._store.drop_topic(fact.name, fact.id)
        except OSError as error:
            if (refusal := refusal_of(error)) is None:
                raise
            _log.warning("the files of %s are removed later: %s", fact.name, refusal)

    def _configure(self, topic: Topic) -> None:
        settings = self._settings_of(topic)
        for stream in self._by_id.get(topic.id, ()):
            stream.apply_settings(settings)


def _writer(
    stream: Stream, topic: Topic, settings: TopicSettings, flusher: Flusher, clock: Clock
) -> StreamWriter:
    internal = topic.internal
    return StreamWriter(stream, topic.name, settings, flusher, clock, is_internal=internal)


async def _adopt_follower(
    placement: PlacementService,
    store: LogStore,
    topic: Topic,
    found: tuple[Stream, RangeLog],
    settings: TopicSettings,
) -> tuple[Stream, RangeLog]:
    """Finish a roll that a crash cut short: what was written to the next range is kept."""
    stream, log = found
    while store.range_beyond(log) is not None:
        log.seal()
        end = _end_of(stream, log, suspect=False)
        command = records.SealAndCreate(uuid4().hex, end, replicas=stream.last.replicas)
        stream = await placement.submit(command)
        log.close(sync=False)
        log = range_log(store, topic, stream, stream.last, settings)
    return stream, log


def lone_streams(catalogue: Tables, node: NodeId) -> list[Stream]:
    """The streams that a node writes and nobody else holds, as it finds them when it starts.

    One that was elected to it, or rebuilt, is among them: a restart seals it all the same.
    """
    return [
        stream
        for stream in catalogue.streams_of(node)
        if all(one.replicas == (node,) for one in stream.ranges)
    ]


def _end_of(stream: Stream, log: RangeLog, *, suspect: bool) -> records.RangeEnd:
    return records.RangeEnd(
        stream.id,
        stream.epoch,
        stream.last.index,
        Offset(log.written_end),
        size_bytes=log.size_bytes,
        max_timestamp=log.max_timestamp,
        max_timestamp_offset=log.offset_of_max_timestamp,
        suspect=suspect,
    )
