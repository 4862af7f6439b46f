"""Packets to bytes; fields that the version of a connection lacks are omitted."""

from collections.abc import Callable
from typing import Any, Final

from mainstem.wire.mqtt.kinds import V3_1, V5, Kind
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
    Unsuback,
    Unsubscribe,
)
from mainstem.wire.mqtt.primitives import write_binary, write_length, write_text
from mainstem.wire.mqtt.properties import Properties, write_properties
from mainstem.wire.mqtt.reasons import REFUSED, Reason, old_connect_code

_OLD_FAILURE: Final = 0x80


def encode(packet: Packet, version: int) -> bytes:
    """The bytes of a packet."""
    first, write = _WRITERS[type(packet)]
    if isinstance(packet, Ack):
        first = packet.kind << 4 | (2 if packet.kind is Kind.PUBREL else 0)
    elif isinstance(packet, Publish):
        first |= packet.dup << 3 | packet.qos << 1 | packet.retain
    body = bytearray()
    write(body, packet, version)
    out = bytearray((first,))
    write_length(out, len(body))
    out += body
    return bytes(out)


def _properties(out: bytearray, properties: Properties, version: int) -> None:
    if version >= V5:
        write_properties(out, properties)


def _connect(out: bytearray, packet: Connect, _: int) -> None:
    version, will = packet.version, packet.will
    write_binary(out, b"MQIsdp" if version == V3_1 else b"MQTT")
    out.append(version)
    flags = packet.clean_start << 1
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
    flags |= (packet.username is not None) << 7 | (packet.password is not None) << 6
    out.append(flags)
    out += packet.keep_alive_s.to_bytes(2)
    _properties(out, packet.properties, version)
    write_text(out, packet.client_id)
    if will is not None:
        _properties(out, will.properties, version)
        write_text(out, will.topic)
        write_binary(out, will.payload)
    if packet.username is not None:
        write_text(out, packet.username)
    if packet.password is not None:
        write_binary(out, packet.password)


def _connack(out: bytearray, packet: Connack, version: int) -> None:
    out.append(packet.session_present)
    out.append(packet.reason if version >= V5 else old_connect_code(packet.reason))
    _properties(out, packet.properties, version)


def _publish(out: bytearray, packet: Publish, version: int) -> None:
    write_text(out, packet.topic)
    if packet.qos:
        out += packet.packet_id.to_bytes(2)
    if version >= V5:
        write_properties(out, packet.properties)
    out += packet.payload


def _ack(out: bytearray, packet: Ack, version: int) -> None:
    out += packet.packet_id.to_bytes(2)
    if version >= V5 and (packet.reason or packet.properties):
        out.append(packet.reason)
        if packet.properties:
            write_properties(out, packet.properties)


def _subscribe(out: bytearray, packet: Subscribe, version: int) -> None:
    out += packet.packet_id.to_bytes(2)
    _properties(out, packet.properties, version)
    for each in packet.subscriptions:
        write_text(out, each.filter)
        options = each.qos
        if version >= V5:
            options |= each.no_local << 2 | each.retain_as_published << 3
            options |= each.retain_handling << 4
        out.append(options)


def _suback(out: bytearray, packet: Suback, version: int) -> None:
    out += packet.packet_id.to_bytes(2)
    _properties(out, packet.properties, version)
    for reason in packet.reasons:
        out.append(reason if version >= V5 or reason < REFUSED else _OLD_FAILURE)


def _unsubscribe(out: bytearray, packet: Unsubscribe, version: int) -> None:
    out += packet.packet_id.to_bytes(2)
    _properties(out, packet.properties, version)
    for each in packet.filters:
        write_text(out, each)


def _unsuback(out: bytearray, packet: Unsuback, version: int) -> None:
    out += packet.packet_id.to_bytes(2)
    if version >= V5:
        write_properties(out, packet.properties)
        out += bytes(packet.reasons)


def _nothing(_out: bytearray, _packet: Packet, _version: int) -> None:
    """Pings have no body."""


def _reasoned(out: bytearray, packet: Disconnect | Auth, version: int) -> None:
    if version >= V5 and (packet.reason != Reason.SUCCESS or packet.properties):
        out.append(packet.reason)
        if packet.properties:
            write_properties(out, packet.properties)


_WRITERS: Final[dict[type, tuple[int, Callable[[bytearray, Any, int], None]]]] = {
    Connect: (Kind.CONNECT << 4, _connect),
    Connack: (Kind.CONNACK << 4, _connack),
    Publish: (Kind.PUBLISH << 4, _publish),
    Ack: (0, _ack),
    Subscribe: (Kind.SUBSCRIBE << 4 | 2, _subscribe),
    Suback: (Kind.SUBACK << 4, _suback),
    Unsubscribe: (Kind.UNSUBSCRIBE << 4 | 2, _unsubscribe),
    Unsuback: (Kind.UNSUBACK << 4, _unsuback),
    Pingreq: (Kind.PINGREQ << 4, _nothing),
    Pingresp: (Kind.PINGRESP << 4, _nothing),
    Disconnect: (Kind.DISCONNECT << 4, _reasoned),
    Auth: (Kind.AUTH << 4, _reasoned),
}
