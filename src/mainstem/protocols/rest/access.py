"""Authentication and authorisation of HTTP requests.

    Authorization: Basic …       name and password
    Authorization: Bearer …      a JSON web token, or an API token
    a certificate                where the listener uses TLS and requests one

The header takes precedence over the certificate; an invalid header is an error, whatever the
certificate is. A missing login is answered with 401 where one is required, a missing right with
403. On a listener without login, clients have the rights of the anonymous principal, or all rights
where no access rules apply.
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

from mainstem.broker.api.security import Caller
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.protocols.listener_policy import ListenerPolicy
from mainstem.protocols.rest.errors import HttpError, Problem
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
    """The right that an operation needs; path parameter ``parameter`` names the resource."""

    operation: Operation
    kind: ResourceType = ResourceType.CLUSTER
    parameter: str = ""


class Line(Struct):
    """State of one connection: its TLS object, and the login last recorded in the audit log."""

    tls: Any = None
    noted: bytes = b""

    def is_changed(self, shown: str) -> bool:
        """Whether the login with these credentials is not yet in the audit log."""
        return self.noted != _mark(shown)

    def note(self, shown: str) -> None:
        """Remember that this login is in the audit log."""
        self.noted = _mark(shown)


class HttpAuthenticator(Struct, frozen=True):
    """Authenticates the requests of one HTTP listener."""

    policy: ListenerPolicy

    async def authenticate(self, scope: Scope) -> None:
        """Authenticate the caller, check its quotas, and store the result in the scope."""
        headers = Headers(scope=scope)
        address = scope["client"][0] if scope.get("client") else ""
        identity = await self._identity(headers, _line(scope), address)
        if identity is None and self.policy.login and scope["path"] not in OPEN_TO_ALL:
            raise _unknown("a login is required")
        known = identity or NOBODY
        if self.policy.trusts(known):
            _check_host(headers)
        rights = self.policy.rights(known, address)
        scope[CALLER] = Caller(known, address, rights)
        scope[METER] = self._metered(known, address)

    async def _identity(self, headers: Headers, line: Line, address: str) -> Identity | None:
        shown = headers.getlist("authorization")
        if not shown:
            return self._by_certificate(line, address)
        # With two headers, a proxy may have checked the other one.
        given = shown[0] if len(shown) == 1 else ""
        scheme, _, value = given.partition(" ")
        changed = line.is_changed(given)
        logins = self.policy.security.logins
        try:
            if scheme.lower() == "basic":
                user, password = _name_and_password(value.strip())
                identity = await logins.password(user, password, address, noted=not changed)
            elif scheme.lower() == "bearer":
                identity = await logins.bearer(value.strip(), address, noted=not changed)
            else:
                raise _unknown("this authentication scheme is not supported")
        except MainstemError as error:
            if error.code is ErrorCode.AUTHENTICATION_FAILED:
                raise _unknown("the login failed") from None
            raise
        line.note(given)
        return identity

    def _by_certificate(self, line: Line, address: str) -> Identity | None:
        identity = self.policy.certificate(line.tls)
        if identity is not None and line.is_changed(str(identity.principal)):
            line.note(str(identity.principal))
            self.policy.security.logins.succeeded(identity, address)
        return identity

    def _metered(self, known: Identity, address: str) -> QuotaMeter:
        meter = self.policy.security.quotas.meter(known.principal.name, CLIENT_ID, address)
        _refuse_debt(meter, REQUESTS, PRODUCE_BYTES, FETCH_BYTES)
        meter.charge(REQUESTS, 1)
        return meter


def allow_public(scope: Scope) -> None:
    """Give every caller all rights, where no access control is configured."""
    scope[CALLER] = _PUBLIC_CALLER


def caller_of(request: Request) -> Caller:
    """The authenticated caller of a request."""
    assert CALLER in request.scope, "every request is authenticated before it is routed"
    return cast("Caller", request.scope[CALLER])


def need(request: Request, right: Right) -> None:
    """Refuse unless the caller has the right."""
    kind = right.kind
    name = request.path_params[right.parameter] if right.parameter else CLUSTER_NAME
    caller_of(request).rights.need(right.operation, kind, name)


def need_topic(request: Request, operation: Operation, name: str) -> None:
    """Refuse unless the caller may do that to a topic."""
    caller_of(request).rights.need(operation, ResourceType.TOPIC, name)


def need_create(request: Request, name: str) -> None:
    """Refuse unless the caller may create that topic, or any."""
    rights = caller_of(request).rights
    if not rights.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
        rights.need(Operation.CREATE, ResourceType.TOPIC, name)


def may(request: Request, operation: Operation, kind: ResourceType, name: str) -> bool:
    """Whether the caller may do that."""
    return caller_of(request).rights.may(operation, kind, name)


def charge(request: Request, kind: str, amount: int) -> None:
    """Charge the request to a quota; a later request is refused if it is exceeded."""
    meter: QuotaMeter | Any = request.scope.get(METER)
    if meter is not None:
        meter.charge(kind, amount)


def refuse_debt(request: Request, kind: str) -> None:
    """Refuse a caller that has exceeded a quota."""
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
                "the quota is exceeded",
                remedy="wait for the time in Retry-After",
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
    """Refuse a Host header other than an IP address or localhost, where no login is required.

    A web page whose host name resolves to 127.0.0.1 would otherwise have the same origin as the
    node (DNS rebinding). The origin of such a page is never an IP address or ``localhost``.
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
                "without a login only localhost and IP addresses are accepted as host",
                subject=host[:200],
                remedy="use localhost or 127.0.0.1, or log in",
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
