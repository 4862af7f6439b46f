"""The ASGI application: a request in, its operation found and served, every failure answered.

Each request passes one place that counts it, refuses what a node that is stopping or a foreign web
page must not start, turns errors into bodies with a reason, and sees to it that a body nobody read
does not upset the connection.
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
from mainstem.protocols.rest.routing.operation import Address, Operation
from mainstem.protocols.rest.routing.parameters import check_names
from mainstem.protocols.rest.routing.routes import ADDRESSES

log = logging.getLogger(__name__)

# How much of a refused body is read and thrown away, so that its sender gets to see the answer.
DISCARD_BYTES_MAX = 8 * MIB
DISCARD_S = 2.0
DISCARD_QUIET_S = 0.2
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_SERVED_WHILE_STOPPING = ("/health", "/metrics")
_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class RestApp:
    """All of HTTP behind one callable; ``draining`` refuses new work."""

    def __init__(self, site: HandlerContext) -> None:
        self.draining = False
        self._site = site
        described = Address(
            "/openapi.json",
            {
                "GET": Operation(
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
        assert scope["type"] == "http", "nothing else is switched on"
        exchange = _Exchange(self._site, scope, receive, send)
        try:
            self._admit(scope)
            if self._site.access is None:
                allow_public(scope)
            else:
                await self._site.access.receive(scope)
            await self._router(scope, exchange.receive, exchange.send)
        except (ClientDisconnect, asyncio.CancelledError):
            # Nobody waits for the answer: the peer is gone, or a stop that waited long enough cut
            # it off. The server above would log either as a failure.
            return
        except Exception as error:
            if exchange.started:
                raise  # too late for an answer: the server closes the connection
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
    """One address: finds the operation by method."""

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
                    f"{method} is not served here",
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
    """One request and its answer on their way through: what was read, what was sent."""

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
        """The next piece of the request."""
        message = await self._receive()
        self._expects_continue = False  # asking for the body invites the client to send it
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            self._body_left = False
        return message

    async def send(self, message: Message) -> None:
        """The next piece of the answer."""
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
        """Read what nobody wanted; a client that waits for leave to send it need not."""
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
            "nothing is served at this address",
            subject=scope["path"][:200],
            remedy="see / or /openapi.json",
        ),
    )


def _answer_to(error: Exception, scope: Scope) -> Response:
    """The body of a failure; what nobody foresaw is logged and says nothing about itself."""
    if isinstance(error, HttpError):
        return problem_answer(error.status, error.problem, error.headers)
    if isinstance(error, MainstemError):
        status, problem = problem_of(error)
        if status >= 500:
            log.warning("an HTTP request failed: %s", error, extra={"path": scope["path"]})
        return problem_answer(status, problem)
    log.error("an HTTP request failed", exc_info=error, extra={"path": scope["path"]})
    return problem_answer(
        500, Problem(ErrorCode.INTERNAL.name, "the node failed; its log has the reason")
    )


def _check_origin(headers: Headers) -> None:
    """Refuse what a page of another site makes a browser send: loopback needs no login."""
    origin = headers.get("origin")
    foreign = origin is not None and urlsplit(origin).netloc != headers.get("host")
    if foreign or headers.get("sec-fetch-site") == "cross-site":
        raise HttpError(
            403,
            Problem(
                "FOREIGN_ORIGIN", "a page of another site may not change anything", origin or ""
            ),
        )
