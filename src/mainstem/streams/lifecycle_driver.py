"""Opens the streams of this node when it starts, and follows the catalogue afterwards.

On start every stream that only this node holds continues where its files end, and all of them get
their next epoch in one command, because a restarted writer never reuses an epoch. Then topics are
created, grow, change and are deleted as facts arrive. Streams that other nodes hold as well are
opened, taken over and closed by ``roles_service``.
"""

import logging
from collections.abc import Sequence
from uuid import uuid4

from mainstem.log.checkpoint import FileTrust
from mainstem.log.range_log import RangeLog
from mainstem.log.store import LogStore
from mainstem.model.config.topic import TopicSettings
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError
from mainstem.model.ids import NodeId, Offset, StreamId
from mainstem.model.metadata import Stream, Topic
from mainstem.placement.changes import commands
from mainstem.placement.service import PlacementService
from mainstem.placement.state.tables import CatalogueTables
from mainstem.streams.context import NodeContext, is_lone
from mainstem.streams.failover.roles_service import StreamRoles
from mainstem.streams.failover.state_recovery import range_log, recovered_state
from mainstem.streams.producers.checkpoint_storage import read_producers, write_producers
from mainstem.streams.producers.stream_state import StreamState
from mainstem.streams.storage_retry_driver import refusal_of
from mainstem.streams.stream_table import StreamTable
from mainstem.streams.writer.replication_driver import not_writer
from mainstem.streams.writer.stream_driver import StreamWriter

_log = logging.getLogger(__name__)


