"""The connection setup of a client: login, session, and the answer to CONNECT."""

import asyncio
import secrets
from typing import Any, Final

from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.limits import CLIENT_ID_LENGTH_MAX
from mainstem.protocols.mqtt.connection.authentication_service import (
    MqttAuthenticator,
    MqttIdentity,
)
from mainstem.protocols.mqtt.connection.outgoing import MqttOutgoing
from mainstem.protocols.mqtt.connection.permissions import MqttPermissions
from mainstem.protocols.mqtt.hub_service import MqttHub
from mainstem.protocols.mqtt.sessions.client_session import ClientSession
from mainstem.protocols.mqtt.settings import NEVER_S
from mainstem.protocols.sasl_login_service import SaslLogin
from mainstem.wire.mqtt.kinds import V5
from mainstem.wire.mqtt.packets import Auth, Connack, Connect
from mainstem.wire.mqtt.primitives import Violation
from mainstem.wire.mqtt.properties import Properties
from mainstem.wire.mqtt.reasons import Reason

METHOD: Final = "authentication_method"
DATA: Final = "authentication_data"
RECALLS_MAX: Final = 250
RECALL_PAUSE_S: Final = 0.02


class ConnectHandshake:
    """The handling of one CONNECT."""

    def __init__(
        self, hub: MqttHub, authenticator: MqttAuthenticator, connect: Connect, address: str
    ) -> None:
        self._hub = hub
        self._authenticator = authenticator
        self._address = address
        policy = authenticator.policy
        self._sasl = SaslLogin(policy.security, policy.mechanisms, address)
        self._proof: Properties = {}
        self.connect = connect

    @property
    def keep_alive_s(self) -> int:
        """How long the client may be silent, in seconds; 0: without limit."""
        asked, most = self.connect.keep_alive_s, self._hub.settings.keep_alive_max_s
        return min(asked or most, most) if most else asked

    @property
    def window(self) -> int:
        """How many messages may be sent to the client without acknowledgement."""
        most = self._hub.settings.window_max
        return min(int(self.connect.properties.get("receive_maximum", most)), most)

    def agree(self, out: MqttOutgoing) -> None:
        """Apply the client's limits to outgoing packets."""
        properties = self.connect.properties
        out.packet_bytes_max = properties.get("maximum_packet_size")
        aliases_max = self._hub.settings.topic_aliases_max
        out.aliases_max = min(properties.get("topic_alias_maximum", 0), aliases_max)

    async def begin(self, tls: Any) -> Auth | MqttIdentity:
        """Start the login: returns the client's identity, or the first challenge.

        Raises:
            InvalidRequest: the login failed.
        """
        self._check()
        await self._hub.ready()
        await self._recall()
        method = self.connect.properties.get(METHOD)
        if method is None:
            return await self._authenticator.authenticate(self.connect, self._address, tls)
        self._sasl.begin(method)
        return await self._step(self.connect.properties.get(DATA, b""))

    async def _recall(self) -> None:
        """Read the messages that were in flight to this client before a restart."""
        for _ in range(RECALLS_MAX):
            session = self._hub.registry.sessions.get(self.connect.client_id)
            if session is None or session.recall():
                return
            await asyncio.sleep(RECALL_PAUSE_S)
        raise Unavailable(ErrorCode.WRITER_UNAVAILABLE, "messages in flight cannot be read now")

    async def respond(self, packet: Auth) -> Auth | MqttIdentity:
        """Continue the login with the client's response.

        Raises:
            InvalidRequest: the login failed.
        """
        properties = packet.properties
        if not self._sasl.is_in_progress or packet.reason != Reason.CONTINUE_AUTHENTICATION:
            raise Violation("unexpected AUTH")
        if properties.get(METHOD) != self.connect.properties[METHOD]:
            raise Violation("AUTH with a different authentication method")
        return await self._step(properties.get(DATA, b""))

    async def _step(self, data: bytes) -> Auth | MqttIdentity:
        step = await self._sasl.respond(data)
        properties: Properties = {METHOD: self.connect.properties[METHOD], DATA: step.data}
        if step.identity is None:
            return Auth(Reason.CONTINUE_AUTHENTICATION, properties)
        self._proof = properties
        return self._authenticator.identify(step.identity, self._address)

    def join(
        self, client: MqttIdentity, permissions: MqttPermissions
    ) -> tuple[ClientSession, Connack]:
        """Open the client's session and create the CONNACK.

        Raises:
            InvalidRequest: the session belongs to another user, or the will may not be published.
        """
        connect, hub = self.connect, self._hub
        permissions.grant(client.rights)
        will = connect.will
        if will is not None and not permissions.may_write(will.topic):
            raise InvalidRequest(
                ErrorCode.NOT_AUTHORIZED, "not allowed to publish the will", subject=will.topic
            )
        client_id = connect.client_id or f"auto-{secrets.token_hex(12)}"
        expiry_s = self._expiry_s()
        owner = str(client.identity.principal)
        session, is_present = hub.join(client_id, owner, is_clean=connect.clean_start)
        session.expiry_s = expiry_s
        session.will = will
        if session.is_durable:
            hub.save(session)
        return session, Connack(
            Reason.SUCCESS, is_present, self._connack_properties(client_id, expiry_s)
        )

    def _check(self) -> None:
        connect = self.connect
        if len(connect.client_id) > CLIENT_ID_LENGTH_MAX:
            raise Violation("the client id is too long", Reason.CLIENT_ID_NOT_VALID)
        if not connect.client_id and not connect.clean_start and connect.version < V5:
            raise Violation("a persistent session needs a client id", Reason.CLIENT_ID_NOT_VALID)

    def _expiry_s(self) -> int:
        connect = self.connect
        if connect.version >= V5:
            asked = int(connect.properties.get("session_expiry_interval", 0))
        else:
            asked = 0 if connect.clean_start else NEVER_S
        return min(asked, self._hub.settings.session_expiry_max_s)

    def _connack_properties(self, client_id: str, expiry_s: int) -> Properties:
        """The properties of CONNACK in version 5; 3.1.1 has none."""
        connect, settings = self.connect, self._hub.settings
        if connect.version < V5:
            return {}
        properties: Properties = {
            "receive_maximum": settings.receive_max,
            "maximum_packet_size": settings.packet_bytes_max,
            "topic_alias_maximum": settings.topic_aliases_max,
            **self._proof,
        }
        if expiry_s != connect.properties.get("session_expiry_interval", 0):
            properties["session_expiry_interval"] = expiry_s
        if not connect.client_id:
            properties["assigned_client_identifier"] = client_id
        if self.keep_alive_s != connect.keep_alive_s:
            properties["server_keep_alive"] = self.keep_alive_s
        if connect.properties.get("request_response_information"):
            properties["response_information"] = f"response/{client_id}"
        return properties
