"""Frames: type, channel, length, payload, and a byte that marks the end.

    ┌──────┬─────────┬────────┬─────────┬──────┐
    │ type │ channel │ length │ payload │ 0xCE │
    │  1   │    2    │   4    │ length  │  1   │
    └──────┴─────────┴────────┴─────────┴──────┘

A message is a method frame, a header frame and as many body frames as its size requires.
"""

import struct
from typing import Final

from mainstem.wire.amqp.method import Method
from mainstem.wire.amqp.method_codec import encode_method

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
END: Final = 0xCE
HEAD_BYTES: Final = 7
OVERHEAD_BYTES: Final = 8
FRAME_MIN_BYTES: Final = 4096
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

HEAD: Final = struct.Struct(">BHI")
_head = HEAD.pack
_END: Final = b"\xce"
_BASIC: Final = 60
_CONTENT: Final = struct.Struct(">HHQ").pack
_DELIVER: Final = struct.pack(">HH", 60, 60)
_TAG_AND_FLAG: Final = struct.Struct(">QB").pack


def method_frame(channel: int, method: Method) -> bytes:
    """A method in its frame."""
    payload = encode_method(method)
    return _head(METHOD, channel, len(payload)) + payload + _END


def content_frames(
    channel: int, method_payload: bytes, properties: bytes, body: bytes, frame_max: int
) -> bytes:
    """A method with content: its own frame, the header's and those of the body.

    ``properties`` starts with its flags; ``frame_max`` 0 is no limit.
    """
    size = len(body)
    head = (
        _head(METHOD, channel, len(method_payload))
        + method_payload
        + _END
        + _head(HEADER, channel, 12 + len(properties))
        + _CONTENT(_BASIC, 0, size)
        + properties
        + _END
    )
    body_bytes_max = frame_max - OVERHEAD_BYTES if frame_max else size
    if size <= body_bytes_max:
        return head + _head(BODY, channel, size) + body + _END if size else head
    parts = [head]
    for at in range(0, size, body_bytes_max):
        piece = body[at : at + body_bytes_max]
        parts += (_head(BODY, channel, len(piece)), piece, _END)
    return b"".join(parts)


def deliver_payload(
    consumer_tag: bytes, delivery_tag: int, exchange: bytes, key: bytes, *, redelivered: bool
) -> bytes:
    """The payload of ``basic.deliver``; the texts are already length-prefixed."""
    return _DELIVER + consumer_tag + _TAG_AND_FLAG(delivery_tag, redelivered) + exchange + key
