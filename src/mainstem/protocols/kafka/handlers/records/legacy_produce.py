"""Produce versions 0 to 2: refused, but advertised, because librdkafka needs them to compress.

They carry record formats older than 2, which are not stored. The response has the format of these
versions, with an error for every partition.
"""

from struct import Struct, error

from mainstem.model.errors import ErrorCode
from mainstem.protocols.kafka.errors import kafka_code
from mainstem.wire.kafka.codec import Malformed

NEWEST = 2

_int16 = Struct(">h")
_int32 = Struct(">i")


def refuse(version: int, correlation: int, body: memoryview) -> list[bytes]:
    """The response frame that refuses every partition of the request."""
    code = kafka_code(ErrorCode.UNSUPPORTED_RECORD_FORMAT)
    try:
        parts = _partitions(body)
    except (error, UnicodeDecodeError) as reason:
        raise Malformed(f"the produce request is malformed: {reason}") from reason
    out = bytearray(_int32.pack(len(parts)))
    for topic, indexes in parts:
        out += _int16.pack(len(topic)) + topic + _int32.pack(len(indexes))
        for index in indexes:
            out += Struct(">ihq").pack(index, code, -1)
            if version >= 2:
                out += Struct(">q").pack(-1)
    if version >= 1:
        out += _int32.pack(0)
    return [Struct(">ii").pack(len(out) + 4, correlation), bytes(out)]


def _partitions(body: memoryview) -> list[tuple[bytes, list[int]]]:
    at = 6  # acks and timeout
    (topic_count,) = _int32.unpack_from(body, at)
    at += 4
    topics = []
    for _ in range(topic_count):
        (size,) = _int16.unpack_from(body, at)
        name = bytes(body[at + 2 : at + 2 + max(size, 0)])
        at += 2 + len(name)
        (count,) = _int32.unpack_from(body, at)
        at += 4
        indexes = []
        for _ in range(count):
            index, size = Struct(">ii").unpack_from(body, at)
            if size < 0 or size > len(body) - at:
                raise Malformed("records exceed the request")
            at += 8 + size
            indexes.append(index)
        topics.append((name, indexes))
    return topics
