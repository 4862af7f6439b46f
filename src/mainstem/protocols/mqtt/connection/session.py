"""One MQTT connection: packets in, acknowledgements and messages out.

    CONNECT ─▶ login ─▶ CONNACK ─▶ PUBLISH, SUBSCRIBE, … ─▶ DISCONNECT

Pure: asynchronous work is passed to the runner. Packets that arrive during a login are buffered. A
protocol violation closes the connection, with a reason code in version 5.
"""

from collections import deque
from typing import Any, Final

from msgspec import Struct

from mainstem.model.errors import MainstemError
from mainstem.model.limits import KIB
from mainstem.protocols.backpressure import Backpressure
from mainstem.protocols.mqtt.connection.authentication_service import (
    MqttAuthenticator,
    MqttIdentity,
)
from mainstem.protocols.mqtt.connection.client_link import ClientLink
from mainstem.protocols.mqtt.connection.connect_service import ConnectHandshake
from mainstem.protocols.mqtt.connection.inbound_messages import InboundMessages
from mainstem.protocols.mqtt.connection.outgoing import MqttOutgoing
from mainstem.protocols.mqtt.connection.permissions import MqttPermissions
from mainstem.protocols.mqtt.connection.subscribing import Subscribing
from mainstem.protocols.mqtt.errors import reason_of
from mainstem.protocols.mqtt.hub_service import MqttHub
from mainstem.protocols.mqtt.sessions.client_session import ClientSession
from mainstem.protocols.runner import Runner, Stop
from mainstem.protocols.send_batch import SendBatch
from mainstem.protocols.session import BufferingSender, ProtocolViolation
from mainstem.security.quotas import PRODUCE_BYTES, QuotaMeter
from mainstem.telemetry.metrics import Metrics
from mainstem.wire.mqtt.decoder import decode, frame_at
from mainstem.wire.mqtt.kinds import V3_1_1, V5
from mainstem.wire.mqtt.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Subscribe,
    Unsubscribe,
)
from mainstem.wire.mqtt.primitives import Malformed, Violation
from mainstem.wire.mqtt.reasons import Reason

FIRST_PACKET_BYTES_MAX: Final = 256 * KIB
PACKETS_AHEAD_MAX: Final = 1_000
_CONNECT: Final = 0x10  # the first byte of every connection
# Reasons to pause reading.
_LOGIN: Final = "login"
_UNSTORED: Final = "unstored"


class MqttService(Struct, frozen=True):
    """State that all MQTT sessions of a listener share."""

    hub: MqttHub
    authenticator: MqttAuthenticator
    metrics: Metrics
    runner: Runner


class MqttPeer(Struct, frozen=True):
    """The remote end of a connection."""

    address: str
    tls: Any = None


class _Client(Struct, frozen=True):
    """A client whose login is complete."""

    session: ClientSession
    link: ClientLink
    messages: InboundMessages
    subscribing: Subscribing


