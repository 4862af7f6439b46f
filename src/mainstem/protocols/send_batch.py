"""Outgoing frames of one connection: all frames of one loop iteration are sent in one write.

    write(frame) … write(frame) ──(end of the iteration)──▶ sender.send([...])

Pure. One write of many frames costs far less than many writes of one.
"""

from collections.abc import Callable, Sequence

from mainstem.protocols.session import BufferingSender


class SendBatch:
    """Collects the frames that a session writes and sends them together.

    Args:
        sender: the connection.
        soon: calls back at the end of the current loop iteration.
    """

    __slots__ = ("_sender", "_soon", "_waiting", "has_sent", "waiting_bytes")

    def __init__(
        self,
        sender: BufferingSender,
        soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._sender = sender
        self._soon = soon
        self._waiting: list[bytes] = []
        self.waiting_bytes = 0
        self.has_sent = False  # since the flag was last reset

    def write(self, data: bytes) -> int:
        """Send whole frames with the others of this iteration; returns their size in bytes."""
        waiting = self._waiting
        if not waiting:
            self._soon(self.flush)
        waiting.append(data)
        size = len(data)
        self.waiting_bytes += size
        return size

    def write_all(self, frames: Sequence[bytes], size_bytes: int) -> None:
        """Send many frames, of ``size_bytes`` together, with the others of this iteration."""
        if not self._waiting:
            self._soon(self.flush)
        self._waiting += frames
        self.waiting_bytes += size_bytes

    def unsent_bytes(self) -> int:
        """Bytes that are not yet sent to the peer."""
        return self.waiting_bytes + self._sender.unsent_bytes

    def flush(self) -> None:
        """Send all collected frames now."""
        waiting = self._waiting
        if waiting:
            self._waiting, self.waiting_bytes = [], 0
            self.has_sent = True
            self._sender.send([b"".join(waiting)] if len(waiting) > 1 else waiting)
