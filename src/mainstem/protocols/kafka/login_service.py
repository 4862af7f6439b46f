"""The login of one Kafka connection: what it may ask for before, and how it shows who it is.

    SaslHandshake ── SaslAuthenticate ── (…) ── in ── until the login's time is over ── again

Before it is in, a connection may ask for versions and log in, in small frames; anything else ends
it. A login that has a time may be repeated on the same connection by the same principal.
"""

from typing import TYPE_CHECKING, Final

from mainstem.broker.api.security import Security
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import KIB
from mainstem.protocols.session import ProtocolViolation
from mainstem.security.principals import Identity

if TYPE_CHECKING:
    from mainstem.security.authentication.login_service import SaslExchange

SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
LOGIN_APIS: Final = frozenset({SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE})
FRAME_BYTES_MAX: Final = 512 * KIB


class Login:
    """Authenticates one Kafka connection."""

    def __init__(
        self,
        security: Security,
        clock: Clock,
        mechanisms: tuple[str, ...],
        *,
        address: str,
        reauthenticate_ms: int = 0,
    ) -> None:
        self._security = security
        self._wall_ms = clock.wall_ms
        self._address = address
        self._reauthenticate_ms = reauthenticate_ms
        self._exchange: SaslExchange | None = None
        self._mechanism = ""
        self._identity: Identity | None = None
        self._until_ms: int | None = None
        self.mechanisms = mechanisms
        self.has_failed = False

    @property
    def is_in(self) -> bool:
        """Whether the connection has shown who it is."""
        return self._identity is not None

    def admit(self, api_key: int, frame_bytes: int) -> None:
        """Let a request pass.

        Raises:
            ProtocolViolation: it may not be asked now.
        """
        if self._identity is not None:
            if self._until_ms is None or self._wall_ms() < self._until_ms:
                return
            if api_key not in LOGIN_APIS:
                raise ProtocolViolation("the login has expired and was not repeated")
        if api_key not in LOGIN_APIS or self.has_failed:
            raise ProtocolViolation(f"API {api_key} was asked before a login")
        if frame_bytes > FRAME_BYTES_MAX:
            raise ProtocolViolation(f"a frame of {frame_bytes} bytes before a login")

    def begin(self, mechanism: str) -> None:
        """The client has chosen a mechanism.

        Raises:
            InvalidRequest: it is not served, or another one than the first time.
        """
        if mechanism not in self.mechanisms:
            raise InvalidRequest(
                ErrorCode.UNSUPPORTED_MECHANISM, f"{mechanism[:40]!r} is not served here"
            )
        if self._identity is not None and mechanism != self._mechanism:
            raise InvalidRequest(
                ErrorCode.ILLEGAL_LOGIN_STATE, "a login is repeated with its own mechanism"
            )
        self._mechanism = mechanism
        self._exchange = self._security.logins.begin(mechanism, self._address)

    async def respond(self, data: bytes) -> tuple[bytes, Identity | None]:
        """Take a message of the mechanism; the answer, and who it is once that is shown.

        Raises:
            InvalidRequest: the login failed, or this is not the moment.
        """
        exchange = self._exchange
        if exchange is None:
            raise InvalidRequest(ErrorCode.ILLEGAL_LOGIN_STATE, "no mechanism was chosen")
        try:
            answer, identity = await exchange.respond(data)
        except InvalidRequest:
            self._exchange = None
            self.has_failed = True
            raise
        if identity is not None:
            self._exchange = None
            self._take(identity)
        return answer, identity

    @property
    def lifetime_ms(self) -> int:
        """How long the login holds from now on; 0: for ever."""
        return 0 if self._until_ms is None else max(1, self._until_ms - self._wall_ms())

    def _take(self, identity: Identity) -> None:
        known = self._identity
        if known is not None and known.principal != identity.principal:
            self.has_failed = True
            raise InvalidRequest(
                ErrorCode.AUTHENTICATION_FAILED, "a connection belongs to one principal for life"
            )
        ends = [identity.until_ms] if identity.until_ms is not None else []
        if self._reauthenticate_ms:
            ends.append(self._wall_ms() + self._reauthenticate_ms)
        self._identity = identity
        self._until_ms = min(ends, default=None)
