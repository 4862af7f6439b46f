"""The clocks of one node of ``cluster_sim``: the loop's time, and a wall clock that can be set."""

import asyncio
from typing import Final

BEGAN_MS: Final = 1_800_000_000_000


class SimClock:
    """What ``Clock`` is, made inside the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as this node believes."""
        return BEGAN_MS + int(self._loop.time() * 1_000) + self.ahead_ms

    def monotonic(self) -> float:
        """Seconds since the story began."""
        return self._loop.time()
