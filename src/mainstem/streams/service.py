"""The streams this node writes: opened from the catalogue, found by name and by id.

On start every stream is taken up where its files end, and all of them get their next epoch in one
command, because a restarted writer never reuses an epoch. Afterwards the service follows the
catalogue's facts: topics come, grow, change and go.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from uuid import uuid4

from mainstem.log.checkpoint import Trust
from mainstem.log.range_log import RangeLog
from mainstem.log.store import LogStore
from mainstem.model.clock import Clock
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, MainstemError
from mainstem.model.ids import NodeId, Offset, StreamId, TopicId, topic_id_text
from mainstem.model.metadata import Stream, Topic
from mainstem.model.topic_config import TopicSettings
from mainstem.placement import records
from mainstem.placement.service import PlacementService
from mainstem.streams.checkpoint_storage import read_producers, write_producers
from mainstem.streams.flusher import Flusher
from mainstem.streams.recovery import range_log, recovered_state
from mainstem.streams.state import StreamState
from mainstem.streams.writer_driver import StreamWriter

_log = logging.getLogger(__name__)

SettingsOf = Callable[[Topic], TopicSettings]


class StreamService:
    """Every stream of this node, and the verbs of the counter that concern them."""

    def __init__(
        self,
        placement: PlacementService,
        store: LogStore,
        flusher: Flusher,
        clock: Clock,
        settings_of: SettingsOf,
        node: NodeId,
    ) -> None:
        self._placement = placement
        self._store = store
        self._flusher = flusher
        self._clock = clock
        self._settings_of = settings_of
        self._node = node
        self._by_name: dict[str, list[StreamWriter]] = {}
        self._by_id: dict[TopicId, list[StreamWriter]] = {}
        self._damaged: dict[StreamId, Corrupt] = {}

    # Start and stop

    async def start(self, incarnation: int) -> None:
        """Open every stream under its next epoch, then follow the catalogue."""
        catalogue = self._placement.catalogue
        checkpoint = read_producers(self._store.data_dir)
        found: dict[StreamId, tuple[RangeLog, StreamState]] = {}
        ends = []
        for known in list(catalogue.streams_of(self._node)):
            stream = known
            topic = catalogue.need_topic(stream.id.topic)
            settings = self._settings_of(topic)
            try:
                log = range_log(self._store, topic, stream, stream.last, settings)
                stream, log = await self._adopt_follower(topic, stream, log)
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
        for stream in list(catalogue.streams_of(self._node)):
            topic = catalogue.need_topic(stream.id.topic)
            if stream.id in self._damaged:
                self._close_off(topic, stream, self._damaged[stream.id])
                continue
            log, state = found[stream.id]
            if log.written_end == log.start_offset:
                self._store.drop_range(log)  # replaced by an empty range of the new epoch
            self._open(topic, stream, log, state)
        self._placement.subscribe(self._on_fact)
        self.save_producers()

    async def _adopt_follower(
        self, topic: Topic, stream: Stream, log: RangeLog
    ) -> tuple[Stream, RangeLog]:
        """Finish a roll that a crash cut short: what was written to the next range is kept."""
        while self._store.range_beyond(log) is not None:
            log.seal()
            end = _end_of(stream, log, suspect=False)
            stream = await self._placement.submit(records.SealAndCreate(uuid4().hex, end))
            log.close(sync=False)
            log = range_log(self._store, topic, stream, stream.last, self._settings_of(topic))
        return stream, log

    def save_producers(self) -> None:
        """Write down every producer state with its offset, which spares the next start a scan."""
        write_producers(
            self._store.data_dir,
            {
                str(stream.id): (stream.next_offset, stream.state.snapshot())
                for stream in self.all()
                if stream.next_offset and stream.closed is None
            },
        )

    def close(self) -> None:
        """Take nothing more."""
        reason = MainstemError(ErrorCode.SHUTTING_DOWN, "the node is stopping")
        for stream in self.all():
            stream.close(reason)

    def all(self) -> Sequence[StreamWriter]:
        """Every stream, by topic and partition."""
        return [stream for streams in self._by_name.values() for stream in streams]

    # The counter's verbs

    def door(self, topic: str, partition: int) -> StreamWriter:
        """The stream of a topic by its name."""
        streams = self._by_name.get(topic)
        if streams is None or not 0 <= partition < len(streams):
            raise _unknown(ErrorCode.UNKNOWN_TOPIC, f"{topic}-{partition}")
        return streams[partition]

    def door_by_id(self, topic: TopicId, partition: int) -> StreamWriter:
        """The stream of a topic by its id."""
        streams = self._by_id.get(topic)
        if streams is None:
            raise _unknown(ErrorCode.UNKNOWN_TOPIC_ID, topic_id_text(topic))
        if not 0 <= partition < len(streams):
            raise _unknown(ErrorCode.UNKNOWN_TOPIC, f"{streams[0].topic}-{partition}")
        return streams[partition]

    def flush(self) -> None:
        """Write all that is staged, one vectored write per stream."""
        self._flusher.flush()

    async def append(self, topic: str, partition: int, batch: bytearray) -> Offset:
        """Stage, flush and wait until committed."""
        stream = self.door(topic, partition)
        base = stream.stage(memoryview(batch), 0, len(batch))
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
            self._store.drop_range(log)

    def sizes(self, topic: str | None = None) -> Sequence[tuple[str, int, int]]:
        """(topic, partition, bytes on disk) of every stream held here, or of one topic's."""
        names = self._by_name if topic is None else (topic,)
        return [
            (name, stream.id.partition, sum(log.size_bytes for log in stream.ranges))
            for name in names
            for stream in self._by_name.get(name, ())
        ]

    # Following the catalogue

    def _on_fact(self, fact: records.AnyFact) -> None:
        match fact:
            case records.TopicCreated() | records.PartitionsAdded():
                topic = self._placement.catalogue.need_topic(fact.id)
                opened = len(self._by_id.get(topic.id, ()))
                for stream in topic.streams[opened:]:
                    self._open_new(topic, stream)
            case records.TopicDeleted():
                self._drop(fact)
            case records.TopicConfigsSet():
                self._configure(self._placement.catalogue.need_topic(fact.id))
            case records.NodeConfigsSet():
                for topic in list(self._placement.catalogue.topics()):
                    self._configure(topic)
            case _:
                pass  # the others are answers to commands of this very service

    def _open_new(self, topic: Topic, stream: Stream) -> None:
        log = range_log(self._store, topic, stream, stream.last, self._settings_of(topic))
        self._open(topic, stream, log, StreamState())

    def _open(self, topic: Topic, stream: Stream, last: RangeLog, state: StreamState) -> None:
        """Take a stream up; ``last`` is the range that was open when its end was determined."""
        settings = self._settings_of(topic)
        writer = StreamWriter(stream, topic.name, settings, self._flusher, self._clock)
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
        self._list(topic, writer)

    def _close_off(self, topic: Topic, stream: Stream, error: Corrupt) -> None:
        """A stream whose files are damaged answers so; all others go on."""
        _log.error("%s-%d is closed off: %s", topic.name, stream.id.partition, error)
        self._flusher.metrics.log_corruptions += 1
        settings = self._settings_of(topic)
        writer = StreamWriter(stream, topic.name, settings, self._flusher, self._clock)
        writer.close(error)
        self._list(topic, writer)

    def _list(self, topic: Topic, writer: StreamWriter) -> None:
        self._by_name.setdefault(topic.name, []).append(writer)
        if topic.id not in self._by_id:
            self._by_id[topic.id] = self._by_name[topic.name]

    def _drop(self, fact: records.TopicDeleted) -> None:
        streams = self._by_id.pop(fact.id, [])
        self._by_name.pop(fact.name, None)
        for stream in streams:
            stream.close(_unknown(ErrorCode.UNKNOWN_TOPIC, f"{fact.name}-{stream.id.partition}"))
        self._store.drop_topic(fact.name, fact.id)

    def _configure(self, topic: Topic) -> None:
        settings = self._settings_of(topic)
        for stream in self._by_id.get(topic.id, ()):
            stream.apply_settings(settings)


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


def _unknown(code: ErrorCode, subject: str) -> InvalidRequest:
    return InvalidRequest(code, "there is no such partition here", subject=subject)
