"""PostgreSQL's ``pgoutput`` messages, version 1, in text format. Pure.

    Begin, Origin?, (Relation, Type, Insert, Update, Delete, Truncate, Message)*, Commit

Guarantees: every value is the server's text as bytes, None for null, or ``UNCHANGED`` for a large
value that an update did not change; invalid bytes raise ``Corrupt``.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from mainstem.model.errors import Corrupt
from mainstem.model.records import columns
from mainstem.pipelines.cdc.row_values import UNCHANGED, Values

EPOCH_US: Final = 946_684_800_000_000  # 2000-01-01, PostgreSQL's epoch, in microseconds since 1970

BEGIN, COMMIT, RELATION, TYPE, ORIGIN = 0x42, 0x43, 0x52, 0x59, 0x4F
INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE = 0x49, 0x55, 0x44, 0x54, 0x4D

_BEGIN = struct.Struct(">QQI")
_COMMIT = struct.Struct(">BQQQ")
_MESSAGE = struct.Struct(">BQ")
_ORIGIN = struct.Struct(">Q")
_TRUNCATE = struct.Struct(">IB")
_U32 = struct.Struct(">I")
_I32 = struct.Struct(">i")
_U16 = struct.Struct(">H")

_TEXT, _BINARY, _NULL, _UNCHANGED = 0x74, 0x62, 0x6E, 0x75
_KEY, _OLD, _NEW = 0x4B, 0x4F, 0x4E


class Begin(Struct, frozen=True):
    """The start of a transaction; the times are microseconds since 1970."""

    final_lsn: int
    committed_us: int
    xid: int


class Commit(Struct, frozen=True):
    """The end of a transaction. ``end_lsn`` is where the next one may start."""

    commit_lsn: int
    end_lsn: int
    committed_us: int


class Origin(Struct, frozen=True):
    """The origin of a transaction that was replicated to this server: its LSN there, and a name."""

    lsn: int
    name: str


class RelationColumn(Struct, frozen=True):
    """A column; ``is_key`` when it belongs to the replica identity."""

    name: str
    type_oid: int
    modifier: int
    is_key: bool


class Relation(Struct, frozen=True):
    """A table as it was when the changes that follow were made."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class RowChange(Struct, frozen=True):
    """An inserted, updated or deleted row; ``old`` has only the key when ``old_is_key``."""

    op: str
    oid: int
    old: Values | None
    old_is_key: bool
    new: Values | None


class Truncate(Struct, frozen=True):
    """Tables that were truncated."""

    oids: tuple[int, ...]
    is_cascade: bool
    restarts_identity: bool


class LogicalMessage(Struct, frozen=True):
    """A message of ``pg_logical_emit_message``."""

    is_transactional: bool
    lsn: int
    prefix: str
    content: bytes


Event = Begin | Commit | Origin | Relation | RowChange | Truncate | LogicalMessage


def parse(data: bytes) -> Event | None:
    """Decode one message; None for those that are not needed (types).

    Raises:
        Corrupt: it is not a valid message.
    """
    try:
        parser = _PARSERS.get(data[0])
        if parser is None:
            raise Corrupt(f"unknown kind of message: {data[:1]!r}", subject="pgoutput")
        return parser(data)
    except (struct.error, IndexError, ValueError) as error:
        raise Corrupt(f"truncated message: {error}", subject="pgoutput") from None


def new_row(data: bytes) -> tuple[int, Values] | None:
    """Table and values of an insert, or of an update without the old row; None for other messages.

    Most changes are of these kinds; no object is created for them.

    Raises:
        Corrupt: it is not a valid message.
    """
    try:
        if data[0] == UPDATE:
            if data[5] != _NEW:
                return None
        elif data[0] != INSERT:
            return None
        return _U32.unpack_from(data, 1)[0], row_values(data, 6, UNCHANGED)[0]
    except (struct.error, IndexError, ValueError) as error:
        raise Corrupt(f"truncated message: {error}", subject="pgoutput") from None


