"""Frames between two nodes.

    length   kind     service   number    body
    4 bytes  1 byte   1 byte    4 bytes   length - 6 bytes

Since version 2 a tag follows the body, and the length counts it (``protection``).

A *note* is not answered and may get lost; a *question* has a number that its *answer* or *refusal*
repeats. Pure: bytes in, frames out.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from mainstem.model.errors import Corrupt
from mainstem.model.limits import PEER_FRAME_BYTES_MAX

HEADER: Final = Struct(">IBBI")
# The length counts what follows it.
COUNTED_BYTES: Final = HEADER.size - 4
BODY_BYTES_MAX: Final = PEER_FRAME_BYTES_MAX
TAG_BYTES: Final = 16
NUMBER_MODULUS: Final = 1 << 32
# A larger buffer is not kept for the frames that follow.
SPARE_BYTES_MAX: Final = 1024 * 1024


Chunk = bytes | bytearray | memoryview
# Verifies a whole frame with its tag; returns the body.
Opener = Callable[[memoryview], memoryview]


class FrameKind(IntEnum):
    """Kind of a frame."""

    HELLO = 0
    NOTE = 1
    QUESTION = 2
    ANSWER = 3
    REFUSAL = 4


_KINDS: Final = tuple(FrameKind)


class PeerService(IntEnum):
    """The part of a node that a frame is for."""

    HANDSHAKE = 0
    RAFT = 1
    RANGES = 2
    CATALOGUE = 3
    REQUESTS = 4
    JOINING = 5
    LEASES = 6
    MARKERS = 7
    QUEUES = 8
    GOSSIP = 9
    SHARES = 10
    GROUPS = 11
    MOVES = 12


class Frame(NamedTuple):
    """One frame; the buffer that its body views is not written to."""

    kind: FrameKind
    service: int
    number: int
    body: memoryview


def header(kind: FrameKind, service: int, number: int, body_bytes: int) -> bytes:
    """The header of a frame."""
    return HEADER.pack(COUNTED_BYTES + body_bytes, kind, service, number)


class FrameDecoder:
    """Collects received bytes and cuts them into frames, without copying complete ones.

    Bytes are appended to those before them. A full buffer is reused from its start if no frame
    refers to it; otherwise a new one replaces it. Buffers grow with the frames received, so
    that the next frame of that size needs no new one.

    Args:
        body_bytes_max: a larger body is refused before memory is allocated for it.

    Attributes:
        opener: verifies every frame that is cut from now on; None: frames have no tag.
    """

    def __init__(self, *, buffer_bytes: int, body_bytes_max: int) -> None:
        self.body_bytes_max = body_bytes_max
        self.opener: Opener | None = None
        self._buffer_bytes = buffer_bytes
        self._usual_bytes = buffer_bytes
        self._buffer = bytearray(buffer_bytes)
        self._spare = bytearray()
        # The unfinished frame: where it starts, how much has arrived, and its size once known.
        self._start = self._until = 0
        self._need = HEADER.size

    def free_space(self) -> memoryview:
        """The buffer for the next bytes."""
        start, until = self._start, self._until
        if start == until > 0 or start + max(self._need, self._buffer_bytes) > len(self._buffer):
            self._make_space()
        return memoryview(self._buffer)[self._until :]

    def received(self, count: int, *, limit: int | None = None) -> list[Frame]:
        """So many bytes have arrived; the frames that are complete now, or the first of them.

        Raises:
            Corrupt: the bytes are no frame, it is too large, or its tag is wrong.
        """
        self._until += count
        frames: list[Frame] = []
        if self._until - self._start < self._need:
            return frames
        view = memoryview(self._buffer)
        opener = self.opener
        length_max = COUNTED_BYTES + self.body_bytes_max + (TAG_BYTES if opener else 0)
        length_min = COUNTED_BYTES + (TAG_BYTES if opener else 0)
        self._need = HEADER.size
        while self._until - self._start >= HEADER.size and len(frames) != limit:
            start = self._start
            length, kind, service, number = HEADER.unpack_from(view, start)
            if not length_min <= length <= length_max:
                raise Corrupt(f"a frame of {length} bytes from a node")
            end = start + 4 + length
            if end > self._until:
                self._need = 4 + length
                break
            body = opener(view[start:end]) if opener else view[start + HEADER.size : end]
            frames.append(Frame(_kind(kind), service, number, body))
            self._start = end
        return frames

    def _make_space(self) -> None:
        """Move the unfinished frame to the start of a buffer that can hold it."""
        old, start, held = self._buffer, self._start, self._until - self._start
        wanted = max(self._need, self._buffer_bytes, held + 1)
        is_usual = len(old) <= SPARE_BYTES_MAX or wanted > SPARE_BYTES_MAX
        if wanted > len(old) or not is_usual or not _is_unwatched(old):
            self._buffer = self._another(wanted)
            self._spare = old if len(old) <= SPARE_BYTES_MAX else bytearray()
        if held:
            memoryview(self._buffer)[:held] = memoryview(old)[start : start + held]
        self._start, self._until = 0, held

    def _another(self, wanted_bytes: int) -> bytearray:
        if self._usual_bytes < wanted_bytes <= SPARE_BYTES_MAX:
            self._usual_bytes = 1 << (wanted_bytes - 1).bit_length()
        size, spare = max(wanted_bytes, self._usual_bytes), self._spare
        if len(spare) >= size and _is_unwatched(spare):
            return spare
        return bytearray(size)


def _is_unwatched(buffer: bytearray) -> bool:
    """Whether no view of a buffer exists: only then can it be resized, which this tries."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


def _kind(value: int) -> FrameKind:
    if value >= len(_KINDS):
        raise Corrupt(f"a frame of kind {value} from a node")
    return _KINDS[value]
