"""The HTTP listener of a node, inside the node's own event loop.

    service = RestService(site)
    port = await service.start("127.0.0.1", 8080)
    await service.stop(timeout_s=30)

It takes no signals, starts no threads and ticks for nothing: the node's lifecycle starts and ends
it. Stopping refuses new work, lets requests in flight finish within the time given, then cuts.
"""

import asyncio
import logging
from ssl import SSLContext
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from mainstem.protocols.rest.app import RestApp
from mainstem.protocols.rest.site import Site
from mainstem.protocols.rest.transport import IDLE_TIMEOUT_S, Bounds, HttpConnection
from mainstem.protocols.tls_listener import BACKLOG, TlsDoor, TlsServer

log = logging.getLogger(__name__)

_TLS_HANDSHAKE_TIMEOUT_S = 15.0


class RestService:
    """Listens, serves, and stops in good order."""

    def __init__(self, site: Site, bounds: Bounds | None = None) -> None:
        self.websocket: Any = None  # makes what serves connections that ask for an upgrade
        self._app = RestApp(site)
        self._metrics = site.telemetry.metrics
        self._access = site.access
        self._bounds = bounds or Bounds()
        self._state = ServerState()
        self._handshakes = 0
        self._server: asyncio.Server | None = None
        self._tls_server: TlsServer | None = None

    async def start(self, host: str, port: int, tls: SSLContext | None = None) -> int:
        """Listen; the port that was taken."""
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

        def connect() -> HttpConnection:
            return HttpConnection(config, self._state, self._bounds, self._metrics, self._access)

        if tls is not None:
            self._tls_server = TlsServer(self, TlsDoor(tls, _TLS_HANDSHAKE_TIMEOUT_S), connect)
            return await self._tls_server.listen(host, port)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(connect, host, port, backlog=BACKLOG)
        taken: int = self._server.sockets[0].getsockname()[1]
        return taken

    def greet(self, address: str) -> bool:
        """Whether a caller may shake hands; he counts as a connection meanwhile."""
        full = len(self._state.connections) + self._handshakes >= self._bounds.connections_max
        if full or (self._access is not None and self._access.refuses(address)):
            self._metrics.connections_rejected += 1
            return False
        self._handshakes += 1
        return True

    def greeted(self) -> None:
        """A handshake is over."""
        self._handshakes -= 1

    def refuse_new(self) -> None:
        """Take no new connections and no new requests; health and metrics are still answered."""
        self._app.draining = True
        for server in (self._server, self._tls_server):
            if server is not None:
                server.close()

    async def stop(self, timeout_s: float) -> None:
        """Let what is in flight finish, then close everything."""
        if self._server is None and self._tls_server is None:
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
            log.warning("HTTP requests were cut off", extra={"requests": len(late)})
            await asyncio.sleep(0)  # connections first learn that they are closed
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
        self._server = self._tls_server = None
