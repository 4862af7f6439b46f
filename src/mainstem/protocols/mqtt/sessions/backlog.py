"""Messages that wait for one reader, as positions in the log, and the reader's progress.

    settled │ in flight … │ waiting 17 19 24 …  │ behind: from here on the log has to be read again
            └─ position of the image

Pure. Messages stay in the log; the backlog has their offsets, ordered per stream. When too many
wait, no more are added: from that offset on the reader is *behind* and reads the log again once it
has sent the waiting ones. So nothing is lost and memory is limited.
"""

from bisect import insort
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple


class ReadPending:
    """The message exists but cannot be read now: read again a little later."""


READ_PENDING: Final = ReadPending()


class StreamPosition(NamedTuple):
    """An offset in one of the streams that MQTT reads."""

    stream: int
    offset: int


class Backlog:
    """The positions that wait for one session or one group."""

    __slots__ = ("_count", "_limit", "_waiting", "behind", "floors")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: dict[int, deque[int]] = {}
        self._count = 0
        self.behind: dict[int, int] = {}
        self.floors: dict[int, int] = {}  # offsets below were offered before a restart

    def __len__(self) -> int:
        return self._count

    def knows(self, place: StreamPosition) -> bool:
        """Whether a position was offered before."""
        return bool(self.floors) and place.offset < self.floors.get(place.stream, 0)

    def put(self, place: StreamPosition) -> None:
        """Add a position."""
        stream, offset = place
        if stream in self.behind:
            return
        if self._count >= self._limit:
            self.behind[stream] = offset
            return
        waiting = self._waiting.get(stream)
        if waiting is None:
            waiting = self._waiting[stream] = deque()
        waiting.append(offset)
        self._count += 1

    def take(self) -> StreamPosition | None:
        """Remove and return the next position; those of one stream are in order."""
        for stream, waiting in self._waiting.items():
            if waiting:
                self._count -= 1
                return StreamPosition(stream, waiting.popleft())
        return None

    def give_back(self, place: StreamPosition) -> None:
        """Put a position that was not used back in its order."""
        waiting = self._waiting.setdefault(place.stream, deque())
        self._count += 1
        if not waiting or place.offset < waiting[0]:
            waiting.appendleft(place.offset)
            return
        ordered = list(waiting)
        insort(ordered, place.offset)
        self._waiting[place.stream] = deque(ordered)

    def positions(self, ends: Mapping[int, int]) -> dict[int, int]:
        """For every stream the first offset not taken; ``ends``: how far the streams were read."""
        found = {}
        for stream, end in ends.items():
            waiting = self._waiting.get(stream)
            if waiting:
                found[stream] = waiting[0]
            else:
                found[stream] = self.behind.get(stream, max(end, self.floors.get(stream, 0)))
        return found

    def forget(self, stream: int) -> None:
        """Remove a stream that no longer exists."""
        self._count -= len(self._waiting.pop(stream, ()))
        self.behind.pop(stream, None)
        self.floors.pop(stream, None)
