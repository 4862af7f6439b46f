"""The latest offset of each key, within a fixed amount of memory.

Keys of up to fifteen bytes are kept as they are, longer ones by a 16-byte digest: lengths differ,
so the two kinds never collide. Two long keys with one digest would count as the same key; with 128
bits that is less likely than an undetected disk error.
"""

from hashlib import blake2b

# An entry costs about this much in CPython: the key object, the offset object, the dict slot.
ENTRY_BYTES = 190
_SHORT_KEY_BYTES = 15


class KeyMap:
    """Filled from the oldest record to the newest, then queried."""

    __slots__ = ("_entries_max", "_offsets", "covered_until")

    def __init__(self, size_bytes_max: int) -> None:
        self._entries_max = max(1, size_bytes_max // ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}
        self.covered_until = 0  # every record below this offset has been put in

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def full(self) -> bool:
        """Whether there is no space for more keys."""
        return len(self._offsets) >= self._entries_max

    def put(self, key: bytes, offset: int) -> None:
        """Record an offset; a later one of the same key replaces it."""
        self._offsets[_mark(key)] = offset

    def is_latest(self, key: bytes, offset: int) -> bool:
        """Whether no later record of the key was put in."""
        return self._offsets.get(_mark(key), -1) <= offset


def _mark(key: bytes) -> bytes:
    if len(key) <= _SHORT_KEY_BYTES:
        return key
    return blake2b(key, digest_size=16).digest()
