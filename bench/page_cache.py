"""Fresh page-cache memory, made present before a load that writes much.

A virtual machine may hand free memory back to its host (free page reporting, ballooning). The first
touch of such a page then traps into the host, and the guest charges that time to whoever touched
it: about 2 ms for every megabyte that a server writes, eight times the cost of the write itself.
Which side of a comparison pays is luck. Pages freed a moment ago are still present and are handed
out first; so writing and removing a file right before a load gives every side the same memory. On a
machine that keeps its memory this changes nothing.

What each write cost is kept, so that a table can show that all sides had the same start.
"""

import os
import tempfile
import time
from dataclasses import dataclass

BLOCK_BYTES = 1_000_000
# The kernel may have begun to give back some of it before the load arrives there.
AMPLE = 2
CALIBRATION_BLOCKS_MAX = 100


@dataclass(frozen=True)
class FreshPages:
    """Processor time of a plain write into fresh page cache, in milliseconds per megabyte."""

    as_found_ms: float
    present_ms: float


def make_present(size_bytes: int) -> FreshPages:
    """Have memory for ``size_bytes`` of page cache at hand; call it right before the load."""
    blocks = -(-size_bytes * AMPLE // BLOCK_BYTES)
    as_found_ms = _write(blocks)
    return FreshPages(as_found_ms, _write(min(blocks, CALIBRATION_BLOCKS_MAX)))


def _write(blocks: int) -> float:
    """Milliseconds of processor time per megabyte of a new file that is gone afterwards."""
    block = bytes(BLOCK_BYTES)
    with tempfile.TemporaryFile(buffering=0) as file:
        began = time.thread_time()
        for number in range(blocks):
            os.pwrite(file.fileno(), block, number * BLOCK_BYTES)
        used_s = time.thread_time() - began
    return used_s * 1e3 / blocks
