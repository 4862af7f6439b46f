"""Dates for queues: the date at the start plus the monotonic time since, which never goes back.

A wall clock that is set back would make expired messages valid again, and one that is set forward
would expire every lease at once.
"""

from mainstem.model.clock import Clock


class SteadyClock:
    """Gives wall-clock times that never go back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ms = clock.wall_ms() - int(clock.monotonic() * 1000)

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._began_ms + int(self._clock.monotonic() * 1000)
