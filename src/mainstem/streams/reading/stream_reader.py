"""Reading one stream: which range holds an offset, a time, an epoch; and waiting readers.

The catalogue's data about sealed ranges (epoch, largest timestamp) answers what it can; only the
rest opens files.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence

from mainstem.log.range_log import FileSlice, RangeLog, available_bytes
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.metadata import Stream

Moment = tuple[int, int, int]  # offset, timestamp, epoch
_UNKNOWN_END = (-1, -1)


class StreamReader:
    """The readable side of a stream. Plain attributes, cheap to read."""

    __slots__ = (
        "_starts",
        "_waiters",
        "closed",
        "committed",
        "epoch",
        "id",
        "known",
        "lapsed",
        "last_stable",
        "log",
        "next_offset",
        "on_damage",
        "on_missing",
        "ranges",
        "start_offset",
        "topic",
    )

    def __init__(self, stream: Stream, topic: str) -> None:
        self.id = stream.id
        self.topic = topic
        self.known = stream
        self.epoch: int = stream.epoch
        self.start_offset: int = stream.start
        self.next_offset: int = stream.start
        self.committed: int = stream.start
        self.last_stable: int = stream.start
        self.closed: MainstemError | None = None
        # Why the state here may be out of date: the lease has lapsed, say. None: there is no check.
        self.lapsed: Callable[[], MainstemError | None] | None = None
        self.ranges: list[RangeLog] = []
        self.log: RangeLog
        self.on_damage: Callable[[RangeLog], None] | None = None
        self.on_missing: Callable[[RangeLog], None] | None = None  # a reader waits for its copy
        self._starts: list[int] = []
        self._waiters: dict[Callable[[], None], None] = {}

    @property
    def is_lone(self) -> bool:
        """Whether no other node has a copy of what is written now."""
        return len(self.known.last.replicas) == 1

    def hold(self, ranges: list[RangeLog]) -> None:
        """Read from these ranges, the last of which is open."""
        self.ranges = ranges
        self._starts = [log.start_offset for log in ranges]
        self.log = ranges[-1]

    def replace_ranges(self, old: Sequence[RangeLog], new: RangeLog, stream: Stream) -> None:
        """Sealed neighbours were rewritten as one range, by compaction or by joining them."""
        self.known = stream
        kept = [new if log is old[0] else log for log in self.ranges]
        self.hold([log for log in kept if log not in old])

    def read(
        self, offset: int, *, max_bytes: int, committed_only: bool, min_one: bool
    ) -> FileSlice | None:
        """Batches from the one that contains ``offset`` on; None where there is nothing yet."""
        until = self.last_stable if committed_only else self.committed
        if offset >= until or offset < self.start_offset:
            _check_inside(self, offset)
            return None
        held = self.log
        try:
            if offset >= self._starts[-1]:
                return held.read(offset, max_bytes=max_bytes, until=until, min_one=min_one)
            for at in range(max(bisect_right(self._starts, offset) - 1, 0), len(self.ranges)):
                held = self.ranges[at]
                _check_here(self, held)
                # A compacted range may hold nothing at or above the offset; the next one continues.
                first = max(offset, self._starts[at])
                found = held.read(first, max_bytes=max_bytes, until=until, min_one=min_one)
                if found is not None:
                    return found
        except Corrupt:
            if self.on_damage is not None:
                self.on_damage(held)
            raise
        return None

    def available(self, offset: int, *, max_bytes: int, committed_only: bool) -> int:
        """How much a read from ``offset`` could return, whole batches or not, up to ``max_bytes``.

        It is ``max_bytes`` where a later file holds more: one read gives bytes of one file, and
        waiting does not add to a file that is no longer written.
        """
        until = self.last_stable if committed_only else self.committed
        if offset >= until:
            return 0
        if offset < self._starts[-1]:
            return max_bytes
        found = available_bytes(self.log, offset, until)
        return max_bytes if found is None else min(found, max_bytes)

    def offset_for_timestamp(self, timestamp: int) -> Moment | None:
        """First (offset, timestamp, epoch) that is not older than ``timestamp``."""
        for log, range_info in zip(self.ranges, self.known.ranges, strict=False):
            if not range_info.is_open and range_info.max_timestamp < timestamp:
                continue
            _check_here(self, log)
            found = log.offset_for_timestamp(timestamp)
            if found is not None and found[0] >= self.start_offset:
                return (*found, range_info.epoch) if found[0] < self.committed else None
        return None

    def offset_of_max_timestamp(self) -> Moment | None:
        """The (offset, timestamp, epoch) of the largest timestamp."""
        best: Moment | None = None
        for range_info in self.known.ranges:
            moment = (range_info.max_timestamp_offset, range_info.max_timestamp, range_info.epoch)
            if range_info.is_open:
                open_log = self.log
                moment = (
                    open_log.offset_of_max_timestamp,
                    open_log.max_timestamp,
                    range_info.epoch,
                )
            if moment[1] >= 0 and moment[0] >= self.start_offset:
                best = moment if best is None or moment[1] > best[1] else best
        if best is None or best[0] >= self.committed:
            return None
        # Logs record the end of the batch; the record itself may stand anywhere in it.
        return self.offset_for_timestamp(best[1]) or best

    def epoch_of(self, offset: int) -> int:
        """The epoch under which ``offset`` was written; -1 unknown."""
        found = -1
        for range_info in self.known.ranges:
            if range_info.start > offset:
                break
            found = range_info.epoch
        return found

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to ``epoch`` and the offset where it ended; (-1, -1) unknown."""
        if epoch > self.epoch:
            return _UNKNOWN_END
        largest = -1
        for range_info in self.known.ranges:
            if range_info.epoch > epoch:
                return (largest, range_info.start) if largest >= 0 else _UNKNOWN_END
            largest = range_info.epoch
        # The writer took over without having written: its own epoch ends where the log does.
        return (self.epoch if epoch == self.epoch else largest), self.committed

    def add_waiter(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` whenever committed moves, until it is removed."""
        self._waiters[wake] = None

    def remove_waiter(self, wake: Callable[[], None]) -> None:
        """Forget ``wake``."""
        self._waiters.pop(wake, None)

    def _wake(self) -> None:
        if self._waiters:
            for wake in tuple(self._waiters):
                wake()


def _check_here(stream: StreamReader, log: RangeLog) -> None:
    if log.missing:
        if stream.on_missing is not None:
            stream.on_missing(log)
        raise Unavailable(
            ErrorCode.WRITER_UNAVAILABLE,
            f"range {log.identity.name.index} is being copied from other nodes",
            subject=f"{stream.topic}-{stream.id.partition}",
        )


def _check_inside(stream: StreamReader, offset: int) -> None:
    if stream.closed is not None:
        raise stream.closed
    if not stream.start_offset <= offset <= stream.next_offset:
        raise InvalidRequest(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is outside [{stream.start_offset}, {stream.next_offset})",
            subject=f"{stream.topic}-{stream.id.partition}",
        )
