"""The hash that maps a key to a partition, shared by everything that writes records.

Guarantee: a key goes where Kafka's own default partitioner sends it (murmur2 with seed 0x9747b28c,
sign bit cleared, modulo the number of partitions), whichever protocol brought the record.
"""

from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash, unsigned."""
    length = len(data)
    state = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little")
        word = (word * _MULTIPLIER) & _MASK
        word ^= word >> 24
        word = (word * _MULTIPLIER) & _MASK
        state = ((state * _MULTIPLIER) & _MASK) ^ word
    if length > whole:
        state ^= int.from_bytes(data[whole:], "little")
        state = (state * _MULTIPLIER) & _MASK
    state ^= state >> 13
    state = (state * _MULTIPLIER) & _MASK
    return state ^ (state >> 15)


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Where Kafka's default partitioner sends a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
