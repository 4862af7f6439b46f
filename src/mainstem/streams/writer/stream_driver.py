"""The single writer of one stream: assigns offsets, writes bursts, tracks what is committed.

    stage ─ stage ─ stage ──▶ flush (one vectored write) ──▶ sync (shared) ──▶ committed ──▶ waiters
                                                 └─ flush.policy=written: committed at once

Guarantees:
* offsets are given once, in the order of ``stage``; a batch that could not be written gives its
  offset back before any reader has seen it;
* readers see nothing at or above ``committed``, which never goes back;
* bytes given to ``stage`` are borrowed until the next ``flush`` and not copied;
* rolling to the next range does not stop writing: what follows goes to the new range at once, and
  is committed as soon as the catalogue lists it.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from crc32c import crc32c

from mainstem.log.disk.space import DiskSpace
from mainstem.log.range_log import RangeLog, StagedBatch
from mainstem.model.clock import Clock
from mainstem.model.config.topic import TopicSettings
from mainstem.model.errors import (
    STORAGE_RECOVERS,
    ErrorCode,
    InvalidRequest,
    MainstemError,
    Unavailable,
)
from mainstem.model.ids import Offset
from mainstem.model.limits import APPENDS_WAITING_PER_STREAM_MAX
from mainstem.model.metadata import Stream
from mainstem.model.records.batch import (
    CONTROL_MASK,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    STAMP,
    STAMP_EPOCH,
    TRANSACTIONAL_MASK,
    check_produced,
    make_header,
    read_header,
)
from mainstem.model.topic_name import holds_metadata
from mainstem.streams.producers.stream_state import StreamState
from mainstem.streams.producers.transaction_markers import TransactionMarker, marker_batch
from mainstem.streams.reading.stream_reader import StreamReader
from mainstem.streams.writer.batch_validation import BatchRules
from mainstem.streams.writer.flusher import Flusher
from mainstem.streams.writer.segment_settings import segment_settings

Settled = Callable[[MainstemError | None], None]
FOREVER = 2**63 - 1
SEGMENTS_PER_RANGE = 16
# Codes of a batch that may not be written now, though the disk works.
_PASSING = STORAGE_RECOVERS | {ErrorCode.NOT_WRITER}


class Replication(Protocol):
    """Replicates a stream to other nodes, and reports what is committed.

    ``StreamWriter.commit`` is called with every offset that enough replicas have reached.
    """

    @property
    def needs_roll(self) -> bool:
        """Whether the next range is needed for other reasons than that this one is full."""
        ...

    is_handed_over: bool

    @property
    def in_doubt(self) -> MainstemError | None:
        """The reason to give instead of a final refusal while another node may write the stream."""
        ...

    def admit(self, staged: list[StagedBatch]) -> None:
        """Refuse batches that may not be written, as ``Unavailable``."""
        ...

    def failed(self) -> None:
        """What was admitted could not be written."""
        ...

    def flushed(self, staged: list[StagedBatch]) -> None:
        """Batches are in the files of this node."""
        ...

    async def roll(self) -> None:
        """Continue in the next range."""
        ...


class StreamWriter(StreamReader):
    """One stream that this node writes; see the module's text."""

    __slots__ = (
        "_clock",
        "_committable",
        "_failed_from",
        "_failure",
        "_flusher",
        "_fsync",
        "_is_metadata",
        "_pending",
        "_rules",
        "_staged",
        "append_time_ms",
        "is_internal",
        "replicate",
        "replication",
        "segments_max",
        "settings",
        "short_of_replicas",
        "state",
    )

    def __init__(
        self,
        stream: Stream,
        topic: str,
        settings: TopicSettings,
        flusher: Flusher,
        clock: Clock,
        *,
        is_internal: bool = False,
    ) -> None:
        super().__init__(stream, topic)
        self.is_internal = is_internal
        self.settings = settings
        self.state = StreamState()
        self.replication: Replication | None = None
        self.replicate: Callable[[StreamWriter], None] | None = None
        self.append_time_ms = -1
        self._committable = FOREVER
        self._fsync = settings.fsync
        self._is_metadata = holds_metadata(topic)
        self._rules = BatchRules(settings, clock)
        self.segments_max = _segments_per_range(settings)
        self.short_of_replicas = settings.min_insync_replicas > len(stream.last.replicas)
        self._staged: list[StagedBatch] = []
        self._failure: MainstemError | None = None
        self._failed_from = 0
        self._pending: deque[tuple[int, Settled]] = deque()
        self._flusher = flusher
        self._clock = clock

    # Ranges ---------------------------------------------------------------------------------

    def open_at(self, ranges: list[RangeLog], state: StreamState) -> None:
        """Open the stream with these ranges, the last of which is open."""
        self.hold(ranges)
        self.log.sync_listeners.append(self._commit_own)
        self.state = state
        self.next_offset = self.log.written_end
        self.committed = self.next_offset
        self.last_stable = state.transactions.stable_until(self.committed)

    def begin_range(self, log: RangeLog) -> RangeLog:
        """Append to ``log`` from now on, uncommitted until ``range_known``; the old log."""
        assert log.start_offset == self.next_offset, "a range starts where the last one ended"
        old = self.log
        self._committable = log.start_offset
        self.hold([*self.ranges, log])
        log.sync_listeners.append(self._commit_own)
        return old

    def replicate_with(self, replication: Replication) -> None:
        """From here on replicas decide what is committed, no longer the disk of this node."""
        _ignore_syncs(self.ranges, self._commit_own)
        self.replication = replication

    @property
    def is_full(self) -> bool:
        """Whether the next range is due."""
        log = self.log
        if log.segment_count <= self.segments_max or self._committable != FOREVER:
            return False
        # A replicated range ends where it is committed: the rest is rewritten in the next one.
        is_lone = self.replication is None
        return is_lone or self.committed >= log.segments[self.segments_max].base_offset

    def range_known(self, stream: Stream) -> None:
        """The catalogue holds the new range durably: its records may be committed."""
        self.known = stream
        self._committable = FOREVER
        if self.replication is None:
            self._commit_own()

    def apply_settings(self, settings: TopicSettings) -> None:
        """The settings of the topic have changed."""
        self.settings = settings
        self._fsync = settings.fsync
        self._rules = BatchRules(settings, self._clock)
        # Set now, and not with the next batch: prepared answers read which side
        # stamps the time.
        self.append_time_ms = self._clock.wall_ms() if settings.log_append_time else -1
        self.segments_max = _segments_per_range(settings)
        self.short_of_replicas = settings.min_insync_replicas > len(self.known.last.replicas)
        if self.closed is None:  # one that is damaged, or of another node, has no files here
            self.log.settings = segment_settings(settings, self.id)
            if self.replication is None:
                self._commit_own()

    def close(self, reason: MainstemError) -> None:
        """Fail everything that waits with ``reason`` and accept nothing more."""
        self.closed = reason
        _ignore_syncs(self.ranges, self._commit_own)
        self._staged.clear()
        waiting, self._pending = self._pending, deque()
        for _, settled in waiting:
            settled(reason)
        self._wake()

    # Writing --------------------------------------------------------------------------------

    def stage(self, buf: memoryview, start: int, until: int, *, verified: bool = False) -> Offset:
        """Check, stamp and queue the batch in ``buf[start:until]``; its base offset.

        ``verified``: the partition was added to the transaction the batch belongs to; the
        first batch of a transaction is refused without.
        """
        if self.closed is not None or self._flusher.space.is_low:
            _check_open(self, self._flusher.space, is_metadata=self._is_metadata)
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
            check_produced(buf, start, until)  # raises the rule that was broken
            raise AssertionError("the fast check and the exact one disagree")
        rules = self._rules
        if until - start > rules.bytes_max or max_timestamp > rules.newest_ms or rules.any_other:
            batch = rules.admit(buf[start:until], make_header(header))
            if batch is not None:  # the topic requires other bytes than the producer sent
                buf, start, until = batch, 0, len(batch)
                max_timestamp = HEADER.unpack_from(buf, 0)[8]
                self.append_time_ms = max_timestamp if self.settings.log_append_time else -1
        base = self.next_offset
        if pid >= 0:
            state = self.state
            try:
                known = state.producers.check(pid, pep, seq, count)
                if known is not None:
                    return Offset(known)
                transactional = bool(attributes & TRANSACTIONAL_MASK)
                if transactional or state.transactions.ongoing:
                    state.join(pid, base, transactional=transactional, verified=verified)
            except InvalidRequest as refusal:
                raise _confirmed_refusal(self, refusal) from None
            state.producers.record(pid, pep, seq, count, base, max_timestamp)
        self._place(buf, start, until, count, max_timestamp)
        return Offset(base)

    def _place(
        self, buf: memoryview, start: int, until: int, count: int, max_timestamp: int
    ) -> None:
        """Assign the next offsets to a valid batch and queue it for the flush."""
        base = self.next_offset
        STAMP.pack_into(buf, start, base)
        STAMP_EPOCH.pack_into(buf, start + 12, self.epoch)
        staged = self._staged
        if not staged:
            self._failure = None
            self._flusher.dirty.append(self)
        self.next_offset = base + count
        staged.append((buf[start:until], base, base + count, max_timestamp))

    def write_marker(self, producer_id: int, epoch: int, marker: TransactionMarker) -> int:
        """End the transaction of a producer here; the offset after the marker.

        Raises:
            Fenced: a newer epoch of the producer has written, or a newer coordinator has marked.
            Unavailable: the disk is full or failed; nothing has changed.
        """
        if self.closed is not None:
            raise self.closed
        self.state.check_marker(producer_id, epoch, marker.coordinator_epoch)
        now_ms = self._clock.wall_ms()
        batch = memoryview(marker_batch(producer_id, epoch, marker, now_ms))
        base = Offset(self.next_offset)
        self._place(batch, 0, len(batch), 1, now_ms)
        self._flusher.flush()
        failure = self.failure(base)
        if failure is not None:
            raise failure
        self.state.mark(producer_id, epoch, marker, offset=base, now_ms=now_ms)
        if not self._fsync:  # the flush committed before the transaction was known to have ended
            stable = self.state.transactions.stable_until(self.committed)
            if stable != self.last_stable:
                self.last_stable = stable
                self._wake()
        return base + 1

    def has_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether an ongoing transaction of this producer epoch has records here."""
        state = self.state
        return (
            producer_id in state.transactions.ongoing
            and state.producers.epoch_of(producer_id) == epoch
        )

    def aborted_transactions(self, start: int, until: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions with records in [start, until)."""
        return self.state.transactions.aborted(start, until)

    def flush(self) -> None:
        """Write everything staged with one call; failures are kept for ``failure``."""
        staged, self._staged = self._staged, []
        if not staged:
            return
        log = self.log
        size_bytes = log.size_bytes
        replication = self.replication
        try:
            if replication is not None:
                replication.admit(staged)
            log.append(staged)
        except Unavailable as error:
            if replication is not None:
                replication.failed()
            # Its traceback, and that of its cause, would keep the files of a deleted topic open.
            error.__cause__ = error.__context__ = None
            self._failure = error.with_traceback(None)
            self._failed_from = staged[0][1]
            self.next_offset = log.written_end
            self.state.forget_from(log.written_end)
            if error.code is ErrorCode.DISK_FULL:
                self._flusher.space.failed()
            if error.code not in _PASSING:
                # Space and descriptors can be freed; after other failures the disk is not trusted.
                self._flusher.fatal(error)
            return
        flusher = self._flusher
        metrics = flusher.metrics
        metrics.messages_in += staged[-1][2] - staged[0][1]
        metrics.batches_in += len(staged)
        metrics.bytes_in += log.size_bytes - size_bytes
        flusher.space.count_written(log.size_bytes - size_bytes)
        if replication is not None:
            replication.flushed(staged)
        elif self._fsync or not log.directory_synced:
            flusher.sync(log)
        else:
            self._commit_own()
        if self.is_full:
            flusher.roll(self)

    def failure(self, base: Offset) -> MainstemError | None:
        """Why the flush after ``stage`` could not write that batch, if it could not."""
        return self._failure if self._failure is not None and base >= self._failed_from else None

    def when_written(self, base: Offset, settled: Settled) -> bool:
        """Whether the batch at ``base`` is committed; if not, ``settled`` is called once it is."""
        if base < self.committed:
            return True
        if self.closed is not None:  # closed since the flush: the callback would never run
            raise self.closed
        if len(self._pending) >= APPENDS_WAITING_PER_STREAM_MAX:
            raise Unavailable(
                ErrorCode.OVERLOADED,
                f"{APPENDS_WAITING_PER_STREAM_MAX} appends wait for the disk",
                subject=f"{self.topic}-{self.id.partition}",
            )
        self._pending.append((base, settled))
        return False

    def append(self, batch: bytearray) -> int:
        """Stage and write one batch of our own at once; the offset after it.

        A transactional one belongs to the producer in its header, but has no sequence: the caller
        ensures that it is written once.
        """
        header = read_header(batch)
        view = memoryview(batch)
        if header.producer_id < 0:
            base = self.stage(view, 0, len(view))
        elif self.closed is not None:
            raise self.closed
        else:
            base = Offset(self.next_offset)
            self.state.check_epoch(header.producer_id, header.producer_epoch)
            self.state.replay(header._replace(base_offset=base), None)
            self._place(view, 0, len(view), header.record_count, header.max_timestamp)
        self._flusher.flush()
        failure = self.failure(base)
        if failure is not None:
            raise failure
        return base + header.last_offset_delta + 1

    def when_committed(self, until: int, settled: Settled) -> bool:
        """The same as ``when_written`` for the offset after a batch."""
        return self.when_written(Offset(until - 1), settled)

    def _commit_own(self, _synced: RangeLog | None = None) -> None:
        """Without replicas, as much is committed as disk and catalogue allow."""
        # Until the catalogue knows the new range, only the old one counts.
        log = self.log if self._committable == FOREVER else self.ranges[-2]
        # Whatever the policy, the folder of a range must be durable before anything in it counts.
        durable_only = self._fsync or not log.directory_synced
        self.commit(log.synced_end if durable_only else log.written_end)

    def commit(self, end: int) -> None:
        """Everything below ``end`` is committed; complete all appends that wait for that."""
        if end <= self.committed:
            return
        self.committed = end
        transactions = self.state.transactions
        self.last_stable = end if transactions.quiet else transactions.stable_until(end)
        pending = self._pending
        while pending and pending[0][0] < end:
            pending.popleft()[1](None)
        self._wake()
        if self.replication is not None and self.is_full:
            self._flusher.roll(self)


def _ignore_syncs(ranges: Sequence[RangeLog], listener: Callable[[RangeLog], None]) -> None:
    for log in ranges:
        if listener in log.sync_listeners:
            log.sync_listeners.remove(listener)


def _check_open(stream: StreamWriter, space: DiskSpace, *, is_metadata: bool) -> None:
    if stream.closed is not None:
        raise stream.closed
    if not is_metadata:
        raise space.refusal(f"{stream.topic}-{stream.id.partition}")


def _segments_per_range(settings: TopicSettings) -> int:
    """Compaction works on sealed ranges, so a compacted stream seals one for every segment."""
    return 1 if settings.compact else SEGMENTS_PER_RANGE


def _confirmed_refusal(stream: StreamWriter, refusal: InvalidRequest) -> MainstemError:
    """The refusal for a producer whose batch does not fit its known state here.

    It may have written at another node meanwhile: only a confirmed writer refuses for good.
    """
    reason = stream.lapsed() if stream.lapsed is not None else None
    if reason is None and stream.replication is not None:
        reason = stream.replication.in_doubt
    return reason or refusal
