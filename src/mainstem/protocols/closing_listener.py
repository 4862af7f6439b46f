"""How a connection is closed: at once, or so that its peer reads the last answer first.

A socket that is closed with unread input resets the connection, and a peer that is still sending
then never reads what it was sent last. So the sending side is shut down first, what still arrives
is read and thrown away, and the socket is closed once the peer has closed its side, or a limit is
reached.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

from mainstem.model.limits import CLOSE_DRAIN_BYTES_MAX


class ConnectionCloser:
    """Closes connections, at once or after their last answer is sent."""

    __slots__ = ("_bytes_left", "_timer")

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._bytes_left = CLOSE_DRAIN_BYTES_MAX

    @property
    def is_draining(self) -> bool:
        """Whether input is read and thrown away until the peer closes its side."""
        return self._timer is not None

    def drain(self, transport: asyncio.Transport, drain_ms: int, abort: Callable[[], None]) -> None:
        """Read what still arrives, for so long at most."""
        self._timer = asyncio.get_running_loop().call_later(drain_ms / 1000, abort)
        if not transport.is_reading():
            transport.resume_reading()

    def discard(self, nbytes: int) -> bool:
        """Bytes arrived that nobody wants; False where there were too many of them."""
        self._bytes_left -= nbytes
        return self._bytes_left >= 0

    def all_sent(self, transport: asyncio.Transport, own: socket.socket | None) -> None:
        """Nothing is left to send: close, or shut the sending side down."""
        if self._timer is None:
            transport.close()
        elif own is not None:
            with contextlib.suppress(OSError):  # the peer was quicker
                own.shutdown(socket.SHUT_WR)
        elif transport.can_write_eof():
            # TLS cannot: there the peer closes first, or the time is over.
            transport.write_eof()

    def over(self) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
