"""One share partition (KIP-932): which records a group has acquired, acknowledged or archived.

             start                                                         until
    ── done ───┤ acquired by a │ acknowledged │ available │ acquired by b ├── unread ──▶
                 a window of runs without gaps, about ``locks_max`` records plus archived ones

A record is *available*, *acquired* by a member until its lock ends, *acknowledged*, or *archived*:
rejected, delivered too often, or missing from the log. ``start`` moves past records that are done.

Pure. Guarantees: a record is acquired by one member at a time; acknowledged or archived records
are never delivered again; records that a member releases, or does not settle in time, are delivered
again, but at most ``delivery_limit`` times; an acknowledgement is applied completely or not at all.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from msgspec import Struct

from mainstem.coordination.share.record_window import (
    DONE,
    NOBODY,
    RecordRun,
    RecordWindow,
    ShareRecordState,
)
from mainstem.coordination.share.requests import AckRange, AckType, AcquiredRange
from mainstem.model.errors import ErrorCode, InvalidRequest


class SavedRecordRun(Struct, frozen=True, array_like=True):
    """A run as it is stored, without the member that has acquired it."""

    length: int
    state: int
    deliveries: int


class SavedSharePartition(Struct, frozen=True, array_like=True):
    """The stored state of a share partition."""

    start: int
    runs: tuple[SavedRecordRun, ...] = ()

    @property
    def done(self) -> int:
        """Records at or after ``start`` that are done."""
        return sum(run.length for run in self.runs if run.state in DONE)


class SharePartitionLimits(Struct, frozen=True, kw_only=True):
    """Effective limits of a group; they may change between two calls."""

    lock_duration_ms: int = 30_000
    delivery_limit: int = 5
    locks_max: int = 2_000
    renews: bool = True


class AcquireLimit(Struct, frozen=True, kw_only=True):
    """Limit of a fetch: about ``records``, never more if ``strict``."""

    records: int
    batch_size: int = 0
    strict: bool = False


class ReadBatch(Struct, frozen=True):
    """A batch that was read; ``is_dead``: its records must not be delivered."""

    start: int
    until: int
    is_dead: bool = False


class SharePartition:
    """Tracks which records of a partition a share group has locked or finished.

    ``changes`` counts the changes of the state that ``saved`` returns.
    """

    __slots__ = ("_floor", "changes", "window")

    def __init__(self, start: int) -> None:
        self.changes = 0
        self.window = RecordWindow(start)
        self._floor = start  # the log start; records below are deleted

    @classmethod
    def restored(
        cls, saved: SavedSharePartition, delivery_limit: int, log_end: int | None = None
    ) -> "SharePartition":
        """Restore the stored state: acquired records become available, with their delivery count.

        A log that ends earlier has lost records, and others will take their offsets: states
        beyond ``log_end`` are dropped.
        """
        end = saved.start if log_end is None else min(saved.start, log_end)
        share = cls(end)
        window = share.window
        for run in saved.runs:
            state = ShareRecordState(run.state)
            # Records whose last delivery was interrupted are delivered once more.
            counted = run.deliveries if state in DONE else min(run.deliveries, delivery_limit - 1)
            until = window.until + run.length
            if log_end is not None and until > log_end:
                until = log_end
            if until > window.until:
                window.append(until, state, counted)
        window.tidy()
        return share

    def saved(self) -> SavedSharePartition:
        """The state to store."""
        kept: list[SavedRecordRun] = []
        for run in self.window:
            state = (
                ShareRecordState.AVAILABLE if run.state is ShareRecordState.ACQUIRED else run.state
            )
            same = (int(state), run.deliveries)
            length = run.until - run.start
            if kept and (kept[-1].state, kept[-1].deliveries) == same:
                length += kept.pop().length
            kept.append(SavedRecordRun(length, *same))
        return SavedSharePartition(self.start, tuple(kept))

    @property
    def start(self) -> int:
        """The first record that is not done."""
        return self.window.start

    @property
    def until(self) -> int:
        """The offset after the last record that was ever delivered."""
        return self.window.until

    @property
    def acquired(self) -> int:
        """Number of records that members have acquired."""
        return sum(run.until - run.start for run in self.window.held())

    def next_offset(self, locks_max: int) -> int | None:
        """The offset from which to read records for delivery; None while the window is full."""
        at = self._next(locks_max)
        return None if at is None else max(at, self._floor)

    def next_deadline_ms(self) -> int | None:
        """Time at which the next lock ends."""
        return min((run.deadline_ms for run in self.window.held()), default=None)

    def acquire(
        self,
        member: str,
        batches: Iterable[ReadBatch],
        portion: AcquireLimit,
        rules: SharePartitionLimits,
        now_ms: int,
    ) -> list[AcquiredRange]:
        """Acquire records for a member from batches that were read from ``next_offset`` on."""
        found: list[AcquiredRange] = []
        taken = 0
        at = self._next(rules.locks_max)
        deadline_ms = now_ms + rules.lock_duration_ms
        for batch in batches:
            if at is None or taken >= portion.records:
                break
            if batch.until <= at:
                continue
            first = max(batch.start, self._floor)
            self._skip(at, first)
            at = max(at, first)
            cap = portion.records - taken if portion.strict else None
            pieces = self._take_again(at, batch, cap)
            again = sum(piece.until - piece.start for piece in pieces)
            pieces += self._take_new(batch, None if cap is None else cap - again, rules.locks_max)
            for piece in pieces:
                piece.state, piece.member, piece.deadline_ms = (
                    ShareRecordState.ACQUIRED,
                    member,
                    deadline_ms,
                )
                piece.deliveries += 1
                taken += piece.until - piece.start
                _add(found, AcquiredRange(piece.start, piece.until, piece.deliveries), portion)
            at = batch.until
            if self.until < at:
                break  # the window has no space for the rest
        self.window.tidy()
        return found

    def acknowledge(
        self, member: str, ranges: Sequence[AckRange], rules: SharePartitionLimits, now_ms: int
    ) -> None:
        """Apply a member's acknowledgements.

        Raises:
            InvalidRequest: ranges or types are invalid, or the member has not acquired all
                records; nothing has changed.
        """
        _check(ranges, renews=rules.renews)
        for one in ranges:
            _check_held(self.window, member, one)
        for one in ranges:
            for start, until, kind in _by_type(one):
                for run in self.window.cut(max(start, self.start), until):
                    self._settle(run, kind, rules, now_ms)
        self.window.tidy()

    def release(self, member: str, rules: SharePartitionLimits) -> bool:
        """Release all records of a member; returns whether it had any."""
        held = [run for run in self.window.held() if run.member == member]
        for run in held:
            self._give_back(run, rules.delivery_limit)
        self.window.tidy()
        return bool(held)

    def expire(self, rules: SharePartitionLimits, now_ms: int) -> bool:
        """Release records whose lock has ended; returns whether there were any."""
        late = [run for run in self.window.held() if run.deadline_ms <= now_ms]
        for run in late:
            self._give_back(run, rules.delivery_limit)
        self.window.tidy()
        return bool(late)

    def trim(self, log_start: int) -> None:
        """Apply a new log start; acquired records before it may still be settled."""
        if log_start <= self._floor:
            return
        self._floor = log_start
        if log_start >= self.until and not self.acquired:
            self.window.restart(log_start)
            self.changes += 1
            return
        for run in self.window.cut(self.start, min(log_start, self.until)):
            if run.state is ShareRecordState.AVAILABLE:
                self._finish(run, ShareRecordState.ARCHIVED)
        self.window.tidy()

    def _next(self, locks_max: int) -> int | None:
        again = self.window.first(ShareRecordState.AVAILABLE)
        if again is not None:
            return again.start
        return self.until if self.window.locks < locks_max else None

    def _take_again(self, at: int, batch: ReadBatch, cap: int | None) -> list[RecordRun]:
        """The available records of a batch in the window; archives them if the batch is dead."""
        taken = []
        for run in self.window.cut(at, min(batch.until, self.until)):
            if run.state is not ShareRecordState.AVAILABLE:
                continue
            if batch.is_dead:
                self._finish(run, ShareRecordState.ARCHIVED)
                continue
            if cap is not None:
                if cap <= 0:
                    break
                self.window.cut(run.start, min(run.until, run.start + cap))
                cap -= run.until - run.start
            taken.append(run)
        return taken

    def _take_new(self, batch: ReadBatch, cap: int | None, locks_max: int) -> list[RecordRun]:
        """The records of a batch that were never delivered, as far as the window has space."""
        free = locks_max - self.window.locks
        until = batch.until
        if self.until >= until or (free <= 0 and not batch.is_dead):
            return []
        if batch.is_dead:
            self.window.append(until, ShareRecordState.ARCHIVED)
            self.changes += 1
            return []
        if cap is not None:
            until = min(until, self.until + min(cap, free))
        return [self.window.append(until, ShareRecordState.AVAILABLE)] if until > self.until else []

    def _skip(self, start: int, until: int) -> None:
        """Archive offsets that no batch contains: they were compacted away or trimmed."""
        if start >= until:
            return
        for run in self.window.cut(start, min(until, self.until)):
            if run.state is ShareRecordState.AVAILABLE:
                self._finish(run, ShareRecordState.ARCHIVED)
        if until > self.until:
            self.window.append(until, ShareRecordState.ARCHIVED)
            self.changes += 1

    def _settle(
        self, run: RecordRun, kind: AckType, rules: SharePartitionLimits, now_ms: int
    ) -> None:
        match kind:
            case AckType.RENEW:
                run.deadline_ms = now_ms + rules.lock_duration_ms
            case AckType.ACCEPT:
                self._finish(run, ShareRecordState.ACKNOWLEDGED)
            case AckType.RELEASE:
                self._give_back(run, rules.delivery_limit)
            case AckType.REJECT | AckType.GAP:
                self._finish(run, ShareRecordState.ARCHIVED)

    def _give_back(self, run: RecordRun, delivery_limit: int) -> None:
        if run.deliveries >= delivery_limit or run.until <= self._floor:
            self._finish(run, ShareRecordState.ARCHIVED)
            return
        run.state, run.member = ShareRecordState.AVAILABLE, NOBODY
        self.changes += 1

    def _finish(self, run: RecordRun, state: ShareRecordState) -> None:
        run.state, run.deliveries, run.member = state, 0, NOBODY
        self.changes += 1


def _add(found: list[AcquiredRange], piece: AcquiredRange, portion: AcquireLimit) -> None:
    """Append a range, merged with the previous one while that is below the requested batch size."""
    last = found[-1] if found else None
    if (
        last is not None
        and last.until == piece.start
        and last.delivery_count == piece.delivery_count
        and (portion.batch_size <= 0 or last.until - last.start < portion.batch_size)
    ):
        found[-1] = AcquiredRange(last.start, piece.until, last.delivery_count)
    else:
        found.append(piece)


def _check(ranges: Sequence[AckRange], *, renews: bool) -> None:
    reached = 0
    for one in ranges:
        size = one.until - one.start
        if one.start < reached or size <= 0:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                f"records [{one.start}, {one.until}) are acknowledged out of order",
            )
        reached = one.until
        if len(one.types) not in (1, size):
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                f"{len(one.types)} acknowledgement types for {size} records",
            )
        for kind in one.types:
            if not AckType.GAP <= kind <= (AckType.RENEW if renews else AckType.REJECT):
                raise InvalidRequest(
                    ErrorCode.INVALID_REQUEST, f"invalid acknowledgement type {kind}"
                )


def _check_held(window: RecordWindow, member: str, one: AckRange) -> None:
    if one.until <= window.start:
        return  # the log was trimmed, or the request is a repeat: the records are done
    if one.until > window.until:
        raise _not_held(one, f"only records up to {window.until} were delivered")
    start = max(one.start, window.start)
    for run in window.inside(start, one.until):
        if run.state is not ShareRecordState.ACQUIRED or run.member != member:
            raise _not_held(one, f"record {max(run.start, start)} is not acquired by this member")


def _by_type(one: AckRange) -> Iterator[tuple[int, int, AckType]]:
    if len(one.types) == 1:
        yield one.start, one.until, AckType(one.types[0])
        return
    at = one.start
    for kind, same in groupby(one.types):
        until = at + sum(1 for _ in same)
        yield at, until, AckType(kind)
        at = until


def _not_held(one: AckRange, cause: str) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.INVALID_RECORD_STATE, f"records [{one.start}, {one.until}): {cause}"
    )
