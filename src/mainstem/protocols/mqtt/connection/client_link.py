"""The connection to one client, as its session sees it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from mainstem.protocols.mqtt.connection.outgoing import UNSENT_BYTES_HIGH, MqttOutgoing
from mainstem.protocols.mqtt.connection.permissions import MqttPermissions
from mainstem.protocols.mqtt.sessions.client_session import ClientSession, OutgoingMessage
from mainstem.security.quotas import FETCH_BYTES
from mainstem.wire.mqtt.kinds import Kind
from mainstem.wire.mqtt.packets import Ack
from mainstem.wire.mqtt.reasons import Reason

if TYPE_CHECKING:
    from mainstem.telemetry.metrics import Metrics

RETRY_MS: Final = 20
_GRACE: Final = 1.5  # times the keep-alive time, as the standard requires


class MqttWire(Protocol):
    """The connection under the link."""

    def disconnect(self, reason: int, cause: str = "") -> None:
        """Close the connection, with a reason code in version 5."""
        ...

    def charge(self, kind: str, amount: int) -> None:
        """Charge the client's usage to a quota."""
        ...


class ClientLink:
    """Sends the messages of a session over its connection."""

    def __init__(
        self,
        wire: MqttWire,
        session: ClientSession,
        out: MqttOutgoing,
        permissions: MqttPermissions,
        later: Callable[[int, Callable[[], None]], object],
    ) -> None:
        self._wire = wire
        self._session = session
        self._out = out
        self._unsent_bytes = out.unsent_bytes
        self._permissions = permissions
        self._later = later
        self._retries = False
        self._silence_s = 0.0
        self.window = 0
        self.received_s = 0.0
        self.until_ms: int | None = None  # when a token login expires
        self.metrics: Metrics | None = None
        self.now_ms: Callable[[], int] = int

    def agree(self, *, window: int, keep_alive_s: int, received_s: float) -> None:
        """Set the values negotiated by CONNECT and CONNACK."""
        self.window = window
        self._silence_s = keep_alive_s * _GRACE
        self.received_s = received_s

    @property
    def has_space(self) -> bool:
        """Whether more may be sent now; if not, the session is drained again a little later."""
        if self._unsent_bytes() <= UNSENT_BYTES_HIGH:
            return True
        if not self._retries:
            self._retries = True
            self._later(RETRY_MS, self._retry)
        return False

    def _retry(self) -> None:
        self._retries = False
        session = self._session
        if session.link is self:
            session.drain()
            for lender in list(session.lenders):
                lender.drain()

    def may_read(self, topic: str) -> bool:
        """Whether the client may read that topic."""
        return self._permissions.may_read(topic)

    def send_message(self, sending: OutgoingMessage) -> bool:
        """Send a PUBLISH; False if it is larger than the client accepts."""
        if self.metrics is not None:
            self.metrics.messages_out += 1
        self._wire.charge(FETCH_BYTES, len(sending.incoming.payload))
        return self._out.put_message(sending, self.now_ms)

    def send_release(self, packet_id: int) -> None:
        """Send a PUBREL."""
        self._out.put(Ack(Kind.PUBREL, packet_id))

    def give_up(self) -> None:
        """Close the connection, because a state that the client relies on could not be stored."""
        self._wire.disconnect(Reason.UNSPECIFIED)

    def taken_over(self) -> None:
        """Close the connection, because another one took over the session."""
        self._wire.disconnect(Reason.SESSION_TAKEN_OVER)

    def stopping(self) -> None:
        """Close the connection, because the node stops."""
        self._wire.disconnect(Reason.SERVER_SHUTTING_DOWN)

    def moved(self) -> None:
        """Close the connection, because another node serves the session."""
        self._wire.disconnect(Reason.USE_ANOTHER_SERVER)

    def tick(self, now_s: float) -> None:
        """Close the connection if the client was silent for too long or its login has expired."""
        if self._silence_s and now_s - self.received_s > self._silence_s:
            self._wire.disconnect(Reason.KEEP_ALIVE_TIMEOUT)
        elif self.until_ms is not None and self.now_ms() >= self.until_ms:
            self._wire.disconnect(Reason.NOT_AUTHORIZED, "the login has expired")
