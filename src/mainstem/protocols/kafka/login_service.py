"""The login of one Kafka connection, and the requests that are allowed before it.

    SaslHandshake ── SaslAuthenticate ── (…) ── logged in ── expiry ── again

Before login a connection may send only ApiVersions and SASL requests, in small frames; any other
request closes it. A login that expires can be repeated on the connection by the same principal.
"""

from typing import Final

from mainstem.broker.api.security import Security
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import KIB
from mainstem.protocols.sasl_login_service import LoginStep, SaslLogin
from mainstem.protocols.session import ProtocolViolation
from mainstem.security.principals import Identity

SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
LOGIN_APIS: Final = frozenset({SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE})
FRAME_BYTES_MAX: Final = 512 * KIB


class KafkaLogin:
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
        self._wall_ms = clock.wall_ms
        self._reauthenticate_ms = reauthenticate_ms
        self._sasl = SaslLogin(security, mechanisms, address)
        self._identity: Identity | None = None
        self._until_ms: int | None = None
        self.mechanisms = mechanisms
        self.has_failed = False

    @property
    def is_logged_in(self) -> bool:
        """Whether the connection is authenticated."""
        return self._identity is not None

    def admit(self, api_key: int, frame_bytes: int) -> None:
        """Check that a request is allowed in this state.

        Raises:
            ProtocolViolation: it is not allowed.
        """
        if self._identity is not None:
            if self._until_ms is None or self._wall_ms() < self._until_ms:
                return
            if api_key not in LOGIN_APIS:
                raise ProtocolViolation("the login has expired and was not repeated")
        if api_key not in LOGIN_APIS or self.has_failed:
            raise ProtocolViolation(f"API {api_key} was requested before a login")
        if frame_bytes > FRAME_BYTES_MAX:
            raise ProtocolViolation(f"a frame of {frame_bytes} bytes before a login")

    def begin(self, mechanism: str) -> None:
        """Start a login with a mechanism.

        Raises:
            InvalidRequest: it is not supported, or differs from that of the first login.
        """
        is_other = mechanism in self.mechanisms and mechanism != self._sasl.mechanism
        if self._identity is not None and is_other:
            raise InvalidRequest(
                ErrorCode.ILLEGAL_LOGIN_STATE, "a repeated login must use the same mechanism"
            )
        self._sasl.begin(mechanism)

    async def respond(self, data: bytes) -> LoginStep:
        """Process a SASL message.

        Raises:
            InvalidRequest: the login failed, or no mechanism was chosen.
        """
        # A message without a mechanism is refused, but is not a failed login.
        is_attempt = self._sasl.is_in_progress
        try:
            step = await self._sasl.respond(data)
        except InvalidRequest:
            self.has_failed |= is_attempt
            raise
        if step.identity is not None:
            self._take(step.identity)
        return step

    @property
    def lifetime_ms(self) -> int:
        """The remaining lifetime of the login; 0: it does not expire."""
        return 0 if self._until_ms is None else max(1, self._until_ms - self._wall_ms())

    def _take(self, identity: Identity) -> None:
        known = self._identity
        if known is not None and known.principal != identity.principal:
            self.has_failed = True
            raise InvalidRequest(
                ErrorCode.AUTHENTICATION_FAILED, "the principal of a connection cannot change"
            )
        ends = [identity.until_ms] if identity.until_ms is not None else []
        if self._reauthenticate_ms:
            ends.append(self._wall_ms() + self._reauthenticate_ms)
        self._identity = identity
        self._until_ms = min(ends, default=None)
