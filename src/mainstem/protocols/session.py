"""The interfaces of a wire protocol: received bytes in, responses out, for one connection.

A session gets the bytes that a connection received, and returns how many it consumed and how many
its next frame needs. It responds through its ``Sender``. It does not depend on sockets.
"""

from collections.abc import Sequence, Sized
from typing import Protocol

Chunk = Sized  # bytes, memoryview, or a slice of a file


class ProtocolViolation(Exception):
    """The peer violates the protocol; the connection is closed and the reason is logged."""


class Overloaded(ProtocolViolation):
    """The peer is correct, but the node has no memory for what it sent."""


class Sender(Protocol):
    """The interface of a connection for its session."""

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Send these in order; file slices go from the page cache to the socket."""
        ...

    def pause(self) -> None:
        """Stop reading until ``resume``: too much is unanswered."""
        ...

    def resume(self) -> None:
        """Resume reading."""
        ...

    def close(self) -> None:
        """Send what is queued, then close."""
        ...


class BufferingSender(Sender, Protocol):
    """A connection that reports how much is queued."""

    @property
    def unsent_bytes(self) -> int:
        """Queued bytes that are not yet sent."""
        ...


class DrainingSender(BufferingSender, Protocol):
    """A connection that can let its peer read the last response before it is closed."""

    def close(self, *, drain_ms: int = 0) -> None:
        """Send what is queued, discard input for at most ``drain_ms``, then close."""
        ...


class Session(Protocol):
    """One connection's protocol state."""

    def receive(self, buf: bytearray, view: memoryview, start: int, until: int) -> tuple[int, int]:
        """Consume whole frames of ``buf[start:until]``; (position, bytes the next frame needs).

        Raises:
            ProtocolViolation: the connection must be closed.
        """
        ...

    @property
    def is_logged_in(self) -> bool:
        """Whether the client has logged in or, if no login is required, has sent a request."""
        ...

    def closed(self) -> None:
        """Drop all state: the connection is closed."""
        ...
