"""The clock of tests: it stands still until a test moves it.

Tests whose time is that of their loop use ``SimClock``; it is made inside the running loop.
"""


class ManualClock:
    """Wall and monotonic time are one; set or add to ``now_s`` or ``now_ms``."""

    def __init__(self, now_s: float = 1_700_000_000.0) -> None:
        self.now_s = now_s

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return round(self.now_s * 1000)

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self.now_s = now_ms / 1000

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_s
