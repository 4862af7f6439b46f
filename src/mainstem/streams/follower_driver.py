"""A stream that another node writes, read from the replica on this disk.

    batches from the writer ──▶ files ──▶ noted: where transactions begin and end
    what the writer says is committed ──▶ readable, with its last stable offset

Promises: nothing is shown beyond what the writer, or the catalogue, said is committed; a reader
that wants what is not here, or not sound, is sent to the writer. Nothing is done for a replica that
nobody reads; the first reader has the open range looked through, a piece at a time.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final

from mainstem.log.range_log import FileSlice, RangeLog, StagedBatch
from mainstem.model.batch import CONTROL_MASK, TRANSACTIONAL_MASK, BatchHeader, read_header
from mainstem.model.errors import Corrupt, MainstemError, Unavailable
from mainstem.model.limits import MIB
from mainstem.model.metadata import Stream
from mainstem.streams.held_replica_driver import HeldReplica
from mainstem.streams.markers import Marker, marker_of
from mainstem.streams.reader import StreamReader
from mainstem.streams.replication_driver import not_writer
from mainstem.streams.state import StreamState
from mainstem.streams.transactions import StreamTransactions

_log = logging.getLogger(__name__)

SCAN_BYTES_MAX: Final = 4 * MIB
SCAN_RETRY_S: Final = 1.0
_ATTRIBUTES: Final = slice(21, 23)
_OF_TRANSACTIONS: Final = CONTROL_MASK | TRANSACTIONAL_MASK


class StreamFollower(StreamReader):
    """See the module's text.

    Args:
        stream: what the catalogue says of it.
        topic: the topic's name.
        held: the replica of its open range.
        ranges: what is whole here, up to that range, without a gap.
    """

    __slots__ = ("_held", "_pending", "_scanned", "_timer", "_transactions")

    def __init__(
        self, stream: Stream, topic: str, held: HeldReplica, ranges: list[RangeLog]
    ) -> None:
        super().__init__(stream, topic)
        self._held = held
        self._pending: deque[tuple[BatchHeader, Marker | None]] = deque()
        self._timer: asyncio.Handle | None = None
        self.hold(ranges)
        known, self._transactions = _nearest_state(stream, ranges)
        # Where the files were looked through to; None: they were, and what comes is told.
        self._scanned: int | None = known
        self.committed = known
        self.last_stable = self._transactions.stable_until(known)
        self.next_offset = held.log.written_end
        held.on_committed = self._on_committed
        self._scan()

    @property
    def held(self) -> HeldReplica:
        """The replica of the open range."""
        return self._held

    def renew(self, stream: Stream, ranges: list[RangeLog]) -> None:
        """The catalogue has news of a stream whose open range is the same."""
        self.known = stream
        self.epoch = stream.epoch
        self.start_offset = stream.start
        self.hold(ranges)
        self._transactions.trim(stream.start)

    def close(self, reason: MainstemError) -> None:
        """Show nothing more."""
        self.closed = reason
        self._held.on_committed = self._held.on_taken = None
        if self._timer is not None:
            self._timer.cancel()
        self._wake()

    def read(
        self, offset: int, *, max_bytes: int, committed_only: bool, min_one: bool
    ) -> FileSlice | None:
        """As the writer's; what is not here yet, or not at all, is the writer's to answer."""
        if self.closed is not None:
            raise self.closed
        self.advance()
        if offset > self.next_offset or self.start_offset <= offset < self.ranges[0].start_offset:
            raise self._elsewhere()
        try:
            return super().read(
                offset, max_bytes=max_bytes, committed_only=committed_only, min_one=min_one
            )
        except Corrupt as damage:
            raise self._elsewhere() from damage

    def aborted_transactions(self, start: int, until: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions with records in [start, until)."""
        return self._transactions.aborted(start, until)

    def _elsewhere(self) -> Unavailable:
        return not_writer(self.known, self.topic)

    # What the replica tells.

    def _on_committed(self) -> None:
        if self._waiters and self.advance():
            self._wake()

    def _on_taken(self, staged: Sequence[StagedBatch]) -> None:
        """Batches were written: note those of transactions, which are few."""
        try:
            for view, _, _, _ in staged:
                if int.from_bytes(view[_ATTRIBUTES]) & _OF_TRANSACTIONS:
                    self._note(read_header(view), bytes(view))
        except Corrupt:  # the replica keeps what its writer keeps; readers go there
            self.close(self._elsewhere())

    def _note(self, header: BatchHeader, batch: bytes) -> None:
        self._pending.append((header, marker_of(batch) if header.is_control else None))

    def advance(self) -> bool:
        """Take in what was committed meanwhile; whether there was anything."""
        self.next_offset = self._held.log.written_end
        until: int = self._held.machine.known_committed
        if self._scanned is not None:
            until = min(until, self._scanned)
        if until <= self.committed:
            return False
        pending, transactions = self._pending, self._transactions
        while pending and pending[0][0].base_offset < until:
            header, marker = pending.popleft()
            producer, base = header.producer_id, header.base_offset
            if marker is not None:
                transactions.end(producer, base, commit=marker.commit)
            elif producer not in transactions.ongoing:
                transactions.begin(producer, base)
        self.committed = until
        self.last_stable = transactions.stable_until(until)
        return True

    # Looking through the files.

    def _scan(self) -> None:
        """Look through one more piece of the files; at their end, be told from now on."""
        self._timer = None
        try:
            is_whole = self._scan_piece()
        except Corrupt:
            self.close(self._elsewhere())
            return
        except Unavailable as error:
            _log.warning("%s-%d cannot be read now: %s", self.topic, self.id.partition, error)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SCAN_RETRY_S, self._scan)
            return
        if not is_whole:
            self._timer = asyncio.get_running_loop().call_soon(self._scan)
        else:
            self._scanned = None
            self._held.on_taken = self._on_taken
        if self.advance():
            self._wake()

    def _scan_piece(self) -> bool:
        """Note what about ``SCAN_BYTES_MAX`` of the files tell; whether that was the rest."""
        assert self._scanned is not None, "there is something to look through"
        left = SCAN_BYTES_MAX
        for log in self.ranges:
            if log.written_end <= self._scanned:
                continue
            for header, _ in log.batches(max(self._scanned, log.start_offset)):
                if header.attributes & _OF_TRANSACTIONS:
                    self._note(header, _bytes_of(log, header))
                self._scanned = header.until_offset
                left -= header.size
                if left < 0:
                    return False
            self._scanned = log.written_end  # rewritten ranges have gaps, at their end too
        return True


def _bytes_of(log: RangeLog, header: BatchHeader) -> bytes:
    until = header.until_offset
    part = log.read(header.base_offset, max_bytes=1, until=until, min_one=True)
    return b"" if part is None else part.read()


def _nearest_state(stream: Stream, ranges: list[RangeLog]) -> tuple[int, StreamTransactions]:
    """The last offset where the transactions of a stream are known, and these.

    Raises:
        Unavailable: none is known here.
    """
    for log in reversed(ranges):
        opening = log.opening_snapshot()
        if opening is not None:
            return log.start_offset, StreamState.restore(opening).transactions
    first = ranges[0]
    if first.identity.name.index == 0:
        return first.start_offset, StreamTransactions()
    raise not_writer(stream, str(stream.id))
