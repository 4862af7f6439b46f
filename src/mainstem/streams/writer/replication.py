"""The single writer of one open range: sends every batch to all replicas, counts their copies.

    append ──▶ SendAppend to each replica ──▶ ack (end) ──▶ committed = A-th largest end
                     ▲── gap: go back ──┘

Decides only; a driver sends the bytes that lie between ``start`` and ``until`` (from memory or from
its own log) and completes the appends that wait for ``committed``. The writer's own disk is one of
the replicas and acknowledges like the others.

Guarantees:
* offsets are given once, in order; ``committed`` never goes back;
* from ``freeze`` on nothing more is committed in this range, whatever is acknowledged: only the
  outcome of the requested seal ends that, in the range after it;
* what was in flight continues in the next range under the same offsets;
* a replica that does not move for ``lag_ms``, or is ``lag_bytes`` behind what is committed, is
  named once as a laggard and sent nothing more; what waits for acknowledgement is bounded.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping

from msgspec import Struct

from mainstem.model.errors import Corrupt, ErrorCode, Fenced, Unavailable
from mainstem.model.ids import Epoch, NodeId, Offset, RangeIndex, StreamId
from mainstem.model.limits import MIB
from mainstem.streams.ack_policy import AckPolicy

# How many entries of the window that all replicas have may gather before they are removed.
_TRIM_AT = 1_024


class OpenRange(Struct, frozen=True):
    """The range that a writer works on, from the catalogue."""

    stream: StreamId
    index: RangeIndex
    epoch: Epoch
    start: Offset
    replicas: tuple[NodeId, ...]


class WriterLimits(Struct, frozen=True):
    """How far replicas may stay behind, and when to try again.

    While a replica has something to acknowledge, less than ``gather_bytes`` waits for that, for
    ``gather_ms`` at the most: it would wait there for the sync that is under way anyway, and what
    comes together is one write instead of many.
    """

    window_bytes: int = 8 * MIB
    gather_bytes: int = MIB // 2
    gather_ms: int = 50
    lag_bytes: int = 64 * MIB
    lag_ms: int = 10_000
    resend_ms: int = 1_000
    uncommitted_bytes_max: int = 64 * MIB


class SendAppend(Struct, frozen=True):
    """Send the batches of [start, until) to a replica, with what is committed by now."""

    replica: NodeId
    start: Offset
    until: Offset
    committed: Offset


class WriterEffects(Struct):
    """What the driver does, in order: send, complete up to ``committed``, seal or stand down."""

    sends: list[SendAppend] = []
    committed: Offset | None = None
    laggards: tuple[NodeId, ...] = ()
    deposed_by: Epoch | None = None


class SealPoint(Struct, frozen=True):
    """Where a range may be sealed and which replicas have all of it on disk."""

    end: Offset
    done: tuple[NodeId, ...]
    suspect: bool = False
    unclean: bool = False


class ReplicaProgress(Struct, frozen=True):
    """What a replica is known to hold; ``is_in_sync`` reports what Kafka calls the ISR."""

    replica: NodeId
    end: Offset
    synced: Offset
    is_in_sync: bool


class _Progress:
    """What is known of one replica."""

    __slots__ = (
        "acked", "is_left_behind", "is_probed", "moved_ms", "sent", "sent_ms", "synced", "tried_ms",
    )  # fmt: skip

    def __init__(self, start: Offset, now: int) -> None:
        self.acked = start
        self.synced = start
        self.sent = start
        self.moved_ms = now
        self.tried_ms = now
        self.sent_ms = now
        self.is_probed = False  # one piece at a time until it is acknowledged
        self.is_left_behind = False


class RangeWriter:
    """Decides the replication of one open range.

    All times are milliseconds of one clock that never goes back.
    """

    __slots__ = (
        "_base_bytes",
        "_is_frozen",
        "_limits",
        "_progress",
        "_totals",
        "_untils",
        "committed",
        "deposed_by",
        "next_offset",
        "opened",
        "policy",
    )

    def __init__(
        self, opened: OpenRange, policy: AckPolicy, limits: WriterLimits, now: int
    ) -> None:
        assert len(opened.replicas) == policy.replicas, "the policy is one of another range"
        self.opened = opened
        self.policy = policy
        self.next_offset = opened.start
        self.committed = opened.start
        self.deposed_by: Epoch | None = None
        self._limits = limits
        self._progress = {node: _Progress(opened.start, now) for node in opened.replicas}
        self._is_frozen = False
        # Ends of what was appended and the bytes up to each: a search gives the bytes between.
        self._untils: list[Offset] = []
        self._totals: list[int] = []
        self._base_bytes = 0

    @property
    def is_frozen(self) -> bool:
        """Whether a seal is under way."""
        return self._is_frozen

    def check_append(self, size_bytes: int) -> None:
        """Refuse what ``on_append`` would refuse.

        Raises:
            Fenced: another writer was elected.
            Unavailable: too much waits for acknowledgement.
        """
        if self.deposed_by is not None:
            raise Fenced(
                ErrorCode.FENCED_EPOCH,
                f"epoch {self.opened.epoch} ended, {self.deposed_by} has started",
                subject=str(self.opened.stream),
            )
        waiting = self._total() - self._bytes_until(self.committed)
        if waiting and waiting + size_bytes > self._limits.uncommitted_bytes_max:
            raise Unavailable(
                ErrorCode.OVERLOADED,
                f"{waiting} bytes wait for replicas",
                subject=str(self.opened.stream),
            )

    def on_append(self, until: Offset, size_bytes: int, now: int) -> WriterEffects:
        """Batches take the offsets from ``next_offset`` to ``until``.

        Raises:
            Fenced: another writer was elected.
            Unavailable: too much waits for acknowledgement.
        """
        self.check_append(size_bytes)
        assert until > self.next_offset, "an append has at least one record"
        before = self.next_offset
        total = self._total() + size_bytes
        self._untils.append(until)
        self._totals.append(total)
        self.next_offset = until
        effects = WriterEffects()
        if self._is_frozen:
            return effects
        for node, progress in self._progress.items():
            if progress.acked == before:
                progress.moved_ms = now  # it had everything: its time-out starts here
            self._pump(node, progress, effects, now)
        return effects

    def on_ack(self, replica: NodeId, end: Offset, synced: Offset, now: int) -> WriterEffects:
        """A replica holds everything below ``end``, and below ``synced`` on disk.

        The driver passes on only what was reported for this range and under this epoch.
        """
        progress = self._progress[replica]
        if max(end, synced) > self.next_offset:
            raise Corrupt(
                f"node {replica} acknowledges {max(end, synced)}, {self.next_offset} is next",
                subject=str(self.opened.stream),
            )
        effects = WriterEffects()
        progress.synced = max(progress.synced, synced)
        if end > progress.acked:
            progress.acked = end
            progress.sent = max(progress.sent, end)
            progress.moved_ms = now
            progress.is_probed = False
            self._commit(effects)
            self._trim()
        if not self._is_frozen:
            self._pump(replica, progress, effects, now)
        return effects

    def on_gap(self, replica: NodeId, end: Offset, now: int) -> WriterEffects:
        """A replica ends at ``end`` and was sent what lies beyond: go back."""
        progress = self._progress[replica]
        effects = WriterEffects()
        if end >= progress.sent or (progress.is_probed and end >= progress.acked):
            return effects  # reported before, by another of the pieces that were under way
        self._go_back(replica, progress, end, effects, now)
        return effects

    def on_reconnected(self, replica: NodeId, now: int) -> WriterEffects:
        """What was under way to a replica is lost."""
        progress = self._progress[replica]
        effects = WriterEffects()
        self._go_back(replica, progress, progress.acked, effects, now)
        return effects

    def on_fenced(self, promised: Epoch) -> WriterEffects:
        """A replica has promised a newer writer."""
        if promised <= self.opened.epoch or self.deposed_by is not None:
            return WriterEffects()
        self.deposed_by = promised
        self._is_frozen = True
        return WriterEffects(deposed_by=promised)

    def on_unreachable(self, replica: NodeId) -> WriterEffects:
        """A replica is declared dead: continue without it in the next range."""
        progress = self._progress[replica]
        if progress.is_left_behind:
            return WriterEffects()
        progress.is_left_behind = True
        return WriterEffects(laggards=(replica,))

    def on_time(self, now: int) -> WriterEffects:
        """Send again what got no answer; name those that do not move."""
        effects = WriterEffects()
        if self._is_frozen:
            return effects
        late = []
        for node, progress in self._progress.items():
            if progress.is_left_behind or progress.acked == self.next_offset:
                continue
            still_ms = now - progress.moved_ms
            if still_ms >= self._limits.lag_ms:
                late.append(node)
            elif min(still_ms, now - progress.tried_ms) >= self._limits.resend_ms:
                self._go_back(node, progress, progress.acked, effects, now)
            else:
                self._pump(node, progress, effects, now)
        _leave_behind(self._progress, late, effects)
        return effects

    def send_gathered(self, now: int) -> WriterEffects:
        """The range ends soon: send the gathered batches now."""
        effects = WriterEffects()
        if not self._is_frozen:
            for node, progress in self._progress.items():
                self._pump(node, progress, effects, now, gather=False)
        return effects

    def freeze(self) -> SealPoint:
        """Stop committing; the range may be sealed where it is committed now."""
        self._is_frozen = True
        end = self.committed
        done = tuple(node for node, one in self._progress.items() if one.synced >= end)
        return SealPoint(end, done)

    def successor(
        self, opened: OpenRange, policy: AckPolicy, now: int
    ) -> tuple["RangeWriter", WriterEffects]:
        """The writer of the next range; what was in flight is sent there under its offsets."""
        assert self._is_frozen, "only a sealed range is followed"
        assert self.deposed_by is None, "a deposed writer does not go on"
        assert opened.start == self.committed, "the next range starts where this one was sealed"
        following = RangeWriter(opened, policy, self._limits, now)
        first = bisect_right(self._untils, self.committed)
        base = self._totals[first - 1] if first else self._base_bytes
        following._untils = self._untils[first:]
        following._totals = [total - base for total in self._totals[first:]]
        following.next_offset = self.next_offset
        effects = WriterEffects()
        for node, progress in following._progress.items():
            following._pump(node, progress, effects, now)
        return following, effects

    def described(self, now: int) -> list[ReplicaProgress]:
        """How far each replica is, for monitoring; no decision depends on it."""
        lag_ms = self._limits.lag_ms
        return [
            ReplicaProgress(
                node,
                one.acked,
                one.synced,
                is_in_sync=not one.is_left_behind
                and (one.acked >= self.committed or now - one.moved_ms < lag_ms),
            )
            for node, one in self._progress.items()
        ]

    def _commit(self, effects: WriterEffects) -> None:
        if self._is_frozen:
            return
        committed = self.policy.committed(one.acked for one in self._progress.values())
        if committed <= self.committed:
            return
        self.committed = effects.committed = committed
        reached = self._bytes_until(committed) - self._limits.lag_bytes
        if reached > self._base_bytes:
            late = [
                node
                for node, one in self._progress.items()
                if not one.is_left_behind and self._bytes_until(one.acked) < reached
            ]
            _leave_behind(self._progress, late, effects)

    def _go_back(
        self, node: NodeId, progress: _Progress, end: Offset, effects: WriterEffects, now: int
    ) -> None:
        progress.sent = end
        # It may have lost what it held: it has to acknowledge again before it counts.
        progress.acked = min(progress.acked, end)
        progress.synced = min(progress.synced, end)
        progress.tried_ms = now
        progress.is_probed = False
        if not self._is_frozen:
            self._pump(node, progress, effects, now)
            # A replica that was sent nothing has nothing to acknowledge, and would wait for more.
            progress.is_probed = progress.sent > end

    def _pump(
        self,
        node: NodeId,
        progress: _Progress,
        effects: WriterEffects,
        now: int,
        *,
        gather: bool = True,
    ) -> None:
        """Send a replica as much as its window takes, at least one append when it is idle."""
        sent = progress.sent
        if sent >= self.next_offset or progress.is_left_behind or progress.is_probed:
            return
        limits = self._limits
        if (
            gather
            and sent > progress.acked
            and now - progress.sent_ms < limits.gather_ms
            and self._total() - self._bytes_until(sent) < limits.gather_bytes
        ):
            return
        send_until = self._bytes_until(progress.acked) + limits.window_bytes
        if self._total() <= send_until:
            until = self.next_offset
        else:
            last = bisect_right(self._totals, send_until) - 1
            until = self._untils[last] if last >= 0 else sent
            if until <= sent and sent == progress.acked:
                until = self._untils[bisect_right(self._untils, sent)]
            if until <= sent:
                return
        effects.sends.append(SendAppend(node, sent, until, self.committed))
        progress.sent = until
        progress.sent_ms = now

    def _total(self) -> int:
        return self._totals[-1] if self._totals else self._base_bytes

    def _bytes_until(self, offset: Offset) -> int:
        at = bisect_right(self._untils, offset)
        return self._totals[at - 1] if at else self._base_bytes

    def _trim(self) -> None:
        """Drop the ends of what all served replicas have."""
        if len(self._untils) < _TRIM_AT:
            return
        served = [one.acked for one in self._progress.values() if not one.is_left_behind]
        at = bisect_right(self._untils, min((*served, self.committed)))
        if at * 2 >= len(self._untils):
            self._base_bytes = self._totals[at - 1]
            del self._untils[:at], self._totals[:at]


def _leave_behind(
    progress: Mapping[NodeId, _Progress], late: Iterable[NodeId], effects: WriterEffects
) -> None:
    for node in late:
        progress[node].is_left_behind = True
        effects.laggards = (*effects.laggards, node)
