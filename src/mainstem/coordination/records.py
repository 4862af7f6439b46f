"""The facts of group coordination and their bytes, which are those of Kafka's `__consumer_offsets`.

    fact               key                                      value
    OffsetCommitted    1  group topic partition                 3 (1 with an expiry date)
    OffsetRemoved      1  group topic partition                 none
    GroupSaved         2  group                                 3
    GroupRemoved       2  group                                 none

The first two bytes of key and value are a version. Keys say what a record is, so tools that read
that topic understand ours. Promises: every fact survives the round trip; keys and values of a
version that is not known here decode to None and are skipped; damaged bytes are ``Corrupt``.
"""

import struct
from struct import Struct as Layout

from msgspec import Struct

from mainstem.coordination.requests import NO_EPOCH, CommittedOffset
from mainstem.model.errors import Corrupt

_OFFSET_KEYS = (0, 1)
_GROUP_KEY = 2
_OFFSET_VALUE = 3
_OFFSET_VALUE_WITH_EXPIRY = 1
_OFFSET_VALUES = range(5)
_GROUP_VALUE = 3
_GROUP_VALUES = range(5)
_FIRST_FLEXIBLE_VALUE = 4

_SHORT = Layout(">h")
_INT = Layout(">i")
_LONG = Layout(">q")


class OffsetCommitted(Struct, frozen=True):
    """A group reached a position."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset


class OffsetRemoved(Struct, frozen=True):
    """A position is forgotten."""

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
    """A group is forgotten."""

    group_id: str


Fact = OffsetCommitted | OffsetRemoved | GroupSaved | GroupRemoved


def encode(fact: Fact) -> tuple[bytes, bytes | None]:
    """Key and value of the record that keeps ``fact``."""
    match fact:
        case OffsetCommitted(group_id, topic, partition, committed):
            return _offset_key(group_id, topic, partition), _offset_value(committed)
        case OffsetRemoved(group_id, topic, partition):
            return _offset_key(group_id, topic, partition), None
        case GroupSaved(group_id):
            return _SHORT.pack(_GROUP_KEY) + _text(group_id), _group_value(fact)
        case GroupRemoved(group_id):
            return _SHORT.pack(_GROUP_KEY) + _text(group_id), None


def decode(key: bytes | None, value: bytes | None) -> Fact | None:
    """The fact in a record, or None for a kind or version that is not known here.

    Raises:
        Corrupt: the bytes do not have the shape their version says.
    """
    if key is None:
        return None
    try:
        reader = _Reader(key)
        version = reader.int16()
        if version in _OFFSET_KEYS:
            return _decode_offset(reader.text(), reader.text(), reader.int32(), value)
        if version == _GROUP_KEY:
            return _decode_group(reader.text(), value)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Corrupt(f"a record of {len(key)} key bytes does not decode: {error}") from error
    return None


def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return _SHORT.pack(1) + _text(group_id) + _text(topic) + _INT.pack(partition)


def _offset_value(committed: CommittedOffset) -> bytes:
    # Only version 1 has an expiry date, and it has no leader epoch; Kafka chooses the same way.
    if committed.expire_ms >= 0:
        return (
            _SHORT.pack(_OFFSET_VALUE_WITH_EXPIRY)
            + _LONG.pack(committed.offset)
            + _text(committed.metadata)
            + _LONG.pack(committed.commit_ms)
            + _LONG.pack(committed.expire_ms)
        )
    return (
        _SHORT.pack(_OFFSET_VALUE)
        + _LONG.pack(committed.offset)
        + _INT.pack(committed.leader_epoch)
        + _text(committed.metadata)
        + _LONG.pack(committed.commit_ms)
    )


def _group_value(saved: GroupSaved) -> bytes:
    parts = [
        _SHORT.pack(_GROUP_VALUE),
        _text(saved.protocol_type),
        _INT.pack(saved.generation),
        _text(saved.protocol_name),
        _text(saved.leader),
        _LONG.pack(saved.state_ms),
        _INT.pack(len(saved.members)),
    ]
    for member in saved.members:
        parts += (
            _text(member.member_id),
            _text(member.instance_id),
            _text(member.client_id),
            _text(member.client_host),
            _INT.pack(member.rebalance_timeout_ms),
            _INT.pack(member.session_timeout_ms),
            _INT.pack(len(member.subscription)),
            member.subscription,
            _INT.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def _text(text: str | None) -> bytes:
    if text is None:
        return _SHORT.pack(-1)
    encoded = text.encode()
    return _SHORT.pack(len(encoded)) + encoded


def _decode_offset(group_id: str, topic: str, partition: int, value: bytes | None) -> Fact | None:
    if value is None:
        return OffsetRemoved(group_id, topic, partition)
    version = _SHORT.unpack_from(value)[0]
    if version not in _OFFSET_VALUES:
        return None
    reader = _Reader(value, flexible=version >= _FIRST_FLEXIBLE_VALUE)
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
    version = _SHORT.unpack_from(value)[0]
    if version not in _GROUP_VALUES:
        return None
    reader = _Reader(value, flexible=version >= _FIRST_FLEXIBLE_VALUE)
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


def _decode_member(reader: "_Reader", version: int) -> SavedMember:
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
        # Before version 1 there was one time-out for both.
        rebalance_timeout_ms if rebalance_timeout_ms >= 0 else session_timeout_ms,
        session_timeout_ms,
        subscription=reader.sized(),
        assignment=reader.sized(),
    )
    reader.skip_tags()
    return member


class _Reader:
    """Reads Kafka's primitive types; ``flexible`` ones have compact lengths and tagged fields."""

    __slots__ = ("_at", "_data", "_flexible")

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = data
        self._at = 0
        self._flexible = flexible

    def int16(self) -> int:
        return self._unpack(_SHORT)

    def int32(self) -> int:
        return self._unpack(_INT)

    def int64(self) -> int:
        return self._unpack(_LONG)

    def text(self) -> str:
        return self.nullable_text() or ""

    def nullable_text(self) -> str | None:
        length = self._uvarint() - 1 if self._flexible else self._unpack(_SHORT)
        return None if length < 0 else self._take(length).decode()

    def sized(self) -> bytes:
        length = self.count()
        return self._take(length)

    def count(self) -> int:
        return max(self._uvarint() - 1 if self._flexible else self._unpack(_INT), 0)

    def skip_tags(self) -> None:
        """Pass over fields that a later version of the format may have added."""
        if self._flexible:
            for _ in range(self._uvarint()):
                self._uvarint()
                self._take(self._uvarint())

    def _unpack(self, layout: Layout) -> int:
        value: int = layout.unpack_from(self._data, self._at)[0]
        self._at += layout.size
        return value

    def _take(self, length: int) -> bytes:
        start = self._at
        self._at += length
        if self._at > len(self._data):
            raise IndexError(f"{length} bytes at {start} of {len(self._data)}")
        return self._data[start : self._at]

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
