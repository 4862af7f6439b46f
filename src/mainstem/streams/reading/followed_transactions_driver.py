"""The transactions of a stream, derived from its replica on this disk.

    files of the replica ──▶ scanned, a piece at a time ─────────┐
    batches from the writer ─────────────────────────────────────┴──▶ noted ──▶ committed

What is noted takes effect once it is committed. Nothing beyond what was scanned may be visible
to readers: ``reach`` returns how far that is.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mainstem.log.range_log import RangeLog, StagedBatch
from mainstem.model.errors import Corrupt, Unavailable
from mainstem.model.limits import MIB
from mainstem.model.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK, BatchHeader, read_header
from mainstem.streams.producers.transaction_markers import TransactionMarker, marker_of
from mainstem.streams.producers.transactions import StreamTransactions
from mainstem.streams.replica.driver import ReplicaDriver

_log = logging.getLogger(__name__)

SCAN_BYTES_MAX: Final = 4 * MIB
SCAN_RETRY_S: Final = 1.0
_ATTRIBUTES: Final = slice(21, 23)
_OF_TRANSACTIONS: Final = CONTROL_MASK | TRANSACTIONAL_MASK


class FollowedTransactions:
    """Notes where transactions start and end in the ranges of a replica.

    Args:
        held: the replica of the open range.
        ranges: what is complete here, up to that range.
        known: the offset where ``transactions`` is the state of the stream.
        transactions: that state; it moves on with ``commit``.
    """

    def __init__(
        self,
        held: ReplicaDriver,
        ranges: list[RangeLog],
        known: int,
        transactions: StreamTransactions,
    ) -> None:
        self.ranges = ranges
        self.transactions = transactions
        self._held = held
        # Where the files were scanned to; None: all of them, and new batches are reported.
        self._scanned: int | None = known
        self._pending: deque[tuple[BatchHeader, TransactionMarker | None]] = deque()
        self._timer: asyncio.Handle | None = None

    def start(self, on_moved: Callable[[], None], on_damage: Callable[[], None]) -> None:
        """Scan the files, then note new batches.

        ``on_moved`` is called when more may be visible, ``on_damage`` when the rest cannot be read.
        """
        self._scan(on_moved, on_damage)

    def stop(self) -> None:
        """Stop noting."""
        self._held.on_taken = None
        if self._timer is not None:
            self._timer.cancel()

    def reach(self, until: int) -> int:
        """How much of what is committed up to ``until`` was scanned."""
        return until if self._scanned is None else min(until, self._scanned)

    def commit(self, until: int) -> None:
        """Apply what was noted below ``until``."""
        pending, transactions = self._pending, self.transactions
        while pending and pending[0][0].base_offset < until:
            header, marker = pending.popleft()
            producer, base = header.producer_id, header.base_offset
            if marker is not None:
                transactions.end(producer, base, commit=marker.commit)
            elif producer not in transactions.ongoing:
                transactions.begin(producer, base)

    def _take(self, on_damage: Callable[[], None], staged: Sequence[StagedBatch]) -> None:
        """Batches were written: note those of transactions, which are few."""
        try:
            for view, _, _, _ in staged:
                if int.from_bytes(view[_ATTRIBUTES]) & _OF_TRANSACTIONS:
                    self._note(read_header(view), bytes(view))
        except Corrupt:  # the replica keeps what its writer keeps; readers go there
            on_damage()

    def _note(self, header: BatchHeader, batch: bytes) -> None:
        self._pending.append((header, marker_of(batch) if header.is_control else None))

    def _scan(self, on_moved: Callable[[], None], on_damage: Callable[[], None]) -> None:
        """Scan one more piece of the files; at their end, switch to new batches."""
        self._timer = None
        loop = asyncio.get_running_loop()
        try:
            is_whole = self._scan_piece()
        except Corrupt:
            on_damage()
            return
        except Unavailable as error:
            _log.warning("%s cannot be read now: %s", self._held.log.directory, error)
            self._timer = loop.call_later(SCAN_RETRY_S, self._scan, on_moved, on_damage)
            return
        if not is_whole:
            self._timer = loop.call_soon(self._scan, on_moved, on_damage)
        else:
            self._scanned = None
            self._held.on_taken = partial(self._take, on_damage)
        on_moved()

    def _scan_piece(self) -> bool:
        """Scan about ``SCAN_BYTES_MAX`` of the files; whether that was the rest."""
        assert self._scanned is not None, "there is something to scan"
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
