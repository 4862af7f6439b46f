"""The memory that connections receive into: one shared buffer, and a small pool of own ones."""

from typing import Final

from mainstem.model.limits import KIB, MIB
from mainstem.protocols.frame_memory import FrameMemory

SHARED_BUFFER_BYTES: Final = 1 * MIB
FIRST_OWN_BUFFER_BYTES: Final = 512 * KIB
POOLED_BUFFERS_MAX: Final = 16
POOLED_BUFFER_BYTES_MAX: Final = 4 * MIB


class Buffers:
    """The shared receive buffer and a small pool; buffers in use count as frame memory."""

    def __init__(self, memory: FrameMemory) -> None:
        self.shared = bytearray(SHARED_BUFFER_BYTES)
        self.shared_view = memoryview(self.shared)
        self._kept: list[bytearray] = []
        self._memory = memory

    def take(self, size: int) -> bytearray | None:
        """A buffer of at least ``size`` bytes; None when the memory is used up."""
        if size >= FIRST_OWN_BUFFER_BYTES:
            for at, kept in enumerate(self._kept):
                if len(kept) >= size and self._memory.take(len(kept)):
                    return self._kept.pop(at)
        return bytearray(size) if self._memory.take(size) else None

    def give_back(self, buf: bytearray) -> None:
        """Return a buffer that is no longer used."""
        self._memory.give_back(len(buf))
        is_usual = FIRST_OWN_BUFFER_BYTES <= len(buf) <= POOLED_BUFFER_BYTES_MAX
        if is_usual and len(self._kept) < POOLED_BUFFERS_MAX:
            self._kept.append(buf)
