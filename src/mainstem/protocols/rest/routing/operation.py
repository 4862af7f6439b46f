"""One path, its methods, and the parameters and bodies of each.

Requests are dispatched by the table of operations (``routes``), and the OpenAPI document is written
from it, so every path that is served is described and vice versa.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from mainstem.protocols.rest.access import Right
from mainstem.protocols.rest.handler_context import HandlerContext
from mainstem.protocols.rest.routing.parameters import Parameter

Handler = Callable[[HandlerContext, Request], Awaitable[Response]]


class RestOperation(Struct, frozen=True, kw_only=True):
    """One method of one path.

    Args:
        handler: serves the request.
        summary: one line for the OpenAPI document.
        answer: the type of the response body, or a JSON schema where there is no type.
        media_type: of the response.
        status: of a successful response.
        body: the types that the request body may have.
        parameters: of the query.
        refusals: the error statuses besides 400, 500 and 503.
        right: what the caller must be allowed; handlers check rights that depend on the body.
    """

    handler: Handler
    summary: str
    answer: Any
    media_type: str = "application/json"
    status: int = 200
    body: tuple[Any, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    refusals: tuple[int, ...] = ()
    right: Right | None = None


class Address(Struct, frozen=True):
    """A path template in Starlette's notation and its operations by method."""

    path: str
    operations: dict[str, RestOperation]

    @property
    def allowed(self) -> str:
        """The methods, as the Allow header lists them."""
        methods = set(self.operations)
        if "GET" in methods:
            methods.add("HEAD")
        return ", ".join(sorted(methods | {"OPTIONS"}))
