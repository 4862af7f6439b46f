"""The body of a request: limited in time and bytes while it arrives, then decoded strictly."""

import asyncio
from typing import TypeVar

import msgspec
from starlette.requests import Request

from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.protocols.rest.errors import HttpError, Problem, bad_request
from mainstem.protocols.rest.handler_context import HandlerContext
from mainstem.protocols.rest.routing.parameters import whole_number

BODY_TIMEOUT_S = 30.0

Decoded = TypeVar("Decoded")

# The content type that ``curl -d`` sends by default; the body is parsed as JSON.
_JSON_TYPES = frozenset({"", "application/json", "application/x-www-form-urlencoded"})
RAW_TYPES = frozenset({"text/plain", "application/octet-stream"})


async def read_body(site: HandlerContext, request: Request) -> bytes:
    """Read the whole body; refuse it as soon as it is too long or too slow."""
    limit = site.body_bytes_max
    claimed = whole_number(request.headers.get("content-length", ""))
    if claimed is not None and claimed > limit:
        raise _too_large(limit)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for piece in request.stream():
                if len(body) + len(piece) > limit:
                    raise _too_large(limit)
                site.held.take(len(piece))
                body += piece
    except TimeoutError:
        raise HttpError(
            408,
            Problem(
                "REQUEST_TIMEOUT", f"the body did not arrive within {BODY_TIMEOUT_S:.0f} seconds"
            ),
        ) from None
    finally:
        # From here on the log limits the memory of the request: the body is kept only for it.
        site.held.give_back(len(body))
    return bytes(body)


def check_json(request: Request) -> None:
    """Refuse a body whose content type is not JSON."""
    kind = media_type(request)
    if kind not in _JSON_TYPES and not (kind.startswith("application/") and kind.endswith("+json")):
        raise unsupported_type(kind, "application/json")
    _check_coding(request)


def check_raw(request: Request) -> bool:
    """Whether the body is the value itself, not JSON."""
    raw = media_type(request) in RAW_TYPES
    if raw:
        _check_coding(request)
    return raw


def media_type(request: Request) -> str:
    """The content type without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def unsupported_type(kind: str, allowed: str) -> HttpError:
    """The error 415: unsupported media type."""
    return HttpError(
        415,
        Problem("UNSUPPORTED_MEDIA_TYPE", f"unsupported: {kind[:100]!r}", remedy=f"send {allowed}"),
    )


def decode(body: bytes, kind: type[Decoded]) -> Decoded:
    """The body as a value of that type, or a 400 that names the invalid part."""
    try:
        body.decode()  # raw values would otherwise hide bytes that are not UTF-8
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise bad_request(f"invalid body: {error}", remedy="see /openapi.json") from None
    except DECODE_ERRORS as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise bad_request("the body is nested too deeply") from None


def _check_coding(request: Request) -> None:
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise unsupported_type(f"content-encoding {coding}", "the body without content-encoding")


def _too_large(limit: int) -> HttpError:
    return HttpError(
        413,
        Problem(
            "BODY_TOO_LARGE",
            f"the body exceeds {limit} bytes",
            remedy="send fewer messages at once, or raise http.body_bytes_max",
        ),
    )
