"""Timers of groups: a heap with the earliest deadline of each group.

Every heartbeat extends a member's session. Moving the timer each time would cost more than letting
it fire early once per session: the group then returns its next deadline.
"""

from heapq import heapify, heappop, heappush

# A heap with more outdated entries than this, and more than half of its size, is rebuilt.
_STALE_MIN = 1_024


class DeadlineHeap:
    """One timer per key, in milliseconds of the monotonic clock."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._at_ms: dict[str, int] = {}

    def set(self, key: str, at_ms: int) -> None:
        """Set the timer of ``key``, unless it already fires earlier."""
        if key in self._at_ms and self._at_ms[key] <= at_ms:
            return
        self._at_ms[key] = at_ms
        heappush(self._heap, (at_ms, key))
        if len(self._heap) > max(_STALE_MIN, 2 * len(self._at_ms)):
            self._heap = [(at, name) for name, at in self._at_ms.items()]
            heapify(self._heap)

    def next_ms(self) -> int | None:
        """Time of the next timer."""
        while self._heap and self._at_ms.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[str]:
        """Remove and return the keys whose timer has expired; each has to be set again."""
        keys = []
        while (at_ms := self.next_ms()) is not None and at_ms <= now_ms:
            _, key = heappop(self._heap)
            del self._at_ms[key]
            keys.append(key)
        return keys
