"""Codec for the subscription metadata and the assignment of classic consumers.

    subscription: version (2)  topics  user data  [1: owned partitions  [2: generation  [3: rack]]]
    assignment:   version (2)  topics with partitions  user data

Later versions only append fields, so a newer one is read as version 3. Bytes in any other format
are ``Corrupt``; no bytes at all are an empty assignment.
"""

import struct

from msgspec import Struct

from mainstem.coordination.shards.primitive_types import INT, SHORT, PrimitiveReader, text
from mainstem.model.errors import Corrupt

_NEWEST = 3
_FIRST_WITH_OWNED = 1
_FIRST_WITH_GENERATION = 2
_FIRST_WITH_RACK = 3

NamedPartitions = dict[str, frozenset[int]]


class EmbeddedSubscription(Struct, frozen=True):
    """Topics that a classic consumer subscribes to, and the partitions it owns."""

    version: int
    topics: tuple[str, ...]
    owned: NamedPartitions
    rack_id: str | None = None


class EmbeddedAssignment(Struct, frozen=True):
    """Partitions that the group leader assigned to a classic consumer."""

    partitions: NamedPartitions
    user_data: bytes = b""


def read_subscription(data: bytes) -> EmbeddedSubscription:
    """Decode the metadata of a classic consumer.

    Raises:
        Corrupt: the bytes have another format.
    """
    try:
        reader = PrimitiveReader(data)
        version = min(reader.int16(), _NEWEST)
        topics = tuple(reader.text() for _ in range(reader.count()))
        reader.sized()
        owned = _read_partitions(reader) if version >= _FIRST_WITH_OWNED else {}
        if version >= _FIRST_WITH_GENERATION:
            reader.int32()
        rack_id = reader.nullable_text() if version >= _FIRST_WITH_RACK else None
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Corrupt(f"invalid consumer metadata: {error}") from error
    return EmbeddedSubscription(max(version, 0), topics, owned, rack_id)


def read_assignment(data: bytes) -> EmbeddedAssignment:
    """Decode the assignment of a classic consumer.

    Raises:
        Corrupt: the bytes have another format.
    """
    if not data:
        return EmbeddedAssignment({})
    try:
        reader = PrimitiveReader(data)
        reader.int16()
        return EmbeddedAssignment(_read_partitions(reader), reader.sized())
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Corrupt(f"invalid consumer assignment: {error}") from error


def assignment_bytes(partitions: NamedPartitions, version: int) -> bytes:
    """Encode an assignment for a classic consumer."""
    parts = [SHORT.pack(version), INT.pack(len(partitions))]
    for topic in sorted(partitions):
        indexes = sorted(partitions[topic])
        parts += (text(topic), INT.pack(len(indexes)), b"".join(map(INT.pack, indexes)))
    parts.append(INT.pack(-1))
    return b"".join(parts)


def _read_partitions(reader: PrimitiveReader) -> NamedPartitions:
    return {
        reader.text(): frozenset(reader.int32() for _ in range(reader.count()))
        for _ in range(reader.count())
    }
