"""The HTTP listener of the ``http-webhook`` source, in a thread with its own event loop.

    2xx  the request is on disk          413  the body is too large
    401  token or signature is wrong     503  no space or no disk, retry later (``Retry-After``)

Guarantees: every request is answered, whatever the disk does; requests that wait for it are bounded
in number and bytes. A request with a recently stored ``Idempotency-Key`` is accepted and not stored
again.
"""

import asyncio
import hashlib
import hmac
import secrets
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import uvicorn
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.model.limits import WEBHOOK_WAITING_BYTES_MAX
from mainstem.pipelines.webhook import spool as _webhook_spool
from mainstem.pipelines.webhook.spool import RequestSpool

KEYS_MAX: Final = 100_000
KEY_LENGTH_MAX: Final = 256
WAITING_MAX: Final = 1_000
START_WAIT_MAX_S: Final = 10.0
RETRY_AFTER_S: Final = 1

Waiting = tuple[_webhook_spool.Request, asyncio.Future[None]]


class ListenerSettings(Struct, frozen=True, kw_only=True):
    """Address and authentication of the listener."""

    host: str
    port: int
    path: str
    token: str | None = None
    signature_secret: str | None = None
    signature_header: str = "X-Hub-Signature-256"
    forward_headers: tuple[str, ...] = ()
    body_bytes_max: int = 1024 * 1024
    connections_max: int = 256
    certificate_path: str | None = None
    key_path: str | None = None


class WebhookListener:
    """Accepts requests into a spool until it is closed."""

    def __init__(self, settings: ListenerSettings, spool: RequestSpool) -> None:
        self._settings = settings
        self._intake = RequestGroupCommit(spool)
        app = Starlette(
            routes=[
                Route(settings.path, self._take, methods=["POST", "PUT"]),
                Route("/health", _health, methods=["GET"]),
            ]
        )
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=settings.connections_max,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=5,
                ssl_certfile=settings.certificate_path,
                ssl_keyfile=settings.key_path,
                lifespan="off",
            )
        )
        self._socket = socket.create_server(
            (settings.host, settings.port), family=_family(settings.host), backlog=128
        )
        self._thread = threading.Thread(target=self._serve, daemon=True, name="webhook")

    @property
    def port(self) -> int:
        """The port that it listens on."""
        found: int = self._socket.getsockname()[1]
        return found

    def start(self) -> None:
        """Start to serve.

        Raises:
            Unavailable: the listener did not start.
        """
        self._thread.start()
        deadline = time.monotonic() + START_WAIT_MAX_S
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise Unavailable(ErrorCode.TIMED_OUT, "the webhook listener did not start")
            time.sleep(0.01)

    def close(self) -> None:
        """Answer requests in progress and stop."""
        self._server.should_exit = True
        self._thread.join(START_WAIT_MAX_S)
        self._socket.close()

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    async def _take(self, request: Request) -> Response:
        settings = self._settings
        if settings.token is not None and not _same(
            request.headers.get("authorization", ""), f"Bearer {settings.token}"
        ):
            return _refused(401, "wrong or missing token")
        if self._intake.is_full:
            return _busy("too many requests wait for the disk")
        body = await _body(request, settings.body_bytes_max)
        if body is None:
            return _refused(413, f"at most {settings.body_bytes_max} bytes")
        if settings.signature_secret is not None and not _same(
            request.headers.get(settings.signature_header, ""),
            "sha256=" + _signature(settings.signature_secret, body),
        ):
            return _refused(401, "wrong or missing signature")
        kept = _webhook_spool.Request(
            body=body,
            headers=[
                (name, request.headers[name].encode("latin-1"))
                for name in settings.forward_headers
                if name in request.headers
            ],
            at_us=time.time_ns() // 1000,
            idempotency_key=request.headers.get("idempotency-key", "")[:KEY_LENGTH_MAX],
        )
        try:
            await self._intake.keep(kept)
        except Unavailable as error:
            return _busy(error.cause)
        return JSONResponse({"accepted": True}, status_code=202)


class RequestGroupCommit:
    """Group commit: requests that wait for the disk share one sync."""

    def __init__(self, spool: RequestSpool) -> None:
        self._spool = spool
        self._waiting: list[Waiting] = []
        self._task: asyncio.Task[None] | None = None
        self.waiting_bytes = 0
        self._keys = _RecentKeys(spool.recent_keys())

    @property
    def is_full(self) -> bool:
        """Whether no more requests may wait."""
        too_many = len(self._waiting) >= WAITING_MAX
        return too_many or self.waiting_bytes >= WEBHOOK_WAITING_BYTES_MAX

    async def keep(self, request: _webhook_spool.Request) -> None:
        """Store a request; returns when it is on disk.

        Raises:
            Unavailable: there is no space.
        """
        key = request.idempotency_key
        if key and key in self._keys:
            return
        if self.is_full:
            raise Unavailable(ErrorCode.OVERLOADED, "too many requests wait for the disk")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, done))
        self.waiting_bytes += len(request.body)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write())
        try:
            await done
        finally:
            self.waiting_bytes -= len(request.body)

    async def _write(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            fresh = list({each.idempotency_key or id(each): each for each, _ in waiting}.values())
            fresh = [each for each in fresh if each.idempotency_key not in self._keys]
            try:
                await asyncio.to_thread(self._spool.add, fresh)
            except Unavailable as error:
                _fail(waiting, error)
                continue
            except BaseException as error:
                # A bug, or the end of the process: every request still gets an answer.
                _fail(waiting, Unavailable(ErrorCode.STORAGE_FAILED, f"the spool failed: {error}"))
                raise
            for each in fresh:
                self._keys.add(each.idempotency_key)
            for _, done in waiting:
                if not done.done():
                    done.set_result(None)


def _fail(waiting: Iterable[Waiting], error: Unavailable) -> None:
    for _, done in waiting:
        if not done.done():
            done.set_exception(error)


class _RecentKeys:
    """The most recent idempotency keys."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys: OrderedDict[str, None] = OrderedDict()
        for key in keys:
            self.add(key)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, key: str) -> None:
        if key:
            self._keys[key] = None
            if len(self._keys) > KEYS_MAX:
                self._keys.popitem(last=False)


async def _body(request: Request, bytes_max: int) -> bytes | None:
    """The body; None when it is too large."""
    pieces, size = [], 0
    try:
        async for piece in request.stream():
            size += len(piece)
            if size > bytes_max:
                return None
            pieces.append(piece)
    except ClientDisconnect:
        return None  # the client has disconnected
    return b"".join(pieces)


async def _health(request: Request) -> Response:
    del request
    return JSONResponse({"status": "ok"})


def _refused(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    content: dict[str, Any] = {"accepted": False, "error": reason}
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def _busy(reason: str) -> Response:
    return _refused(503, reason, {"Retry-After": str(RETRY_AFTER_S)})


def _signature(secret: str, body: bytes) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def _same(given: str, wanted: str) -> bool:
    return secrets.compare_digest(given.encode(), wanted.encode())


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
