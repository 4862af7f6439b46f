"""Timers, one per key: set, cancelled, and queried for due keys.

Cancelled entries stay in the heap until they come up or are in the majority; then it is rebuilt,
so that the heap never holds more than twice the number of set timers.
"""

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K")

_STALE_MIN = 64


class Timers(Generic[K]):
    """Keeps one deadline per key; times are in milliseconds."""

    __slots__ = ("_at_ms", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, K]] = []
        self._at_ms: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._at_ms)

    def __contains__(self, key: K) -> bool:
        return key in self._at_ms

    def set(self, key: K, at_ms: int) -> None:
        """Set the time of ``key``, replacing an earlier one."""
        if self._at_ms.get(key) == at_ms:
            return
        self._at_ms[key] = at_ms
        heappush(self._heap, (at_ms, key))
        self._tidy()

    def cancel(self, key: K) -> None:
        """Remove the time of ``key``."""
        if self._at_ms.pop(key, None) is not None:
            self._tidy()

    def next_ms(self) -> int | None:
        """The earliest time."""
        while self._heap and self._at_ms.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def first(self) -> K | None:
        """The key with the earliest time."""
        return None if self.next_ms() is None else self._heap[0][1]

    def due(self, now_ms: int, limit: int) -> list[K]:
        """Remove and return due keys, the earliest first, at most ``limit``."""
        keys: list[K] = []
        while len(keys) < limit and (at_ms := self.next_ms()) is not None and at_ms <= now_ms:
            _, key = heappop(self._heap)
            del self._at_ms[key]
            keys.append(key)
        return keys

    def _tidy(self) -> None:
        if len(self._heap) > _STALE_MIN + 2 * len(self._at_ms):
            self._heap = [(at_ms, key) for key, at_ms in self._at_ms.items()]
            heapify(self._heap)
