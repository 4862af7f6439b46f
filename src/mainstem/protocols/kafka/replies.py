"""Answers leave in the order of their requests, whenever they are ready.

Pure. A request that cannot be answered at once takes a ``Reply``. Finished replies at the head of
the queue go out together, a moment later: one sync of the disk settles many requests of one
connection, and one send is much cheaper than many.
"""

from collections import deque
from collections.abc import Callable, Sequence

from mainstem.protocols.session import Chunk

Send = Callable[[Sequence[Chunk]], None]
Soon = Callable[[Callable[[], None]], object]  # calls back once the present work is done


class Reply:
    """The place of one answer in the queue; ``chunks`` is None until it is known."""

    __slots__ = ("chunks",)

    def __init__(self) -> None:
        self.chunks: Sequence[Chunk] | None = None


class Replies:
    """The unanswered requests of one connection, oldest first."""

    __slots__ = ("_queue", "_send", "_soon", "_waits", "on_fewer")

    def __init__(self, send: Send, soon: Soon) -> None:
        self._send = send
        self._soon = soon
        self._waits = False  # for the moment when finished replies go out
        self._queue: deque[Reply] = deque()
        self.on_fewer: Callable[[], None] | None = None  # told when answers have gone out

    def __len__(self) -> int:
        return len(self._queue)

    def reserve(self) -> Reply:
        """The next place."""
        reply = Reply()
        self._queue.append(reply)
        return reply

    def answer(self, chunks: Sequence[Chunk]) -> None:
        """Answer the newest request at once: sent now, or behind those that still wait."""
        if self._queue:
            self.reserve().chunks = chunks
        else:
            self._send(chunks)

    def settle(self, reply: Reply, chunks: Sequence[Chunk]) -> None:
        """An answer is known; an empty one stands for a request that gets none."""
        reply.chunks = chunks
        if not self._waits and self._queue and self._queue[0] is reply:
            self._waits = True
            self._soon(self._flush)

    def _flush(self) -> None:
        self._waits = False
        queue = self._queue
        ready: list[Chunk] = []
        while queue and queue[0].chunks is not None:
            ready.extend(queue.popleft().chunks or ())
        if ready:
            self._send(ready)
        if self.on_fewer is not None:
            self.on_fewer()

    def clear(self) -> None:
        """The connection is gone."""
        self._queue.clear()
        self.on_fewer = None
