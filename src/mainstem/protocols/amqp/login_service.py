"""The login of one AMQP connection: SASL mechanisms, AMQPLAIN and EXTERNAL.

    connection.start-ok ── (connection.secure ── secure-ok)* ── logged in

A listener without login ignores the name and password that clients send: AMQP clients always send
some. Such clients are anonymous.
"""

from typing import Final

from mainstem.broker.api.security import Security
from mainstem.model.errors import MainstemError
from mainstem.protocols.amqp.errors import (
    ACCESS_REFUSED,
    COMMAND_INVALID,
    NOT_ALLOWED,
    ConnectionRefusal,
)
from mainstem.protocols.amqp.mechanisms import AMQPLAIN, ANONYMOUS, PLAIN
from mainstem.protocols.listener_policy import EXTERNAL, IncomingConnection
from mainstem.protocols.sasl_login_service import LoginStep, SaslLogin
from mainstem.security.principals import NOBODY, Identity
from mainstem.wire.amqp.fields import Malformed, read_table

DETAILS: Final = "For details see the broker logfile."


class AmqpLogin:
    """Authenticates one AMQP connection."""

    def __init__(self, security: Security, incoming: IncomingConnection) -> None:
        self._security = security
        self._incoming = incoming
        self._sasl = SaslLogin(
            security, incoming.mechanisms, incoming.address, incoming.certificate
        )
        self.mechanism = ""
        self.user = ""

    async def begin(self, mechanism: str, response: bytes) -> LoginStep:
        """Start a login with the mechanism that the client chose.

        Raises:
            ConnectionRefusal: the mechanism is not offered, or the login failed.
        """
        if mechanism not in self._incoming.mechanisms:
            raise ConnectionRefusal(
                COMMAND_INVALID, f"authentication mechanism '{mechanism[:40]}' is not supported"
            )
        self.mechanism = mechanism
        if not self._incoming.needs_login:
            self.user = _claimed(mechanism, response)
            return LoginStep(b"", NOBODY)
        if mechanism == EXTERNAL:
            return self._sasl.by_certificate()
        assert mechanism != ANONYMOUS, "offered only without login"
        if mechanism == AMQPLAIN:
            mechanism, response = PLAIN, _as_plain(response)
        self._sasl.begin(mechanism)
        return await self.respond(response)

    async def respond(self, response: bytes) -> LoginStep:
        """Continue the login with the client's next response.

        Raises:
            ConnectionRefusal: the login failed.
        """
        try:
            return await self._sasl.respond(response)
        except MainstemError as error:
            raise self._failed() from error

    async def renew(self, identity: Identity, secret: bytes) -> Identity:
        """Log in again as the same user with a new secret.

        Raises:
            ConnectionRefusal: the secret is not valid.
        """
        if not self._incoming.needs_login:
            return identity
        logins, address = self._security.logins, self._incoming.address
        try:
            if identity.by_token or self.mechanism == "OAUTHBEARER":
                renewed = await logins.bearer(secret.decode(), address)
            else:
                renewed = await logins.password(identity.principal.name, secret.decode(), address)
        except (MainstemError, UnicodeDecodeError):
            renewed = None
        if renewed is None or renewed.principal != identity.principal:
            raise ConnectionRefusal(NOT_ALLOWED, "New secret was refused")
        return renewed

    def _failed(self) -> ConnectionRefusal:
        return ConnectionRefusal(
            ACCESS_REFUSED,
            f"Login was refused using authentication mechanism {self.mechanism}. {DETAILS}",
        )


def _as_plain(response: bytes) -> bytes:
    """Convert an AMQPLAIN response (a table without its length) to SASL PLAIN."""
    try:
        table, _ = read_table(len(response).to_bytes(4, "big") + response, 0, 4 + len(response))
    except Malformed:
        return b""
    user, password = (_bytes(table.get(name)) for name in ("LOGIN", "PASSWORD"))
    if b"\0" in user or b"\0" in password:
        return b""
    return b"\0" + user + b"\0" + password


def _bytes(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else b""


def _claimed(mechanism: str, response: bytes) -> str:
    """The user name that a client sent, which is not checked without login."""
    if mechanism == AMQPLAIN:
        response = _as_plain(response)
    if mechanism not in (PLAIN, AMQPLAIN):
        return ""
    parts = response.split(b"\0")
    return parts[1].decode(errors="replace") if len(parts) == 3 else ""
