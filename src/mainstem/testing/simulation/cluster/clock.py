"""The clocks of one node of ``simulator``: the loop's time, and a wall clock that can be set."""

import asyncio
from typing import Final

from mainstem.testing.simulation.virtual_loop import VirtualLoop

BEGAN_MS: Final = 1_800_000_000_000


class SimClock:
    """Implements ``Clock``; created inside the running loop."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "time is virtual"
        self._loop = loop
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        """Milliseconds since 1970 on this node's clock."""
        return BEGAN_MS + int(self._loop.now_s * 1_000) + self.ahead_ms

    def monotonic(self) -> float:
        """Seconds since the start of the scenario."""
        return self._loop.now_s
