"""The ASGI application: routes a request to its operation and turns errors into responses.

It also counts requests, refuses new ones while the node stops and changes from pages of another
origin, and reads the rest of a body that no handler has read, so that the connection stays usable.
"""

import asyncio
import logging
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.limits import MIB
from mainstem.protocols.rest.access import allow_public, need
from mainstem.protocols.rest.errors import HttpError, Problem, problem_of
from mainstem.protocols.rest.handler_context import HandlerContext
from mainstem.protocols.rest.responses import json_answer, problem_answer
from mainstem.protocols.rest.routing.openapi import document
from mainstem.protocols.rest.routing.operation import Address, RestOperation
from mainstem.protocols.rest.routing.parameters import check_names
from mainstem.protocols.rest.routing.routes import ADDRESSES

log = logging.getLogger(__name__)

# How much of a refused body is read and discarded, so that the client reads the response.
DISCARD_BYTES_MAX = 8 * MIB
DISCARD_S = 2.0
DISCARD_QUIET_S = 0.2
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_SERVED_WHILE_STOPPING = ("/health", "/metrics")
_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class RestApp:
    """The HTTP API as one ASGI callable; ``draining`` refuses new requests."""

    def __init__(self, site: HandlerContext) -> None:
        self.draining = False
        self._site = site
        described = Address(
            "/openapi.json",
            {
                "GET": RestOperation(
                    handler=self._openapi, summary="This document.", answer={"type": "object"}
                )
            },
        )
        self._addresses = (*ADDRESSES, described)
        self._router = Router(
            [Route(address.path, _Resource(site, address)) for address in self._addresses],
            redirect_slashes=False,
            default=_not_found,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        assert scope["type"] == "http", "other scopes do not reach the application"
        exchange = _Exchange(self._site, scope, receive, send)
        try:
            self._admit(scope)
            if self._site.authenticator is None:
                allow_public(scope)
            else:
                await self._site.authenticator.authenticate(scope)
            await self._router(scope, exchange.receive, exchange.send)
        except (ClientDisconnect, asyncio.CancelledError):
            # No client waits for the response: the peer disconnected, or a stop aborted the request
            # after its timeout. The server would log either as a failure.
            return
        except Exception as error:
            if exchange.started:
                raise  # the response has started: the server closes the connection
            await _answer_to(error, scope)(scope, exchange.receive, exchange.send)

    def _admit(self, scope: Scope) -> None:
        path = scope["path"]
        if self.draining and not path.startswith(_SERVED_WHILE_STOPPING):
            raise HttpError(
                503,
                Problem(ErrorCode.SHUTTING_DOWN.name, "the node is stopping"),
                headers={"connection": "close"},
            )
        if scope["method"] not in _SAFE_METHODS:
            _check_origin(Headers(scope=scope))

    async def _openapi(self, site: HandlerContext, request: Request) -> Response:
        """GET /openapi.json."""
        return json_answer(document(self._addresses, site.facts().version))


class _Resource:
    """One path: finds the operation by method."""

    def __init__(self, site: HandlerContext, address: Address) -> None:
        self._site = site
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        allowed = {"allow": self._address.allowed}
        if method == "OPTIONS":
            await Response(status_code=204, headers=allowed)(scope, receive, send)
            return
        operation = self._address.operations.get("GET" if method == "HEAD" else method)
        if operation is None:
            raise HttpError(
                405,
                Problem(
                    "METHOD_NOT_ALLOWED",
                    f"{method} is not supported here",
                    subject=scope["path"],
                    remedy=f"allowed: {allowed['allow']}",
                ),
                headers=allowed,
            )
        request = Request(scope, receive)
        if operation.right is not None:
            need(request, operation.right)
        check_names(request, operation.parameters)
        response = await operation.handler(self._site, request)
        await response(scope, receive, send)


class _Exchange:
    """One request and its response: tracks what was read and what was sent."""

    def __init__(self, site: HandlerContext, scope: Scope, receive: Receive, send: Send) -> None:
        self.started = False
        self._counts = site.telemetry.metrics.http_requests
        self._receive = receive
        self._send = send
        headers = Headers(scope=scope)
        self._expects_continue = "expect" in headers
        self._body_left = "transfer-encoding" in headers or headers.get(
            "content-length", "0"
        ) not in ("0", "")

    async def receive(self) -> Message:
        """Receive the next piece of the request."""
        message = await self._receive()
        self._expects_continue = False  # reading the body makes uvicorn send 100 Continue
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._body_left = False
        return message

    async def send(self, message: Message) -> None:
        """Send the next piece of the response."""
        if message["type"] == "http.response.start":
            await self._discard_body()
            self.started = True
            self._counts[message["status"]] += 1
            headers = [*message["headers"], *_HEADERS]
            if self._body_left:
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        await self._send(message)

    async def _discard_body(self) -> None:
        """Read the rest of the body, unless the client still waits for 100 Continue."""
        if not self._body_left or self._expects_continue:
            return
        discarded = 0
        try:
            async with asyncio.timeout(DISCARD_S):
                while self._body_left and discarded <= DISCARD_BYTES_MAX:
                    async with asyncio.timeout(DISCARD_QUIET_S):
                        discarded += len((await self.receive()).get("body", b""))
        except TimeoutError:
            return


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    raise HttpError(
        404,
        Problem(
            "NOT_FOUND",
            "no such path",
            subject=scope["path"][:200],
            remedy="see / or /openapi.json",
        ),
    )


def _answer_to(error: Exception, scope: Scope) -> Response:
    """The response to an error; an unexpected one is logged and reported without details."""
    if isinstance(error, HttpError):
        return problem_answer(error.status, error.problem, error.headers)
    if isinstance(error, MainstemError):
        status, problem = problem_of(error)
        if status >= 500:
            log.warning("an HTTP request failed: %s", error, extra={"path": scope["path"]})
        return problem_answer(status, problem)
    log.error("an HTTP request failed", exc_info=error, extra={"path": scope["path"]})
    return problem_answer(
        500, Problem(ErrorCode.INTERNAL.name, "internal error; see the log of the node")
    )


def _check_origin(headers: Headers) -> None:
    """Refuse requests from pages of another origin: loopback requires no login."""
    origin = headers.get("origin")
    foreign = origin is not None and urlsplit(origin).netloc != headers.get("host")
    if foreign or headers.get("sec-fetch-site") == "cross-site":
        raise HttpError(
            403,
            Problem(
                "FOREIGN_ORIGIN", "a page of another origin may not change anything", origin or ""
            ),
        )
