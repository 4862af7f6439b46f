"""Converts messages of the native protocol to broker messages and back.

Properties that have a field on the wire are headers with fixed names in broker messages; all other
headers are passed unchanged, in order.
"""

from operator import attrgetter
from typing import Final

from mainstem.broker.api.queues import NO_HEADERS, Delivery, PeekedMessage, Routing
from mainstem.model.message import (
    CONTENT_TYPE,
    CORRELATION_ID,
    EXPIRES_AT,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
    Message,
)
from mainstem.wire.native.answers import BrowsedMessage, WireDelivery
from mainstem.wire.native.words import WireMessage

VISIBLE: Final = "x-visible-at"
_COPIES: Final = ("CC", "BCC")
_HIDDEN: Final = "BCC"
_FIELDS: Final = frozenset(
    {CONTENT_TYPE, CORRELATION_ID, EXPIRES_AT, MESSAGE_ID, PRIORITY, REPLY_TO, _HIDDEN}
)
_OVERHEAD_BYTES: Final = 64
_properties_of: Final = attrgetter(
    "content_type",
    "correlation_id",
    "reply_to",
    "message_id",
    "priority",
    "expires_ms",
    "ttl_ms",
    "delay_ms",
)
_NO_PROPERTIES: Final = (None,) * 8


def size_of(message: WireMessage) -> int:
    """The approximate size of a message on the wire, in bytes."""
    size = _OVERHEAD_BYTES + len(message.value or b"") + len(message.key or b"")
    for name, value in message.headers:
        size += len(name) + len(value or b"") + 8
    return size


def has_properties(wire: WireMessage) -> bool:
    """Whether a message has more than key, value, headers and timestamp."""
    return _properties_of(wire) != _NO_PROPERTIES


def message_of(wire: WireMessage, key: bytes | None, now_ms: int) -> Message:
    """Convert a message that a client published."""
    headers = wire.headers
    if _properties_of(wire) != _NO_PROPERTIES:
        headers = [*headers, *_properties(wire, now_ms)]
    timestamp_ms = wire.timestamp_ms if wire.timestamp_ms >= 0 else now_ms
    return Message(key, wire.value, tuple(headers), timestamp_ms)


def routing_of(message: Message, key: str, visible_ms: int) -> Routing:
    """The routing of a message; headers ``CC`` and ``BCC`` add keys, as in AMQP."""
    if not message.headers:
        return Routing((key,), NO_HEADERS, 0, 0, visible_ms)
    copies = [
        value.decode(errors="replace")
        for name, value in message.headers
        if name in _COPIES and value is not None
    ]
    return Routing(
        (key, *copies),
        dict(message.headers),
        message.priority or 0,
        message.expires_ms or 0,
        visible_ms,
    )


def wire_message(message: Message) -> WireMessage:
    """Convert a broker message to a wire message."""
    headers = message.headers
    if not headers:
        return WireMessage(value=message.value, key=message.key, timestamp_ms=message.timestamp_ms)
    return WireMessage(
        value=message.value,
        key=message.key,
        headers=[(name, value) for name, value in headers if name not in _FIELDS],
        content_type=message.content_type,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        message_id=message.message_id,
        priority=message.priority,
        timestamp_ms=message.timestamp_ms,
        expires_ms=message.expires_ms,
    )


def wire_delivery(delivery: Delivery, number: int) -> WireDelivery:
    """Convert a delivery to a wire delivery."""
    return WireDelivery(
        number=number,
        message=wire_message(delivery.message),
        exchange=delivery.exchange,
        attempt=delivery.attempt,
        failures=delivery.failures,
        sequence=delivery.sequence,
    )


def browsed_message(browsed: PeekedMessage) -> BrowsedMessage:
    """Convert a browsed message to its wire form."""
    return BrowsedMessage(
        sequence=browsed.sequence,
        message=wire_message(browsed.message),
        exchange=browsed.exchange,
        place=browsed.place,
        attempts=browsed.attempts,
        failures=browsed.failures,
    )


def _properties(wire: WireMessage, now_ms: int) -> list[tuple[str, bytes | None]]:
    expires_ms = wire.expires_ms
    if expires_ms is None and wire.ttl_ms is not None:
        expires_ms = now_ms + wire.ttl_ms
    found = (
        (CONTENT_TYPE, wire.content_type),
        (CORRELATION_ID, wire.correlation_id),
        (REPLY_TO, wire.reply_to),
        (MESSAGE_ID, wire.message_id),
        (PRIORITY, wire.priority),
        (EXPIRES_AT, expires_ms),
        (VISIBLE, None if wire.delay_ms is None else now_ms + wire.delay_ms),
    )
    return [(name, str(value).encode()) for name, value in found if value is not None]
