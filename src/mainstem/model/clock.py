"""The only way to know the time: packages are handed a ``Clock``, in simulations a virtual one."""

from typing import Protocol


class Clock(Protocol):
    """Two readings: one for dates, one for durations."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        ...
