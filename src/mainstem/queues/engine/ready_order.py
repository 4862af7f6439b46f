"""The ready messages of a lane: ordered by priority, then by age.

New messages arrive in order and go to a deque; returned ones go to a heap beside it, and so get
their old positions. Messages removed from the middle leave a gap; when gaps are in the majority,
the level is rebuilt.
"""

from collections import deque
from heapq import heapify, heappop, heappush

_STALE_MIN = 64


class _Level:
    __slots__ = ("count", "fresh", "returned")

    def __init__(self) -> None:
        self.fresh: deque[int] = deque()
        self.returned: list[int] = []
        self.count = 0


class ReadyOrder:
    """Sequences ordered by priority and age; see the module."""

    __slots__ = ("_level_of", "_levels")

    def __init__(self, top_priority: int) -> None:
        self._levels = [_Level() for _ in range(top_priority + 1)]
        self._level_of: dict[int, _Level] = {}

    def __len__(self) -> int:
        return len(self._level_of)

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._level_of

    def append(self, sequence: int, priority: int) -> None:
        """Add a message behind all others of its priority."""
        level = self._levels[priority if priority < len(self._levels) else -1]
        level.fresh.append(sequence)
        level.count += 1
        self._level_of[sequence] = level

    def extend(self, sequences: range) -> None:
        """Add messages of priority 0 behind all others of that priority."""
        level = self._levels[0]
        level.fresh.extend(sequences)
        level.count += len(sequences)
        self._level_of.update(dict.fromkeys(sequences, level))

    def put_back(self, sequence: int, priority: int) -> None:
        """Insert a message at its position among others of its priority."""
        level = self._levels[priority if priority < len(self._levels) else -1]
        heappush(level.returned, sequence)
        level.count += 1
        self._level_of[sequence] = level

    def pop(self) -> int | None:
        """Remove and return the next message."""
        here = self._level_of
        if not here:
            return None
        for level in reversed(self._levels):
            if not level.count:
                continue
            if level.returned:
                return self._pop(level)
            while True:
                sequence = level.fresh.popleft()
                if here.pop(sequence, None) is not None:
                    level.count -= 1
                    return sequence
        return None

    def least(self) -> int | None:
        """The oldest message of the lowest priority, which is dropped first."""
        for level in self._levels:
            if level.count:
                return self._head(level)
        return None

    def discard(self, sequence: int) -> bool:
        """Remove a message at any position; returns whether it was there."""
        level = self._level_of.pop(sequence, None)
        if level is None:
            return False
        level.count -= 1
        if len(level.fresh) + len(level.returned) > _STALE_MIN + 2 * level.count:
            self._rebuild(level)
        return True

    def _pop(self, level: _Level) -> int:
        sequence = self._head(level)
        if level.returned and level.returned[0] == sequence:
            heappop(level.returned)
        else:
            level.fresh.popleft()
        level.count -= 1
        del self._level_of[sequence]
        return sequence

    def _head(self, level: _Level) -> int:
        here = self._level_of
        fresh, returned = level.fresh, level.returned
        while fresh and fresh[0] not in here:
            fresh.popleft()
        while returned and returned[0] not in here:
            heappop(returned)
        if not returned or (fresh and fresh[0] < returned[0]):
            return fresh[0]
        return returned[0]

    def _rebuild(self, level: _Level) -> None:
        here = self._level_of
        level.fresh = deque(sequence for sequence in level.fresh if sequence in here)
        level.returned = [sequence for sequence in level.returned if sequence in here]
        heapify(level.returned)
