"""The SASL login of one connection, message by message; shared by all protocols.

    begin (mechanism) ── respond (data) ─▶ challenge ── respond … ─▶ identity

Mechanisms, lock-out and audit are those of ``security.authentication``. A protocol adds how it
carries the messages, and its own errors.
"""

from typing import TYPE_CHECKING

from msgspec import Struct

from mainstem.broker.api.security import Security
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.protocols.listener_policy import EXTERNAL
from mainstem.security.principals import Identity

if TYPE_CHECKING:
    from mainstem.security.authentication.login_service import SaslExchange


class LoginStep(Struct, frozen=True):
    """The server's SASL data, and the identity once the login has succeeded."""

    data: bytes
    identity: Identity | None


class SaslLogin:
    """Drives the SASL exchange of one connection.

    Args:
        security: checks the credentials.
        mechanisms: what is offered to this client.
        address: where the client connects from.
        certificate: the user that its certificate names: the login by ``EXTERNAL``.
    """

    def __init__(
        self,
        security: Security,
        mechanisms: tuple[str, ...],
        address: str,
        certificate: Identity | None = None,
    ) -> None:
        self._security = security
        self._address = address
        self._certificate = certificate
        self._exchange: SaslExchange | None = None
        self.mechanisms = mechanisms
        self.mechanism = ""  # the one that was chosen last

    @property
    def is_in_progress(self) -> bool:
        """Whether an exchange has begun and is not over."""
        return self._exchange is not None

    def by_certificate(self) -> LoginStep:
        """Log in as the user that the certificate names."""
        assert self._certificate is not None, "EXTERNAL is offered with a certificate only"
        self.mechanism = EXTERNAL
        return LoginStep(b"", self._security.logins.succeeded(self._certificate, self._address))

    def begin(self, mechanism: str) -> None:
        """Start an exchange, in place of an earlier one.

        Raises:
            InvalidRequest: the mechanism is not offered.
        """
        if mechanism not in self.mechanisms:
            raise InvalidRequest(
                ErrorCode.UNSUPPORTED_MECHANISM,
                f"{mechanism[:40]!r} is not supported",
                remedy=f"log in with one of {', '.join(self.mechanisms)}",
            )
        self._exchange = self._security.logins.begin(mechanism, self._address)
        self.mechanism = mechanism

    async def respond(self, data: bytes) -> LoginStep:
        """Process a message of the client.

        Raises:
            InvalidRequest: the login failed and is over, or no mechanism was chosen.
            Unavailable: the credentials cannot be checked now; the message may be repeated.
        """
        exchange = self._exchange
        if exchange is None:
            raise InvalidRequest(ErrorCode.ILLEGAL_LOGIN_STATE, "no mechanism was chosen")
        try:
            answer, identity = await exchange.respond(data)
        except InvalidRequest:
            self._exchange = None
            raise
        if identity is not None:
            self._exchange = None
        return LoginStep(answer, identity)
