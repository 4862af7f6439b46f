"""The packets of MQTT as values, the same for 3.1.1 and 5.

Fields that 3.1.1 lacks have their default when such a packet is read, and are omitted when one is
written. Properties are dictionaries as ``properties`` describes them.
"""

from msgspec import Struct, field

from mainstem.wire.mqtt.kinds import V3_1_1, Kind
from mainstem.wire.mqtt.properties import Properties
from mainstem.wire.mqtt.reasons import Reason


class Will(Struct, frozen=True):
    """The message to publish when a client disconnects unexpectedly."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = field(default_factory=dict)


class Connect(Struct, frozen=True, kw_only=True):
    """Opens a session: client id, login and will."""

    version: int = V3_1_1
    client_id: str = ""
    clean_start: bool = True
    keep_alive_s: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = field(default_factory=dict)


class Connack(Struct, frozen=True):
    """The response to CONNECT."""

    reason: int = Reason.SUCCESS
    session_present: bool = False
    properties: Properties = field(default_factory=dict)


class Publish(Struct, frozen=True):
    """A message; without a topic if it has a topic alias."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = field(default_factory=dict)


class Ack(Struct, frozen=True):
    """PUBACK, PUBREC, PUBREL or PUBCOMP, by ``kind``."""

    kind: Kind
    packet_id: int
    reason: int = Reason.SUCCESS
    properties: Properties = field(default_factory=dict)


class Subscription(Struct, frozen=True):
    """One topic filter and its subscription options."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(Struct, frozen=True):
    """Subscribes to topic filters."""

    packet_id: int
    subscriptions: tuple[Subscription, ...]
    properties: Properties = field(default_factory=dict)


class Suback(Struct, frozen=True):
    """The result for each filter."""

    packet_id: int
    reasons: tuple[int, ...]
    properties: Properties = field(default_factory=dict)


class Unsubscribe(Struct, frozen=True):
    """Unsubscribes from topic filters."""

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = field(default_factory=dict)


class Unsuback(Struct, frozen=True):
    """The result for each filter; 3.1.1 has none."""

    packet_id: int
    reasons: tuple[int, ...] = ()
    properties: Properties = field(default_factory=dict)


class Pingreq(Struct, frozen=True):
    """Keep-alive request of a client."""


class Pingresp(Struct, frozen=True):
    """The response to a keep-alive request."""


class Disconnect(Struct, frozen=True):
    """One side disconnects, with a reason."""

    reason: int = Reason.SUCCESS
    properties: Properties = field(default_factory=dict)


class Auth(Struct, frozen=True):
    """One step of an authentication exchange."""

    reason: int = Reason.SUCCESS
    properties: Properties = field(default_factory=dict)


Packet = (
    Connect
    | Connack
    | Publish
    | Ack
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
