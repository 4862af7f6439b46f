"""The properties of MQTT 5: one table with the type, the packets and the repeatability of each.

A set of properties is a plain ``dict`` from the names below to values; ``user_properties`` is a
tuple of pairs and ``subscription_identifiers`` a tuple of numbers, since these may be repeated.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from mainstem.wire.mqtt.kinds import Kind
from mainstem.wire.mqtt.primitives import (
    Malformed,
    Reader,
    Violation,
    write_binary,
    write_length,
    write_text,
)

Properties = dict[str, Any]

NONE: Final[Properties] = {}
WILL: Final = 0  # the properties of a will have no packet of their own; its number is free

USER: Final = "user_properties"
SUBSCRIPTION_IDS: Final = "subscription_identifiers"
USER_PROPERTIES_MAX: Final = 1_000  # per packet


class _Form(NamedTuple):
    read: Callable[[Reader], Any]
    write: Callable[[bytearray, Any], None]


def _write_two(out: bytearray, value: int) -> None:
    out += value.to_bytes(2)


def _write_four(out: bytearray, value: int) -> None:
    out += value.to_bytes(4)


def _read_pair(reader: Reader) -> tuple[str, str]:
    return reader.text(), reader.text()


def _write_pair(out: bytearray, pair: tuple[str, str]) -> None:
    write_text(out, pair[0])
    write_text(out, pair[1])


_BYTE: Final = _Form(Reader.byte, bytearray.append)
_TWO: Final = _Form(Reader.two, _write_two)
_FOUR: Final = _Form(Reader.four, _write_four)
_LENGTH: Final = _Form(Reader.length, write_length)
_BINARY: Final = _Form(Reader.binary, write_binary)
_TEXT: Final = _Form(Reader.text, write_text)
_PAIR: Final = _Form(_read_pair, _write_pair)


class Property(NamedTuple):
    """One row: the number on the wire, the name, the form, and the packets that may carry it."""

    number: int
    name: str
    form: _Form
    packets: frozenset[int]
    least: int = 0
    most: int | None = None
    repeats: bool = False


_ACKS = (Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP)
_ANSWERS = (Kind.CONNACK, *_ACKS, Kind.SUBACK, Kind.UNSUBACK, Kind.DISCONNECT, Kind.AUTH)
_EVERYWHERE = (*_ANSWERS, Kind.CONNECT, Kind.PUBLISH, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE, WILL)


def _row(number: int, name: str, form: _Form, *packets: int, **bounds: Any) -> Property:
    return Property(number, name, form, frozenset(int(kind) for kind in packets), **bounds)


TABLE: Final = (
    _row(0x01, "payload_format_indicator", _BYTE, Kind.PUBLISH, WILL, most=1),
    _row(0x02, "message_expiry_interval", _FOUR, Kind.PUBLISH, WILL),
    _row(0x03, "content_type", _TEXT, Kind.PUBLISH, WILL),
    _row(0x08, "response_topic", _TEXT, Kind.PUBLISH, WILL),
    _row(0x09, "correlation_data", _BINARY, Kind.PUBLISH, WILL),
    _row(0x0B, SUBSCRIPTION_IDS, _LENGTH, Kind.PUBLISH, Kind.SUBSCRIBE, least=1, repeats=True),
    _row(0x11, "session_expiry_interval", _FOUR, Kind.CONNECT, Kind.CONNACK, Kind.DISCONNECT),
    _row(0x12, "assigned_client_identifier", _TEXT, Kind.CONNACK),
    _row(0x13, "server_keep_alive", _TWO, Kind.CONNACK),
    _row(0x15, "authentication_method", _TEXT, Kind.CONNECT, Kind.CONNACK, Kind.AUTH),
    _row(0x16, "authentication_data", _BINARY, Kind.CONNECT, Kind.CONNACK, Kind.AUTH),
    _row(0x17, "request_problem_information", _BYTE, Kind.CONNECT, most=1),
    _row(0x18, "will_delay_interval", _FOUR, WILL),
    _row(0x19, "request_response_information", _BYTE, Kind.CONNECT, most=1),
    _row(0x1A, "response_information", _TEXT, Kind.CONNACK),
    _row(0x1C, "server_reference", _TEXT, Kind.CONNACK, Kind.DISCONNECT),
    _row(0x1F, "reason_string", _TEXT, *_ANSWERS),
    _row(0x21, "receive_maximum", _TWO, Kind.CONNECT, Kind.CONNACK, least=1),
    _row(0x22, "topic_alias_maximum", _TWO, Kind.CONNECT, Kind.CONNACK),
    _row(0x23, "topic_alias", _TWO, Kind.PUBLISH),
    _row(0x24, "maximum_qos", _BYTE, Kind.CONNACK, most=1),
    _row(0x25, "retain_available", _BYTE, Kind.CONNACK, most=1),
    _row(0x26, USER, _PAIR, *_EVERYWHERE, repeats=True),
    _row(0x27, "maximum_packet_size", _FOUR, Kind.CONNECT, Kind.CONNACK, least=1),
    _row(0x28, "wildcard_subscription_available", _BYTE, Kind.CONNACK, most=1),
    _row(0x29, "subscription_identifier_available", _BYTE, Kind.CONNACK, most=1),
    _row(0x2A, "shared_subscription_available", _BYTE, Kind.CONNACK, most=1),
)
_BY_NUMBER: Final = {row.number: row for row in TABLE}
_BY_NAME: Final = {row.name: row for row in TABLE}


def read_properties(reader: Reader, packet: int) -> Properties:
    """Decodes properties at the reader's position; absent ones are not in the dictionary."""
    size = reader.length()
    if not size:
        return {}
    until = reader.at + size
    if until > reader.until:
        raise Malformed("properties are longer than their packet")
    inner = Reader(reader.data, reader.at, until)
    found: Properties = {}
    while inner.at < until:
        _read_one(inner, packet, found)
    reader.at = until
    for name in (USER, SUBSCRIPTION_IDS):
        if name in found:
            found[name] = tuple(found[name])
    return found


def _read_one(reader: Reader, packet: int, found: Properties) -> None:
    number = reader.length()
    row = _BY_NUMBER.get(number)
    if row is None:
        raise Malformed(f"property {number} is not known")
    if packet not in row.packets:
        raise Malformed(f"{row.name} is not allowed in this packet")
    value = row.form.read(reader)
    if (row.least or row.most is not None) and not _fits(row, value):
        raise Violation(f"{row.name} cannot be {value}")
    if row.repeats:
        many = found.setdefault(row.name, [])
        once = packet == Kind.SUBSCRIBE and row.name == SUBSCRIPTION_IDS
        if len(many) >= (1 if once else USER_PROPERTIES_MAX):
            raise Violation(f"{row.name} is repeated too often in a packet")
        many.append(value)
    elif row.name in found:
        raise Violation(f"{row.name} is repeated in a packet")
    else:
        found[row.name] = value


def _fits(row: Property, value: int) -> bool:
    return value >= row.least and (row.most is None or value <= row.most)


def write_properties(out: bytearray, properties: Properties) -> None:
    """Length-prefixed properties."""
    if not properties:
        out.append(0)
        return
    inner = bytearray()
    for name, value in properties.items():
        row = _BY_NAME[name]
        for each in value if row.repeats else (value,):
            inner.append(row.number)
            row.form.write(inner, each)
    write_length(out, len(inner))
    out += inner
