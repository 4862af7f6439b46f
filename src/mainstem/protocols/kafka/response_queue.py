"""Sends responses in the order of their requests, whenever they are ready.

Pure. A request that cannot be answered at once reserves a ``Reply``. Finished replies at the head
of the queue are sent together in the next callback: one disk sync settles many requests of one
connection, and one send is much cheaper than many.
"""

from collections import deque
from collections.abc import Callable, Sequence

from mainstem.protocols.session import Chunk

Send = Callable[[Sequence[Chunk]], None]
Soon = Callable[[Callable[[], None]], object]  # calls back once the current callback has returned


class Reply:
    """The place of one response in the queue; ``chunks`` is None until it is known."""

    __slots__ = ("chunks", "size_bytes")

    def __init__(self) -> None:
        self.chunks: Sequence[Chunk] | None = None
        self.size_bytes = 0


class Replies:
    """The unanswered requests of one connection, oldest first."""

    __slots__ = ("_queue", "_send", "_soon", "_waits", "held_bytes", "on_fewer")

    def __init__(self, send: Send, soon: Soon) -> None:
        self._send = send
        self._soon = soon
        self._waits = False  # whether sending of finished replies is scheduled
        self._queue: deque[Reply] = deque()
        self.held_bytes = 0  # of large responses that wait behind others
        self.on_fewer: Callable[[], None] | None = None  # called when responses were sent

    def __len__(self) -> int:
        return len(self._queue)

    def reserve(self) -> Reply:
        """Reserve the next place."""
        reply = Reply()
        self._queue.append(reply)
        return reply

    def answer(self, chunks: Sequence[Chunk], size_bytes: int = 0) -> None:
        """Answer the newest request: sent now, or after pending responses.

        ``size_bytes`` may be omitted for small responses.
        """
        if self._queue:
            reply = self.reserve()
            reply.chunks = chunks
            reply.size_bytes = size_bytes
            self.held_bytes += size_bytes
        else:
            self._send(chunks)

    def settle(self, reply: Reply, chunks: Sequence[Chunk], size_bytes: int = 0) -> None:
        """Set the response of a reserved place; empty for a request without a response."""
        reply.chunks = chunks
        reply.size_bytes = size_bytes
        self.held_bytes += size_bytes
        if not self._waits and self._queue and self._queue[0] is reply:
            self._waits = True
            self._soon(self._flush)

    def _flush(self) -> None:
        self._waits = False
        queue = self._queue
        ready: list[Chunk] = []
        while queue and queue[0].chunks is not None:
            reply = queue.popleft()
            ready.extend(reply.chunks or ())
            self.held_bytes -= reply.size_bytes
        if ready:
            self._send(ready)
        if self.on_fewer is not None:
            self.on_fewer()

    def clear(self) -> None:
        """Drop all replies: the connection is closed."""
        self._queue.clear()
        self.held_bytes = 0
        self.on_fewer = None
