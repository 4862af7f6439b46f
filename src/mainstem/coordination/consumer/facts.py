"""The facts of groups whose members are assigned partitions by the coordinator (KIP-848).

The encoding is that of Kafka's `__consumer_offsets`, so tools for that topic can read them. Each
fact is one record; a tombstone (a record without value) is ``FactRemoved``.

    fact               key                     value 0, flexible
    EpochMoved         3   group               epoch, (tag 0) hash of the topic metadata
    MemberSubscribed   5   group member        identity and subscription
    TargetMoved        6   group               epoch
    TargetSet          7   group member        target partitions
    MemberMoved        8   group member        epoch, state, assigned and revoked partitions
    PatternResolved    16  group pattern       topics that match

Kafka before 4.1 kept the topic metadata in a record of its own (key 4), which is ignored.
Guarantees: every fact survives the round trip; damaged bytes are ``Corrupt``.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum

from msgspec import Struct

from mainstem.coordination.shards.primitive_types import (
    BYTE,
    INT,
    LONG,
    SHORT,
    PrimitiveReader,
    compact_text,
    tags,
    text,
    uvarint,
)
from mainstem.model.ids import TopicId

_VALUE = SHORT.pack(0)
_TOPIC_ID_BYTES = 16
_NO_TAGS = tags({})

Partitions = Mapping[TopicId, frozenset[int]]
NOTHING: Partitions = {}


class ConsumerRecordKind(IntEnum):
    """Record type: the first number of the key."""

    EPOCH = 3
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    PATTERN = 16


NAMED = frozenset(
    {
        ConsumerRecordKind.MEMBER,
        ConsumerRecordKind.TARGET,
        ConsumerRecordKind.CURRENT,
        ConsumerRecordKind.PATTERN,
    }
)


class MemberState(IntEnum):
    """Progress of a member towards its target assignment."""

    STABLE = 0
    UNREVOKED = 1  # it has to revoke partitions first
    UNRELEASED = 2  # it waits for partitions that other members have not revoked yet


class ClassicMemberData(Struct, frozen=True):
    """Data that a member using the classic protocol sent with its join."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class EpochMoved(Struct, frozen=True):
    """The group epoch was bumped: the assignment has to be recomputed."""

    group_id: str
    epoch: int
    topics_hash: int = 0


class MemberSubscribed(Struct, frozen=True):
    """A member joined, or its subscription changed."""

    group_id: str
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    pattern: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicMemberData | None = None


class TargetMoved(Struct, frozen=True):
    """The target assignment of that group epoch is complete."""

    group_id: str
    epoch: int


class TargetSet(Struct, frozen=True):
    """The target assignment of a member."""

    group_id: str
    member_id: str
    partitions: Partitions


class MemberMoved(Struct, frozen=True):
    """A member reached an epoch, with these partitions."""

    group_id: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Partitions
    revoking: Partitions = NOTHING


class PatternResolved(Struct, frozen=True):
    """The topics that match a pattern to which members subscribe."""

    group_id: str
    pattern: str
    topics: tuple[str, ...]
    version: int
    resolved_ms: int


class FactRemoved(Struct, frozen=True):
    """A fact of that kind is deleted; ``name`` is a member or a pattern."""

    kind: ConsumerRecordKind
    group_id: str
    name: str = ""


StoredConsumerFact = (
    EpochMoved | MemberSubscribed | TargetMoved | TargetSet | MemberMoved | PatternResolved
)
ConsumerFact = StoredConsumerFact | FactRemoved


def encode(fact: ConsumerFact) -> tuple[bytes, bytes | None]:
    """Encode ``fact`` as key and value of a record."""
    if isinstance(fact, FactRemoved):
        return _key(fact.kind, fact.group_id, fact.name), None
    kind, name, body = _parts(fact)
    return _key(kind, fact.group_id, name), _VALUE + body


def decode(kind: int, key: PrimitiveReader, value: bytes | None) -> ConsumerFact | None:
    """Decode a record whose key starts with ``kind``; None for unknown kinds and versions."""
    if kind not in _KINDS:
        return None
    known = ConsumerRecordKind(kind)
    group_id = key.text()
    name = key.text() if known in NAMED else ""
    if value is None:
        return FactRemoved(known, group_id, name)
    reader = PrimitiveReader(value, flexible=True)
    return _READERS[known](group_id, name, reader) if reader.int16() == 0 else None


def _parts(fact: StoredConsumerFact) -> tuple[ConsumerRecordKind, str, bytes]:
    """Kind and name in the key, and the value after its version."""
    match fact:
        case EpochMoved(_, epoch, topics_hash):
            known = {0: LONG.pack(topics_hash)} if topics_hash else {}
            return ConsumerRecordKind.EPOCH, "", INT.pack(epoch) + tags(known)
        case MemberSubscribed(_, member_id):
            return ConsumerRecordKind.MEMBER, member_id, _member_value(fact)
        case TargetMoved(_, epoch):
            return ConsumerRecordKind.TARGET_EPOCH, "", INT.pack(epoch) + _NO_TAGS
        case TargetSet(_, member_id, partitions):
            return ConsumerRecordKind.TARGET, member_id, _partitions(partitions) + _NO_TAGS
        case MemberMoved(_, member_id):
            return ConsumerRecordKind.CURRENT, member_id, _current_value(fact)
        case PatternResolved(_, pattern, topics, version, resolved_ms):
            body = _texts(topics) + LONG.pack(version) + LONG.pack(resolved_ms) + _NO_TAGS
            return ConsumerRecordKind.PATTERN, pattern, body


