"""The login of one native connection.

    connect (mechanism, response) ── (challenge ── respond)* ── connected

A listener that requires no login ignores mechanism and response; its clients are the anonymous
principal. A certificate that names a user is the login of a client that sends no other (mechanism
empty, or EXTERNAL).
"""

from mainstem.broker.api.security import Security
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.protocols.listener_policy import EXTERNAL, IncomingConnection
from mainstem.protocols.sasl_login_service import LoginStep, SaslLogin
from mainstem.security.principals import NOBODY


class NativeLogin:
    """Authenticates one native connection."""

    def __init__(self, security: Security, incoming: IncomingConnection) -> None:
        self._incoming = incoming
        self._sasl = SaslLogin(
            security, incoming.mechanisms, incoming.address, incoming.certificate
        )

    async def begin(self, mechanism: str, response: bytes) -> LoginStep:
        """Start a login with a mechanism and its initial response.

        Raises:
            InvalidRequest: the mechanism is not supported, or the login failed.
        """
        incoming = self._incoming
        if not incoming.needs_login:
            return LoginStep(b"", NOBODY)
        if incoming.certificate is not None and mechanism in ("", EXTERNAL):
            return self._sasl.by_certificate()
        if not mechanism:
            raise InvalidRequest(
                ErrorCode.AUTHENTICATION_FAILED,
                "a login is required",
                remedy=f"log in with one of {', '.join(incoming.mechanisms)}",
            )
        self._sasl.begin(mechanism)
        return await self.respond(response)

    async def respond(self, response: bytes) -> LoginStep:
        """Continue a login with the client's next response.

        Raises:
            InvalidRequest: the login failed.
        """
        return await self._sasl.respond(response)
