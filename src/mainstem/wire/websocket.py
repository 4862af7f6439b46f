"""WebSocket frames (RFC 6455) as a server reads and writes them.

    reader = FrameReader(payload_bytes_max)
    for opcode, payload in reader.feed(data): …
    frame(BINARY, payload)

Pure. Guarantees: for any bytes, valid frames or ``WebSocketError`` with the code to close with; at
most the memory of one frame of the largest size. Extensions are not supported, so nothing is
decompressed. Boundaries of messages are not reported: protocols on top are streams of bytes.
"""

import base64
import hashlib
from collections.abc import Iterator
from typing import Final

CONTINUATION, TEXT, BINARY = 0x0, 0x1, 0x2
CLOSE, PING, PONG = 0x8, 0x9, 0xA

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
PROTOCOL_ERROR: Final = 1002
UNSUPPORTED_DATA: Final = 1003
TOO_BIG: Final = 1009

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTROL_BYTES_MAX: Final = 125
_KEY_BYTES: Final = 16


class WebSocketError(Exception):
    """The bytes are not WebSocket; ``code`` is the code to close with."""

    def __init__(self, code: int, cause: str) -> None:
        super().__init__(cause)
        self.code = code


def accept_key(key: str) -> str | None:
    """The response to a client's ``Sec-WebSocket-Key``; None if the key is invalid."""
    try:
        if len(base64.b64decode(key, validate=True)) != _KEY_BYTES:
            return None
    except ValueError:
        return None
    digest = hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


def frame(opcode: int, payload: bytes) -> bytes:
    """A whole, unmasked frame of a server."""
    size = len(payload)
    head = bytes((0x80 | opcode,))
    if size <= _CONTROL_BYTES_MAX:
        return head + bytes((size,)) + payload
    if size < 0x1_0000:
        return head + b"\x7e" + size.to_bytes(2) + payload
    return head + b"\x7f" + size.to_bytes(8) + payload


def close_frame(code: int) -> bytes:
    """A close frame, with the reason."""
    return frame(CLOSE, code.to_bytes(2))


class FrameReader:
    """Reads the frames of one client from pieces as they arrive."""

    def __init__(self, payload_bytes_max: int) -> None:
        self.payload_bytes_max = payload_bytes_max
        self._held = bytearray()
        self._in_message = False

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The frames that are complete now: opcode and payload.

        Raises:
            WebSocketError: the bytes are not a valid frame.
        """
        self._held += data
        while (found := self._next()) is not None:
            yield found

    def _next(self) -> tuple[int, bytes] | None:
        held = self._held
        if len(held) < 2:
            return None
        opcode, is_last = held[0] & 0x0F, bool(held[0] & 0x80)
        self._check(opcode, reserved=held[0] & 0x70, is_last=is_last)
        if not held[1] & 0x80:
            raise WebSocketError(PROTOCOL_ERROR, "a client's frame without a mask")
        size, head = held[1] & 0x7F, 2
        if size > _CONTROL_BYTES_MAX:
            head = 4 if size == 126 else 10
            if opcode >= CLOSE:
                raise WebSocketError(PROTOCOL_ERROR, "a long control frame")
            if len(held) < head:
                return None
            size = int.from_bytes(held[2:head])
        if size > self.payload_bytes_max:
            raise WebSocketError(TOO_BIG, f"a frame of {size} bytes")
        until = head + 4 + size
        if len(held) < until:
            return None
        payload = _unmasked(held[head + 4 : until], held[head : head + 4])
        del held[:until]
        if opcode < CLOSE:
            self._in_message = not is_last
        return opcode, payload

    def _check(self, opcode: int, *, reserved: int, is_last: bool) -> None:
        known = opcode in (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG)
        if reserved or not known or (opcode >= CLOSE and not is_last):
            raise WebSocketError(PROTOCOL_ERROR, "an invalid frame header")
        if opcode < CLOSE and (opcode == CONTINUATION) != self._in_message:
            raise WebSocketError(PROTOCOL_ERROR, "a frame out of order")


def _unmasked(payload: bytes | bytearray, mask: bytes | bytearray) -> bytes:
    size = len(payload)
    # As one large number: a loop over bytes would take a hundred times as long.
    over = bytes(mask) * (size // 4 + 1)
    return (int.from_bytes(payload) ^ int.from_bytes(over[:size])).to_bytes(size)
