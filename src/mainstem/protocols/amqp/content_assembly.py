"""Assembles incoming messages from their frames, channel by channel.

    basic.publish ─▶ header (size, properties) ─▶ body, body, … ─▶ Content

Any other frame in between is an error that closes the connection. Unfinished messages are limited
by the largest message and, over all channels of a connection, by ``UNFINISHED_BYTES_MAX``.
"""

import struct
from typing import Final, NamedTuple

from mainstem.model.limits import MIB
from mainstem.protocols.amqp.errors import (
    PRECONDITION_FAILED,
    RESOURCE_ERROR,
    UNEXPECTED_FRAME,
    ChannelRefusal,
    ConnectionRefusal,
)
from mainstem.protocols.frame_memory import FrameMemory
from mainstem.wire.amqp.fields import Malformed

UNFINISHED_BYTES_MAX: Final = 256 * MIB
_BASIC: Final = 60
_HEADER = struct.Struct(">HHQ").unpack_from
_HEADER_BYTES: Final = 12


class Publish(NamedTuple):
    """The fields of ``basic.publish``."""

    exchange: str
    key: str
    mandatory: bool
    immediate: bool


class Content(NamedTuple):
    """A complete message as it was received."""

    publish: Publish
    properties: bytes
    body: bytes

    @property
    def size_bytes(self) -> int:
        """The approximate size in memory."""
        return len(self.properties) + len(self.body)


class Unfinished:
    """Counts the bytes of unfinished messages of a connection."""

    __slots__ = ("_memory", "size_bytes")

    def __init__(self, memory: FrameMemory) -> None:
        self._memory = memory
        self.size_bytes = 0

    def take(self, size: int) -> None:
        """Reserve bytes for an unfinished message.

        Raises:
            ConnectionRefusal: the limit of the connection or of the node is exceeded.
        """
        if self.size_bytes + size > UNFINISHED_BYTES_MAX or not self._memory.take(size):
            raise ConnectionRefusal(RESOURCE_ERROR, "unfinished messages exceed their memory limit")
        self.size_bytes += size

    def give_back(self, size: int) -> None:
        """Release bytes: their message is complete or discarded."""
        self.size_bytes -= size
        self._memory.give_back(size)


class ContentAssembly:
    """The message that one channel is currently receiving."""

    __slots__ = ("_has_header", "_left", "_max", "_parts", "_properties", "_publish", "_unfinished")

    def __init__(self, message_bytes_max: int, unfinished: Unfinished) -> None:
        self._max = message_bytes_max
        self._unfinished = unfinished
        self._publish: Publish | None = None
        self._has_header = False
        self._properties = b""
        self._parts: list[bytes] = []
        self._left = 0

    @property
    def is_open(self) -> bool:
        """Whether a message is incomplete."""
        return self._publish is not None

    def begin(self, publish: Publish) -> None:
        """Start a message; its content follows."""
        self._publish = publish

    def header(self, view: memoryview, start: int, until: int) -> Content | None:
        """Handle the content header; returns the message if it has no body."""
        publish = self._publish
        if publish is None or self._has_header:
            raise unexpected("a content header")
        if until - start < _HEADER_BYTES:
            raise Malformed("a content header is too short")
        number, _, size = _HEADER(view, start)
        if number != _BASIC:
            raise unexpected(f"a content header of class {number}")
        properties = bytes(view[start + _HEADER_BYTES : until])
        if not size:
            self._publish = None
            return Content(publish, properties, b"")
        if size > self._max:
            raise ChannelRefusal(
                PRECONDITION_FAILED,
                f"message size {size} is larger than configured max size {self._max}",
            )
        self._properties = properties
        self._left = size
        self._has_header = True
        return None

    def body(self, view: memoryview, start: int, until: int) -> Content | None:
        """Handle a part of the body; returns the message if it was the last part."""
        publish = self._publish
        size = until - start
        if publish is None or not self._has_header:
            raise unexpected("a content body")
        if size > self._left:
            raise unexpected("a longer body than the header announced")
        self._left -= size
        piece = bytes(view[start:until])
        if self._left:
            self._unfinished.take(size)
            self._parts.append(piece)
            return None
        if self._parts:
            self._parts.append(piece)
            piece = b"".join(self._parts)
        content = Content(publish, self._properties, piece)
        self.forget()
        return content

    def forget(self) -> None:
        """Discard the current message: it is complete, or the channel is closed."""
        if self._parts:
            kept = self._parts[:-1] if not self._left else self._parts
            self._unfinished.give_back(sum(len(part) for part in kept))
            self._parts = []
        self._publish = None
        self._has_header = False
        self._left = 0


def unexpected(what: str) -> ConnectionRefusal:
    """The refusal of a frame that is not allowed at this point."""
    return ConnectionRefusal(UNEXPECTED_FRAME, f"unexpected frame: {what}")
