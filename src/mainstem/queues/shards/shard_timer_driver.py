"""The timer of a shard: one call when the first of its queues is due."""

import asyncio
from collections.abc import Callable


class ShardTimer:
    """Calls back once, at the earliest requested time."""

    def __init__(self, on_time: Callable[[], None]) -> None:
        self._on_time = on_time
        self._handle: asyncio.TimerHandle | None = None
        self._due_ms = 0

    def set(self, due_ms: int | None, now_ms: int) -> None:
        """Call back at that time, unless an earlier one is set; None: not at all."""
        if due_ms is None:
            self.cancel()
            return
        if self._handle is not None:
            if self._due_ms <= due_ms:
                return
            self._handle.cancel()
        self._due_ms = due_ms
        wait_s = max(0, due_ms - now_ms) / 1000
        self._handle = asyncio.get_running_loop().call_later(wait_s, self._fire)

    def cancel(self) -> None:
        """Cancel the call."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._on_time()
