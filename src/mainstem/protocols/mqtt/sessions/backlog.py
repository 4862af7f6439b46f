"""What waits for one reader, as places in the log, and how far it has come.

    settled │ in flight … │ waiting 17 19 24 …  │ behind: from here on the log has to be read again
            └─ position of the image

Pure. Messages stay in the log; here stand their offsets, for each stream in order. When too many
wait, no more are noted: from that offset on the reader is *behind* and reads the log anew once it
has caught up with what is noted. So nothing is lost and memory is bounded.
"""

from bisect import insort
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple


class ReadPending:
    """What is asked for is there, but cannot be read now: ask again a little later."""


READ_PENDING: Final = ReadPending()


class StreamPosition(NamedTuple):
    """An offset in one of the streams that MQTT reads."""

    stream: int
    offset: int


class Backlog:
    """The places that wait for one session or one group."""

    __slots__ = ("_count", "_limit", "_waiting", "behind", "floors")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: dict[int, deque[int]] = {}
        self._count = 0
        self.behind: dict[int, int] = {}
        self.floors: dict[int, int] = {}  # what lies below was offered before a restart

    def __len__(self) -> int:
        return self._count

    def knows(self, place: StreamPosition) -> bool:
        """Whether a place was offered before."""
        return bool(self.floors) and place.offset < self.floors.get(place.stream, 0)

    def put(self, place: StreamPosition) -> None:
        """One more waits."""
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
        """The next one; those of one stream come in order."""
        for stream, waiting in self._waiting.items():
            if waiting:
                self._count -= 1
                return StreamPosition(stream, waiting.popleft())
        return None

    def give_back(self, place: StreamPosition) -> None:
        """It was taken in vain: back to its place."""
        waiting = self._waiting.setdefault(place.stream, deque())
        self._count += 1
        if not waiting or place.offset < waiting[0]:
            waiting.appendleft(place.offset)
            return
        ordered = list(waiting)
        insort(ordered, place.offset)
        self._waiting[place.stream] = deque(ordered)

    def positions(self, ends: Mapping[int, int]) -> dict[int, int]:
        """For every stream the first offset that was not handed out; ``ends``: what was read."""
        found = {}
        for stream, end in ends.items():
            waiting = self._waiting.get(stream)
            if waiting:
                found[stream] = waiting[0]
            else:
                found[stream] = self.behind.get(stream, max(end, self.floors.get(stream, 0)))
        return found

    def forget(self, stream: int) -> None:
        """A stream is gone."""
        self._count -= len(self._waiting.pop(stream, ()))
        self.behind.pop(stream, None)
        self.floors.pop(stream, None)
