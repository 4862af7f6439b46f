"""What an MQTT listener asks of its clients, and who they are when they come in."""

from typing import Any, Final

from msgspec import Struct

from mainstem.broker.api.security import Rights, Security
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.security.authentication.certificate_names import NameRules
from mainstem.security.authentication.tls_transport import certificate_identity
from mainstem.security.principals import NOBODY, Identity
from mainstem.wire.mqtt.packets import Connect

BEARER: Final = "token"  # the name under which a password is a bearer token


class MqttIdentity(Struct, frozen=True):
    """Who a client is, and what it may do."""

    identity: Identity
    rights: Rights


class MqttListenerPolicy(Struct, frozen=True, kw_only=True):
    """One listener's rules.

    ``login``: nobody comes in without showing who he is. ``names`` turns client certificates into
    users; ``trusted`` lets whoever shows nothing do everything: the listener belongs to the
    operator. ``mechanisms``: what clients of version 5 may log in with, step by step.
    """

    security: Security
    login: bool = False
    trusted: bool = False
    names: NameRules | None = None
    mechanisms: tuple[str, ...] = ()
    connections_per_minute: int | None = None

    def refuses(self, address: str) -> bool:
        """Whether an address connects too often."""
        return self.security.quotas.connection_refused(address, self.connections_per_minute)

    async def receive(self, connect: Connect, address: str, tls: Any) -> MqttIdentity:
        """Find out who a client is.

        Raises:
            InvalidRequest: the login failed, or there was none.
        """
        identity = await self._identity(connect, address, tls)
        if identity is None and self.login:
            raise InvalidRequest(ErrorCode.AUTHENTICATION_FAILED, "a login is asked for here")
        return self.identify(identity, address)

    def identify(self, identity: Identity | None, address: str) -> MqttIdentity:
        """Somebody who has shown who he is, or nobody in particular."""
        known = identity or NOBODY
        trusted = self.trusted and identity is None
        return MqttIdentity(known, self.security.rights(known, address, trusted=trusted))

    async def _identity(self, connect: Connect, address: str, tls: Any) -> Identity | None:
        logins = self.security.logins
        # Where nobody has to log in and nobody could, a name is a mere decoration.
        if connect.username is not None and (self.login or self.security.users.all()):
            try:
                password = (connect.password or b"").decode()
            except UnicodeDecodeError:
                password = ""
            if connect.username == BEARER:
                return await logins.bearer(password, address)
            return await logins.password(connect.username, password, address)
        if self.names is None:
            return None
        identity = certificate_identity(tls, self.names)
        return None if identity is None else logins.succeeded(identity, address)
