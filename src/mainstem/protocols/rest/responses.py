"""Responses: a value encoded as JSON, sent in pieces so that a slow reader uses little memory."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mainstem.model.limits import KIB
from mainstem.protocols.rest.errors import Problem, retry_headers
from mainstem.protocols.rest.handler_context import BodyBudget

PIECE_BYTES = 256 * KIB

_encode = msgspec.json.Encoder().encode


def json_answer(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """The value as a JSON document, with a newline at the end, for terminals."""
    return Response(_encode(value) + b"\n", status, headers, media_type="application/json")


def problem_answer(
    status: int, problem: Problem, headers: Mapping[str, str] | None = None
) -> Response:
    """The response for an error."""
    return json_answer(problem, status, retry_headers(status) | dict(headers or {}))


class PacedAnswer(Response):
    """A large response: counted against the memory budget, sent as fast as the peer reads."""

    def __init__(
        self, held: BodyBudget, value: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(_encode(value) + b"\n", headers=headers, media_type="application/json")
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it; the server waits between pieces until the peer has read enough."""
        body = memoryview(self.body)
        size = len(body)
        self._held.take(size)
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            for start in range(0, size, PIECE_BYTES):
                until = start + PIECE_BYTES
                await send(
                    {
                        "type": "http.response.body",
                        "body": bytes(body[start:until]),
                        "more_body": until < size,
                    }
                )
        finally:
            self._held.give_back(size)