class StreamLifecycle:
    """Opens, configures and closes the streams of this node.

    Args:
        context: the services of the node.
        table: where the streams are listed.
        roles: replicated streams; None: there are no other nodes.
    """

    def __init__(self, context: NodeContext, table: StreamTable, roles: StreamRoles | None) -> None:
        self._context = context
        self._table = table
        self._roles = roles
        self._damaged: dict[StreamId, Corrupt] = {}

    async def start(self, incarnation: int) -> None:
        """Open every stream under its next epoch, then follow the catalogue."""
        placement, store, node = self._context.placement, self._context.store, self._context.node
        catalogue = placement.catalogue
        checkpoint = read_producers(store.data_dir)
        found: dict[StreamId, tuple[RangeLog, StreamState]] = {}
        ends = []
        for known in lone_streams(catalogue, node):
            stream = known
            topic = catalogue.need_topic(stream.id.topic)
            settings = self._context.settings_of(topic)
            try:
                log = range_log(store, topic, stream, stream.last, settings)
                stream, log = await _adopt_follower(
                    placement, store, topic, (stream, log), settings
                )
                state = recovered_state(store, topic, stream, log, checkpoint)
            except Corrupt as error:
                self._damaged[stream.id] = error
                continue
            found[stream.id] = (log, state)
            # Without a sync before the machine went down it is unknown where the end was.
            unsure = store.trust is FileTrust.OTHER_BOOT and not settings.fsync
            ends.append(_end_of(stream, log, suspect=unsure))
        if ends:
            logs = [log for log, _ in found.values()]
            store.seal([log for log in logs if log.written_end > log.start_offset])
            await placement.submit(commands.RestartStreams(node, incarnation, tuple(ends)))
        for topic in list(catalogue.topics()):
            self._list_row(topic)
        for stream in lone_streams(catalogue, node):
            topic = catalogue.need_topic(stream.id.topic)
            if stream.id in self._damaged:
                self._close_off(topic, stream, self._damaged[stream.id])
                continue
            log, state = found[stream.id]
            if log.written_end == log.start_offset:
                store.drop_range(log)  # replaced by an empty range of the new epoch
            self._open(topic, stream, log, state)
        placement.subscribe(self._on_fact)
        if self._roles is not None:
            self._roles.start()
        store.settle()  # which ends are suspect is recorded, and which copies are in limbo
        self.save_producers()

    def save_producers(self) -> None:
        """Save every producer state with its offset, so that the next start needs no scan."""
        states = {
            str(stream.id): (stream.next_offset, stream.state.snapshot())
            for stream in self._table.all()
            if stream.next_offset and stream.closed is None
        }
        try:
            write_producers(self._context.store.data_dir, states)
        except OSError as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            _log.warning("producer states are not saved, the next start scans: %s", refusal)

    def close(self) -> None:
        """Refuse all further requests."""
        if self._roles is not None:
            self._roles.close()
        reason = MainstemError(ErrorCode.SHUTTING_DOWN, "the node is stopping")
        for stream in self._table.all():
            stream.close(reason)

    # Following the catalogue

    def _on_fact(self, fact: commands.AnyFact) -> None:
        match fact:
            case commands.TopicCreated() | commands.PartitionsAdded():
                topic = self._context.placement.catalogue.need_topic(fact.id)
                opened = len(self._table.row(topic.id))
                self._list_row(topic)
                self._open_new(topic, topic.streams[opened:])
            case commands.TopicDeleted():
                self._drop(fact)
            case commands.TopicConfigsSet():
                self._configure(self._context.placement.catalogue.need_topic(fact.id))
            case commands.NodeConfigsSet():
                for topic in list(self._context.placement.catalogue.topics()):
                    self._configure(topic)
            case _:
                pass  # the others are replies to commands of this service
        if self._roles is not None:
            self._roles.on_fact(fact)

    def resync(self) -> None:
        """The catalogue was replaced as a whole: update everything."""
        known = {topic.id for topic in self._context.placement.catalogue.topics()}
        for topic_id in [one for one in self._table.topics() if one not in known]:
            self._drop(commands.TopicDeleted(topic_id, self._table.name_of(topic_id)))
        for topic in list(self._context.placement.catalogue.topics()):
            opened = len(self._table.row(topic.id))
            self._list_row(topic)
            self._configure(topic)
            self._open_new(topic, topic.streams[opened:])
        if self._roles is not None:
            self._roles.resync()

    def _list_row(self, topic: Topic) -> None:
        """List every partition of a topic: closed, until this node is found to write it."""
        settings = self._context.settings_of(topic)
        for stream in topic.streams[len(self._table.row(topic.id)) :]:
            writer = _writer(self._context, stream, topic, settings)
            writer.close(not_writer(stream, topic.name))
            self._table.list_stream(writer)

    def _open_new(self, topic: Topic, streams: Sequence[Stream]) -> None:
        """Write new streams that only this node holds."""
        settings = self._context.settings_of(topic)
        for stream in streams:
            if stream.writer == self._context.node and is_lone(stream):
                log = range_log(self._context.store, topic, stream, stream.last, settings)
                self._open(topic, stream, log, StreamState())

    def _open(self, topic: Topic, stream: Stream, last: RangeLog, state: StreamState) -> None:
        """Open a stream; ``last`` is the range that was open when its end was determined."""
        settings = self._context.settings_of(topic)
        writer = _writer(self._context, stream, topic, settings)
        store = self._context.store
        try:
            ranges = [
                last
                if range_info.index == last.identity.name.index
                and range_info.epoch == last.identity.epoch
                else range_log(
                    self._context.store, topic, stream, range_info, settings, state.snapshot()
                )
                for range_info in stream.ranges
            ]
        except Corrupt as error:
            self._close_off(topic, stream, error)
            return
        store.drop_unknown(ranges)
        writer.open_at(ranges, state)
        if self._roles is not None:
            writer.replicate = self._roles.replicate
        self._table.list_stream(writer)

    def _close_off(self, topic: Topic, stream: Stream, error: Corrupt) -> None:
        """A stream whose files are damaged answers with that error; all others continue."""
        _log.error("%s-%d is closed off: %s", topic.name, stream.id.partition, error)
        self._context.flusher.metrics.log_corruptions += 1
        settings = self._context.settings_of(topic)
        writer = _writer(self._context, stream, topic, settings)
        writer.close(error)
        self._table.list_stream(writer)

    def _drop(self, fact: commands.TopicDeleted) -> None:
        streams = self._table.take_out(fact.id, fact.name)
        if self._roles is not None:
            self._roles.forget([stream.id for stream in streams])
        try:
            self._context.store.drop_topic(fact.name, fact.id)
        except OSError as error:
            if (refusal := refusal_of(error)) is None:
                raise
            _log.warning("the files of %s are removed later: %s", fact.name, refusal)

    def _configure(self, topic: Topic) -> None:
        settings = self._context.settings_of(topic)
        for stream in self._table.row(topic.id):
            stream.apply_settings(settings)


def _writer(
    context: NodeContext, stream: Stream, topic: Topic, settings: TopicSettings
) -> StreamWriter:
    return StreamWriter(
        stream, topic.name, settings, context.flusher, context.clock, is_internal=topic.internal
    )


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
        command = commands.SealAndCreate(uuid4().hex, end, replicas=stream.last.replicas)
        stream = await placement.submit(command)
        log.close(sync=False)
        log = range_log(store, topic, stream, stream.last, settings)
    return stream, log


def lone_streams(catalogue: CatalogueTables, node: NodeId) -> list[Stream]:
    """The streams that a node writes and no other node holds, as it finds them when it starts.

    Elected and rebuilt ones are included: a restart seals these too.
    """
    return [
        stream
        for stream in catalogue.streams_of(node)
        if all(one.replicas == (node,) for one in stream.ranges)
    ]


def _end_of(stream: Stream, log: RangeLog, *, suspect: bool) -> commands.RangeEnd:
    return commands.RangeEnd(
        stream.id,
        stream.epoch,
        stream.last.index,
        Offset(log.written_end),
        size_bytes=log.size_bytes,
        max_timestamp=log.max_timestamp,
        max_timestamp_offset=log.offset_of_max_timestamp,
        suspect=suspect,
    )
