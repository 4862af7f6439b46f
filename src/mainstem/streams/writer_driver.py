"""The single writer of one stream: decides offsets, writes bursts, knows what is committed.

    stage ─ stage ─ stage ──▶ flush (one vectored write) ──▶ sync (shared) ──▶ committed ──▶ waiters
                                                 └─ flush.policy=written: committed at once

Promises:
* offsets are given once, in the order of ``stage``; a batch that could not be written gives its
  offset back before anybody has seen it;
* readers see nothing at or above ``committed``, which never goes back;
* bytes given to ``stage`` are borrowed until the next ``flush`` and not copied;
* rolling to the next range does not stop writing: what follows goes to the new range at once, and
  is committed as soon as the catalogue knows of it.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable

from crc32c import crc32c

from mainstem.log.range_log import FileSlice, RangeLog, StagedBatch
from mainstem.model.batch import (
    CONTROL_MASK,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    STAMP,
    STAMP_EPOCH,
    BatchHeader,
    check_produced,
)
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import Offset, StreamId
from mainstem.model.limits import APPENDS_WAITING_PER_STREAM_MAX
from mainstem.model.topic_config import TopicSettings
from mainstem.streams.batch_rules import BatchRules
from mainstem.streams.flusher import Flusher
from mainstem.streams.producer_state import ProducerStates

Settled = Callable[[MainstemError | None], None]
FOREVER = 2**63 - 1
SEGMENTS_PER_RANGE = 16


class StreamWriter:
    """One stream that this node writes; see the module's text."""

    __slots__ = (
        "_clock",
        "_committable",
        "_failed_from",
        "_failure",
        "_flusher",
        "_fsync",
        "_pending",
        "_rules",
        "_staged",
        "_starts",
        "_waiters",
        "closed",
        "committed",
        "epoch",
        "id",
        "last_stable",
        "log",
        "next_offset",
        "producers",
        "ranges",
        "segments_max",
        "settings",
        "start_offset",
        "topic",
    )

    def __init__(
        self,
        stream: StreamId,
        topic: str,
        *,
        epoch: int,
        settings: TopicSettings,
        flusher: Flusher,
        clock: Clock,
    ) -> None:
        self.id = stream
        self.topic = topic
        self.epoch = epoch
        self.settings = settings
        self.producers = ProducerStates()
        self.ranges: list[RangeLog] = []
        self.log: RangeLog
        self.start_offset = 0
        self.next_offset = 0
        self.committed = 0
        self.last_stable = 0
        self.closed: MainstemError | None = None
        self._starts: list[int] = []
        self._committable = FOREVER
        self._fsync = settings.fsync
        self._rules = BatchRules(settings, clock)
        self.segments_max = _segments_per_range(settings)
        self._staged: list[StagedBatch] = []
        self._failure: MainstemError | None = None
        self._failed_from = 0
        self._pending: deque[tuple[int, Settled]] = deque()
        self._waiters: list[Callable[[], None]] = []
        self._flusher = flusher
        self._clock = clock

    # Ranges ---------------------------------------------------------------------------------

    def open_at(self, ranges: list[RangeLog], *, start: int, producers: ProducerStates) -> None:
        """Take up the stream with these ranges, the last of which is open."""
        self.ranges = ranges
        self._starts = [log.start_offset for log in ranges]
        self.log = ranges[-1]
        self.log.on_synced = self._on_synced
        self.producers = producers
        self.start_offset = start
        self.next_offset = self.log.written_end
        self.committed = self.last_stable = self.next_offset

    def begin_range(self, log: RangeLog) -> RangeLog:
        """Send what follows to ``log``; commit nothing of it until ``range_known``. The old one."""
        assert log.start_offset == self.next_offset, "a range starts where the last one ended"
        old = self.log
        self._committable = log.start_offset
        self.ranges.append(log)
        self._starts.append(log.start_offset)
        self.log = log
        log.on_synced = self._on_synced
        return old

    def range_known(self) -> None:
        """The catalogue holds the new range durably: its records may be committed."""
        self._committable = FOREVER
        self._advance()

    def replace_range(self, old: RangeLog, new: RangeLog) -> None:
        """A sealed range was rewritten (compaction)."""
        self.ranges[self.ranges.index(old)] = new

    def trim(self, start: int) -> list[RangeLog]:
        """Let go of everything below ``start``; the ranges that are now wholly below it."""
        self.start_offset = max(self.start_offset, start)
        dropped = []
        while len(self.ranges) > 1 and self._starts[1] <= self.start_offset:
            dropped.append(self.ranges.pop(0))
            del self._starts[0]
        self.ranges[0].trim(self.start_offset)
        return dropped

    def apply_settings(self, settings: TopicSettings) -> None:
        """The topic was configured anew."""
        self.settings = settings
        self._fsync = settings.fsync
        self._rules = BatchRules(settings, self._clock)
        self.segments_max = _segments_per_range(settings)
        self._advance()

    def close(self, reason: MainstemError) -> None:
        """Answer everything that waits with ``reason`` and take nothing more."""
        self.closed = reason
        self._staged.clear()
        waiting, self._pending = self._pending, deque()
        for _, settled in waiting:
            settled(reason)
        for wake in list(self._waiters):
            wake()

    # Writing --------------------------------------------------------------------------------

    def stage(self, buf: memoryview, start: int, until: int) -> Offset:
        """Check, stamp and queue the batch in ``buf[start:until]``; its base offset."""
        if self.closed is not None:
            raise self.closed
        if until - start < HEADER_BYTES:
            check_produced(buf, start, until)
        header = HEADER.unpack_from(buf, start)
        (_, length, _, magic, crc, attributes, delta, _, max_timestamp, pid, pep, seq, count) = (
            header
        )
        if (
            magic != MAGIC
            or length != until - start - LENGTH_OVERHEAD
            or delta != count - 1
            or count <= 0
            or attributes & CONTROL_MASK
            or crc32c(buf[start + 21 : until]) != crc
        ):
            check_produced(buf, start, until)  # says which rule was broken
            raise AssertionError("the fast check and the exact one disagree")
        rules = self._rules
        if until - start > rules.bytes_max or max_timestamp > rules.newest_ms or rules.any_other:
            batch = rules.admit(buf[start:until], BatchHeader._make(header))
            if batch is not None:  # the topic asks for other bytes than the producer sent
                buf, start, until = batch, 0, len(batch)
                max_timestamp = HEADER.unpack_from(buf, 0)[8]
        base = self.next_offset
        if pid >= 0:
            known = self.producers.check(pid, pep, seq, count)
            if known is not None:
                return Offset(known)
            self.producers.record(pid, pep, seq, count, base, max_timestamp)
        STAMP.pack_into(buf, start, base)
        STAMP_EPOCH.pack_into(buf, start + 12, self.epoch)
        staged = self._staged
        if not staged:
            self._failure = None
            self._flusher.dirty.append(self)
        self.next_offset = base + count
        staged.append((buf[start:until], base, base + count, max_timestamp))
        return Offset(base)

    def flush(self) -> None:
        """Write everything staged with one call; failures are kept for ``failure``."""
        staged, self._staged = self._staged, []
        if not staged:
            return
        log = self.log
        try:
            log.append(staged)
        except Unavailable as error:
            self._failure = error
            self._failed_from = staged[0][1]
            self.next_offset = log.written_end
            self.producers.forget_from(log.written_end)
            return
        flusher = self._flusher
        flusher.records_in += staged[-1][2] - staged[0][1]
        if self._fsync:
            flusher.sync(log)
        else:
            self._advance()
        if log.segment_count > self.segments_max and self._committable == FOREVER:
            flusher.roll(self)

    def failure(self, base: Offset) -> MainstemError | None:
        """Why the flush after ``stage`` could not write that batch, if it could not."""
        return self._failure if self._failure is not None and base >= self._failed_from else None

    def when_written(self, base: Offset, settled: Settled) -> bool:
        """Whether the batch at ``base`` is committed; if not, ``settled`` is called once it is."""
        if base < self.committed:
            return True
        if len(self._pending) >= APPENDS_WAITING_PER_STREAM_MAX:
            raise Unavailable(
                ErrorCode.OVERLOADED,
                f"{APPENDS_WAITING_PER_STREAM_MAX} appends wait for the disk",
                subject=f"{self.topic}-{self.id.partition}",
            )
        self._pending.append((base, settled))
        return False

    def append(self, batch: bytearray) -> int:
        """Stage and write one batch of our own at once; the offset after it."""
        base = self.stage(memoryview(batch), 0, len(batch))
        self._flusher.flush()
        failure = self.failure(base)
        if failure is not None:
            raise failure
        return base + HEADER.unpack_from(batch, 0)[6] + 1

    def when_committed(self, until: int, settled: Settled) -> bool:
        """The same as ``when_written`` for the offset after a batch."""
        return self.when_written(Offset(until - 1), settled)

    def _on_synced(self, _log: RangeLog) -> None:
        self._advance()

    def _advance(self) -> None:
        """Move ``committed`` as far as the flush policy and the catalogue allow; tell everyone."""
        # Until the catalogue knows the new range, only the old one counts.
        log = self.log if self._committable == FOREVER else self.ranges[-2]
        end = log.synced_end if self._fsync else log.written_end
        if end <= self.committed:
            return
        self.committed = self.last_stable = end
        pending = self._pending
        while pending and pending[0][0] < end:
            pending.popleft()[1](None)
        if self._waiters:
            for wake in tuple(self._waiters):
                wake()

    # Reading --------------------------------------------------------------------------------

    def read(
        self, offset: int, *, max_bytes: int, committed_only: bool, min_one: bool
    ) -> FileSlice | None:
        """Batches from the one that contains ``offset`` on; None where there is nothing yet."""
        until = self.last_stable if committed_only else self.committed
        if offset >= until or offset < self.start_offset:
            if self.closed is not None:
                raise self.closed
            if self.start_offset <= offset <= self.next_offset:
                return None
            raise InvalidRequest(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside [{self.start_offset}, {self.next_offset})",
                subject=f"{self.topic}-{self.id.partition}",
            )
        if offset >= self._starts[-1]:
            return self.log.read(offset, max_bytes=max_bytes, until=until, min_one=min_one)
        for at in range(bisect_right(self._starts, offset) - 1, len(self.ranges)):
            # A compacted range may hold nothing at or above the offset; the next one goes on.
            found = self.ranges[at].read(
                max(offset, self._starts[at]), max_bytes=max_bytes, until=until, min_one=min_one
            )
            if found is not None:
                return found
        return None

    def add_waiter(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` whenever committed moves, until it is removed."""
        self._waiters.append(wake)

    def remove_waiter(self, wake: Callable[[], None]) -> None:
        """Forget ``wake``."""
        self._waiters.remove(wake)


def _segments_per_range(settings: TopicSettings) -> int:
    """Compaction works on sealed ranges, so a compacted stream seals one for every segment."""
    return 1 if settings.compact else SEGMENTS_PER_RANGE
