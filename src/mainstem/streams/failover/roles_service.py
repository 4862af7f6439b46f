"""This node's role for every replicated stream, from the catalogue: writer, replica or none.

    fact ──▶ look at the stream as it is now ──▶ take over · open · stand down
                                             └─▶ hold · complete · drop its ranges

The catalogue is read as a whole each time, so that a fact that was missed, or one that comes
in a snapshot of another node, makes no difference. Guarantees: at most one take-over of a stream is
under way, the one of its current epoch; a range is dropped only when the catalogue no longer
assigns it to this node.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from mainstem.log.range_log import RangeLog
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import Epoch, NodeId, RangeIndex, StreamId
from mainstem.model.metadata import Stream, Topic
from mainstem.placement.changes import commands
from mainstem.placement.changes.replication_commands import (
    CopyOrdered,
    Election,
    NodeFenced,
    TargetsSet,
)
from mainstem.streams.context import StreamsContext, is_lone
from mainstem.streams.failover.driver import FailOverDriver, opening_of
from mainstem.streams.producers.stream_state import StreamState
from mainstem.streams.reading.followers import FollowerRegistry
from mainstem.streams.replica.reconciler_driver import ReplicaReconciler
from mainstem.streams.replica.service import ReplicaService
from mainstem.streams.storage_retry_driver import RETRY_S, refusal_of, retried
from mainstem.streams.writer.replication_driver import ReplicationDriver, not_writer
from mainstem.streams.writer.stream_driver import StreamWriter

TICK_S: Final = 0.1
STATE_PAUSE_S: Final = 0.2

_log = logging.getLogger(__name__)


class WriterRegistry(Protocol):
    """The list of streams that this node writes."""

    def all(self) -> Sequence[StreamWriter]:
        """Every stream that this node writes."""
        ...

    def writer(self, stream: StreamId) -> StreamWriter | None:
        """The stream, if this node writes it."""
        ...

    def list_stream(self, stream: StreamWriter) -> None:
        """Open the writer of a stream."""
        ...

    def depose(self, stream: StreamId, reason: MainstemError) -> None:
        """This node does not, or no longer, write the stream."""
        ...


class StreamRoles:
    """Makes this node writer or replica of streams, as the catalogue decides."""

    def __init__(self, context: StreamsContext, writers: WriterRegistry) -> None:
        self._context = context
        self._writers = writers
        self.replicas = ReplicaService(context)
        self.reconciler = ReplicaReconciler(context, self.replicas, writers.writer)
        self.replicas.on_damage = self.reconciler.lost
        self.followers = FollowerRegistry(context, self.replicas.registry, self.reconciler.lost)
        self._taking: dict[StreamId, tuple[Epoch, asyncio.Task[None]]] = {}
        self._unclean: dict[StreamId, Epoch] = {}
        self._unsettled: dict[ReplicationDriver, None] = {}  # in their order
        self._postponed: set[StreamId] = set()  # streams that wait for this node's storage
        self._is_awaited = asyncio.Event()
        self._ticking: asyncio.Task[None] | None = None
        self._is_closed = False

    def start(self) -> None:
        """Serve other nodes and take the roles of the catalogue."""
        self.replicas.start()
        self.resync()
        self.replicas.registry.begun()
        self._ticking = asyncio.get_running_loop().create_task(self._run())
        self._ticking.add_done_callback(self._ended)

    async def _run(self) -> None:
        """Run the timers of writers that wait for something, without end."""
        while True:
            await self._is_awaited.wait()
            await asyncio.sleep(TICK_S)
            now = self._context.now_ms()
            for driver in list(self._unsettled):
                try:
                    is_settled = not driver.on_time(now)
                except Unavailable as error:
                    if refusal_of(error) is None:
                        raise
                    continue  # this node's storage refused a read: it is tried at the next tick
                if is_settled:
                    self._unsettled.pop(driver, None)
            if not self._unsettled:
                self._is_awaited.clear()

    def close(self) -> None:
        """End everything that is under way; later facts are ignored."""
        self._is_closed = True
        if self._ticking is not None:
            self._ticking.cancel()
        self.replicas.close()
        self.reconciler.close()
        self.followers.close(MainstemError(ErrorCode.SHUTTING_DOWN, "the node is stopping"))
        for _, task in self._taking.values():
            task.cancel()

    def resync(self) -> None:
        """Update the role for every stream."""
        if self._is_closed:
            return
        for topic in list(self._context.placement.catalogue.topics()):
            for stream in topic.streams:
                self.reconcile(topic, stream)

    # Following the catalogue.

    def on_fact(self, fact: commands.AnyFact) -> None:
        """Update the role for the streams that a fact concerns."""
        if self._is_closed:
            return
        if isinstance(fact, commands.TopicCreated | commands.PartitionsAdded):
            topic = self._context.placement.catalogue.need_topic(fact.id)
            for stream in topic.streams:
                self.reconcile(topic, stream)
            return
        elections: tuple[Election, ...] = getattr(fact, "elections", ())
        for election in elections:
            if election.unclean:
                self._unclean[election.stream] = election.epoch
        if isinstance(fact, CopyOrdered) and fact.node == self._context.node:
            self.reconciler.begin_anew(fact.stream, fact.index)
        for stream_id in streams_concerned(fact):
            self._reconcile_current(stream_id)
        if isinstance(fact, NodeFenced):
            _leave_behind(self._writers.all(), fact.node)

    def _damaged(self, writer: StreamWriter, log: RangeLog) -> None:
        """A reader found damage: a sealed range is copied again, an open one is sealed."""
        if log is writer.log:
            self._context.flusher.roll(writer)
        else:
            self.reconciler.lost(writer.id, RangeIndex(log.identity.name.index))

    def forget(self, streams: list[StreamId]) -> None:
        """These streams were deleted, and their files with them."""
        gone = MainstemError(ErrorCode.UNKNOWN_TOPIC, "the topic was deleted")
        self.followers.forget(streams, gone)
        for stream in streams:
            self._stop_taking(stream)
            self.reconciler.forget(stream)

    def _reconcile_current(self, stream: StreamId) -> None:
        catalogue = self._context.placement.catalogue
        topic, known = catalogue.topic_by_id(stream.topic), catalogue.stream(stream)
        if topic is None or known is None:
            self._postponed.discard(stream)
        elif not self._is_closed:
            self.reconcile(topic, known)

    def reconcile(self, topic: Topic, stream: Stream) -> None:
        """Take the role for a stream, now or as soon as this node's storage allows."""
        try:
            self._reconcile(topic, stream)
        except (Unavailable, OSError) as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            if stream.id not in self._postponed:
                name = f"{topic.name}-{stream.id.partition}"
                _log.warning("%s waits for this node's storage: %s", name, refusal)
            self._postponed.add(stream.id)
            asyncio.get_running_loop().call_later(RETRY_S, self._reconcile_current, stream.id)
        else:
            self._postponed.discard(stream.id)

    def _reconcile(self, topic: Topic, stream: Stream) -> None:
        writer = self._writers.writer(stream.id)
        if stream.writer != self._context.node:
            self._stop_taking(stream.id)
            self._writers.depose(stream.id, not_writer(stream, topic.name))
        elif stream.is_taken_over:
            if writer is not None:
                self._writers.depose(stream.id, not_writer(stream, topic.name))
            self._take_over(topic, stream)
        elif not is_lone(stream) and (writer is None or writer.epoch != stream.epoch):
            if (
                writer is not None
            ):  # others wrote it since: requests that wait for the old writer fail
                self._writers.depose(stream.id, not_writer(stream, topic.name))
            self._open(topic, stream)
        self.reconciler.reconcile(topic, stream)
        self.followers.update(topic, stream)

    # The writer's role.

    def replicate(self, writer: StreamWriter) -> None:
        """Keep the replicas of a stream that this node writes."""

        def unsettled(driver: ReplicationDriver) -> None:
            self._unsettled[driver] = None
            self._is_awaited.set()

        driver = ReplicationDriver(
            self._context, self.replicas, writer, unsettled, self._reconcile_current
        )
        writer.replicate_with(driver)
        driver.start()

    def _take_over(self, topic: Topic, stream: Stream) -> None:
        under_way = self._taking.get(stream.id)
        if under_way is not None and under_way[0] == stream.epoch:
            return
        self._stop_taking(stream.id)
        driver = FailOverDriver(
            self._context,
            self.replicas,
            topic,
            stream,
            unclean=self._unclean.get(stream.id) == stream.epoch
            or self._context.settings_of(topic).unclean_leader_election,
        )
        self._begin(stream, self._taken_over(topic, driver))

    async def _taken_over(self, topic: Topic, driver: FailOverDriver) -> None:
        stream = await driver.run()
        if stream is not None and stream.writer == self._context.node:
            await self._opened(topic, stream)

    def _open(self, topic: Topic, stream: Stream) -> None:
        """The stream is new, or was handed over in a consistent state."""
        under_way = self._taking.get(stream.id)
        if under_way is not None and under_way[0] == stream.epoch:
            return
        self._stop_taking(stream.id)
        if len(stream.ranges) == 1 and stream.last.start == 0:
            self._admit(topic, stream, StreamState())
        else:
            self._begin(stream, self._opened(topic, stream))

    async def _opened(self, topic: Topic, stream: Stream) -> None:
        """Recover the state of the stream, then write it."""
        while True:
            try:
                self.reconciler.reconcile(topic, stream)
                opening = await opening_of(self._context, self.replicas, topic, stream)
                break
            except (Unavailable, OSError) as error:
                if isinstance(error, OSError) and refusal_of(error) is None:
                    raise
                _log.warning("%s", error)
                await asyncio.sleep(STATE_PAUSE_S)
        current = self._context.placement.catalogue.stream(stream.id)
        if current is None or (current.epoch, current.writer) != (stream.epoch, stream.writer):
            return
        state = StreamState.restore(opening)
        name = f"the opening of {topic.name}-{stream.id.partition}"
        # A newer epoch, or another writer, cancels the task.
        await retried(lambda: self._admit(topic, current, state), name, lambda: self._is_closed)

    def _admit(self, topic: Topic, stream: Stream, state: StreamState) -> None:
        ranges = [
            self.replicas.registry.log_of(topic, stream, range_info) for range_info in stream.ranges
        ]
        last = ranges[-1]
        if last.written_end != stream.last.start:
            raise Corrupt(
                f"epoch {stream.epoch} has already written up to {last.written_end}",
                subject=f"{topic.name}-{stream.id.partition}",
            )
        for log, range_info in zip(ranges[:-1], stream.ranges, strict=False):
            assert range_info.end is not None, "only the last range is open"
            log.missing = (
                self._context.node not in range_info.holders and log.written_end < range_info.end
            )
        last.snapshot = state.snapshot()
        context = self._context
        settings = context.settings_of(topic)
        writer = StreamWriter(
            stream, topic.name, settings, context.flusher, context.clock, is_internal=topic.internal
        )
        writer.open_at(ranges, state)
        writer.on_damage = partial(self._damaged, writer)
        writer.on_missing = self.reconciler.wanted
        self.replicate(writer)
        self._writers.list_stream(writer)

    def _begin(self, stream: Stream, work: Coroutine[None, None, None]) -> None:
        loop = asyncio.get_running_loop()
        task: asyncio.Task[None] = loop.create_task(work)
        self._taking[stream.id] = (stream.epoch, task)

        def ended(task: asyncio.Task[None]) -> None:
            current = self._taking.get(stream.id)
            if current is not None and current[1] is task:
                del self._taking[stream.id]
                if _is_refused(task):
                    loop.call_later(RETRY_S, self._reconcile_current, stream.id)
            self._ended(task)

        task.add_done_callback(ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        is_final = not isinstance(error, MainstemError) or error.code is ErrorCode.STORAGE_FAILED
        if not is_final or _is_refused(task):
            _log.warning("a stream is not taken over: %s", error)
        else:
            self._context.flusher.fatal(error)

    def _stop_taking(self, stream: StreamId) -> None:
        under_way = self._taking.pop(stream, None)
        if under_way is not None:
            under_way[1].cancel()


def _is_refused(task: asyncio.Task[None]) -> bool:
    """Whether this node's storage refused something for now, and the task ended with that."""
    if task.cancelled():
        return False
    error = task.exception()
    return error is not None and refusal_of(error) is not None


def _leave_behind(writers: Sequence[StreamWriter], node: NodeId) -> None:
    """A node is known to be dead: writers continue without it."""
    for writer in writers:
        if isinstance(writer.replication, ReplicationDriver) and writer.closed is None:
            writer.replication.leave_behind(node)


def streams_concerned(fact: commands.AnyFact) -> Iterable[StreamId]:
    """The streams that a fact is about, apart from creation and deletion of topics."""
    elections: tuple[Election, ...] = getattr(fact, "elections", ())
    match fact:
        case commands.RangeSealed():
            return [fact.end.stream]
        case commands.StreamsRestarted():
            return [end.stream for end in fact.ends]
        case TargetsSet():
            return [stream for stream, _ in fact.targets]
        case _:
            stream = getattr(fact, "stream", None)
            return [stream] if stream is not None else [one.stream for one in elections]
