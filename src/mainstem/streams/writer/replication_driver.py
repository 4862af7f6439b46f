"""The writer's side of a replicated stream: carries out what ``RangeWriter`` decides.

    flush ──▶ own files ──┐
         └──▶ one note per replica ──▶ acknowledged ──▶ committed ──▶ the stream's waiters
    full, or a replica left behind ──▶ frozen ──▶ sealed ──▶ what is in flight continues in the next

Guarantees: what one replica did not get is sent again; from the freeze on nothing is committed
until the catalogue has decided; a writer that learns of a newer one fails all waiting appends and
accepts no more. A writer that hands its stream over first refuses appends and waits until all that
it has written is committed: what it acknowledged by itself (``acks=1``) is not lost.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeVar
from uuid import uuid4

from mainstem.log.range_log import RangeLog, StagedBatch
from mainstem.model.errors import ErrorCode, Fenced, MainstemError, Unavailable
from mainstem.model.ids import Epoch, NodeId, Offset, StreamId
from mainstem.model.metadata import Range, Stream
from mainstem.model.records.batch import read_header
from mainstem.streams.context import StreamsContext, policy_of
from mainstem.streams.failover.seal_driver import range_end, submit_until_decided
from mainstem.streams.failover.sealing import SealRequest
from mainstem.streams.failover.state_recovery import found_log, range_log
from mainstem.streams.producers.committed_state import CommittedState
from mainstem.streams.producers.stream_state import StreamState
from mainstem.streams.replica.driver import ReplicaDriver, ReplicaNotification
from mainstem.streams.replica.messages import Acknowledged, ReplicaRefused
from mainstem.streams.replica.service import ReplicaService
from mainstem.streams.replica.state_machine import Refusal
from mainstem.streams.storage_retry_driver import retried
from mainstem.streams.writer.replication import (
    OpenRange,
    RangeWriter,
    ReplicaProgress,
    WriterEffects,
    WriterLimits,
)
from mainstem.streams.writer.sender_driver import PIECE_BYTES_MAX, RangeSender
from mainstem.streams.writer.stream_driver import StreamWriter

LIMITS: Final = WriterLimits()
HAND_OVER_WAIT_S: Final = 2.0
"""How long a writer that is to hand over refuses appends; then it continues writing instead."""
HAND_OVER_PAUSE_S: Final = 0.002
ResultT = TypeVar("ResultT")

_log = logging.getLogger(__name__)


def not_writer(stream: Stream, topic: str) -> Unavailable:
    """The refusal for a request to the wrong node."""
    return Unavailable(
        ErrorCode.NOT_WRITER,
        f"node {stream.writer} writes it under epoch {stream.epoch}",
        subject=f"{topic}-{stream.id.partition}",
    )


class ReplicationDriver:
    """Carries out the effects of one ``RangeWriter``.

    Args:
        context: the services of the node.
        replicas: the replicas on this node; the writer's own among them.
        stream: what is written; its last range is the open one.
        on_unsettled: called when there is something to check after some time.
        on_followed: called when the next range is open.
    """

    def __init__(
        self,
        context: StreamsContext,
        replicas: ReplicaService,
        stream: StreamWriter,
        on_unsettled: Callable[["ReplicationDriver"], None],
        on_followed: Callable[[StreamId], None],
    ) -> None:
        self.stream = stream
        self._context = context
        self._replicas = replicas
        self._on_unsettled = on_unsettled
        self._on_followed = on_followed
        self._is_unsettled = False
        self._exclude: set[NodeId] = set()
        self._new_writer: NodeId | None = None
        self._handing_over_to: NodeId | None = None
        # A hand-over was requested: until its outcome is known another node may write already.
        self.is_handed_over = False
        # The next range is needed for other reasons than that this one is full.
        self.needs_roll = False
        range_info = stream.known.last
        topic = context.placement.catalogue.need_topic(stream.id.topic)
        opening = stream.log.opening_snapshot() or StreamState().snapshot()
        now = context.now_ms()
        self._held = replicas.registry.hold(topic, stream.known, range_info, stream.log)
        self._state = CommittedState(range_info.start, opening, now)
        self._machine = RangeWriter(
            _open_range(stream.known, range_info), policy_of(range_info), LIMITS, now
        )
        self._sender = RangeSender(context, stream.known, range_info, stream.log, opening)
        self._range_info = range_info

    def start(self) -> None:
        """Receive the answers of replicas, and send them the existing files."""
        self._replicas.listen(self.stream.id, self._on_answer)
        self.stream.commit(self._machine.committed)
        self._take_up_written()

    @property
    def in_doubt(self) -> MainstemError | None:
        """The reason to give instead of a final refusal while another node may write the stream."""
        stream, context = self.stream, self._context
        known = context.placement.catalogue.stream(stream.id)
        if (
            known is not None
            and (known.writer, known.epoch) == (context.node, stream.epoch)
            and not self._machine.is_frozen
            and self._handing_over_to is None
            and self._replicas.catalogue_freshness.holds()
        ):
            return None
        return not_writer(known or stream.known, stream.topic)

    def progress(self) -> list[ReplicaProgress]:
        """How far each replica is."""
        return self._machine.described(self._context.now_ms())

    # What the stream does.

    def admit(self, staged: list[StagedBatch]) -> None:
        """Refuse batches that may not be written.

        Raises:
            Unavailable: too much waits for replicas, or another writer was elected or will be.
        """
        if self._handing_over_to is not None:
            raise Unavailable(
                ErrorCode.NOT_WRITER,
                f"it is being handed over to node {self._handing_over_to}",
                subject=f"{self.stream.topic}-{self.stream.id.partition}",
            )
        machine = self._machine
        start, until = Offset(staged[0][1]), Offset(staged[-1][2])
        try:
            machine.check_append(sum(len(batch[0]) for batch in staged))
        except Fenced:
            raise not_writer(self.stream.known, self.stream.topic) from None
        refusal = self._held.begin_own(machine.opened.epoch, start, until, machine.committed)
        if refusal is not None:
            self._refused(self._context.node, refusal)
            raise not_writer(self.stream.known, self.stream.topic)

    def failed(self) -> None:
        """What was admitted could not be written."""
        self._held.fail_own()

    def flushed(self, staged: list[StagedBatch]) -> None:
        """Batches are in the files of this node: send them to the replicas."""
        until = Offset(staged[-1][2])
        size = sum(len(batch[0]) for batch in staged)
        self._sender.begin_burst(staged)
        self._carry_out(self._machine.on_append(until, size, self._context.now_ms()))
        self._sender.end_burst()
        self._unsettled()
        self._held.write_own(until, self._on_own_notification)

    def close(self) -> None:
        """This node no longer writes the stream."""
        self._replicas.listen(self.stream.id, None)

    # Timers.

    def on_time(self, now: int) -> bool:
        """Send again, report what is committed, leave laggards behind; False: nothing is open."""
        machine, sender = self._machine, self._sender
        if self.stream.closed is not None:
            return False
        undelivered = list(sender.undelivered)
        sender.undelivered.clear()
        if not machine.is_frozen:
            for node in undelivered:
                self._carry_out(machine.on_reconnected(node, now))
        self._carry_out(machine.on_time(now))
        if self.stream.next_offset == machine.next_offset:  # nothing is staged
            written, committed = machine.next_offset, machine.committed
            self._state.keep(self.stream.state, written, committed, now)
        progress = machine.described(now)
        if not machine.is_frozen:
            sender.send_committed(progress, machine.committed)
        self._is_unsettled = (
            bool(sender.undelivered)
            or self._state.is_waiting
            or any(one.end < machine.next_offset for one in progress)
        )
        return self._is_unsettled

    def leave_behind(self, node: NodeId) -> None:
        """A replica is known to be dead: continue without it."""
        if node in self._machine.opened.replicas and node != self._context.node:
            self._carry_out(self._machine.on_unreachable(node))

    # The next range.

    def request_roll(
        self, *, exclude: Sequence[NodeId] = (), new_writer: NodeId | None = None
    ) -> None:
        """Continue in another range: other replicas are assigned, or another writer."""
        self.needs_roll = True
        self._exclude.update(exclude)
        self._new_writer = new_writer
        self._context.flusher.roll(self.stream)

    async def roll(self) -> None:
        """Seal the open range where it is committed and open the next one, or hand over."""
        self._handing_over_to, self._new_writer = self._new_writer, None
        if self._handing_over_to in self._exclude:
            self._handing_over_to = None
        try:
            self._carry_out(self._machine.send_gathered(self._context.now_ms()))
            if self._handing_over_to is not None and not await _all_committed(
                self._context, self.stream, self._machine
            ):
                self._handing_over_to = None
                if not self._exclude and not self.stream.is_full:
                    self.needs_roll = self._new_writer is not None
                    return
            if self.stream.closed is None:
                await self._seal()
        finally:
            self._handing_over_to = None

    async def _seal(self) -> None:
        stream = self.stream
        exclude, self._exclude = tuple(sorted(self._exclude)), set()
        if self._handing_over_to in exclude:  # it was left behind meanwhile
            self._handing_over_to = None
        new_writer = self._handing_over_to
        self.needs_roll = False
        self.is_handed_over = new_writer is not None
        point = self._machine.freeze()
        now = (self._machine.opened.epoch, self._context.clock.wall_ms())
        # Nothing is committed from here on: every refusal of this node's storage is waited for.
        end = await _retried(
            stream, lambda: range_end(stream.known, self._range_info, stream.log, point, now)
        )
        if end is None:
            return
        request = SealRequest(uuid4().hex, end, point.done, exclude=exclude, new_writer=new_writer)
        try:
            outcome = await submit_until_decided(self._context, request)
        except MainstemError as error:
            if stream.closed is None:
                stream.close(error)
            return
        if stream.closed is not None:
            return
        followed = outcome.opened
        if followed is None or followed.writer != self._context.node:
            _stand_down(self)
        elif await _retried(
            stream,
            lambda: _carry_over(
                self._context, self._replicas, stream, self._held, self._state, followed
            ),
        ):
            await self._follow(followed)
            self.is_handed_over = False

    async def _follow(self, known: Stream) -> None:
        """The files of the next range hold what is in flight: continue there."""
        stream, context = self.stream, self._context
        range_info = known.last
        old, old_range_info = self._held, self._range_info
        topic = context.placement.catalogue.need_topic(stream.id.topic)
        log = found_log(context.store, topic, known, range_info)
        assert log is not None, "its files were opened"
        opening = self._state.at(range_info.start, old.log)
        now = context.now_ms()
        self._machine, effects = self._machine.successor(
            _open_range(known, range_info), policy_of(range_info), now
        )
        assert log.written_end == self._machine.next_offset, "what is in flight is in the files"
        self._held = self._replicas.registry.hold(topic, known, range_info, log)
        self._range_info = range_info
        self._state = CommittedState(range_info.start, opening, now)
        self._sender = RangeSender(context, known, range_info, log, opening)
        kept = stream.ranges
        if range_info.start == old_range_info.start:  # an empty range is replaced, not kept
            kept = kept[:-1]
            self._replicas.registry.forget(stream.id, old_range_info.index)
            context.store.drop_range(old.log)
        stream.known = known
        stream.hold([*kept, log])
        stream.short_of_replicas = stream.settings.min_insync_replicas > len(range_info.replicas)
        self._unsettled()
        self._take_up_written()
        self._carry_out(effects)
        if range_info.start > old_range_info.start and old.machine.sealed_end is None:
            # While storage refuses it, the range may be dropped here, to be copied again.
            await _retried(
                stream, lambda: None if old.log.discarded else old.seal(range_info.start)
            )
        self._on_followed(stream.id)

    def _take_up_written(self) -> None:
        """The files hold batches of this range that no replica was sent yet."""
        log, machine = self._held.log, self._machine
        start, until = machine.opened.start, Offset(log.written_end)
        if until == start:
            return
        if machine.next_offset < until:
            for staged in _batches_from(log, machine.next_offset):
                now = self._context.now_ms()
                self._carry_out(machine.on_append(Offset(staged[2]), len(staged[0]), now))
        self._held.begin_own(machine.opened.epoch, start, until, machine.committed)
        self._held.write_own(until, self._on_own_notification)
        self._unsettled()

    # Messages of replicas.

    def _on_answer(self, node: NodeId, message: Acknowledged | ReplicaRefused) -> None:
        opened = self._machine.opened
        if (
            message.key != self._sender.key
            or message.epoch != opened.epoch
            or node not in opened.replicas
            or self.stream.closed is not None
        ):
            return  # about an earlier range, or from a former replica
        if isinstance(message, Acknowledged):
            now = self._context.now_ms()
            self._carry_out(self._machine.on_ack(node, message.end, message.synced, now))
        else:
            self._refused(node, Refusal(message.fenced_by, message.gap_at, message.sealed_at))

    def _on_own_notification(self, notification: ReplicaNotification) -> None:
        if isinstance(notification, Refusal):
            self._refused(self._context.node, notification)
        elif notification.epoch == self._machine.opened.epoch and self.stream.closed is None:
            now = self._context.now_ms()
            self._carry_out(
                self._machine.on_ack(self._context.node, notification.end, notification.synced, now)
            )

    def _refused(self, node: NodeId, refusal: Refusal) -> None:
        machine = self._machine
        if refusal.fenced_by is not None:
            self._carry_out(machine.on_fenced(refusal.fenced_by))
        elif refusal.gap_at is not None:
            self._carry_out(machine.on_gap(node, refusal.gap_at, self._context.now_ms()))
        elif refusal.sealed_at is not None and not machine.is_frozen:
            # Only its writer, or a newer one, seals a range.
            self._carry_out(machine.on_fenced(Epoch(machine.opened.epoch + 1)))

    def _carry_out(self, effects: WriterEffects) -> None:
        for send in effects.sends:
            self._sender.send(send)
        if effects.committed is not None:
            self.stream.commit(effects.committed)
        laggards = [node for node in effects.laggards if node != self._context.node]
        if laggards:
            name = f"{self.stream.topic}-{self.stream.id.partition}"
            _log.warning("%s continues without nodes %s", name, laggards)
            self._exclude.update(laggards)
            self.needs_roll = True
            self._context.flusher.roll(self.stream)
        if effects.deposed_by is not None:
            _stand_down(self)

    def _unsettled(self) -> None:
        if not self._is_unsettled:
            self._is_unsettled = True
            self._on_unsettled(self)


def _stand_down(driver: ReplicationDriver) -> None:
    """Another writer was elected: the catalogue has, or will have, its id."""
    driver.close()
    stream = driver.stream
    if stream.closed is None:
        stream.close(not_writer(stream.known, stream.topic))


async def _all_committed(
    context: StreamsContext, stream: StreamWriter, machine: RangeWriter
) -> bool:
    """Wait until everything that was written is committed; False: it takes too long."""
    give_up_ms = context.now_ms() + int(HAND_OVER_WAIT_S * 1000)
    while machine.committed < machine.next_offset and stream.closed is None:
        if context.now_ms() >= give_up_ms:
            name = f"{stream.topic}-{stream.id.partition}"
            _log.warning("%s is not handed over: its replicas lack what was written last", name)
            return False
        await asyncio.sleep(HAND_OVER_PAUSE_S)
    return True


def _carry_over(
    context: StreamsContext,
    replicas: ReplicaService,
    stream: StreamWriter,
    old: ReplicaDriver,
    state: CommittedState,
    known: Stream,
) -> bool:
    """Write what is in flight to the files of the next range; may be repeated."""
    topic = context.placement.catalogue.need_topic(stream.id.topic)
    range_info = known.last
    log = found_log(context.store, topic, known, range_info)
    if log is None:
        opening = state.at(range_info.start, old.log)
        log = range_log(context.store, topic, known, range_info, stream.settings, opening)
    carried = _batches_from(old.log, Offset(max(range_info.start, log.written_end)))
    if carried:
        log.append(carried)
    # Opened here, since it may have to write a promise.
    replicas.registry.hold(topic, known, range_info, log)
    return True


async def _retried(stream: StreamWriter, step: Callable[[], ResultT]) -> ResultT | None:
    name = f"the roll of {stream.topic}-{stream.id.partition}"
    return await retried(step, name, lambda: stream.closed is not None)


def _open_range(stream: Stream, range_info: Range) -> OpenRange:
    return OpenRange(
        stream.id, range_info.index, stream.epoch, range_info.start, range_info.replicas
    )


def _batches_from(log: RangeLog, start: Offset) -> list[StagedBatch]:
    """Everything in a range from an offset on, as it was staged."""
    staged: list[StagedBatch] = []
    at = int(start)
    while at < log.written_end:
        part = log.read(at, max_bytes=PIECE_BYTES_MAX, until=log.written_end, min_one=True)
        assert part is not None, "what was written can be read"
        data = memoryview(part.read())
        while data:
            header = read_header(data)
            batch = data[: header.size]
            staged.append((batch, header.base_offset, header.until_offset, header.max_timestamp))
            data = data[header.size :]
        at = part.until_offset
    return staged
