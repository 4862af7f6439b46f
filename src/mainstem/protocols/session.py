"""The shape every wire protocol has: bytes in, replies out, in the hands of one connection.

A session is fed the bytes a connection received and says how far it got and how many bytes its next
frame needs. It answers through the ``Sender`` it was given. It knows nothing of sockets.
"""

from collections.abc import Sequence, Sized
from typing import Protocol

Chunk = Sized  # bytes, memoryview, or a slice of a file


class ProtocolViolation(Exception):
    """The peer does not speak the protocol; the connection is closed, the reason is logged."""


class Overloaded(ProtocolViolation):
    """The peer did nothing wrong, but the node has no memory for what it sent."""


class Sender(Protocol):
    """What a session may do to its connection."""

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Send these in order; file slices go from the page cache to the socket."""
        ...

    def pause(self) -> None:
        """Read no more from the peer until ``resume``: enough is unanswered."""
        ...

    def resume(self) -> None:
        """Resume reading."""
        ...

    def close(self) -> None:
        """Send what is queued, then close."""
        ...


class BufferingSender(Sender, Protocol):
    """A connection that says how much it still has to send."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the peer has not taken."""
        ...


class DrainingSender(BufferingSender, Protocol):
    """A connection that can let its peer read the last answer before it ends."""

    def close(self, *, drain_ms: int = 0) -> None:
        """Send what is queued, read what still arrives for so long at most, then close."""
        ...


class Session(Protocol):
    """One connection's protocol state."""

    def receive(self, buf: bytearray, view: memoryview, start: int, until: int) -> tuple[int, int]:
        """Take whole frames out of ``buf[start:until]``; (how far, bytes the next frame needs).

        Raises:
            ProtocolViolation: the connection cannot go on.
        """
        ...

    @property
    def is_in(self) -> bool:
        """Whether the client has logged in or, where nobody has to, has asked for something."""
        ...

    def closed(self) -> None:
        """The connection is gone: forget everything that waits on it."""
        ...
