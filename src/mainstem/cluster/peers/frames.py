"""What two nodes send each other, cut into frames.

    length   kind     service   number    body
    4 bytes  1 byte   1 byte    4 bytes   length - 6 bytes

A *note* is not answered and may get lost; a *question* has a number that its *answer* or *refusal*
repeats. Pure: bytes in, frames out.
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from mainstem.model.errors import Corrupt

HEADER: Final = Struct(">IBBI")
LENGTH: Final = Struct(">I")
# The length counts what follows it.
COUNTED_BYTES: Final = HEADER.size - 4
BODY_BYTES_MAX: Final = 64 * 1024 * 1024
NUMBER_MODULUS: Final = 1 << 32
# A larger buffer is not kept for the frames that follow.
SPARE_BYTES_MAX: Final = 1024 * 1024


class Kind(IntEnum):
    """What a frame is."""

    HELLO = 0
    NOTE = 1
    QUESTION = 2
    ANSWER = 3
    REFUSAL = 4


class Service(IntEnum):
    """For which part of a node a frame is."""

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


class Frame(NamedTuple):
    """One frame; nobody writes to what its body looks at."""

    kind: Kind
    service: int
    number: int
    body: memoryview


def header(kind: Kind, service: int, number: int, body_bytes: int) -> bytes:
    """What goes before a body."""
    return HEADER.pack(COUNTED_BYTES + body_bytes, kind, service, number)


class FrameCutter:
    """Collects received bytes and cuts them into frames, without copying what has arrived whole.

    Two buffers take turns as long as nobody keeps what was handed out of them; whoever does keeps
    the buffer. Both grow with the frames that come, so that the next of that size needs no other.

    Args:
        body_bytes_max: a larger body is refused before room is made for it.
    """

    def __init__(self, *, room_bytes: int, body_bytes_max: int) -> None:
        self.body_bytes_max = body_bytes_max
        self._room_bytes = room_bytes
        self._usual_bytes = room_bytes
        self._buffer = bytearray(room_bytes)
        self._spare = bytearray()
        self._start = self._until = 0

    def room(self) -> memoryview:
        """Where the next bytes belong."""
        return memoryview(self._buffer)[self._until :]

    def received(self, count: int) -> list[Frame]:
        """So many bytes have come; the frames that are whole now.

        Raises:
            Corrupt: what comes is no frame, or too large a one.
        """
        self._until += count
        frames: list[Frame] = []
        view = memoryview(self._buffer)
        while self._until - self._start >= HEADER.size:
            length, kind, service, number = HEADER.unpack_from(self._buffer, self._start)
            if not COUNTED_BYTES <= length <= COUNTED_BYTES + self.body_bytes_max:
                if frames:
                    break  # one of these may be the proof that makes larger ones welcome
                raise Corrupt(f"a frame of {length} bytes from a node")
            end = self._start + 4 + length
            if end > self._until:
                break
            frames.append(
                Frame(_kind(kind), service, number, view[self._start + HEADER.size : end])
            )
            self._start = end
        self._make_room(is_handed_out=bool(frames))
        return frames

    def _make_room(self, *, is_handed_out: bool) -> None:
        """Let the unfinished frame stand at the front of a buffer that can hold it."""
        held = self._until - self._start
        wanted = self._room_bytes
        if held >= 4:
            (length,) = LENGTH.unpack_from(self._buffer, self._start)
            wanted = max(wanted, held + 1, 4 + min(length, COUNTED_BYTES + self.body_bytes_max))
        if not is_handed_out and self._start + wanted <= len(self._buffer):
            return
        old = self._buffer
        if is_handed_out or wanted > len(old):
            # Frames that were handed out still look at the old buffer.
            self._buffer = self._another(wanted)
            if held:
                memoryview(self._buffer)[:held] = memoryview(old)[self._start : self._until]
            self._spare = old if len(old) <= SPARE_BYTES_MAX else bytearray()
        else:
            old[:held] = old[self._start : self._until]
        self._start, self._until = 0, held

    def _another(self, wanted_bytes: int) -> bytearray:
        if self._usual_bytes < wanted_bytes <= SPARE_BYTES_MAX:
            self._usual_bytes = 1 << (wanted_bytes - 1).bit_length()
        size, spare = max(wanted_bytes, self._usual_bytes), self._spare
        if len(spare) >= size and _is_unwatched(spare):
            return spare
        return bytearray(size)


def _is_unwatched(buffer: bytearray) -> bool:
    """Whether nothing looks at a buffer: only then may its size change, and here it does not."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


def _kind(value: int) -> Kind:
    try:
        return Kind(value)
    except ValueError:
        raise Corrupt(f"a frame of kind {value} from a node") from None
