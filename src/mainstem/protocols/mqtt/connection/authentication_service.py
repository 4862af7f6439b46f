"""Authenticates MQTT clients by CONNECT: user name and password, bearer token, or certificate."""

from typing import Any, Final

from msgspec import Struct

from mainstem.broker.api.security import Rights
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.protocols.listener_policy import ListenerPolicy
from mainstem.security.principals import NOBODY, Identity
from mainstem.wire.mqtt.packets import Connect

BEARER: Final = "token"  # the user name with which the password is a bearer token


class MqttIdentity(Struct, frozen=True):
    """The identity and permissions of a client."""

    identity: Identity
    rights: Rights


class MqttAuthenticator(Struct, frozen=True):
    """Authenticates the clients of one listener.

    ``policy.mechanisms`` are the SASL mechanisms offered to clients of version 5.
    """

    policy: ListenerPolicy

    async def authenticate(self, connect: Connect, address: str, tls: Any) -> MqttIdentity:
        """Authenticate a client that uses no SASL mechanism.

        Raises:
            InvalidRequest: the login failed, or is missing.
        """
        identity = await self._identity(connect, address, tls)
        if identity is None and self.policy.login:
            raise InvalidRequest(ErrorCode.AUTHENTICATION_FAILED, "authentication is required")
        return self.identify(identity or NOBODY, address)

    def identify(self, identity: Identity, address: str) -> MqttIdentity:
        """The identity and permissions of an authenticated or anonymous client."""
        return MqttIdentity(identity, self.policy.rights(identity, address))

    async def _identity(self, connect: Connect, address: str, tls: Any) -> Identity | None:
        security = self.policy.security
        # Without required login and without users, a user name is ignored.
        if connect.username is not None and (self.policy.login or security.users.all()):
            try:
                password = (connect.password or b"").decode()
            except UnicodeDecodeError:
                password = ""
            if connect.username == BEARER:
                return await security.logins.bearer(password, address)
            return await security.logins.password(connect.username, password, address)
        identity = self.policy.certificate(tls)
        return None if identity is None else security.logins.succeeded(identity, address)
