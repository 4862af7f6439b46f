"""One HTTP connection: uvicorn's parser and flow control, with the limits that uvicorn lacks.

* request heads are limited in bytes and in time, and so are bytes that complete nothing;
* an idle connection is closed, and one whose peer does not read its response is aborted;
* the number of pipelined requests is limited;
* the number of connections is limited, and the rate of new ones per address.

A connection that exceeds a limit gets an error response, if one can still be sent, and is closed.
"""

import asyncio
import logging
from collections.abc import Callable
from email.utils import formatdate
from typing import NoReturn, cast

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from mainstem.model.limits import KIB
from mainstem.protocols.connection_admission import ConnectionRejection, ConnectionSlot
from mainstem.protocols.rest.access import LINE, Line
from mainstem.protocols.rest.errors import Problem
from mainstem.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 1_000
HEAD_BYTES_MAX = 64 * KIB
HEAD_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 60.0
STALLED_WRITE_TIMEOUT_S = 30.0
REQUESTS_AHEAD_MAX = 16


class HttpLimits:
    """The limits of one listener; tests use smaller ones."""

    def __init__(
        self,
        *,
        connections_max: int = CONNECTIONS_MAX,
        head_timeout_s: float = HEAD_TIMEOUT_S,
        stalled_write_timeout_s: float = STALLED_WRITE_TIMEOUT_S,
    ) -> None:
        self.connections_max = connections_max
        self.head_timeout_s = head_timeout_s
        self.stalled_write_timeout_s = stalled_write_timeout_s


class _Broken(Exception):
    """Ends the parsing of the bytes just received."""


class _Timer:
    """A timer that calls back after a delay unless it is cancelled."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, delay_s: float, act: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._delay_s = delay_s
        self._act = act
        self._handle: asyncio.TimerHandle | None = None

    def arm(self) -> None:
        """Start the timer, unless it is running."""
        if self._handle is None:
            self._handle = self._loop.call_later(self._delay_s, self._fire)

    def cancel(self) -> None:
        """Stop the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._act()


class HttpConnection(HttpToolsProtocol):
    """One accepted connection."""

    def __init__(
        self,
        config: Config,
        state: ServerState,
        bounds: HttpLimits,
        metrics: Metrics,
        place: ConnectionSlot,
    ) -> None:
        self._line = Line()
        super().__init__(config, state, {LINE: self._line})
        self.logger = log
        self.is_logged_in = False  # whether a request was received
        place.session = self
        self._bounds = bounds
        self._metrics = metrics
        self._head_timer = _Timer(self.loop, bounds.head_timeout_s, self._head_timed_out)
        self._in_head = False
        self._head_bytes = 0
        self._steps = 0
        self._fruitless_bytes = 0
        self._refusal: tuple[int, Problem] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection and start its timers."""
        super().connection_made(cast("asyncio.Transport", transport))
        stalled_s = self._bounds.stalled_write_timeout_s
        self._stall_timer = _Timer(self.loop, stalled_s, self.transport.abort)
        self._line.tls = transport.get_extra_info("ssl_object")
        self._head_timer.arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        super().connection_lost(exc)
        self._head_timer.cancel()
        self._stall_timer.cancel()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Keep a half-closed connection open while its response is pending."""
        if self._is_idle() or self.cycle.more_body:
            return None
        self.cycle.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        """Parse; close the connection after too many bytes that complete nothing."""
        if self.transport.is_closing():
            return
        steps = self._steps
        super().data_received(data)
        # An upgraded connection belongs to another protocol with its own limits.
        is_ours = self in self.connections and self.parser is not None
        if not is_ours or self.transport.is_closing():
            return
        self._fruitless_bytes = 0 if self._steps != steps else self._fruitless_bytes + len(data)
        if self._fruitless_bytes > HEAD_BYTES_MAX:
            self._refuse(431, _head_too_large())
        elif not self._in_head and self._is_idle() and self.timeout_keep_alive_task is None:
            # Line ends between requests stop uvicorn's timer without starting a request.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_message_begin(self) -> None:
        """Handle the first byte of a request."""
        self._in_head = True
        self._head_bytes = 0
        self._head_timer.arm()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count a piece of the request target."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count one header, or one trailer after a chunked body."""
        self._count_head(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Serve the request: its head is complete."""
        self._steps += 1
        self._in_head = False
        self.is_logged_in = True
        self._head_timer.cancel()
        if len(self.pipeline) >= REQUESTS_AHEAD_MAX:
            self._break(400, Problem("INVALID_REQUEST", "too many pipelined requests"))
        _date_answers(self.server_state)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Handle a piece of the body."""
        self._steps += 1
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Handle the end of the request."""
        self._steps += 1
        super().on_message_complete()

    def shutdown(self) -> None:
        """Finish requests in progress, then close, unless the connection is already closing.

        A TLS transport of Python 3.11 that is closed twice can no longer be aborted.
        """
        if not self.transport.is_closing():
            super().shutdown()

    def pause_writing(self) -> None:
        """Start the stall timer: the peer does not read its response."""
        super().pause_writing()
        self._stall_timer.arm()

    def resume_writing(self) -> None:
        """Stop the stall timer: the peer reads again."""
        self._stall_timer.cancel()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Send an error response; uvicorn calls this when parsing failed."""
        status, problem = self._refusal or (
            400,
            Problem("INVALID_REQUEST", "not an HTTP/1.1 request"),
        )
        self._refuse(status, problem)

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES_MAX:
            self._break(431, _head_too_large())

    def _break(self, status: int, problem: Problem) -> NoReturn:
        self._refusal = status, problem
        raise _Broken

    def _refuse(self, status: int, problem: Problem) -> None:
        """Send an error and close; abort if a response was already started."""
        if not self._is_idle():
            if self.pipeline or self.cycle.response_started:
                self.transport.abort()
                return
            self.cycle.disconnected = True  # so that the response of the route is not sent
            self.cycle.message_event.set()
        self._metrics.http_requests[status] += 1
        self.transport.write(_last_answer(status, problem))
        self.transport.close()

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _head_timed_out(self) -> None:
        if self.transport.is_closing():
            return
        if not self._is_idle():
            self._head_timer.arm()  # the head of a request that waits behind another one
        elif self._in_head:
            self._refuse(408, Problem("REQUEST_TIMEOUT", "the request head did not arrive in time"))
        else:
            self.transport.close()


def refusal(reason: ConnectionRejection) -> tuple[int, bytes]:
    """Status and bytes of the response to a refused connection."""
    if reason is ConnectionRejection.RATE:
        status, problem = 429, Problem("THROTTLED", "too many new connections from this address")
    else:
        status, problem = 503, Problem("OVERLOADED", "too many connections")
    return status, _last_answer(status, problem)


def _last_answer(status: int, problem: Problem) -> bytes:
    body = msgspec.json.encode(problem) + b"\n"
    return (
        STATUS_LINE[status]
        + b"content-type: application/json\r\nconnection: close\r\n"
        + b"content-length: %d\r\n\r\n" % len(body)
        + body
    )


def _date_answers(state: ServerState) -> None:
    """Set the Date header of responses; done per request, so that no timer is needed."""
    state.default_headers = [(b"date", formatdate(usegmt=True).encode())]


def _head_too_large() -> Problem:
    return Problem("HEAD_TOO_LARGE", f"request line and headers exceed {HEAD_BYTES_MAX} bytes")
