"""The shape of a produce request: what may be served without decoding it.

Most requests of a connection look alike: one topic, one partition, only correlation id and records
differ. What lies between those is kept with an answer ready to be filled in, for every partition
that the connection writes to.
"""

from struct import Struct
from typing import Any

from mainstem.broker.api.broker import PartitionWriter
from mainstem.broker.api.security import Rights
from mainstem.wire.kafka import codec

API_KEY = 0
FLEXIBLE_SINCE = codec.FLEXIBLE_SINCE[API_KEY]
# Of so many partitions a connection remembers how their requests look.
SHAPES_MAX = 4_096
OFFSET_MARK = 0x5A17_5A17_5A17_5A17  # stands where the base offset will be

ATTRIBUTES_LOW_AT = 22  # the low byte of the attributes in a batch's header
TRANSACTIONAL_BIT = 0x10

_TAIL = b"\0\0\0"  # no tagged fields after partition, topic and request
_int32 = Struct(">i")
_int64 = Struct(">q")
_pack_correlation = _int32.pack_into
_pack_offset = _int64.pack_into


class ProduceShape:
    """What a request must look like to be served without decoding, and its answer to fill in."""

    __slots__ = (
        "acks",
        "answer",
        "flexible",
        "offset_at",
        "prefix",
        "rights",
        "rules",
        "start",
        "throttle_at",
        "transactional",
        "version",
        "writer",
    )

    def __init__(self, writer: PartitionWriter, version: int, acks: int, prefix: bytes) -> None:
        self.writer = writer
        self.version = version
        self.acks = acks
        self.prefix = prefix
        self.flexible = version >= FLEXIBLE_SINCE
        self.start = writer.start_offset
        self.answer = b""
        self.offset_at = self.throttle_at = 0
        # Whose rights allowed the request, and as of which rules: a login may be repeated.
        self.rights: Rights | None = None
        self.rules = 0
        self.transactional = False

    def fits_still(self, buf: Any, records: tuple[int, int], rights: Rights) -> bool:
        """Whether stream and rights are as they were, and the batch is of the kind it was."""
        writer = self.writer
        return (
            writer.start_offset == self.start
            and writer.append_time_ms == -1
            and rights is self.rights
            and rights.version == self.rules
            and not (self.acks == -1 and writer.short_of_replicas)
            and (self.acks == -1 or writer.lapsed is None or writer.lapsed() is None)
            and (self.transactional or not is_transactional(buf, *records))
        )

    def learn_answer(self, frame: bytes) -> None:
        """Keep the encoded answer; its base offset is the mark."""
        self.answer = frame
        self.offset_at = frame.index(_int64.pack(OFFSET_MARK))
        # The time to wait is the last field; flexible versions end with an empty tag section.
        self.throttle_at = len(frame) - (5 if self.flexible else 4)

    def filled(self, correlation: int, base: int, throttle_ms: int = 0) -> bytearray:
        """The answer to one request."""
        frame = bytearray(self.answer)
        _pack_correlation(frame, 4, correlation)
        _pack_offset(frame, self.offset_at, base)
        if throttle_ms:
            _int32.pack_into(frame, self.throttle_at, throttle_ms)
        return frame


class ProduceShapes:
    """What a connection's requests look like; ``last`` is the one that came last, if it is known.

    Only what is as long as the last one is looked for: the requests for the partitions of a topic
    are.
    """

    __slots__ = ("_known", "last")

    def __init__(self) -> None:
        self.last: ProduceShape | None = None
        self._known: dict[bytes, ProduceShape] = {}

    def find(self, prefix: memoryview, version: int) -> ProduceShape | None:
        """The shape of a request that is not like the last one."""
        shape = self._known.get(bytes(prefix))
        if shape is None or shape.version != version:
            return None
        self.last = shape
        return shape

    def learn(self, shape: ProduceShape) -> None:
        """Remember one more."""
        if len(self._known) >= SHAPES_MAX:
            self._known.clear()
        self._known[shape.prefix] = self.last = shape

    def forget(self, shape: ProduceShape) -> None:
        """Requests of this shape are to be looked at closely again."""
        self._known.pop(shape.prefix, None)
        self.last = None


def is_transactional(buf: Any, start: int, until: int) -> bool:
    """Whether the batch in ``buf[start:until]`` says that it belongs to a transaction."""
    at = start + ATTRIBUTES_LOW_AT
    return at < until and bool(buf[at] & TRANSACTIONAL_BIT)


def records_at(buf: Any, at: int, until: int, *, flexible: bool) -> tuple[int, int] | None:
    """Where the records lie if they are the last thing in the request."""
    if not flexible:
        if until - at < 4:
            return None
        (size,) = _int32.unpack_from(buf, at)
        return (at + 4, until) if at + 4 + size == until else None
    size = shift = 0
    while at < until and shift <= 28:
        byte = buf[at]
        at += 1
        size |= (byte & 127) << shift
        if byte < 128:
            end = at + size - 1
            if size and end + len(_TAIL) == until and buf[end:until] == _TAIL:
                return at, end
            return None
        shift += 7
    return None


def prefix_until(
    view: memoryview, start: int, until: int, records: memoryview, version: int
) -> bytes | None:
    """What lies between correlation id and records; None where more follows the records."""
    if version < FLEXIBLE_SINCE:
        return bytes(view[start + 8 : until - len(records) - 4])
    tail = len(_TAIL)
    if view[until - tail : until] != _TAIL:
        return None
    size = _uvarint_bytes(len(records) + 1)
    return bytes(view[start + 8 : until - tail - len(records) - size])


def _uvarint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
