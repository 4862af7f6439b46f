"""The login of one native connection.

    connect (mechanism, response) ── (challenge ── respond)* ── connected

A listener that requires no login ignores mechanism and response; its clients are the anonymous
principal. A certificate that names a user is the login of a client that sends no other (mechanism
empty, or EXTERNAL).
"""

from typing import TYPE_CHECKING

from msgspec import Struct

from mainstem.broker.api.security import Security
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.protocols.listener_policy import EXTERNAL, IncomingConnection
from mainstem.security.principals import NOBODY, Identity

if TYPE_CHECKING:
    from mainstem.security.authentication.login_service import SaslExchange


class LoginStep(Struct, frozen=True):
    """The server's SASL data, and the identity once the login has succeeded."""

    data: bytes
    identity: Identity | None


class Login:
    """Authenticates one native connection."""

    def __init__(self, security: Security, incoming: IncomingConnection) -> None:
        self._security = security
        self._incoming = incoming
        self._exchange: SaslExchange | None = None

    async def begin(self, mechanism: str, response: bytes) -> LoginStep:
        """Start a login with a mechanism and its initial response.

        Raises:
            InvalidRequest: the mechanism is not supported, or the login failed.
        """
        incoming = self._incoming
        if not incoming.asks:
            return LoginStep(b"", NOBODY)
        logins = self._security.logins
        if incoming.certificate is not None and mechanism in ("", EXTERNAL):
            return LoginStep(b"", logins.succeeded(incoming.certificate, incoming.address))
        if mechanism not in incoming.mechanisms or mechanism == EXTERNAL:
            cause = f"{mechanism[:40]!r} is not supported" if mechanism else "a login is required"
            raise InvalidRequest(
                ErrorCode.UNSUPPORTED_MECHANISM if mechanism else ErrorCode.AUTHENTICATION_FAILED,
                cause,
                remedy=f"log in with one of {', '.join(incoming.mechanisms)}",
            )
        self._exchange = logins.begin(mechanism, incoming.address)
        return await self.go_on(response)

    async def go_on(self, response: bytes) -> LoginStep:
        """Continue a login with the client's next response.

        Raises:
            InvalidRequest: the login failed.
        """
        if self._exchange is None:
            raise InvalidRequest(ErrorCode.ILLEGAL_LOGIN_STATE, "no login is in progress")
        data, identity = await self._exchange.respond(response)
        return LoginStep(data, identity)
