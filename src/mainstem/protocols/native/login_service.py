"""The login of one native connection.

    connect (mechanism, response) ── (challenge ── respond)* ── connected

A listener that asks for no login takes whatever a client brings and looks at none of it; it knows
its clients as nobody in particular. A certificate that names a user is the login of those who
bring no other (mechanism empty, or EXTERNAL).
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
    """What the client is told, and who it is once that is known."""

    data: bytes
    identity: Identity | None


class Login:
    """Authenticates one native connection."""

    def __init__(self, security: Security, arrival: IncomingConnection) -> None:
        self._security = security
        self._arrival = arrival
        self._exchange: SaslExchange | None = None

    async def begin(self, mechanism: str, response: bytes) -> LoginStep:
        """The client has chosen how to show who it is.

        Raises:
            InvalidRequest: the mechanism is not served, or the login failed.
        """
        arrival = self._arrival
        if not arrival.asks:
            return LoginStep(b"", NOBODY)
        logins = self._security.logins
        if arrival.certificate is not None and mechanism in ("", EXTERNAL):
            return LoginStep(b"", logins.succeeded(arrival.certificate, arrival.address))
        if mechanism not in arrival.mechanisms or mechanism == EXTERNAL:
            cause = f"{mechanism[:40]!r} is not served" if mechanism else "a login is asked for"
            raise InvalidRequest(
                ErrorCode.UNSUPPORTED_MECHANISM if mechanism else ErrorCode.AUTHENTICATION_FAILED,
                cause,
                remedy=f"log in with one of {', '.join(arrival.mechanisms)}",
            )
        self._exchange = logins.begin(mechanism, arrival.address)
        return await self.go_on(response)

    async def go_on(self, response: bytes) -> LoginStep:
        """The client's next word.

        Raises:
            InvalidRequest: the login failed.
        """
        if self._exchange is None:
            raise InvalidRequest(ErrorCode.ILLEGAL_LOGIN_STATE, "no login is under way")
        data, identity = await self._exchange.respond(response)
        return LoginStep(data, identity)
