"""Bytes to packets, strictly: a packet that breaks a rule is refused, never repaired.

    head, size = frame_at(buffer, start, until)    how long the next packet is
    packet = decode(first_byte, body, version)

CONNECT determines the version of all later packets of its connection.
"""

from collections.abc import Callable
from typing import Final

from mainstem.wire.mqtt.kinds import V3_1, V3_1_1, V5, Kind
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
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from mainstem.wire.mqtt.primitives import Malformed, Reader, Violation
from mainstem.wire.mqtt.properties import WILL, Properties, read_properties
from mainstem.wire.mqtt.reasons import Reason, reason_of_old
from mainstem.wire.mqtt.topics import is_topic_name, topic_name

_NAMES: Final = {(b"MQTT", V3_1_1): V3_1_1, (b"MQTT", V5): V5, (b"MQIsdp", V3_1): V3_1}
_KNOWN: Final = frozenset(int(reason) for reason in Reason)
_OLD_GRANTED: Final = frozenset({0, 1, 2, 0x80})
_FLAGS: Final = {Kind.PUBREL: 2, Kind.SUBSCRIBE: 2, Kind.UNSUBSCRIBE: 2}


def frame_at(data: bytearray | bytes, start: int, until: int) -> tuple[int, int] | None:
    """(bytes of header, bytes of body) of the packet at ``start``; None if it is incomplete."""
    value = 0
    for place in range(4):
        at = start + 1 + place
        if at >= until:
            return None
        byte = data[at]
        value |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            if place and not byte:
                raise Malformed("a length is not in its shortest form")
            return 2 + place, value
    raise Malformed("a length of more than four bytes")


def decode(first: int, body: bytes, version: int) -> Packet:
    """Decodes a packet from its first byte and body.

    Raises:
        Malformed: the bytes are not a valid packet.
    """
    number, flags = first >> 4, first & 0x0F
    if number == Kind.PUBLISH:
        return _publish(flags, body, version)
    if number not in _READERS:
        raise Malformed(f"packets of kind {number} do not exist")
    kind = Kind(number)
    if flags != _FLAGS.get(kind, 0):
        raise Malformed(f"{kind.name} with flags {flags:04b}")
    reader = Reader(body)
    packet = _READERS[kind](kind, reader, version)
    reader.end()
    return packet


def _properties(reader: Reader, packet: int, version: int) -> Properties:
    return read_properties(reader, packet) if version >= V5 else {}


def _publish(flags: int, body: bytes, version: int) -> Publish:
    qos = flags >> 1 & 3
    if qos == 3:
        raise Malformed("QoS 3 does not exist")
    if flags & 8 and not qos:
        raise Malformed("a repeated message of QoS 0")
    start = 2 + int.from_bytes(body[:2])
    topic = topic_name(body[2:start]) if start <= len(body) else None
    reader = Reader(body, start)
    if topic is None:
        reader.at = 0
        topic = reader.text()
        if topic:
            raise Malformed("a topic name with wildcards", Reason.TOPIC_NAME_INVALID)
    packet_id = _packet_id(reader) if qos else 0
    properties = read_properties(reader, Kind.PUBLISH) if version >= V5 else {}
    if not topic and "topic_alias" not in properties:
        raise Violation("a message without a topic")
    response = properties.get("response_topic")
    if response is not None and not is_topic_name(response):
        raise Violation("a response topic with wildcards")
    return Publish(
        topic, reader.rest(), qos, bool(flags & 1), bool(flags & 8), packet_id, properties
    )


def _packet_id(reader: Reader) -> int:
    found = reader.two()
    if not found:
        raise Violation("packet identifier 0")
    return found


def _connect(_: Kind, reader: Reader, _version: int) -> Connect:
    name, level = reader.binary(), reader.byte()
    version = _NAMES.get((name, level))
    if version is None:
        if name not in (b"MQTT", b"MQIsdp"):
            raise Malformed("the protocol is not MQTT")
        raise Violation(f"version {level} is not served", Reason.UNSUPPORTED_VERSION)
    flags = reader.byte()
    if flags & 1:
        raise Malformed("CONNECT with its reserved flag")
    keep_alive_s = reader.two()
    properties = _properties(reader, Kind.CONNECT, version)
    if "authentication_data" in properties and "authentication_method" not in properties:
        raise Violation("authentication data without a method")
    client_id = reader.text()
    will = _will(reader, flags, version)
    has_name, has_password = flags & 0x80, flags & 0x40
    if has_password and not has_name and version < V5:
        raise Malformed("a password without a user name")
    return Connect(
        version=version,
        client_id=client_id,
        clean_start=bool(flags & 2),
        keep_alive_s=keep_alive_s,
        will=will,
        username=reader.text() if has_name else None,
        password=reader.binary() if has_password else None,
        properties=properties,
    )


