"""The packets of MQTT as values, the same for 3.1.1 and 5.

What 3.1.1 cannot say is left at its default when such a packet is read, and left out when one is
written. Properties are dictionaries as ``properties`` describes them.
"""

from msgspec import Struct, field

from mainstem.wire.mqtt.kinds import V3_1_1, Kind
from mainstem.wire.mqtt.properties import Properties
from mainstem.wire.mqtt.reasons import Reason


class Will(Struct, frozen=True):
    """What is to be published when a client goes without a word."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = field(default_factory=dict)


class Connect(Struct, frozen=True, kw_only=True):
    """A client introduces itself."""

    version: int = V3_1_1
    client_id: str = ""
    clean_start: bool = True
    keep_alive_s: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = field(default_factory=dict)


class Connack(Struct, frozen=True):
    """The answer to it."""

    reason: int = Reason.SUCCESS
    session_present: bool = False
    properties: Properties = field(default_factory=dict)


class Publish(Struct, frozen=True):
    """A message; without a topic where an alias stands for it."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = field(default_factory=dict)


class Ack(Struct, frozen=True):
    """PUBACK, PUBREC, PUBREL or PUBCOMP, as ``kind`` says."""

    kind: Kind
    packet_id: int
    reason: int = Reason.SUCCESS
    properties: Properties = field(default_factory=dict)


class Subscription(Struct, frozen=True):
    """One filter and how messages that fit it are sent."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(Struct, frozen=True):
    """Filters that a client wants from now on."""

    packet_id: int
    subscriptions: tuple[Subscription, ...]
    properties: Properties = field(default_factory=dict)


class Suback(Struct, frozen=True):
    """What became of each filter."""

    packet_id: int
    reasons: tuple[int, ...]
    properties: Properties = field(default_factory=dict)


class Unsubscribe(Struct, frozen=True):
    """Filters that a client wants no more."""

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = field(default_factory=dict)


class Unsuback(Struct, frozen=True):
    """What became of each filter; 3.1.1 does not say."""

    packet_id: int
    reasons: tuple[int, ...] = ()
    properties: Properties = field(default_factory=dict)


class Pingreq(Struct, frozen=True):
    """A client is alive."""


class Pingresp(Struct, frozen=True):
    """So is the server."""


class Disconnect(Struct, frozen=True):
    """One side goes, and says why."""

    reason: int = Reason.SUCCESS
    properties: Properties = field(default_factory=dict)


class Auth(Struct, frozen=True):
    """A step of an exchange that shows who somebody is."""

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
