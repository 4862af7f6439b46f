"""Converts MQTT messages to Mainstem messages and back.

    topic                      key
    payload                    value
    content type, correlation data, response topic, message expiry    the headers of all protocols
    QoS, retain, publisher, payload format                            headers ``mqtt.…``
    user properties            headers of the same names, in their order

Guarantees: messages between MQTT clients arrive through the log as they were sent. A message of
another protocol has QoS 1; its text headers become user properties, others are left out. User
properties whose names start with ``mqtt.`` are stored under another prefix.
"""

from typing import Any, Final

from mainstem.model.message import (
    CONTENT_TYPE,
    CORRELATION_ID,
    EXPIRES_AT,
    REPLY_TO,
    Message,
)
from mainstem.model.records.record import Header
from mainstem.wire.mqtt.packets import Publish, Will
from mainstem.wire.mqtt.primitives import TEXT_BYTES_MAX
from mainstem.wire.mqtt.properties import USER, Properties
from mainstem.wire.mqtt.topics import is_topic_name, topic_name

QOS: Final = "mqtt.qos"
RETAIN: Final = "mqtt.retain"
CLIENT_ID: Final = "mqtt.client-id"
PAYLOAD_FORMAT: Final = "mqtt.payload-format"

_OWN: Final = "mqtt."
_ESCAPED: Final = "mqtt.user."
_QOS_DEFAULT: Final = 1
_SECOND_MS: Final = 1_000
_QOS_TEXT: Final = {0: b"0", 1: b"1", 2: b"2"}
_QOS_OF: Final = {text: qos for qos, text in _QOS_TEXT.items()}


class Incoming:
    """A stored message with its headers parsed for MQTT; parsed once for all receivers."""

    __slots__ = (
        "expires_ms",
        "message",
        "properties",
        "publisher",
        "qos",
        "retain",
        "topic",
        "wire",
    )

    def __init__(self, message: Message, topic: str) -> None:
        self.message = message
        self.topic = topic
        self.qos = _QOS_DEFAULT
        self.retain = False
        self.publisher: bytes | None = None  # client id of the publisher
        self.expires_ms: int | None = None
        self.properties: Properties = {}
        self.wire: dict[tuple[bool, bool], bytes] = {}  # encoded packets, by version and retain
        if message.headers:
            self._read(message)

    @property
    def payload(self) -> bytes:
        """The value; empty for a message without one."""
        return self.message.value or b""

    def is_expired(self, now_ms: int) -> bool:
        """Whether the message has expired."""
        return self.expires_ms is not None and now_ms >= self.expires_ms

    def properties_at(self, now_ms: int) -> Properties:
        """The properties for a receiver at that time."""
        if self.expires_ms is None:
            return self.properties
        left_s = max(1, -(-(self.expires_ms - now_ms) // _SECOND_MS))
        return {"message_expiry_interval": left_s, **self.properties}

    def _read(self, message: Message) -> None:
        users: list[tuple[str, str]] = []
        found = self.properties
        for name, value in message.headers:
            if name == CLIENT_ID:
                self.publisher = value
            elif name == QOS:
                self.qos = _QOS_OF.get(value or b"", _QOS_DEFAULT)
            elif name == RETAIN:
                self.retain = True
            elif name == PAYLOAD_FORMAT:
                found["payload_format_indicator"] = 1
            elif name == CORRELATION_ID and value is not None and len(value) <= TEXT_BYTES_MAX:
                found["correlation_data"] = value
            elif name == EXPIRES_AT:
                self.expires_ms = message.expires_ms
            else:
                _read_text(found, users, name, _text(value))
        if users:
            found[USER] = tuple(users)


def _read_text(
    found: Properties, users: list[tuple[str, str]], name: str, value: str | None
) -> None:
    """Parse a text header."""
    if value is None:
        return
    if name == CONTENT_TYPE:
        found["content_type"] = value
    elif name == REPLY_TO and is_topic_name(value):
        found["response_topic"] = value
    elif len(name.encode()) <= TEXT_BYTES_MAX and "\0" not in name:
        users.append((name.removeprefix(_ESCAPED), value))


def _text(value: bytes | None) -> str | None:
    """The text, if MQTT can carry it."""
    if value is None:
        return ""
    if len(value) > TEXT_BYTES_MAX or b"\0" in value:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def message_of(packet: Publish | Will, client_id: str, now_ms: int) -> Message:
    """The message to store for a PUBLISH or a will."""
    headers: list[Header] = [(CLIENT_ID, client_id.encode())]
    if packet.qos != _QOS_DEFAULT:
        headers.append((QOS, _QOS_TEXT[packet.qos]))
    if packet.retain:
        headers.append((RETAIN, b"1"))
    if packet.properties:
        _add_properties(headers, packet.properties, now_ms)
    return Message(packet.topic.encode(), packet.payload, tuple(headers), now_ms)


def _add_properties(headers: list[Header], properties: dict[str, Any], now_ms: int) -> None:
    if properties.get("payload_format_indicator"):
        headers.append((PAYLOAD_FORMAT, b"1"))
    expiry_s = properties.get("message_expiry_interval")
    if expiry_s is not None:
        headers.append((EXPIRES_AT, str(now_ms + expiry_s * _SECOND_MS).encode()))
    if "content_type" in properties:
        headers.append((CONTENT_TYPE, properties["content_type"].encode()))
    if "response_topic" in properties:
        headers.append((REPLY_TO, properties["response_topic"].encode()))
    if "correlation_data" in properties:
        headers.append((CORRELATION_ID, properties["correlation_data"]))
    for name, value in properties.get(USER, ()):
        kept = _ESCAPED + name if name.startswith(_OWN) else name
        headers.append((kept, value.encode()))


def topic_of(message: Message, otherwise: str) -> str:
    """The MQTT topic of a stored message: its key, or ``otherwise`` if that is no topic name."""
    key = message.key
    return otherwise if not key else topic_name(key) or otherwise
