"""Durations counted in a fixed set of buckets: percentiles of any number of values, bounded memory.

Buckets grow with the value, 64 per doubling, so that a percentile is off by at most 1.6 %.
"""

from collections.abc import Iterable

_BUCKETS_PER_DOUBLING_BITS = 6
_DOUBLINGS = 48


class Histogram:
    """Counts of non-negative integers, such as nanoseconds."""

    __slots__ = ("_counts", "count", "largest", "smallest", "total")

    def __init__(self) -> None:
        self._counts = [0] * (_DOUBLINGS << _BUCKETS_PER_DOUBLING_BITS)
        self.count = 0
        self.total = 0
        self.smallest = 0
        self.largest = 0

    def add(self, value: int) -> None:
        """Count one value; one beyond the last bucket counts in the last."""
        value = max(value, 0)
        self.smallest = value if self.count == 0 else min(self.smallest, value)
        self.largest = max(self.largest, value)
        self.count += 1
        self.total += value
        index = min(_bucket(value), len(self._counts) - 1)
        self._counts[index] += 1

    def mean(self) -> float:
        """The average; 0 without values."""
        return self.total / self.count if self.count else 0.0

    def percentile(self, percent: float) -> int:
        """The smallest value that ``percent`` of all values do not exceed; 0 without values."""
        wanted = max(1, -(-self.count * percent // 100))
        seen = 0
        for index, count in enumerate(self._counts[:-1]):
            seen += count
            if seen >= wanted and count:
                return min(max(_upper_bound(index), self.smallest), self.largest)
        return self.largest

    def percentiles(self, percents: Iterable[float]) -> dict[str, int]:
        """Several at once, by name: ``p50``, ``p99.9``."""
        return {f"p{percent:g}": self.percentile(percent) for percent in percents}


def _bucket(value: int) -> int:
    """Linear up to 128, then 64 buckets per doubling."""
    shift = max(value.bit_length() - _BUCKETS_PER_DOUBLING_BITS - 1, 0)
    return (shift << _BUCKETS_PER_DOUBLING_BITS) + (value >> shift)


def _upper_bound(index: int) -> int:
    shift = max((index >> _BUCKETS_PER_DOUBLING_BITS) - 1, 0)
    within = index - (shift << _BUCKETS_PER_DOUBLING_BITS)
    return ((within + 1) << shift) - 1
