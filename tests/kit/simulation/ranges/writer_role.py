"""A node of ``simulator`` in the role of the writer, elected in one epoch."""

from typing import TYPE_CHECKING

from tests.kit.simulation.ranges.messages import Append, Fence, RangeSimMessage, SealOutcome

from mainstem.model.errors import MainstemError
from mainstem.model.ids import Epoch, NodeId, Offset
from mainstem.model.metadata import Range, Stream
from mainstem.placement.changes.commands import RangeEnd
from mainstem.streams.failover.sealing import SealEffects, Sealing, SealRequest
from mainstem.streams.failover.state_machine import (
    FailOver,
    FailOverEffects,
    FailOverSettings,
    TakeoverRange,
)
from mainstem.streams.replica.state_machine import FenceAnswer, Refusal, ReplicaAck
from mainstem.streams.writer.replication import (
    OpenRange,
    RangeWriter,
    SealPoint,
    WriterEffects,
    WriterLimits,
)

if TYPE_CHECKING:
    from tests.kit.simulation.ranges.simulator import RangeSimulator

# Timeouts of a few ticks; a record counts as ten bytes.
LIMITS = WriterLimits(
    window_bytes=40, gather_bytes=20, gather_ms=100, lag_bytes=400, lag_ms=4_000, resend_ms=500
)
SETTINGS = FailOverSettings(linger_ms=500, resend_ms=500, lone_after_ms=2_000, restart_ms=4_000)
RECORD_BYTES = 10


