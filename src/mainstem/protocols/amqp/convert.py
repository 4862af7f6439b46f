"""Converts AMQP contents to Mainstem messages and back.

    properties ──▶ record headers with common names, readable by every protocol
    headers    ──▶ record headers, values as text; prefixed where the name is that of a property
    everything ──▶ one more record header, last: ``amqp-properties``, the original bytes

An unmodified message (that header is still the last one) is delivered with the original bytes.
Headers that were added after it (the history of a dead letter) are merged into them. A message
from another protocol gets its properties from its headers.

CC and BCC are additional routing keys; each is stored as a record header of that name, and BCC is
not sent to consumers. Routing uses the record headers alone, so that it can be repeated from the
record; for that reason binding arguments are compared as text.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec

from mainstem.broker.api.queues import AT_ONCE, Routing
from mainstem.model import message as names
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.limits import HEADERS_PER_RECORD_MAX
from mainstem.model.message import Message
from mainstem.model.records.record import Header
from mainstem.protocols.amqp.errors import PRECONDITION_FAILED, ChannelRefusal
from mainstem.wire.amqp.fields import Long, Malformed, Timestamp
from mainstem.wire.amqp.properties import Properties, decode_properties, encode_properties

RAW: Final = names.AMQP_PROPERTIES
CC: Final = "CC"
BCC: Final = "BCC"
DEATHS: Final = "x-death"
X_MATCH: Final = "x-match"
DELIVERY_COUNT: Final = "x-delivery-count"
EXPIRATION_MS_MAX: Final = 2**32 - 1
TEXT_MAX: Final = 255
_REMEMBERED_MAX: Final = 4_096
_REMEMBERED_BYTES_MAX: Final = 512

# Properties with names common to all protocols, then those with names of AMQP.
_TEXTS: Final = {
    "content_type": names.CONTENT_TYPE,
    "content_encoding": "content-encoding",
    "correlation_id": names.CORRELATION_ID,
    "reply_to": names.REPLY_TO,
    "message_id": names.MESSAGE_ID,
    "type": "type",
    "user_id": "user-id",
    "app_id": "app-id",
}
_OURS: Final = frozenset({*_TEXTS.values(), names.EXPIRES_AT, names.PRIORITY, RAW, BCC, CC})
_RENAMED: Final = names.PROPERTY_HEADERS
# Internal headers of dead letters: clients neither receive nor set them.
_HIDDEN: Final = frozenset({"x-dead-letter-id", "x-dead-letter-excluded"})


class Parsed(NamedTuple):
    """The parsed properties of a content, independent of the time."""

    properties: bytes
    headers: tuple[Header, ...]
    more_keys: tuple[str, ...]
    by_name: Mapping[str, Any]
    priority: int
    expiration_ms: int | None
    user_id: str | None
    reply_to: str | None


class Converter:
    """Parses and encodes properties; caches repeated ones."""

    def __init__(self) -> None:
        self._remembered: dict[bytes, Parsed] = {}
        self._sound: set[bytes] = set()

    def parsed(self, raw: bytes) -> Parsed:
        """Parse the bytes of properties.

        Raises:
            Malformed: the bytes do not decode.
            ChannelRefusal: a value is invalid.
        """
        found = self._remembered.get(raw)
        if found is None:
            found = _parsed(raw)
            if len(raw) <= _REMEMBERED_BYTES_MAX:
                if len(self._remembered) >= _REMEMBERED_MAX:
                    self._remembered.clear()
                self._remembered[raw] = found
            self._note_sound(found.properties)
        return found

    def properties_of(self, message: Message, now_ms: int, failures: int = 0) -> bytes:
        """The bytes of the properties that a consumer gets.

        Any protocol may have written the header with the bytes, so they are checked before they are
        sent: a client would close its connection over bytes that do not decode.
        """
        headers = message.headers
        if headers and headers[-1][0] == RAW and not failures:
            raw = headers[-1][1]
            if raw in self._sound:
                return raw
        found = _properties_of(message, now_ms)
        if failures:
            found.headers = {**(found.headers or {}), DELIVERY_COUNT: Long(failures)}
        made = encode_properties(found)
        self._note_sound(made)
        return made

    def _note_sound(self, raw: bytes) -> None:
        if len(self._sound) >= _REMEMBERED_MAX:
            self._sound.clear()
        if len(raw) <= _REMEMBERED_BYTES_MAX:
            self._sound.add(raw)


def message_of(parsed: Parsed, body: bytes, key: str, now_ms: int) -> tuple[Message, Routing]:
    """The message to publish, and its routing."""
    headers = parsed.headers
    expires_ms = 0
    if parsed.expiration_ms is not None:
        expires_ms = now_ms + parsed.expiration_ms
        headers = ((names.EXPIRES_AT, b"%d" % expires_ms), *headers)
        if not parsed.expiration_ms:
            # Leaves time for it to reach a queue whose consumer may be waiting.
            expires_ms = AT_ONCE
    routing = Routing((key, *parsed.more_keys), parsed.by_name, parsed.priority, expires_ms)
    return Message(key.encode(), body, headers, now_ms), routing


def _properties_of(message: Message, now_ms: int) -> Properties:
    raw = message.header(RAW)
    if raw is not None:
        try:
            found = decode_properties(raw, 0, len(raw), headers_encoded=True)
        except Malformed:
            pass
        else:
            return _merged(found, message)
    return _made(message, now_ms)


def _parsed(raw: bytes) -> Parsed:
    found = decode_properties(raw, 0, len(raw))
    table = found.headers or {}
    if len(table) > HEADERS_PER_RECORD_MAX // 2:
        raise ChannelRefusal(PRECONDITION_FAILED, f"{len(table)} headers in one message")
    headers: list[Header] = [
        (name, getattr(found, field).encode())
        for field, name in _TEXTS.items()
        if getattr(found, field) is not None
    ]
    if found.priority is not None:
        headers.append((names.PRIORITY, b"%d" % found.priority))
    if found.timestamp is not None:
        headers.append(("timestamp", b"%d" % found.timestamp))
    more: dict[str, list[str]] = {CC: [], BCC: []}
    by_name: dict[str, bytes | None] = {}
    for name, value in table.items():
        if name in more:
            more[name] = _keys(name, value)
            headers += [(name, key.encode()) for key in more[name]]
        elif name not in _HIDDEN:
            text = _history(value) if name == DEATHS else text_of(value)
            by_name[name] = text
            headers.append((names.AMQP_HEADER_PREFIX + name if name in _RENAMED else name, text))
    if BCC in table:
        found = decode_properties(raw, 0, len(raw), headers_encoded=True)
        found.headers = {
            name: value for name, value in (found.headers or {}).items() if name != BCC
        }
        raw = encode_properties(found)
    headers.append((RAW, raw))
    return Parsed(
        raw,
        tuple(headers),
        (*more[CC], *more[BCC]),
        by_name,
        found.priority or 0,
        _expiration_ms(found.expiration),
        found.user_id,
        found.reply_to,
    )


def _keys(name: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(key, str) for key in value):
        raise ChannelRefusal(PRECONDITION_FAILED, f"invalid header '{name}': not a list of strings")
    return value


def _expiration_ms(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        raise ChannelRefusal(PRECONDITION_FAILED, f"invalid expiration '{text}': not an integer")
    if int(text) > EXPIRATION_MS_MAX:
        raise ChannelRefusal(PRECONDITION_FAILED, f"invalid expiration '{text}': value too big")
    return int(text)


def binding_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Binding arguments in the form that record headers have."""
    return {name: value if name == X_MATCH else text_of(value) for name, value in arguments.items()}


