"""The routing information of a stored message, read from its record.

The key of the record is the routing key, its headers are bytes. Headers ``CC`` and ``BCC``, each
possibly repeated, are further keys; ``x-delay`` is the delay on an exchange that delays messages,
and ``x-visible-at`` is the earliest delivery on any exchange, in milliseconds since 1970. A dead
letter lists in ``x-dead-letter-excluded`` the matching queues that it may not enter.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.message import (
    AMQP_HEADER_PREFIX,
    AMQP_PROPERTIES,
    PROPERTY_HEADERS,
    Message,
)
from mainstem.model.records.record import Header
from mainstem.queues.api_types import NO_HEADERS, Routing

DELAY_HEADER = "x-delay"
VISIBLE_HEADER = "x-visible-at"
EXCLUDED_HEADER = "x-dead-letter-excluded"
# The last header of a body that was appended again: its original exchange.
MOVED_HEADER = "x-moved-from"
DELAY_MS_MAX = 2**32 - 1
_COPIES = ("CC", "BCC")
_DIGITS_MAX = 18
_NAMES = msgspec.json.Decoder(tuple[str, ...])


def routing_of(message: Message) -> Routing:
    """Keys, headers and times of a message."""
    key = "" if message.key is None else message.key.decode(errors="replace")
    if not message.headers:
        return Routing((key,), NO_HEADERS)
    copies = [
        value.decode(errors="replace")
        for wanted in _COPIES
        for name, value in message.headers
        if name == wanted and value is not None
    ]
    return Routing(
        (key, *copies),
        headers_of(message.headers),
        message.priority or 0,
        message.expires_ms or 0,
    )


def headers_of(headers: tuple[Header, ...]) -> dict[str, bytes | None]:
    """The headers that bindings are compared with: those of AMQP without its properties."""
    found = dict(headers)
    if AMQP_PROPERTIES not in found:
        return found
    for name in PROPERTY_HEADERS:
        found.pop(name, None)
    for name in [each for each in found if each.startswith(AMQP_HEADER_PREFIX)]:
        found[name.removeprefix(AMQP_HEADER_PREFIX)] = found.pop(name)
    return found


def delay_of(headers: Mapping[str, Any]) -> int:
    """The delay of a message, in milliseconds; 0 if the header is invalid."""
    return min(_number(headers.get(DELAY_HEADER)), DELAY_MS_MAX)


def visible_of(headers: Mapping[str, Any]) -> int:
    """The earliest delivery of a message, in milliseconds since 1970; 0: at once."""
    return _number(headers.get(VISIBLE_HEADER))


def excluding(message: Message, queues: Collection[str]) -> Message:
    """Set the queues that a message may not enter, replacing earlier ones."""
    return message.with_header(
        EXCLUDED_HEADER, msgspec.json.encode(list(queues)) if queues else None
    )


def without_excluded(queues: tuple[str, ...], headers: Mapping[str, Any]) -> tuple[str, ...]:
    """The queues that a message with these headers may enter."""
    listed = headers.get(EXCLUDED_HEADER)
    if listed is None:
        return queues
    try:
        excluded = _NAMES.decode(listed)
    except (*DECODE_ERRORS, TypeError):
        # Not written by us: any client may write such a header.
        return queues
    return tuple(queue for queue in queues if queue not in excluded)


def _number(value: object) -> int:
    if isinstance(value, bytes | str):
        is_number = len(value) <= _DIGITS_MAX and value.isascii() and value.isdigit()
        value = int(value) if is_number else 0
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return max(0, value)


def is_moved(headers: tuple[Header, ...]) -> bool:
    """Whether a record is a body that was appended again and is not to be routed."""
    return bool(headers) and headers[-1][0] == MOVED_HEADER


def unmoved(message: Message) -> tuple[Message, str]:
    """The original message and exchange from the record of a moved body."""
    exchange = message.headers[-1][1] or b""
    return message._replace(headers=message.headers[:-1]), exchange.decode(errors="replace")
