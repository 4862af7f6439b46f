"""The HTTP listener of a node, inside the node's own event loop.

    service = RestService(site)
    port = await service.start("127.0.0.1", 8080)
    await service.stop(timeout_s=30)

It takes no signals, starts no threads and ticks for nothing: the node's lifecycle starts and ends
it. Stopping refuses new work, lets requests in flight finish within the time given, then cuts.
"""

import asyncio
import logging
from collections.abc import Callable
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
    """Listens, serves, and stops in good order.

    Args:
        site: what is served.
        bounds: how much of it at once.
        shared_port: where it listens as well, beside other processes; 0: nowhere.
    """

    def __init__(self, site: Site, bounds: Bounds | None = None, shared_port: int = 0) -> None:
        self.websocket: Any = None  # makes what serves connections that ask for an upgrade
        self._app = RestApp(site)
        self._metrics = site.telemetry.metrics
        self._access = site.access
        self._bounds = bounds or Bounds()
        self._state = ServerState()
        self._handshakes = 0
        self._shared_port = shared_port
        self._servers: list[asyncio.Server | TlsServer] = []

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

        taken = await self._listen(connect, host, port, tls, shared=False)
        if self._shared_port:
            await self._listen(connect, host, self._shared_port, tls, shared=True)
        return taken

    async def _listen(
        self,
        connect: Callable[[], HttpConnection],
        host: str,
        port: int,
        tls: SSLContext | None,
        *,
        shared: bool,
    ) -> int:
        if tls is not None:
            secure = TlsServer(self, TlsDoor(tls, _TLS_HANDSHAKE_TIMEOUT_S), connect)
            self._servers.append(secure)
            return await secure.listen(host, port, shared=shared)
        loop = asyncio.get_running_loop()
        plain = await loop.create_server(
            connect, host, port, backlog=BACKLOG, reuse_port=shared or None
        )
        self._servers.append(plain)
        taken: int = plain.sockets[0].getsockname()[1]
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
        for server in self._servers:
            server.close()

    async def stop(self, timeout_s: float) -> None:
        """Let what is in flight finish, then close everything."""
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
            log.warning("HTTP requests were cut off", extra={"requests": len(late)})
            await asyncio.sleep(0)  # connections first learn that they are closed
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for server in self._servers:
            if not isinstance(server, TlsServer):
                await server.wait_closed()
        self._servers.clear()
