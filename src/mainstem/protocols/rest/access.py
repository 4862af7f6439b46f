"""Who sends a request, and whether he may.

    Authorization: Basic …       name and password
    Authorization: Bearer …      a JSON web token, or an API token

Without a login where one is asked for the answer is 401; what is not allowed is 403. On a listener
that asks for none, everybody may do what access rules allow nobody in particular, and everything
where no rules count.
"""

import base64
import binascii
import math
from typing import Any, cast

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from mainstem.broker.security_api import Caller, Security
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.protocols.rest.errors import Problem, Refusal
from mainstem.security.acl import CLUSTER_NAME, Operation, ResourceType
from mainstem.security.authoriser import AllRights
from mainstem.security.principals import NOBODY, Identity
from mainstem.security.quotas import FETCH_BYTES, PRODUCE_BYTES, REQUESTS, Meter

CALLER = "mainstem.caller"
METER = "mainstem.meter"
CLIENT_ID = "http"
OPEN_TO_ALL = "/health"

_CHALLENGE = {"www-authenticate": 'Basic realm="mainstem", charset="UTF-8", Bearer'}
_ANYBODY = Caller(NOBODY, "", AllRights())


class Right(Struct, frozen=True):
    """What an operation takes; ``parameter`` of the path names the resource."""

    operation: Operation
    kind: ResourceType = ResourceType.CLUSTER
    parameter: str = ""


class Access(Struct, frozen=True, kw_only=True):
    """The rules of one HTTP listener. ``trusted``: without a login everything is allowed."""

    security: Security
    login: bool = False
    trusted: bool = False

    async def receive(self, scope: Scope) -> None:
        """Find out who sends a request and whether he may send more; kept in the scope."""
        if scope["path"].startswith(OPEN_TO_ALL):
            return
        address = scope["client"][0] if scope.get("client") else ""
        identity = await self._identity(Headers(scope=scope), address)
        known = identity or NOBODY
        trusted = self.trusted and identity is None
        rights = self.security.rights(known, address, trusted=trusted)
        scope[CALLER] = Caller(known, address, rights)
        meter = self.security.quotas.meter(known.principal.name, CLIENT_ID, address)
        owed_ms = max(meter.charge(kind, 0) for kind in (REQUESTS, PRODUCE_BYTES, FETCH_BYTES))
        if owed_ms:
            wait_s = math.ceil(owed_ms / 1000)
            raise Refusal(
                429,
                Problem(ErrorCode.THROTTLED.name, "more than the quota allows"),
                headers={"retry-after": str(wait_s)},
            )
        meter.charge(REQUESTS, 1)
        scope[METER] = meter

    async def _identity(self, headers: Headers, address: str) -> Identity | None:
        given = headers.get("authorization")
        if given is None:
            if self.login:
                raise _unknown("a login is asked for here")
            return None
        scheme, _, value = given.partition(" ")
        try:
            if scheme.lower() == "basic":
                user, password = _name_and_password(value.strip())
                return await self.security.logins.password(user, password, address)
            if scheme.lower() == "bearer":
                return await self.security.logins.bearer(value.strip(), address)
        except MainstemError as error:
            if error.code is ErrorCode.AUTHENTICATION_FAILED:
                raise _unknown("the login failed") from None
            raise
        raise _unknown("this way to log in is not served")


def caller_of(request: Request) -> Caller:
    """Who sends the request."""
    return cast("Caller", request.scope.get(CALLER, _ANYBODY))


def need(request: Request, right: Right) -> None:
    """Refuse unless the sender has the right."""
    kind = right.kind
    name = request.path_params[right.parameter] if right.parameter else CLUSTER_NAME
    caller_of(request).rights.need(right.operation, kind, name)


def need_topic(request: Request, operation: Operation, name: str) -> None:
    """Refuse unless the sender may do that to a topic."""
    caller_of(request).rights.need(operation, ResourceType.TOPIC, name)


def need_create(request: Request, name: str) -> None:
    """Refuse unless the sender may create that topic, or any."""
    rights = caller_of(request).rights
    if not rights.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
        rights.need(Operation.CREATE, ResourceType.TOPIC, name)


def may(request: Request, operation: Operation, kind: ResourceType, name: str) -> bool:
    """Whether the sender may do that."""
    return caller_of(request).rights.may(operation, kind, name)


def charge(request: Request, kind: str, amount: int) -> None:
    """Count what the request takes of a limited good; the next one waits for it."""
    meter: Meter | Any = request.scope.get(METER)
    if meter is not None:
        meter.charge(kind, amount)


def _name_and_password(value: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        raise _unknown("the login failed") from None
    user, colon, password = text.partition(":")
    if not (user and colon):
        raise _unknown("the login failed")
    return user, password


def _unknown(cause: str) -> Refusal:
    return Refusal(
        401,
        Problem(
            ErrorCode.AUTHENTICATION_FAILED.name,
            cause,
            remedy="send name and password, a bearer token or an API token",
        ),
        headers=_CHALLENGE,
    )
