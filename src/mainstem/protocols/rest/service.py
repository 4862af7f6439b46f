"""The HTTP listener of a node, inside the node's own event loop.

    service = RestService(site)
    port = await service.start("127.0.0.1", 8080)
    await service.stop(timeout_s=30)

It handles no signals, starts no threads and has no timers: the node's lifecycle starts and stops
it. Stopping refuses new requests, waits for requests in flight up to a timeout, then aborts them.
"""

import asyncio
import logging
from collections.abc import Callable
from ssl import SSLContext
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from mainstem.protocols.accept_listener import Acceptor, ListenerAdmission, TlsListenerOptions
from mainstem.protocols.connection_admission import (
    ConnectionAdmission,
    ConnectionRejection,
    ConnectionSlot,
)
from mainstem.protocols.rest.app import RestApp
from mainstem.protocols.rest.handler_context import HandlerContext
from mainstem.protocols.rest.transport import IDLE_TIMEOUT_S, HttpConnection, HttpLimits, refusal

log = logging.getLogger(__name__)

_TLS_HANDSHAKE_TIMEOUT_S = 15.0


class RestService:
    """Listens, serves, and stops gracefully.

    Args:
        site: what the routes use.
        bounds: limits of the listener.
        shared_port: a port to listen on as well, shared with other processes; 0: none.
    """

    def __init__(
        self, site: HandlerContext, bounds: HttpLimits | None = None, shared_port: int = 0
    ) -> None:
        self.websocket: Any = None  # the factory of protocols for upgraded connections
        self._app = RestApp(site)
        self.admission = ConnectionAdmission()  # of descriptors; all listeners of a node share one
        self._metrics = site.telemetry.metrics
        self._authenticator = site.authenticator
        self._bounds = bounds or HttpLimits()
        self._state = ServerState()
        self._shared_port = shared_port
        self._servers: list[Acceptor] = []

    async def start(self, host: str, port: int, tls: SSLContext | None = None) -> int:
        """Listen and return the port."""
        config = Config(
            self._app,
            http=HttpConnection,
            ws=self.websocket or "none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=int(IDLE_TIMEOUT_S),
        )
        config.load()
        self._admission_control = ListenerAdmission(
            "http",
            self.admission,
            self._metrics,
            connections_max=self._bounds.connections_max,
            refuses=None if self._authenticator is None else self._authenticator.policy.refuses,
        )

        def connect(place: ConnectionSlot) -> HttpConnection:
            return HttpConnection(config, self._state, self._bounds, self._metrics, place)

        taken = await self._listen(connect, host, port, tls, shared=False)
        if self._shared_port:
            await self._listen(connect, host, self._shared_port, tls, shared=True)
        return taken

    async def _listen(
        self,
        connect: Callable[[ConnectionSlot], HttpConnection],
        host: str,
        port: int,
        tls: SSLContext | None,
        *,
        shared: bool,
    ) -> int:
        tls_options = None if tls is None else TlsListenerOptions(tls, _TLS_HANDSHAKE_TIMEOUT_S)
        acceptor = Acceptor(self._admission_control, connect, tls_options, refusal=self._refusal)
        self._servers.append(acceptor)
        return await acceptor.listen(host, port, shared=shared)

    def _refusal(self, reason: ConnectionRejection) -> bytes:
        status, answer = refusal(reason)
        self._metrics.http_requests[status] += 1
        return answer

    def refuse_new(self) -> None:
        """Refuse new connections and requests, except for health and metrics."""
        self._app.draining = True
        for server in self._servers:
            server.close()

    async def stop(self, timeout_s: float) -> None:
        """Wait for requests in flight, then close all connections."""
        if not self._servers:
            return
        self.refuse_new()
        state = self._state
        for connection in list(state.connections):
            connection.shutdown()
        late: set[asyncio.Task[None]] = set()
        if state.tasks:
            _, late = await asyncio.wait(state.tasks, timeout=timeout_s)
        for connection in list(state.connections):
            connection.transport.abort()
        if late:
            log.warning("HTTP requests were aborted", extra={"requests": len(late)})
            await asyncio.sleep(0)  # so that connections process their close first
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self._servers.clear()