def text_of(value: Any) -> bytes | None:
    """The value of a header as other protocols see it."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, Timestamp):
        return b"%d" % value
    if isinstance(value, int | float | Decimal):
        return str(value).encode()
    return msgspec.json.encode(_plain(value))


def _plain(value: Any) -> Any:
    """A list or table in the types of JSON; integers that are too large become text."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, Timestamp):
        return int(value)
    return str(value) if isinstance(value, Decimal) else value


def _merged(found: Properties, message: Message) -> Properties:
    """The original properties, merged with headers that were added to the message later."""
    if message.header(names.EXPIRES_AT) is None:
        found.expiration = None
    place = max(at for at, (name, _) in enumerate(message.headers) if name == RAW)
    added = _table(message.headers[place + 1 :])
    if added:
        found.headers = {**(found.headers or {}), **added}
    return found


def _made(message: Message, now_ms: int) -> Properties:
    """Properties of a message from another protocol; every such message is persistent."""
    found = Properties(delivery_mode=2, headers=_table(message.headers) or None)
    for field, name in _TEXTS.items():
        value = message.header(name)
        if value is not None and len(value) <= TEXT_MAX:
            setattr(found, field, value.decode(errors="replace")[:TEXT_MAX])
    found.priority = message.priority
    if message.expires_ms is not None:
        found.expiration = str(max(0, message.expires_ms - now_ms))
    if message.timestamp_ms >= 0:
        found.timestamp = Timestamp(message.timestamp_ms // 1_000)
    return found


def _table(headers: tuple[Header, ...]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name, value in headers:
        if name in _OURS or name in _HIDDEN or len(name.encode()) > TEXT_MAX:
            continue
        if name == DEATHS and value is not None:
            table[name] = _deaths(value)
        else:
            table[name] = _text_or_bytes(value)
    return table


def _text_or_bytes(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _history(value: Any) -> bytes | None:
    """The ``x-death`` history that a client sent with a message, in the form that records have."""
    if not isinstance(value, list):
        return text_of(value)
    deaths = [dict(each) if isinstance(each, dict) else each for each in value]
    for death in deaths:
        if isinstance(death, dict) and isinstance(time := death.pop("time", None), Timestamp):
            death["time-ms"] = time * 1_000
    return text_of(deaths)


def _deaths(value: bytes) -> Any:
    """The history of a dead letter in the form that RabbitMQ's clients expect."""
    try:
        deaths = msgspec.json.decode(value, type=list[dict[str, Any]])
    except DECODE_ERRORS:
        return _text_or_bytes(value)
    for death in deaths:
        time_ms = death.pop("time-ms", 0)
        if isinstance(time_ms, int) and time_ms >= 0:
            death["time"] = Timestamp(time_ms // 1_000)
        count = death.get("count", 1)
        death["count"] = Long(count) if isinstance(count, int) else count
        death.setdefault("exchange", "")
        death.setdefault("routing-keys", [])
        for ours in ("why", "attempts", "subscriber"):
            death.pop(ours, None)
    return deaths
