"""Who sends a request, and whether he may.

    Authorization: Basic …       name and password
    Authorization: Bearer …      a JSON web token, or an API token
    a certificate                where the listener speaks TLS and asks for one

Whoever sends the header is who it says, or nobody; a certificate counts where there is none.
Without a login where one is asked for the answer is 401; what is not allowed is 403. On a listener
that asks for none, everybody may do what access rules allow nobody in particular, and everything
where no rules count.
"""

import base64
import binascii
import hashlib
import math
from ipaddress import ip_address
from typing import Any, Final, cast
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from mainstem.broker.api.security import Caller, Security
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.protocols.rest.errors import HttpError, Problem
from mainstem.security.authentication.certificate_names import NameRules
from mainstem.security.authentication.tls_transport import certificate_identity
from mainstem.security.authorisation.acl import CLUSTER_NAME, Operation, ResourceType
from mainstem.security.authorisation.authoriser import AllRights
from mainstem.security.principals import NOBODY, Identity
from mainstem.security.quotas import FETCH_BYTES, PRODUCE_BYTES, REQUESTS, QuotaMeter

CALLER: Final = "mainstem.caller"
METER: Final = "mainstem.meter"
LINE: Final = "mainstem.line"
CLIENT_ID: Final = "http"
OPEN_TO_ALL: Final = frozenset({"/health", "/health/live", "/health/ready"})

_CHALLENGE = {"www-authenticate": 'Basic realm="mainstem", charset="UTF-8", Bearer'}
_PUBLIC_CALLER = Caller(NOBODY, "", AllRights())


class Right(Struct, frozen=True):
    """What an operation takes; ``parameter`` of the path names the resource."""

    operation: Operation
    kind: ResourceType = ResourceType.CLUSTER
    parameter: str = ""


class Line(Struct):
    """What is known about one connection: its TLS object, and the login last written down."""

    tls: Any = None
    noted: bytes = b""

    def is_changed(self, shown: str) -> bool:
        """Whether a login with what was shown is not in the audit yet for this connection."""
        return self.noted != _mark(shown)

    def note(self, shown: str) -> None:
        """Remember that this login is in the audit."""
        self.noted = _mark(shown)


class Access(Struct, frozen=True, kw_only=True):
    """The rules of one HTTP listener.

    ``names`` turns client certificates into users; ``trusted``: without a login everything is
    allowed, since the listener belongs to the operator.
    """

    security: Security
    login: bool = False
    trusted: bool = False
    names: NameRules | None = None
    connections_per_minute: int | None = None

    def refuses(self, address: str) -> bool:
        """Whether an address connects too often."""
        return self.security.quotas.connection_refused(address, self.connections_per_minute)

    async def receive(self, scope: Scope) -> None:
        """Find out who sends a request and whether he may send more; kept in the scope."""
        headers = Headers(scope=scope)
        address = scope["client"][0] if scope.get("client") else ""
        identity = await self._identity(headers, _line(scope), address)
        if identity is None and self.login and scope["path"] not in OPEN_TO_ALL:
            raise _unknown("a login is asked for here")
        trusted = self.trusted and identity is None
        if trusted:
            _check_host(headers)
        known = identity or NOBODY
        rights = self.security.rights(known, address, trusted=trusted)
        scope[CALLER] = Caller(known, address, rights)
        scope[METER] = self._metered(known, address)

    async def _identity(self, headers: Headers, line: Line, address: str) -> Identity | None:
        shown = headers.getlist("authorization")
        if not shown:
            return self._by_certificate(line, address)
        # Of two, something in front of us may have looked at the other one.
        given = shown[0] if len(shown) == 1 else ""
        scheme, _, value = given.partition(" ")
        changed = line.is_changed(given)
        logins = self.security.logins
        try:
            if scheme.lower() == "basic":
                user, password = _name_and_password(value.strip())
                identity = await logins.password(user, password, address, noted=not changed)
            elif scheme.lower() == "bearer":
                identity = await logins.bearer(value.strip(), address, noted=not changed)
            else:
                raise _unknown("this way to log in is not served")
        except MainstemError as error:
            if error.code is ErrorCode.AUTHENTICATION_FAILED:
                raise _unknown("the login failed") from None
            raise
        line.note(given)
        return identity

    def _by_certificate(self, line: Line, address: str) -> Identity | None:
        if self.names is None:
            return None
        identity = certificate_identity(line.tls, self.names)
        if identity is not None and line.is_changed(str(identity.principal)):
            line.note(str(identity.principal))
            self.security.logins.succeeded(identity, address)
        return identity

    def _metered(self, known: Identity, address: str) -> QuotaMeter:
        meter = self.security.quotas.meter(known.principal.name, CLIENT_ID, address)
        _refuse_debt(meter, REQUESTS, PRODUCE_BYTES, FETCH_BYTES)
        meter.charge(REQUESTS, 1)
        return meter


def allow_public(scope: Scope) -> None:
    """Where nobody is asked anything, everybody may do everything."""
    scope[CALLER] = _PUBLIC_CALLER


def caller_of(request: Request) -> Caller:
    """Who sends the request."""
    assert CALLER in request.scope, "nobody gets to a route unseen"
    return cast("Caller", request.scope[CALLER])


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
    meter: QuotaMeter | Any = request.scope.get(METER)
    if meter is not None:
        meter.charge(kind, amount)


def refuse_debt(request: Request, kind: str) -> None:
    """Refuse whoever has taken more of a limited good than he may."""
    meter: QuotaMeter | Any = request.scope.get(METER)
    if meter is not None:
        _refuse_debt(meter, kind)


def _refuse_debt(meter: QuotaMeter, *kinds: str) -> None:
    owed_ms = max(meter.charge(kind, 0) for kind in kinds)
    if owed_ms:
        raise HttpError(
            429,
            Problem(
                ErrorCode.THROTTLED.name,
                "more than the quota allows",
                remedy="wait for the time that Retry-After names",
            ),
            headers={"retry-after": str(math.ceil(owed_ms / 1000))},
        )


def _line(scope: Scope) -> Line:
    found = scope.get("state", {}).get(LINE)
    return found if isinstance(found, Line) else Line()


def _mark(shown: str) -> bytes:
    return hashlib.sha256(shown.encode(errors="surrogatepass")).digest()


def _name_and_password(value: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        raise _unknown("the login failed") from None
    user, colon, password = text.partition(":")
    if not (user and colon):
        raise _unknown("the login failed")
    return user, password


def _check_host(headers: Headers) -> None:
    """Refuse a name that is not this machine's, where loopback stands for a login.

    A page whose name its owner lets point to 127.0.0.1 would otherwise be of the same origin as
    the node (DNS rebinding). No page gets a number or ``localhost`` that way.
    """
    try:
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:
        host = "?"
    if host in ("", "localhost") or host.endswith(".localhost"):
        return
    try:
        ip_address(host)
    except ValueError:
        raise HttpError(
            403,
            Problem(
                "FOREIGN_HOST",
                "nobody logs in here, so only this machine's own addresses are served",
                subject=host[:200],
                remedy="ask localhost or 127.0.0.1, or log in",
            ),
        ) from None


def _unknown(cause: str) -> HttpError:
    return HttpError(
        401,
        Problem(
            ErrorCode.AUTHENTICATION_FAILED.name,
            cause,
            remedy="send name and password, a bearer token or an API token",
        ),
        headers=_CHALLENGE,
    )
