"""The login of one AMQP connection: SASL mechanisms, AMQPLAIN and EXTERNAL.

    connection.start-ok ── (connection.secure ── secure-ok)* ── logged in

A listener without login ignores the name and password that clients send: AMQP clients always send
some. Such clients are anonymous.
"""

from typing import TYPE_CHECKING, Final

from msgspec import Struct

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
from mainstem.security.principals import NOBODY, Identity
from mainstem.wire.amqp.fields import Malformed, read_table

if TYPE_CHECKING:
    from mainstem.security.authentication.login_service import SaslExchange

DETAILS: Final = "For details see the broker logfile."


class Challenge(Struct, frozen=True):
    """A further challenge of the SASL exchange."""

    data: bytes


class Login:
    """Authenticates one AMQP connection."""

    def __init__(self, security: Security, arrival: IncomingConnection) -> None:
        self._security = security
        self._arrival = arrival
        self._exchange: SaslExchange | None = None
        self.mechanism = ""
        self.user = ""

    async def begin(self, mechanism: str, response: bytes) -> Identity | Challenge:
        """Start a login with the mechanism that the client chose.

        Raises:
            ConnectionRefusal: the mechanism is not offered, or the login failed.
        """
        arrival = self._arrival
        if mechanism not in arrival.mechanisms:
            raise ConnectionRefusal(
                COMMAND_INVALID, f"authentication mechanism '{mechanism[:40]}' is not supported"
            )
        self.mechanism = mechanism
        if not arrival.asks:
            self.user = _claimed(mechanism, response)
            return NOBODY
        if mechanism == EXTERNAL:
            assert arrival.certificate is not None, "otherwise it is not offered"
            self._security.logins.succeeded(arrival.certificate, arrival.address)
            return arrival.certificate
        assert mechanism != ANONYMOUS, "offered only without login"
        if mechanism == AMQPLAIN:
            response = _as_plain(response)
        served = PLAIN if mechanism == AMQPLAIN else mechanism
        self._exchange = self._security.logins.begin(served, arrival.address)
        return await self.go_on(response)

    async def go_on(self, response: bytes) -> Identity | Challenge:
        """Continue the login with the client's next response.

        Raises:
            ConnectionRefusal: the login failed.
        """
        exchange = self._exchange
        if exchange is None:
            raise ConnectionRefusal(COMMAND_INVALID, "no login is in progress")
        try:
            answer, identity = await exchange.respond(response)
        except MainstemError as error:
            raise self._failed() from error
        if identity is None:
            return Challenge(answer)
        self._exchange = None
        return identity

    async def renew(self, identity: Identity, secret: bytes) -> Identity:
        """Log in again as the same user with a new secret.

        Raises:
            ConnectionRefusal: the secret is not valid.
        """
        if not self._arrival.asks:
            return identity
        logins, address = self._security.logins, self._arrival.address
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
