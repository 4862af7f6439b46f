"""The facts of group coordination and their encoding, that of Kafka's `__consumer_offsets`.

    fact               key                                      value
    OffsetCommitted    1  group topic partition                 3 (1 with an expiry date)
    OffsetRemoved      1  group topic partition                 none
    GroupSaved         2  group                                 3
    GroupRemoved       2  group                                 none

Facts of consumer groups (keys 3 to 8 and 16) are in ``consumer.facts``, those of share groups
(10, 11 and 932) in ``share.facts``.

The first two bytes of key and value are a version; that of the key is the record type, so Kafka's
tools can read the topic. Guarantees: every fact survives the round trip; keys and values of an
unknown version decode to None, which ends the loading; damaged bytes are ``Corrupt``.
"""

import struct

from msgspec import Struct

from mainstem.coordination.consumer import facts as consumer_group_records
from mainstem.coordination.consumer.facts import ConsumerFact, ConsumerRecordKind
from mainstem.coordination.groups.requests import NO_EPOCH, CommittedOffset
from mainstem.coordination.shards.primitive_types import INT, LONG, SHORT, PrimitiveReader, text
from mainstem.coordination.share import facts as share_records
from mainstem.coordination.share.facts import KINDS, ShareFact
from mainstem.model.errors import Corrupt

_OFFSET_KEYS = (0, 1)
_GROUP_KEY = 2
_OFFSET_VALUE = 3
_OFFSET_VALUE_WITH_EXPIRY = 1
_OFFSET_VALUES = range(5)
_GROUP_VALUE = 3
_GROUP_VALUES = range(5)
_KINDS = sorted((*_OFFSET_KEYS, _GROUP_KEY, *KINDS, *ConsumerRecordKind))
VERSIONS = (
    f"{', '.join(str(int(kind)) for kind in _KINDS)} with values of 0 to {_OFFSET_VALUES[-1]}"
)
_FIRST_FLEXIBLE_VALUE = 4


class OffsetCommitted(Struct, frozen=True):
    """A group committed an offset."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset


class OffsetRemoved(Struct, frozen=True):
    """A committed offset was deleted."""

    group_id: str
    topic: str
    partition: int


class SavedMember(Struct, frozen=True):
    """A member of a stored generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupSaved(Struct, frozen=True):
    """A generation is complete: its members and what each is assigned. No members: it is empty."""

    group_id: str
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    state_ms: int
    members: tuple[SavedMember, ...]


class GroupRemoved(Struct, frozen=True):
    """A group was deleted."""

    group_id: str


Fact = OffsetCommitted | OffsetRemoved | GroupSaved | GroupRemoved | ConsumerFact | ShareFact


def encode(fact: Fact) -> tuple[bytes, bytes | None]:
    """Encode ``fact`` as key and value of a record."""
    match fact:
        case OffsetCommitted(group_id, topic, partition, committed):
            return _offset_key(group_id, topic, partition), _offset_value(committed)
        case OffsetRemoved(group_id, topic, partition):
            return _offset_key(group_id, topic, partition), None
        case GroupSaved(group_id):
            return SHORT.pack(_GROUP_KEY) + text(group_id), _group_value(fact)
        case GroupRemoved(group_id):
            return SHORT.pack(_GROUP_KEY) + text(group_id), None
        case _:
            if isinstance(fact, ShareFact):
                return share_records.encode(fact)
            return consumer_group_records.encode(fact)


def decode(key: bytes | None, value: bytes | None) -> Fact | None:
    """Decode a record; None for an unknown type or version.

    Raises:
        Corrupt: the bytes do not have the format of their version.
    """
    if key is None:
        return None
    try:
        reader = PrimitiveReader(key)
        version = reader.int16()
        if version in _OFFSET_KEYS:
            return _decode_offset(reader.text(), reader.text(), reader.int32(), value)
        if version == _GROUP_KEY:
            return _decode_group(reader.text(), value)
        if version in share_records.KINDS:
            return share_records.decode(version, reader, value)
        return consumer_group_records.decode(version, reader, value)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Corrupt(f"a record of {len(key)} key bytes does not decode: {error}") from error


def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return SHORT.pack(1) + text(group_id) + text(topic) + INT.pack(partition)


def _offset_value(committed: CommittedOffset) -> bytes:
    # Only version 1 has an expiry time, and it has no leader epoch; Kafka chooses the same way.
    if committed.expire_ms >= 0:
        return (
            SHORT.pack(_OFFSET_VALUE_WITH_EXPIRY)
            + LONG.pack(committed.offset)
            + text(committed.metadata)
            + LONG.pack(committed.commit_ms)
            + LONG.pack(committed.expire_ms)
        )
    return (
        SHORT.pack(_OFFSET_VALUE)
        + LONG.pack(committed.offset)
        + INT.pack(committed.leader_epoch)
        + text(committed.metadata)
        + LONG.pack(committed.commit_ms)
    )


def _group_value(saved: GroupSaved) -> bytes:
    parts = [
        SHORT.pack(_GROUP_VALUE),
        text(saved.protocol_type),
        INT.pack(saved.generation),
        text(saved.protocol_name),
        text(saved.leader),
        LONG.pack(saved.state_ms),
        INT.pack(len(saved.members)),
    ]
    for member in saved.members:
        parts += (
            text(member.member_id),
            text(member.instance_id),
            text(member.client_id),
            text(member.client_host),
            INT.pack(member.rebalance_timeout_ms),
            INT.pack(member.session_timeout_ms),
            INT.pack(len(member.subscription)),
            member.subscription,
            INT.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def _decode_offset(group_id: str, topic: str, partition: int, value: bytes | None) -> Fact | None:
    if value is None:
        return OffsetRemoved(group_id, topic, partition)
    version = SHORT.unpack_from(value)[0]
    if version not in _OFFSET_VALUES:
        return None
    reader = PrimitiveReader(value, flexible=version >= _FIRST_FLEXIBLE_VALUE)
    reader.int16()
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else NO_EPOCH
    metadata = reader.text()
    commit_ms = reader.int64()
    expire_ms = reader.int64() if version == _OFFSET_VALUE_WITH_EXPIRY else -1
    committed = CommittedOffset(offset, leader_epoch, metadata, commit_ms, expire_ms)
    return OffsetCommitted(group_id, topic, partition, committed)


def _decode_group(group_id: str, value: bytes | None) -> Fact | None:
    if value is None:
        return GroupRemoved(group_id)
    version = SHORT.unpack_from(value)[0]
    if version not in _GROUP_VALUES:
        return None
    reader = PrimitiveReader(value, flexible=version >= _FIRST_FLEXIBLE_VALUE)
    reader.int16()
    return GroupSaved(
        group_id,
        protocol_type=reader.text(),
        generation=reader.int32(),
        protocol_name=reader.nullable_text(),
        leader=reader.nullable_text(),
        state_ms=reader.int64() if version >= 2 else -1,
        members=tuple(_decode_member(reader, version) for _ in range(reader.count())),
    )


def _decode_member(reader: PrimitiveReader, version: int) -> SavedMember:
    member_id = reader.text()
    instance_id = reader.nullable_text() if version >= 3 else None
    client_id = reader.text()
    client_host = reader.text()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    member = SavedMember(
        member_id,
        instance_id,
        client_id,
        client_host,
        # Before version 1 one timeout was used for both.
        rebalance_timeout_ms if rebalance_timeout_ms >= 0 else session_timeout_ms,
        session_timeout_ms,
        subscription=reader.sized(),
        assignment=reader.sized(),
    )
    reader.tags()
    return member
