"""The state of a stream at any offset that may become the end of its open range.

A range opens with the state of the stream where it starts, but producers are ahead of what is
committed. So a state that is committed is kept, and a newer one that will be; what lies between a
kept state and the end is replayed from the files. Reads through the log that is passed in.
"""

from typing import Final

from mainstem.log.range_log import RangeLog
from mainstem.model.ids import Offset
from mainstem.streams.failover.state_recovery import replayed
from mainstem.streams.producers.stream_state import StreamState

INTERVAL_MS: Final = 1_000


class CommittedState:
    """Keeps the producer state at every offset that may become the end of the range.

    Args:
        start: where the range starts.
        opening: the state there.
        now: milliseconds of a clock that never goes back.
    """

    def __init__(self, start: Offset, opening: bytes, now: int) -> None:
        self._known = (start, opening)
        self._next: tuple[Offset, bytes] | None = None
        self._taken_ms = now

    @property
    def is_waiting(self) -> bool:
        """Whether a state waits to be committed."""
        return self._next is not None

    def keep(self, state: StreamState, written: Offset, committed: Offset, now: int) -> None:
        """Note the state at ``written``, from time to time."""
        if self._next is not None and self._next[0] <= committed:
            self._known, self._next = self._next, None
        if now - self._taken_ms < INTERVAL_MS or self._next is not None:
            return
        self._taken_ms = now
        if written > self._known[0]:
            self._next = (written, state.snapshot())

    def at(self, offset: Offset, log: RangeLog) -> bytes:
        """The state at a committed offset."""
        if self._next is not None and self._next[0] <= offset:
            self._known, self._next = self._next, None
        start, snapshot = self._known
        if start == offset:
            return snapshot
        return replayed(StreamState.restore(snapshot), log, start, offset).snapshot()