def _begin(data: bytes) -> Begin:
    final, committed, xid = _BEGIN.unpack_from(data, 1)
    return Begin(final, committed + EPOCH_US, xid)


def _commit(data: bytes) -> Commit:
    _, commit, end, committed = _COMMIT.unpack_from(data, 1)
    return Commit(commit, end, committed + EPOCH_US)


def _origin(data: bytes) -> Origin:
    (lsn,) = _ORIGIN.unpack_from(data, 1)
    name, _ = _string(data, 9)
    return Origin(lsn, name)


def _relation(data: bytes) -> Relation:
    (oid,) = _U32.unpack_from(data, 1)
    schema, at = _string(data, 5)
    name, at = _string(data, at)
    identity = chr(data[at])
    (count,) = _U16.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        is_key = bool(data[at] & 1)
        column, at = _string(data, at + 1)
        (type_oid,) = _U32.unpack_from(data, at)
        (modifier,) = _I32.unpack_from(data, at + 4)
        at += 8
        columns.append(RelationColumn(column, type_oid, modifier, is_key))
    # An empty schema means pg_catalog.
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _insert(data: bytes) -> RowChange:
    (oid,) = _U32.unpack_from(data, 1)
    new, _ = row_values(data, 6, UNCHANGED)
    return RowChange("c", oid, None, old_is_key=False, new=new)


def _update(data: bytes) -> RowChange:
    (oid,) = _U32.unpack_from(data, 1)
    old: Values | None = None
    kind = data[5]
    at = 6
    if kind != _NEW:
        old, at = row_values(data, 6, UNCHANGED)
        at += 1
    new, _ = row_values(data, at, UNCHANGED)
    return RowChange("u", oid, old, kind == _KEY, new)


def _delete(data: bytes) -> RowChange:
    (oid,) = _U32.unpack_from(data, 1)
    old, _ = row_values(data, 6, UNCHANGED)
    return RowChange("d", oid, old, data[5] == _KEY, None)


def _truncate(data: bytes) -> Truncate:
    count, options = _TRUNCATE.unpack_from(data, 1)
    oids = struct.unpack_from(f">{count}I", data, 6)
    return Truncate(oids, bool(options & 1), bool(options & 2))


def _message(data: bytes) -> LogicalMessage:
    flags, lsn = _MESSAGE.unpack_from(data, 1)
    prefix, at = _string(data, 10)
    (size,) = _U32.unpack_from(data, at)
    return LogicalMessage(bool(flags & 1), lsn, prefix, data[at + 4 : at + 4 + size])


def _nothing(data: bytes) -> None:
    del data


_PARSERS: Final[dict[int, Callable[[bytes], Event | None]]] = {
    BEGIN: _begin,
    COMMIT: _commit,
    RELATION: _relation,
    TYPE: _nothing,
    ORIGIN: _origin,
    INSERT: _insert,
    UPDATE: _update,
    DELETE: _delete,
    TRUNCATE: _truncate,
    MESSAGE: _message,
}


def _string(data: bytes, at: int) -> tuple[str, int]:
    until = data.index(0, at)
    return data[at:until].decode(), until + 1


def plain_values(data: bytes, at: int, unchanged: object) -> tuple[list[Any], int]:
    """The values of a row, and the position after it; see ``_native.row_values``."""
    (count,) = _U16.unpack_from(data, at)
    at += 2
    values: list[Any] = []
    add, size_at = values.append, _U32.unpack_from
    for _ in range(count):
        kind = data[at]
        if kind == _TEXT:
            start = at + 5
            at = start + size_at(data, at + 1)[0]
            if at > len(data):
                raise ValueError("a value exceeds its message")
            add(data[start:at])
        elif kind == _NULL:
            add(None)
            at += 1
        elif kind == _UNCHANGED:
            add(unchanged)
            at += 1
        else:
            raise ValueError(f"unknown kind of value: {kind}")
    return values, at


row_values = plain_values if columns.COMPILED is None else columns.COMPILED.row_values


def lsn_text(lsn: int) -> str:
    """An LSN in the server's notation: 16/B374D848."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    """The LSN of the server's notation."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)
