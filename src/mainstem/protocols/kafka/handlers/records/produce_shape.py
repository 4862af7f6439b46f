"""The shape of a produce request, by which it is served without decoding it.

Most requests of a connection are alike: one topic, one partition, only correlation id and records
differ. The bytes between those are kept, with a prepared response, for every partition that the
connection writes to.
"""

from struct import Struct
from typing import Any

from mainstem.broker.api.broker import PartitionWriter
from mainstem.broker.api.security import Rights
from mainstem.wire.kafka import codec

API_KEY = 0
FLEXIBLE_SINCE = codec.FLEXIBLE_SINCE[API_KEY]
# A connection keeps the shapes of at most this many partitions.
SHAPES_MAX = 4_096
OFFSET_MARK = 0x5A17_5A17_5A17_5A17  # placeholder of the base offset

ATTRIBUTES_LOW_AT = 22  # the low byte of the attributes in a batch's header
TRANSACTIONAL_BIT = 0x10

_TAIL = b"\0\0\0"  # no tagged fields after partition, topic and request
_int32 = Struct(">i")
_int64 = Struct(">q")
_pack_correlation = _int32.pack_into
_pack_offset = _int64.pack_into


class ProduceShape:
    """The fixed bytes of a request that is served without decoding, and its prepared response."""

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
        # The rights that allowed the request, and their version: a login may be repeated.
        self.rights: Rights | None = None
        self.rules = 0
        self.transactional = False

    def fits_still(self, buf: Any, records: tuple[int, int], rights: Rights) -> bool:
        """Whether stream, rights and kind of batch are unchanged."""
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
        """Keep the encoded response; its base offset is ``OFFSET_MARK``."""
        self.answer = frame
        self.offset_at = frame.index(_int64.pack(OFFSET_MARK))
        # throttle_time_ms is the last field; flexible versions end with an empty tag section.
        self.throttle_at = len(frame) - (5 if self.flexible else 4)

    def filled(self, correlation: int, base: int, throttle_ms: int = 0) -> bytearray:
        """The response to one request."""
        frame = bytearray(self.answer)
        _pack_correlation(frame, 4, correlation)
        _pack_offset(frame, self.offset_at, base)
        if throttle_ms:
            _int32.pack_into(frame, self.throttle_at, throttle_ms)
        return frame


class ProduceShapes:
    """The shapes of a connection's requests; ``last`` is that of the last request, if known.

    Only shapes as long as the last one are searched: the requests for the partitions of one topic
    have the same length.
    """

    __slots__ = ("_known", "last")

    def __init__(self) -> None:
        self.last: ProduceShape | None = None
        self._known: dict[bytes, ProduceShape] = {}

    def find(self, prefix: memoryview, version: int) -> ProduceShape | None:
        """The shape of a request that differs from the last one."""
        shape = self._known.get(bytes(prefix))
        if shape is None or shape.version != version:
            return None
        self.last = shape
        return shape

    def learn(self, shape: ProduceShape) -> None:
        """Add a shape."""
        if len(self._known) >= SHAPES_MAX:
            self._known.clear()
        self._known[shape.prefix] = self.last = shape

    def forget(self, shape: ProduceShape) -> None:
        """Remove a shape: its requests are decoded again."""
        self._known.pop(shape.prefix, None)
        self.last = None


def is_transactional(buf: Any, start: int, until: int) -> bool:
    """Whether the batch in ``buf[start:until]`` is transactional."""
    at = start + ATTRIBUTES_LOW_AT
    return at < until and bool(buf[at] & TRANSACTIONAL_BIT)


def records_at(buf: Any, at: int, until: int, *, flexible: bool) -> tuple[int, int] | None:
    """Start and end of the records if they are the last field of the request."""
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
    """The bytes between correlation id and records; None if more follows the records."""
    if version < FLEXIBLE_SINCE:
        return bytes(view[start + 8 : until - len(records) - 4])
    tail = len(_TAIL)
    if view[until - tail : until] != _TAIL:
        return None
    size = _uvarint_bytes(len(records) + 1)
    return bytes(view[start + 8 : until - tail - len(records) - size])


def _uvarint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