class MqttSession:
    """Serves one MQTT connection."""

    def __init__(self, sender: BufferingSender, peer: MqttPeer, service: MqttService) -> None:
        self._sender = sender
        self._peer = peer
        self._hub = service.hub
        self._service = service
        self._out = MqttOutgoing(SendBatch(sender, service.runner.soon))
        self._backpressure = Backpressure(sender, service.runner)
        self._later: deque[tuple[int, bytes]] = deque()
        self._stop_work: Stop | None = None
        self._greeting: ConnectHandshake | None = None
        self._permissions = MqttPermissions(service.hub.settings)
        self._client: _Client | None = None
        self._meter: QuotaMeter | None = None
        self._is_over = False
        self._version = V3_1_1

    @property
    def is_logged_in(self) -> bool:
        """Whether the login is complete."""
        return self._client is not None

    # Bytes

    def receive(self, buf: bytearray, view: memoryview, start: int, until: int) -> tuple[int, int]:
        """Serve whole packets in ``buf[start:until]``; returns their end and the next size."""
        if self._client is not None:
            self._client.link.received_s = self._hub.now_s()
            self.charge(PRODUCE_BYTES, until - start)
        if self._greeting is None and buf[start] != _CONNECT:
            raise ProtocolViolation("the first packet is not CONNECT")
        try:
            while not self._is_over:
                frame = frame_at(buf, start, until)
                if frame is None:
                    break
                body = start + frame[0]
                end = body + frame[1]
                self._check_size(end - start)
                if end > until:
                    return start, end - start
                self._frame(buf[start], bytes(view[body:end]))
                start = end
        except Malformed as error:
            self._violated(error)
        self._out.flush()
        if self._is_over:
            return until, 2
        return start, until - start + 1

    def closed(self) -> None:
        """Clean up after a connection that was lost without DISCONNECT."""
        self._end(graceful=False)

    def _check_size(self, size: int) -> None:
        most = self._hub.settings.packet_bytes_max
        if self._client is None:
            most = min(most, FIRST_PACKET_BYTES_MAX)
        if size > most:
            raise Violation(f"a packet of {size} bytes is too large", Reason.PACKET_TOO_LARGE)

    def _frame(self, first: int, body: bytes) -> None:
        if self._stop_work is not None:
            if len(self._later) >= PACKETS_AHEAD_MAX:
                raise Violation("too many packets before the login completed")
            self._later.append((first, body))
            self._backpressure.put(_LOGIN, is_on=True)
            return
        self._serve(decode(first, body, self._version))

    def _serve(self, packet: Packet) -> None:
        client = self._client
        if client is None:
            self._introduce(packet)
            return
        match packet:
            case Publish():
                client.messages.publish(packet)
            case Ack():
                client.messages.acknowledge(packet)
            case Subscribe() | Unsubscribe():
                client.subscribing.serve(packet)
            case Pingreq():
                self._out.put(Pingresp())
            case Disconnect():
                self._goodbye(client.session, packet)
            case _:
                raise Violation(f"unexpected {type(packet).__name__}")

    # Connecting

    def _introduce(self, packet: Packet) -> None:
        if isinstance(packet, Connect) and self._greeting is None:
            self._version = self._out.version = packet.version
            self._greeting = ConnectHandshake(
                self._hub, self._service.authenticator, packet, self._peer.address
            )
            work = self._greeting.begin(self._peer.tls)
        elif isinstance(packet, Auth) and self._greeting is not None:
            work = self._greeting.respond(packet)
        else:
            raise ProtocolViolation("the first packet is not CONNECT")
        self._stop_work = self._service.runner.run(work, self._looked_at)

    def _looked_at(self, found: Auth | MqttIdentity | None, error: BaseException | None) -> None:
        """Handle the result of a step of the login."""
        self._stop_work = None
        if self._is_over:
            return
        if isinstance(error, MainstemError):
            self._refuse(reason_of(error), error.cause)
        elif isinstance(error, Malformed):
            self._refuse(error.reason, error.cause)
        elif error is not None:
            self._refuse(Reason.UNSPECIFIED, "")
            raise error
        elif isinstance(found, Auth):
            self._out.put(found)
        else:
            assert found is not None
            self._let_in(found)
        self._catch_up()

    def _let_in(self, client: MqttIdentity) -> None:
        greeting, hub, out = self._greeting, self._hub, self._out
        assert greeting is not None
        try:
            session, connack = greeting.join(client, self._permissions)
        except MainstemError as error:
            self._refuse(reason_of(error), error.cause)
            return
        greeting.agree(out)
        quotas = self._service.authenticator.policy.security.quotas
        name = client.identity.principal.name
        self._meter = quotas.meter(name, session.client_id, self._peer.address)
        runner, permissions = self._service.runner, self._permissions
        link = ClientLink(self, session, out, permissions, runner.later)
        link.metrics = self._service.metrics
        link.now_ms = hub.now_ms
        link.until_ms = client.identity.until_ms
        link.agree(
            window=greeting.window, keep_alive_s=greeting.keep_alive_s, received_s=hub.now_s()
        )
        self._client = _Client(
            session,
            link,
            InboundMessages(hub, session, permissions, out, self),
            Subscribing(hub, session, permissions, out),
        )
        out.put(connack)
        hub.links[link] = None
        session.joined(link)
        for lender in list(session.lenders):
            lender.drain()

    def _catch_up(self) -> None:
        """Serve packets that arrived during the login."""
        try:
            while self._later and self._stop_work is None and not self._is_over:
                first, body = self._later.popleft()
                self._serve(decode(first, body, self._version))
        except Malformed as error:
            self._violated(error)
        except ProtocolViolation:
            self.shut()
        if self._stop_work is None and not self._is_over:
            self._backpressure.put(_LOGIN, is_on=False)
        self._out.flush()

    def _refuse(self, reason: int, cause: str) -> None:
        """Send a CONNACK with a reason code and close the connection."""
        properties = {"reason_string": cause[:200]} if cause and self._version >= V5 else {}
        self._out.put(Connack(reason, properties=properties))
        self.shut()

    # Disconnecting

    def _goodbye(self, session: ClientSession, packet: Disconnect) -> None:
        expiry_s = packet.properties.get("session_expiry_interval")
        if expiry_s is not None:
            if expiry_s and not session.is_durable:
                raise Violation("a session with expiry 0 cannot be made persistent")
            session.expiry_s = min(expiry_s, self._hub.settings.session_expiry_max_s)
        self._end(graceful=packet.reason == Reason.SUCCESS)
        self._sender.close()

    def _violated(self, error: Malformed) -> None:
        self._service.metrics.malformed_frames += 1
        if self._client is not None:
            self.disconnect(error.reason, error.cause)
        elif self._greeting is not None or error.reason == Reason.UNSUPPORTED_VERSION:
            self._refuse(error.reason, error.cause)
        else:
            raise ProtocolViolation(error.cause)

    def disconnect(self, reason: int, cause: str = "") -> None:
        """Close the connection, with a reason code in version 5."""
        if not self._is_over:
            if self._version >= V5:
                self._out.put(Disconnect(reason, {"reason_string": cause[:200]} if cause else {}))
            self.shut()

    def shut(self) -> None:
        """Close the connection after queued packets are sent."""
        self._out.flush()
        self._end(graceful=False)
        self._sender.close()

    def _end(self, *, graceful: bool) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._later.clear()
        if self._stop_work is not None:
            self._stop_work()
            self._stop_work = None
        client, greeting = self._client, self._greeting
        if client is not None and greeting is not None:
            client.messages.close()
            self._hub.links.pop(client.link, None)
            if client.session.link is client.link:
                client.session.will = None
                self._hub.leave(client.session, greeting.connect.will, graceful=graceful)

    def pause(self) -> None:
        """Stop reading until ``resume``: too many messages are not stored yet."""
        self._backpressure.put(_UNSTORED, is_on=True)

    def resume(self) -> None:
        """Resume reading."""
        self._backpressure.put(_UNSTORED, is_on=False)

    def charge(self, kind: str, amount: int) -> None:
        """Charge usage to the client's quota; stops reading while it is exceeded."""
        if self._meter is not None:
            wait_ms = self._meter.charge(kind, amount)
            if wait_ms:
                self._backpressure.hold(wait_ms)