def _will(reader: Reader, flags: int, version: int) -> Will | None:
    qos = flags >> 3 & 3
    if not flags & 4:
        if flags & 0x38:
            raise Malformed("will flags without a will")
        return None
    if qos == 3:
        raise Malformed("QoS 3 does not exist")
    properties = _properties(reader, WILL, version)
    topic = reader.text()
    if not is_topic_name(topic):
        raise Malformed("the topic of a will is not a topic name", Reason.TOPIC_NAME_INVALID)
    return Will(topic, reader.binary(), qos, bool(flags & 0x20), properties)


def _connack(_: Kind, reader: Reader, version: int) -> Connack:
    flags = reader.byte()
    if flags & 0xFE:
        raise Malformed("CONNACK with reserved flags")
    if version >= V5:
        return Connack(_reason(reader), bool(flags), read_properties(reader, Kind.CONNACK))
    reason = reason_of_old(reader.byte())
    if reason is None:
        raise Malformed("a return code that does not exist")
    return Connack(reason, bool(flags))


def _ack(kind: Kind, reader: Reader, version: int) -> Ack:
    packet_id = _packet_id(reader)
    if version < V5 or not reader.left:
        return Ack(kind, packet_id)
    reason = _reason(reader)
    return Ack(kind, packet_id, reason, _properties(reader, kind, version) if reader.left else {})


def _reason(reader: Reader) -> int:
    code = reader.byte()
    if code not in _KNOWN:
        raise Malformed(f"reason {code} does not exist")
    return code


def _reasons(reader: Reader, known: frozenset[int]) -> tuple[int, ...]:
    found = tuple(reader.rest())
    if not known.issuperset(found):
        raise Malformed("a reason that does not exist")
    return found


def _subscribe(kind: Kind, reader: Reader, version: int) -> Subscribe:
    packet_id = _packet_id(reader)
    properties = _properties(reader, kind, version)
    found = []
    while reader.left:
        found.append(_subscription(reader.text(), reader.byte(), version))
    if not found:
        raise Violation("SUBSCRIBE without a filter")
    return Subscribe(packet_id, tuple(found), properties)


def _subscription(text: str, options: int, version: int) -> Subscription:
    qos, handling = options & 3, options >> 4 & 3
    if qos == 3 or handling == 3 or options & (0xC0 if version >= V5 else 0xFC):
        raise Malformed(f"subscription options {options:08b}")
    return Subscription(text, qos, bool(options & 4), bool(options & 8), handling)


def _suback(kind: Kind, reader: Reader, version: int) -> Suback:
    packet_id = _packet_id(reader)
    properties = _properties(reader, kind, version)
    return Suback(packet_id, _reasons(reader, _OLD_GRANTED if version < V5 else _KNOWN), properties)


def _unsubscribe(kind: Kind, reader: Reader, version: int) -> Unsubscribe:
    packet_id = _packet_id(reader)
    properties = _properties(reader, kind, version)
    found = []
    while reader.left:
        found.append(reader.text())
    if not found:
        raise Violation("UNSUBSCRIBE without a filter")
    return Unsubscribe(packet_id, tuple(found), properties)


def _unsuback(kind: Kind, reader: Reader, version: int) -> Unsuback:
    packet_id = _packet_id(reader)
    properties = _properties(reader, kind, version)
    return Unsuback(packet_id, _reasons(reader, _KNOWN) if version >= V5 else (), properties)


def _pingreq(_: Kind, _reader: Reader, _version: int) -> Pingreq:
    return Pingreq()


def _pingresp(_: Kind, _reader: Reader, _version: int) -> Pingresp:
    return Pingresp()


def _disconnect(kind: Kind, reader: Reader, version: int) -> Disconnect:
    if version < V5 or not reader.left:
        return Disconnect()
    reason = _reason(reader)
    return Disconnect(reason, _properties(reader, kind, version) if reader.left else {})


def _auth(kind: Kind, reader: Reader, version: int) -> Auth:
    if version < V5:
        raise Malformed("AUTH does not exist before version 5")
    if not reader.left:
        return Auth()
    reason = _reason(reader)
    return Auth(reason, _properties(reader, kind, version) if reader.left else {})


_READERS: Final[dict[int, Callable[[Kind, Reader, int], Packet]]] = {
    Kind.CONNECT: _connect,
    Kind.CONNACK: _connack,
    Kind.PUBACK: _ack,
    Kind.PUBREC: _ack,
    Kind.PUBREL: _ack,
    Kind.PUBCOMP: _ack,
    Kind.SUBSCRIBE: _subscribe,
    Kind.SUBACK: _suback,
    Kind.UNSUBSCRIBE: _unsubscribe,
    Kind.UNSUBACK: _unsuback,
    Kind.PINGREQ: _pingreq,
    Kind.PINGRESP: _pingresp,
    Kind.DISCONNECT: _disconnect,
    Kind.AUTH: _auth,
}
