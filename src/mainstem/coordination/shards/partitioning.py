"""Partition of the internal topic for a key, as Kafka computes it, so that its tools find it."""

from functools import lru_cache

OFFSETS_TOPIC = "__consumer_offsets"
_INT_MIN = -(2**31)


@lru_cache(maxsize=4_096)
def partition_for(key: str, partition_count: int) -> int:
    """Java's ``abs(key.hashCode()) % count``, where -2**31, which has no absolute value, is 0."""
    hashed = _java_hash(key)
    return 0 if hashed == _INT_MIN else abs(hashed) % partition_count


def _java_hash(text: str) -> int:
    hashed = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        hashed = (hashed * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return hashed - 2**32 if hashed >= 2**31 else hashed
