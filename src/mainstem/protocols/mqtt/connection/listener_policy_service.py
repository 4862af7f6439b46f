"""The login policy of an MQTT listener, and the identities of its clients."""

from typing import Any, Final

from msgspec import Struct

from mainstem.broker.api.security import Rights, Security
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.security.authentication.certificate_names import NameRules
from mainstem.security.authentication.tls_transport import certificate_identity
from mainstem.security.principals import NOBODY, Identity
from mainstem.wire.mqtt.packets import Connect

BEARER: Final = "token"  # the user name with which the password is a bearer token


class MqttIdentity(Struct, frozen=True):
    """The identity and permissions of a client."""

    identity: Identity
    rights: Rights


class MqttListenerPolicy(Struct, frozen=True, kw_only=True):
    """The login policy of one listener.

    ``login``: clients have to authenticate. ``names`` maps client certificates to users;
    ``trusted`` grants all permissions to clients that do not authenticate: the listener belongs to
    the operator. ``mechanisms``: the SASL mechanisms offered to clients of version 5.
    """

    security: Security
    login: bool = False
    trusted: bool = False
    names: NameRules | None = None
    mechanisms: tuple[str, ...] = ()
    connections_per_minute: int | None = None

    def refuses(self, address: str) -> bool:
        """Whether connections from an address exceed their rate limit."""
        return self.security.quotas.connection_refused(address, self.connections_per_minute)

    async def receive(self, connect: Connect, address: str, tls: Any) -> MqttIdentity:
        """Authenticate a client.

        Raises:
            InvalidRequest: the login failed, or is missing.
        """
        identity = await self._identity(connect, address, tls)
        if identity is None and self.login:
            raise InvalidRequest(ErrorCode.AUTHENTICATION_FAILED, "authentication is required")
        return self.identify(identity, address)

    def identify(self, identity: Identity | None, address: str) -> MqttIdentity:
        """The identity and permissions of an authenticated or anonymous client."""
        known = identity or NOBODY
        trusted = self.trusted and identity is None
        return MqttIdentity(known, self.security.rights(known, address, trusted=trusted))

    async def _identity(self, connect: Connect, address: str, tls: Any) -> Identity | None:
        logins = self.security.logins
        # Without required login and without users, a user name is ignored.
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
