"""An event loop whose time jumps to the next timer instead of passing: for drivers under test.

Nothing that comes from outside the process is waited for, so sockets and threads do not fit here.
"""

import asyncio
import selectors


class _JumpingSelector(selectors.SelectSelector):
    """Never sleeps: tells the loop how long it would have slept."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everything waits and nothing will ever happen"
            self.now_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """``asyncio.Runner(loop_factory=VirtualLoop)`` runs a story without waiting for it."""

    def __init__(self) -> None:
        self._selector_of_time = _JumpingSelector()
        super().__init__(self._selector_of_time)

    def time(self) -> float:
        """Seconds since the loop was made, as far as timers are concerned."""
        return self._selector_of_time.now_s
