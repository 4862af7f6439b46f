"""The HTTP port of a connect process: health, readiness, liveness, status, metrics.

/health   200 when all pipelines are healthy, 503 with the reasons otherwise
/ready    200 once every pipeline has been started, 503 while starting or stopping
/live     200 while the runner's loop makes progress; 503 requests a restart
/status   every pipeline as JSON
/metrics  Prometheus' text format
"""

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import ClassVar, Self

import msgspec

from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.pipelines.running.status import Status, health_of, metrics_text

STALE_S = 30.0  # one pass of the runner's loop takes a fraction of a second
REQUEST_TIMEOUT_S = 10.0

Answer = tuple[int, str, bytes]


class ProbeServer:
    """Serves the latest status. A context manager."""

    def __init__(
        self,
        address: tuple[str, int],
        latest: Callable[[], Status],
        *,
        health_path: str = "/health",
        serves: frozenset[str] = frozenset({"health", "metrics"}),
    ) -> None:
        self._latest = latest
        routes: dict[str, Callable[[], Answer]] = {}
        if "health" in serves:
            routes |= {
                health_path: self._health,
                "/ready": self._ready,
                "/live": self._live,
                "/status": self._status,
            }
        if "metrics" in serves:
            routes["/metrics"] = self._metrics
        try:
            self._server = ThreadingHTTPServer(address, _handler(routes))
        except OSError as error:
            raise Unavailable(
                ErrorCode.INVALID_CONFIG,
                f"cannot listen: {error.strerror}",
                subject=f"{address[0]}:{address[1]}",
                remedy="set settings.health.port or settings.metrics.port to a free port",
            ) from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        """The port that it listens on."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _health(self) -> Answer:
        health = health_of(self._latest())
        return _json(200 if health.healthy else 503, health)

    def _ready(self) -> Answer:
        health = health_of(self._latest())
        return _json(200 if health.ready else 503, {"ready": health.ready, "status": health.status})

    def _live(self) -> Answer:
        status = self._latest()
        silent_s = time.time() - status.updated_at
        live = health_of(status).live and silent_s < STALE_S
        return _json(200 if live else 503, {"live": live, "silent_seconds": round(silent_s, 1)})

    def _status(self) -> Answer:
        return _json(200, self._latest())

    def _metrics(self) -> Answer:
        text = metrics_text(self._latest())
        return 200, "text/plain; version=0.0.4; charset=utf-8", text.encode()


def _json(code: int, body: object) -> Answer:
    return code, "application/json", msgspec.json.encode(body)


def _handler(routes: dict[str, Callable[[], Answer]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout: ClassVar[float | None] = REQUEST_TIMEOUT_S

        def do_GET(self) -> None:
            route = routes.get(self.path.partition("?")[0])
            if route is None:
                code, kind, body = _json(404, {"known": sorted(routes)})
            else:
                code, kind, body = route()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing: probes come every few seconds."""

    return Handler
