"""The machine's clocks."""

import time


class SystemClock:
    """Wall and monotonic time of this machine."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds of a monotonic clock."""
        return time.monotonic()
