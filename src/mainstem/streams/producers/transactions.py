"""Transactions of one stream: which are open, which were aborted, what is stable.

A read-committed reader may see a record once the outcome of its transaction is known *and* durable:
the last stable offset stays below the first record of every transaction that is open, or whose
marker is not yet committed. Aborted transactions are remembered by (marker, producer, first record)
for as long as their records are, so that readers can leave those records out.
"""

from array import array
from bisect import bisect_left
from collections import deque

from msgspec import Struct


class TransactionsSnapshot(Struct, array_like=True):
    """The state as it is saved."""

    ongoing: dict[int, int] = {}
    ending: list[tuple[int, int]] = []
    aborted: list[tuple[int, int, int]] = []


class StreamTransactions:
    """The transactions with records in one stream."""

    __slots__ = ("_aborted_firsts", "_aborted_markers", "_aborted_producers", "_ending", "ongoing")

    def __init__(self) -> None:
        # Producer id to first offset. Offsets only grow, so the first entry is the oldest.
        self.ongoing: dict[int, int] = {}
        self._ending: deque[tuple[int, int]] = deque()  # (first offset, marker offset)
        self._aborted_markers: array[int] = array("q")
        self._aborted_producers: array[int] = array("q")
        self._aborted_firsts: array[int] = array("q")

    @property
    def quiet(self) -> bool:
        """Whether nothing holds the last stable offset back."""
        return not self.ongoing and not self._ending

    def begin(self, producer_id: int, offset: int) -> None:
        """A transaction has its first record here."""
        self.ongoing[producer_id] = offset

    def end(self, producer_id: int, marker: int, *, commit: bool) -> None:
        """A marker was written at ``marker``; without an ongoing transaction it changes nothing."""
        first = self.ongoing.pop(producer_id, None)
        if first is None:
            return
        self._ending.append((first, marker))
        if not commit:
            self._aborted_markers.append(marker)
            self._aborted_producers.append(producer_id)
            self._aborted_firsts.append(first)

    def stable_until(self, committed: int) -> int:
        """The last stable offset when everything below ``committed`` is committed."""
        ending = self._ending
        while ending and ending[0][1] < committed:
            ending.popleft()
        stable = committed
        for first in self.ongoing.values():
            stable = min(stable, first)
            break
        for first, _ in ending:
            stable = min(stable, first)
        return stable

    def aborted(self, start: int, until: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions with records in [start, until)."""
        markers, firsts = self._aborted_markers, self._aborted_firsts
        return [
            (self._aborted_producers[at], firsts[at])
            for at in range(bisect_left(markers, start), len(markers))
            if firsts[at] < until
        ]

    def trim(self, start: int) -> None:
        """Records below ``start`` were deleted, and with them what was known of their outcome."""
        gone = bisect_left(self._aborted_markers, start)
        if gone:
            del self._aborted_markers[:gone]
            del self._aborted_producers[:gone]
            del self._aborted_firsts[:gone]

    def forget_from(self, offset: int) -> None:
        """Batches at or above ``offset`` could not be written."""
        for producer_id, first in list(self.ongoing.items()):
            if first >= offset:
                del self.ongoing[producer_id]

    def snapshot(self) -> TransactionsSnapshot:
        """Everything, for ``restore``."""
        return TransactionsSnapshot(
            dict(self.ongoing),
            list(self._ending),
            list(
                zip(
                    self._aborted_markers,
                    self._aborted_producers,
                    self._aborted_firsts,
                    strict=True,
                )
            ),
        )

    @classmethod
    def restore(cls, found: TransactionsSnapshot) -> "StreamTransactions":
        """The state that ``snapshot`` wrote."""
        state = cls()
        state.ongoing = dict(found.ongoing)
        state._ending = deque((first, marker) for first, marker in found.ending)
        for marker, producer, first in found.aborted:
            state._aborted_markers.append(marker)
            state._aborted_producers.append(producer)
            state._aborted_firsts.append(first)
        return state
