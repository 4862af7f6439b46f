"""Appends all messages published in one turn of the event loop with one flush."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.queues.publishing.publish_batch_driver import PublishBatcher


class PublishFlusher:
    """Stages the batches of all streams at the end of a turn and writes them together."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write
        self._dirty: dict[PublishBatcher, None] = {}
        self._flushing: asyncio.Handle | None = None

    def flush_soon(self, stream: "PublishBatcher") -> None:
        """Append the batches of a stream at the end of this turn of the loop."""
        self._dirty[stream] = None
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Append everything that was published."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if not self._dirty:
            return
        dirty, self._dirty = self._dirty, {}
        staged = [(stream, stream.stage()) for stream in dirty]
        self._write()
        for stream, batches in staged:
            stream.check(batches)

    def forget(self) -> None:
        """Reset before a reload: nothing is appended."""
        self._dirty.clear()
