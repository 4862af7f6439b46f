"""One address, its methods, and what each of them takes and gives.

The table of operations (``routes``) is what requests are dispatched by and what the OpenAPI
document is written from, so an address cannot be served and not described, or the other way round.
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


class Operation(Struct, frozen=True, kw_only=True):
    """One method of one address.

    Args:
        handler: serves it.
        summary: one line for the document.
        answer: the type of the answer's body, or a JSON schema where there is no type.
        media_type: of the answer.
        status: of the answer when all is well.
        body: the types that the request's body may have.
        parameters: of the query.
        refusals: the statuses a caller should expect beside 400, 500 and 503.
        right: what the caller must be allowed; handlers look themselves where it depends on more.
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
    """A path template in Starlette's notation and the operations behind it."""

    path: str
    operations: dict[str, Operation]

    @property
    def allowed(self) -> str:
        """The methods, as the Allow header lists them."""
        methods = set(self.operations)
        if "GET" in methods:
            methods.add("HEAD")
        return ", ".join(sorted(methods | {"OPTIONS"}))