def _key(kind: ConsumerRecordKind, group_id: str, name: str = "") -> bytes:
    return SHORT.pack(kind) + text(group_id) + (text(name) if kind in NAMED else b"")


def _nullable(value: str | None) -> bytes:
    return uvarint(0) if value is None else compact_text(value)


def _texts(values: tuple[str, ...]) -> bytes:
    return uvarint(len(values) + 1) + b"".join(map(compact_text, values))


def _sized(value: bytes) -> bytes:
    return uvarint(len(value) + 1) + value


def _partitions(partitions: Partitions) -> bytes:
    parts = [uvarint(len(partitions) + 1)]
    for topic in sorted(partitions):
        indexes = sorted(partitions[topic])
        parts += (topic, uvarint(len(indexes) + 1), b"".join(map(INT.pack, indexes)), _NO_TAGS)
    return b"".join(parts)


def _member_value(fact: MemberSubscribed) -> bytes:
    known = {}
    if fact.classic is not None:
        # A nullable structure starts with one byte: whether it is present.
        protocols = b"".join(
            compact_text(name) + _sized(metadata) + _NO_TAGS
            for name, metadata in fact.classic.protocols
        )
        known[0] = (
            BYTE.pack(1)
            + INT.pack(fact.classic.session_timeout_ms)
            + uvarint(len(fact.classic.protocols) + 1)
            + protocols
            + _NO_TAGS
        )
    return b"".join(
        (
            _nullable(fact.instance_id),
            _nullable(fact.rack_id),
            compact_text(fact.client_id),
            compact_text(fact.client_host),
            _texts(fact.topics),
            _nullable(fact.pattern),
            INT.pack(fact.rebalance_timeout_ms),
            _nullable(fact.assignor),
            tags(known),
        )
    )


def _current_value(fact: MemberMoved) -> bytes:
    return b"".join(
        (
            INT.pack(fact.epoch),
            INT.pack(fact.previous_epoch),
            BYTE.pack(fact.state),
            _partitions(fact.assigned),
            _partitions(fact.revoking),
            _NO_TAGS,
        )
    )


def _read_texts(reader: PrimitiveReader) -> tuple[str, ...]:
    return tuple(reader.text() for _ in range(reader.count()))


def _read_partitions(reader: PrimitiveReader) -> Partitions:
    found = {}
    for _ in range(reader.count()):
        topic = TopicId(reader.raw(_TOPIC_ID_BYTES))
        found[topic] = frozenset(reader.int32() for _ in range(reader.count()))
        reader.tags()
    return found


def _read_member(group_id: str, member_id: str, reader: PrimitiveReader) -> MemberSubscribed:
    return MemberSubscribed(
        group_id,
        member_id,
        instance_id=reader.nullable_text(),
        rack_id=reader.nullable_text(),
        client_id=reader.text(),
        client_host=reader.text(),
        topics=_read_texts(reader),
        pattern=reader.nullable_text(),
        rebalance_timeout_ms=reader.int32(),
        assignor=reader.nullable_text(),
        classic=_read_classic(reader.tags().get(0)),
    )


def _read_classic(data: bytes | None) -> ClassicMemberData | None:
    if data is None:
        return None
    reader = PrimitiveReader(data, flexible=True)
    if reader.int8() < 0:
        return None
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.count()):
        protocols.append((reader.text(), reader.sized()))
        reader.tags()
    return ClassicMemberData(session_timeout_ms, tuple(protocols))


def _read_current(group_id: str, member_id: str, reader: PrimitiveReader) -> MemberMoved | None:
    epoch, previous_epoch, state = reader.int32(), reader.int32(), reader.int8()
    if not 0 <= state <= max(MemberState):
        return None
    return MemberMoved(
        group_id,
        member_id,
        epoch,
        previous_epoch,
        MemberState(state),
        assigned=_read_partitions(reader),
        revoking=_read_partitions(reader),
    )


def _read_epoch(group_id: str, _: str, reader: PrimitiveReader) -> EpochMoved:
    epoch, found = reader.int32(), reader.tags()
    return EpochMoved(group_id, epoch, LONG.unpack(found[0])[0] if 0 in found else 0)


def _read_target_epoch(group_id: str, _: str, reader: PrimitiveReader) -> TargetMoved:
    return TargetMoved(group_id, reader.int32())


def _read_target(group_id: str, member_id: str, reader: PrimitiveReader) -> TargetSet:
    return TargetSet(group_id, member_id, _read_partitions(reader))


def _read_pattern(group_id: str, pattern: str, reader: PrimitiveReader) -> PatternResolved:
    return PatternResolved(group_id, pattern, _read_texts(reader), reader.int64(), reader.int64())


_READERS: dict[
    ConsumerRecordKind, Callable[[str, str, PrimitiveReader], StoredConsumerFact | None]
] = {
    ConsumerRecordKind.EPOCH: _read_epoch,
    ConsumerRecordKind.MEMBER: _read_member,
    ConsumerRecordKind.TARGET_EPOCH: _read_target_epoch,
    ConsumerRecordKind.TARGET: _read_target,
    ConsumerRecordKind.CURRENT: _read_current,
    ConsumerRecordKind.PATTERN: _read_pattern,
}
_KINDS = frozenset(_READERS)
