"""The only source of time: packages get a ``Clock``, in simulations a virtual one."""

from typing import Protocol


class Clock(Protocol):
    """Two readings: one for dates, one for durations."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds of a monotonic clock."""
        ...
