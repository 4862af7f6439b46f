"""Writes what clients push, field by field."""

import struct


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def text(number: int, value: str) -> bytes:
    return message(number, value.encode())


def fixed(number: int, layout: str, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack(layout, value)


def attribute(number: int, key: str, value: bytes) -> bytes:
    return message(number, text(1, key) + message(2, value))


def point(value: float, *attributes: bytes, time_ns: int = 0) -> bytes:
    kind = fixed(4, "<d", value) if isinstance(value, float) else fixed(6, "<q", value)
    return b"".join(attributes) + fixed(3, "<Q", time_ns) + kind


def gauge(name: str, *points: bytes) -> bytes:
    return text(1, name) + message(5, b"".join(message(1, each) for each in points))


def total(name: str, *points: bytes) -> bytes:
    flags = varint(2 << 3) + varint(1) + varint(3 << 3) + varint(1)
    return text(1, name) + message(7, b"".join(message(1, each) for each in points) + flags)


def histogram(name: str, count: int, value: float) -> bytes:
    counted = fixed(4, "<Q", count) + fixed(5, "<d", value) + message(6, bytes(16))
    return text(1, name) + message(9, message(1, counted))


def pushed(*metrics: bytes, resource: bytes = b"") -> bytes:
    scope = b"".join(message(2, metric) for metric in metrics)
    return message(1, message(1, resource) + message(2, scope))
