"""The facts of share groups (KIP-932), stored in the stream of their group.

    fact              key                               value
    ShareEpochMoved   11   group                        0: epoch, (tag 0) hash of its topics
    ShareMemberSaved  10   group member                 0: identity and subscription
    ShareStateSaved   932  group topic id partition     0: states of the records in the window

The first two are Kafka's records. Kafka keeps the third in a topic of its own, as a list of deltas
with periodic snapshots; here it is the whole state of the partition, a few bytes for each run of
records, so that the last record of a key is sufficient and compaction removes the others.
Guarantees: every fact survives the round trip; damaged bytes are ``Corrupt``.
"""

from enum import IntEnum

import msgspec
from msgspec import Struct

from mainstem.coordination.shards.primitive_types import (
    INT,
    LONG,
    SHORT,
    PrimitiveReader,
    compact_text,
    tags,
    text,
    uvarint,
)
from mainstem.coordination.share.partition import SavedSharePartition
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt
from mainstem.model.ids import TopicId

_VALUE = SHORT.pack(0)
_TOPIC_ID_BYTES = 16


class ShareKind(IntEnum):
    """Record type: the first number of the key."""

    MEMBER = 10
    EPOCH = 11
    STATE = 932


class ShareMemberSaved(Struct, frozen=True):
    """A member joined, or its subscription changed."""

    group_id: str
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()


class ShareEpochMoved(Struct, frozen=True):
    """The group epoch was bumped: the assignment has to be recomputed."""

    group_id: str
    epoch: int
    topics_hash: int = 0


class ShareState(Struct, frozen=True, array_like=True):
    """A share partition as it is stored.

    ``state_epoch`` grows when an administrator resets the group's offset: earlier states are then
    fenced. ``leader_epoch`` is that of the writer that stored it, ``version`` counts its states.
    """

    share: SavedSharePartition
    state_epoch: int = 0
    leader_epoch: int = 0
    version: int = 0


class ShareStateSaved(Struct, frozen=True):
    """State of the records of a partition."""

    group_id: str
    topic: TopicId
    partition: int
    state: ShareState


class ShareFactRemoved(Struct, frozen=True):
    """A member was removed, or the whole group (kind ``EPOCH``)."""

    kind: ShareKind
    group_id: str
    member_id: str = ""


class ShareStateRemoved(Struct, frozen=True):
    """The state of the group in a partition was deleted."""

    group_id: str
    topic: TopicId
    partition: int


ShareFact = (
    ShareMemberSaved | ShareEpochMoved | ShareStateSaved | ShareFactRemoved | ShareStateRemoved
)

_encode_state = msgspec.msgpack.Encoder().encode
_decode_state = msgspec.msgpack.Decoder(ShareState).decode


def encode(fact: ShareFact) -> tuple[bytes, bytes | None]:
    """Encode ``fact`` as key and value of a record."""
    match fact:
        case ShareMemberSaved(group_id, member_id):
            return _key(ShareKind.MEMBER, group_id, member_id), _VALUE + _member(fact)
        case ShareEpochMoved(group_id, epoch, topics_hash):
            known = {0: LONG.pack(topics_hash)} if topics_hash else {}
            return _key(ShareKind.EPOCH, group_id), _VALUE + INT.pack(epoch) + tags(known)
        case ShareStateSaved(group_id, topic, partition, state):
            return _state_key(group_id, topic, partition), _VALUE + _encode_state(state)
        case ShareFactRemoved(kind, group_id, member_id):
            return _key(kind, group_id, member_id), None
        case ShareStateRemoved(group_id, topic, partition):
            return _state_key(group_id, topic, partition), None


def decode(kind: int, key: PrimitiveReader, value: bytes | None) -> ShareFact | None:
    """Decode a record whose key starts with one of ``KINDS``; None for other versions."""
    group_id = key.text()
    if kind == ShareKind.STATE:
        return _read_state(group_id, TopicId(key.raw(_TOPIC_ID_BYTES)), key.int32(), value)
    member_id = key.text() if kind == ShareKind.MEMBER else ""
    if value is None:
        return ShareFactRemoved(ShareKind(kind), group_id, member_id)
    reader = PrimitiveReader(value, flexible=True)
    if reader.int16() != 0:
        return None
    if kind == ShareKind.EPOCH:
        epoch, found = reader.int32(), reader.tags()
        return ShareEpochMoved(group_id, epoch, LONG.unpack(found[0])[0] if 0 in found else 0)
    return ShareMemberSaved(
        group_id,
        member_id,
        rack_id=reader.nullable_text(),
        client_id=reader.text(),
        client_host=reader.text(),
        topics=tuple(reader.text() for _ in range(reader.count())),
    )


KINDS = frozenset(ShareKind)


def _key(kind: ShareKind, group_id: str, member_id: str = "") -> bytes:
    named = text(member_id) if kind is ShareKind.MEMBER else b""
    return SHORT.pack(kind) + text(group_id) + named


def _state_key(group_id: str, topic: TopicId, partition: int) -> bytes:
    return SHORT.pack(ShareKind.STATE) + text(group_id) + topic + INT.pack(partition)


def _member(fact: ShareMemberSaved) -> bytes:
    return b"".join(
        (
            uvarint(0) if fact.rack_id is None else compact_text(fact.rack_id),
            compact_text(fact.client_id),
            compact_text(fact.client_host),
            uvarint(len(fact.topics) + 1),
            *map(compact_text, fact.topics),
            tags({}),
        )
    )


def _read_state(
    group_id: str, topic: TopicId, partition: int, value: bytes | None
) -> ShareFact | None:
    if value is None:
        return ShareStateRemoved(group_id, topic, partition)
    if SHORT.unpack_from(value)[0] != 0:
        return None
    try:
        state = _decode_state(value[SHORT.size :])
    except DECODE_ERRORS as error:
        raise Corrupt(f"invalid state of a share partition: {error}") from error
    return ShareStateSaved(group_id, topic, partition, state)
