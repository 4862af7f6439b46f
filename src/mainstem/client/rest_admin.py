"""Administration over HTTP: users, roles and API tokens, which the Kafka protocol does not cover.

Blocking, one request at a time: it is for tools, not for the path of records. Guarantees: a secret
is sent unencrypted to this machine only; responses are bounded; a refusal is raised with its code,
cause, object and remedy.
"""

import base64
import http.client
import ssl
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from mainstem.client import errors
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import RETRIABLE, ErrorCode, InvalidRequest, MainstemError, Unavailable

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
DEFAULT_PORT: Final = 8080

T = TypeVar("T")


class RestLogin(Struct, frozen=True, kw_only=True):
    """Credentials: a name and password, or a token; neither if the node requires none."""

    user: str = ""
    password: str = ""
    token: str = ""
    tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"RestLogin(user={self.user!r})"


class UserInfo(Struct, frozen=True):
    """A user that can log in, or has roles."""

    name: str
    mechanisms: list[str]
    roles: list[str]


class RoleRuleInfo(Struct, frozen=True):
    """One rule of a role."""

    resource: str
    operation: str
    name: str = "*"
    pattern: str = "literal"
    permission: str = "allow"


class RoleInfo(Struct, frozen=True):
    """A role and who has it."""

    name: str
    built_in: bool
    rules: list[RoleRuleInfo]
    members: list[str]


class ApiTokenInfo(Struct, frozen=True):
    """An API token; ``token``, its text, is only known right after creation."""

    id: str
    owner: str
    name: str
    created_ms: int
    expires_ms: int | None
    roles: list[str] | None
    token: str = ""

    def __repr__(self) -> str:
        return f"ApiTokenInfo(id={self.id!r}, owner={self.owner!r})"


class _Problem(Struct, frozen=True):
    code: str
    cause: str = ""
    subject: str = ""
    remedy: str = ""


class RestAdmin:
    """Administers over HTTP; ``url`` is ``http://host:port`` or ``https://host:port``.

    Raises:
        InvalidRequest: the address is invalid, or a secret would be sent unencrypted.
    """

    def __init__(self, url: str, login: RestLogin, *, timeout_s: float = 30.0) -> None:
        self._secure, self._host, self._port = _address(url)
        self.url = f"{'https' if self._secure else 'http'}://{self._host}:{self._port}"
        if (login.user or login.token) and not self._secure and not _is_here(self._host):
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                "the secret would be sent unencrypted",
                subject=self.url,
                remedy="use an https:// address",
            )
        self._login = login
        self._timeout_s = timeout_s

    # Users

    def users(self) -> list[UserInfo]:
        """All users that can log in, or have roles."""
        return self.ask("GET", "/v1/users", list[UserInfo])

    def delete_user(self, name: str) -> None:
        """Delete a user's password, roles and tokens."""
        self.ask("DELETE", f"/v1/users/{_part(name)}", dict[str, object])

    # Roles

    def roles(self) -> list[RoleInfo]:
        """All roles, built in or created."""
        return self.ask("GET", "/v1/roles", list[RoleInfo])

    def set_role(self, name: str, rules: Sequence[RoleRuleInfo]) -> RoleInfo:
        """Create a role, or replace its rules."""
        return self.ask("PUT", f"/v1/roles/{_part(name)}", RoleInfo, {"rules": list(rules)})

    def delete_role(self, name: str) -> None:
        """Delete a role."""
        self.ask("DELETE", f"/v1/roles/{_part(name)}", dict[str, object])

    def grant(self, role: str, principal: str) -> None:
        """Grant a role to a principal."""
        self.ask("PUT", f"/v1/roles/{_part(role)}/members/{_part(principal)}", dict[str, object])

    def revoke(self, role: str, principal: str) -> None:
        """Revoke a role from a principal."""
        place = f"/v1/roles/{_part(role)}/members/{_part(principal)}"
        self.ask("DELETE", place, dict[str, object])

    # API tokens

    def tokens(self) -> list[ApiTokenInfo]:
        """The caller's tokens, or all tokens if the caller may describe the cluster."""
        return self.ask("GET", "/v1/tokens", list[ApiTokenInfo])

    def create_token(
        self,
        name: str,
        *,
        user: str | None = None,
        lifetime_ms: int | None = None,
        roles: Sequence[str] | None = None,
    ) -> ApiTokenInfo:
        """Create a token; returns it with its text."""
        wanted = {"name": name, "user": user, "lifetime_ms": lifetime_ms, "roles": roles}
        return self.ask("POST", "/v1/tokens", ApiTokenInfo, wanted)

    def revoke_token(self, token_id: str) -> None:
        """Revoke a token."""
        self.ask("DELETE", f"/v1/tokens/{_part(token_id)}", dict[str, object])

    def ask(self, method: str, place: str, kind: type[T], body: object = None) -> T:
        """Sends a request; returns the response as ``kind``, raises a refusal."""
        headers = {"accept": "application/json", **self._authorization()}
        sent = None
        if body is not None:
            sent = msgspec.json.encode(body)
            headers["content-type"] = "application/json"
        connection = self._connection()
        try:
            connection.request(method, place, sent, headers)
            answer = connection.getresponse()
            data = answer.read(ANSWER_BYTES_MAX + 1)
        except TimeoutError:
            raise Unavailable(
                ErrorCode.TIMED_OUT, f"no response in {self._timeout_s:g} s", subject=self.url
            ) from None
        except ssl.SSLError as error:
            raise errors.untrusted(self.url, error) from error
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise _unreachable(self.url, why) from error
        finally:
            connection.close()
        if len(data) > ANSWER_BYTES_MAX:
            raise _not_ours(self.url, "its response is too long")
        if answer.status >= 400:
            raise _refused(self.url, answer.status, data)
        try:
            return msgspec.json.decode(data, type=kind)
        except DECODE_ERRORS as error:
            raise _not_ours(self.url, str(error)) from error

    def _connection(self) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        context = self._login.tls or ssl.create_default_context()
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout_s, context=context
        )

    def _authorization(self) -> dict[str, str]:
        if self._login.token:
            return {"authorization": f"Bearer {self._login.token}"}
        if self._login.user:
            pair = f"{self._login.user}:{self._login.password}".encode()
            return {"authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return {}


def _address(url: str) -> tuple[bool, str, int]:
    text = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            "not the URL of an HTTP API",
            subject=url,
            remedy=f"write http://host:{DEFAULT_PORT} or https://host:{DEFAULT_PORT}",
        )
    return parts.scheme == "https", parts.hostname, DEFAULT_PORT if port is None else port


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _part(text: str) -> str:
    return quote(text, safe=":")


def _refused(url: str, status: int, data: bytes) -> MainstemError:
    try:
        problem = msgspec.json.decode(data, type=_Problem)
        code = ErrorCode[problem.code]
    except (*DECODE_ERRORS, KeyError):
        return _not_ours(url, f"it responded with status {status}")
    kind = Unavailable if code in RETRIABLE else InvalidRequest
    return kind(code, problem.cause, subject=problem.subject or url, remedy=problem.remedy)


def _unreachable(url: str, why: str) -> Unavailable:
    return Unavailable(
        ErrorCode.WRITER_UNAVAILABLE,
        f"cannot reach the node's HTTP API: {why}",
        subject=url,
        remedy="give its URL with --http, and check that the node runs",
    )


def _not_ours(url: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.INVALID_REQUEST,
        f"not the HTTP API of a Mainstem node: {why}",
        subject=url,
        remedy="give its URL with --http",
    )
