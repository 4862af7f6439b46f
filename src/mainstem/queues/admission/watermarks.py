"""Memory pressure: the levels of memory use by queues, and their consequences.

    80 %  publishers are slowed down
    90 %  publishes are refused
    95 %  queues that may drop their oldest messages do so, the largest first

A level is left five points below where it was entered, so that it does not oscillate.
"""

from enum import IntEnum

from msgspec import Struct


class Pressure(IntEnum):
    """How publishers are treated."""

    ACCEPT = 0
    SLOW = 1
    REFUSE = 2
    OVERFLOW = 3


class WatermarkLevels(Struct, frozen=True):
    """Where each level starts, in percent of the memory that queues may use."""

    slow: int = 80
    refuse: int = 90
    overflow: int = 95
    relief: int = 5

    def __post_init__(self) -> None:
        if not 0 <= self.relief < self.slow <= self.refuse <= self.overflow <= 100:
            raise ValueError(f"watermarks are not in order: {self}")


class Watermarks:
    """Derives memory pressure from the memory that queues use."""

    def __init__(self, memory_bytes_max: int, marks: WatermarkLevels | None = None) -> None:
        marks = marks or WatermarkLevels()
        self.memory_bytes_max = memory_bytes_max
        self._enter = (0, marks.slow, marks.refuse, marks.overflow)
        self._relief = marks.relief
        self.level = Pressure.ACCEPT

    def on_used(self, used_bytes: int) -> Pressure:
        """Update the memory in use; returns the resulting level."""
        percent = 100 * used_bytes / self.memory_bytes_max
        while self.level < Pressure.OVERFLOW and percent >= self._enter[self.level + 1]:
            self.level = Pressure(self.level + 1)
        while self.level > Pressure.ACCEPT and percent < self._enter[self.level] - self._relief:
            self.level = Pressure(self.level - 1)
        return self.level

    def excess_bytes(self, used_bytes: int) -> int:
        """How many bytes have to be freed until publishes are accepted again."""
        allowed = (self._enter[Pressure.REFUSE] - self._relief) * self.memory_bytes_max // 100
        return max(0, used_bytes - allowed)


class SharedMemory:
    """The memory of all shards of a node: each reports its use, the sum determines the level."""

    def __init__(self, memory_bytes_max: int, marks: WatermarkLevels | None = None) -> None:
        self._memory_bytes_max = memory_bytes_max
        self._marks = marks
        self.used_bytes: dict[int, int] = {}

    def share(self) -> Watermarks:
        """Create the watermarks of one more shard."""
        number = len(self.used_bytes)
        self.used_bytes[number] = 0
        return _Share(self, number, self._memory_bytes_max, self._marks)


class _Share(Watermarks):
    """The watermarks of one shard, which include the use of the others."""

    def __init__(
        self,
        memory: SharedMemory,
        number: int,
        memory_bytes_max: int,
        marks: WatermarkLevels | None,
    ) -> None:
        super().__init__(memory_bytes_max, marks)
        self._memory = memory
        self._number = number

    def on_used(self, used_bytes: int) -> Pressure:
        """Update the memory in use by this shard; returns the level for all shards."""
        self._memory.used_bytes[self._number] = used_bytes
        return super().on_used(sum(self._memory.used_bytes.values()))

    def excess_bytes(self, used_bytes: int) -> int:
        """How many bytes this shard has to free; the other shards free memory as well."""
        others = sum(self._memory.used_bytes.values()) - self._memory.used_bytes[self._number]
        return min(used_bytes, super().excess_bytes(used_bytes + others))