class SimWriterRole:
    """Carries out the decisions of a writer's state machines."""

    def __init__(self, sim: "RangeSimulator", node: NodeId, epoch: Epoch) -> None:
        self.node = node
        self.epoch = epoch
        self.is_alive = True
        self.writer: RangeWriter | None = None
        self.fail_over: FailOver | None = None
        self.sealing: Sealing | None = None
        self.values: dict[Offset, int] = {}
        self._sim = sim
        self._recovers: Range | None = None

    def open(self, one: Range) -> None:
        """Write a range from its start."""
        policy = self._sim.policy(one.replicas)
        self.writer = RangeWriter(self._open_range(one), policy, LIMITS, self._sim.now)

    def take_over(self, stream: Stream) -> None:
        """Recover the last range of a stream."""
        last = self._recovers = stream.last
        named = self._sim.catalogue.directories[last.index]
        taken = TakeoverRange(
            self._open_range(last), self.epoch, self.node, {n: named[n] for n in last.replicas}
        )
        policy = self._sim.policy(last.replicas)
        self.fail_over = FailOver(taken, policy, SETTINGS, self._sim.now)
        self._recover(self.fail_over.begin())

    def append(self, values: tuple[int, ...]) -> None:
        """Accept a client's batch; refused while too much is pending, or when deposed."""
        if self.writer is None or not self.is_alive:
            return
        start = self.writer.next_offset
        until = Offset(start + len(values))
        try:
            effects = self.writer.on_append(until, RECORD_BYTES * len(values), self._sim.now)
        except MainstemError:
            return
        for number, value in enumerate(values, start=start):
            assert Offset(number) not in self.values, "an offset is assigned once"
            self.values[Offset(number)] = value
        self._write(effects)

    def seal(self, *, new_writer: NodeId | None = None, exclude: tuple[NodeId, ...] = ()) -> None:
        """Seal the open range and continue; a hand-over waits until nothing is in flight."""
        writer = self.writer
        if writer is None or writer.is_frozen:
            return
        if new_writer is not None and writer.committed != writer.next_offset:
            return
        self._pursue(writer.opened, writer.freeze(), new_writer=new_writer, exclude=exclude)

    def on_time(self) -> None:
        """Act on timeouts."""
        now = self._sim.now
        if self.sealing is not None:
            self._sealed(self.sealing.on_time(now))
        elif self.writer is not None:
            self._write(self.writer.on_time(now))
        elif self.fail_over is not None:
            self._recover(self.fail_over.on_time(now))

    def on_reconnected(self, node: NodeId) -> None:
        """Reconnect to a replica after the connection was lost."""
        if self.writer is not None and node in self.writer.opened.replicas:
            self._write(self.writer.on_reconnected(node, self._sim.now))

    def receive(self, message: RangeSimMessage) -> None:
        """Handle an answer of a replica or of the catalogue, perhaps to an older request."""
        match message.content:
            case SealOutcome() as outcome:
                self._outcome(outcome)
            case ReplicaAck() | Refusal() | FenceAnswer():
                if self.writer is None:
                    self._answer_to_recovery(message)
                elif message.range_index == self.writer.opened.index:
                    self._answer_to_writer(message, self.writer)
            case _:
                raise AssertionError(f"a writer does not accept {message.content}")

    def _answer_to_writer(self, message: RangeSimMessage, writer: RangeWriter) -> None:
        assert message.sender is not None
        match message.content:
            case ReplicaAck() as ack:
                now = self._sim.now
                self._write(writer.on_ack(message.sender, ack.end, ack.synced, now))
            case Refusal() as refusal:
                if refusal.fenced_by is not None:
                    self._write(writer.on_fenced(refusal.fenced_by))
                elif refusal.gap_at is not None:
                    self._write(writer.on_gap(message.sender, refusal.gap_at, self._sim.now))
            case _:
                pass  # an answer to an earlier recovery

    def _answer_to_recovery(self, message: RangeSimMessage) -> None:
        assert message.sender is not None
        if self.fail_over is None or self._recovers is None:
            return
        if message.range_index != self._recovers.index:
            return
        match message.content:
            case FenceAnswer() as answer:
                effects = self.fail_over.on_answer(message.sender, answer, self._sim.now)
                self._recover(effects)
            case ReplicaAck() as ack:
                self._recover(self.fail_over.on_copied(message.sender, ack.synced))
            case Refusal() as refusal:
                if refusal.fenced_by is not None:
                    self._recover(self.fail_over.on_fenced(refusal.fenced_by))
            case _:
                raise AssertionError(f"a recovery does not accept {message.content}")

    def _outcome(self, outcome: SealOutcome) -> None:
        sealing = self.sealing
        if sealing is None or sealing.request.request_id != outcome.request_id:
            return
        if outcome.stream is None:
            self._sealed(sealing.on_deposed(outcome.epoch))
        else:
            self._sealed(sealing.on_answer(outcome.stream))

    def _write(self, effects: WriterEffects) -> None:
        writer = self.writer
        assert writer is not None
        for send in effects.sends:
            values = tuple(self.values[Offset(at)] for at in range(send.start, send.until))
            append = Append(self.epoch, send.start, values, send.committed)
            sent = RangeSimMessage(append, writer.opened.index, to_node=send.replica)
            self._sim.post([sent])
        if effects.committed is not None:
            self._sim.committed(self, effects.committed)
        if effects.deposed_by is not None:
            self.is_alive = False
        elif effects.laggards:
            self.seal(exclude=effects.laggards)

    def _recover(self, effects: FailOverEffects) -> None:
        recovered = self._recovers
        assert recovered is not None
        index = recovered.index
        for node in effects.fences:
            self._sim.post([RangeSimMessage(Fence(self.epoch), index, to_node=node)])
        for copy in effects.copies:
            sent = RangeSimMessage(copy, index, to_node=copy.source, to_epoch=self.epoch)
            self._sim.post([sent])
        if effects.seal is not None:
            if len(effects.seal.done) < self._sim.policy(recovered.replicas).acks:
                self._sim.lone.add(index)
            self._pursue(self._open_range(recovered), effects.seal)
        if effects.deposed_by is not None:
            self.is_alive = False

    def _pursue(
        self, opened: OpenRange, point: SealPoint, *,
        new_writer: NodeId | None = None, exclude: tuple[NodeId, ...] = (),
    ) -> None:  # fmt: skip
        end = RangeEnd(opened.stream, self.epoch, opened.index, point.end, suspect=point.suspect)
        request = SealRequest(
            f"{self.epoch}/{opened.index}", end, point.done, exclude, new_writer, point.unclean
        )
        self.sealing = Sealing(request)
        self._sealed(self.sealing.begin(self._sim.now))

    def _sealed(self, effects: SealEffects) -> None:
        if effects.submit is not None:
            index = effects.submit.end.index
            self._sim.post([RangeSimMessage(effects.submit, index, to_catalogue=True)])
        if effects.deposed_by is not None:
            self.is_alive = False
        if effects.opened is not None:
            self._go_on(effects.opened)

    def _go_on(self, stream: Stream) -> None:
        """Continue in the next range, unless the stream was handed over."""
        assert self.sealing is not None
        handed_over = self.sealing.request.new_writer is not None
        self.sealing = None
        if handed_over:
            self.is_alive = False
            return
        last = stream.last
        if self.writer is None:
            self.open(last)
            return
        policy = self._sim.policy(last.replicas)
        opened = self._open_range(last)
        self.writer, effects = self.writer.successor(opened, policy, self._sim.now)
        self._write(effects)

    def _open_range(self, one: Range) -> OpenRange:
        stream = self._sim.catalogue.stream.id
        return OpenRange(stream, one.index, one.epoch, one.start, one.replicas)
