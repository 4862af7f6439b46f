"""Closes a connection, at once or so that its peer can read the last response first.

A socket that is closed with unread input resets the connection, and a peer that is still sending
then never reads what it was sent last. So the sending side is shut down first, what still arrives
is read and discarded, and the socket is closed once the peer has closed its side, or a limit is
reached.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

from mainstem.model.limits import CLOSE_DRAIN_BYTES_MAX


class ConnectionCloser:
    """Closes a connection, at once or after its last response is sent."""

    __slots__ = ("_bytes_left", "_timer")

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._bytes_left = CLOSE_DRAIN_BYTES_MAX

    @property
    def is_draining(self) -> bool:
        """Whether input is read and discarded until the peer closes its side."""
        return self._timer is not None

    def drain(self, transport: asyncio.Transport, drain_ms: int, abort: Callable[[], None]) -> None:
        """Discard input for at most ``drain_ms``, then abort."""
        self._timer = asyncio.get_running_loop().call_later(drain_ms / 1000, abort)
        if not transport.is_reading():
            transport.resume_reading()

    def discard(self, nbytes: int) -> bool:
        """Count discarded bytes; False if there were too many."""
        self._bytes_left -= nbytes
        return self._bytes_left >= 0

    def all_sent(self, transport: asyncio.Transport, own: socket.socket | None) -> None:
        """Close, or shut down the sending side: nothing is left to send."""
        if self._timer is None:
            transport.close()
        elif own is not None:
            with contextlib.suppress(OSError):  # the peer has already closed
                own.shutdown(socket.SHUT_WR)
        elif transport.can_write_eof():
            # TLS cannot half-close: the peer closes, or the time runs out.
            transport.write_eof()

    def over(self) -> None:
        """Cancel the timer: the connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
