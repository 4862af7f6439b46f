"""The binary log of MySQL and MariaDB: decodes the events of a dump. Pure.

The log itself describes a table right before its rows (``binlog_row_metadata = FULL``): names,
signs, character sets, members of enumerations and the key are those at that time. So a span of the
log has the same meaning however the table was altered since, and no schema history is stored.

Guarantees: invalid bytes raise ``Corrupt``; an event that would hide changes (compressed, partial)
is refused with the setting that avoids it.
"""

import struct
import zlib
from typing import Final

from msgspec import Struct

from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest

HEADER: Final = struct.Struct("<IBIIIH")
QUERY, ROTATE, FORMAT, XID, TABLE_MAP = 2, 4, 15, 16, 19
MYSQL_GTID, PREVIOUS_GTIDS, MARIADB_GTID, XA_PREPARE = 33, 35, 162, 38
_INSERTS: Final = frozenset({23, 30})
_UPDATES: Final = frozenset({24, 31})
_DELETES: Final = frozenset({25, 32})
ROWS: Final = _INSERTS | _UPDATES | _DELETES
_SECOND_VERSION: Final = 30
_REFUSED: Final = {
    26: "changes are missing in the log: remove the pipeline's state folder to start over",
    39: "set binlog_row_value_options to an empty value",
    40: "set binlog_transaction_compression = OFF",
    42: "leave gtid_next at AUTOMATIC: names with tags are not read",
    XA_PREPARE: "leave the tables that XA transactions write to another reader",
    **dict.fromkeys(range(165, 172), "set log_bin_compress = OFF"),
}
_STANDALONE: Final = 1
_CHECKSUM_BYTES: Final = 4
_CRC32: Final = 1

TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24 = 1, 2, 3, 4, 5, 8, 9
DATE, YEAR, VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 10, 13, 15, 16, 17, 18, 19
JSON, DECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = (
    245,
    246,
    247,
    248,
    252,
    253,
    254,
    255,
)
_NUMBERS: Final = frozenset({TINY, SHORT, INT24, LONG, LONGLONG, DECIMAL, FLOAT, DOUBLE, YEAR})
_TEXTS: Final = frozenset({VARCHAR, STRING, VAR_STRING, BLOB})
_MEMBERS: Final = frozenset({ENUM, SET})
_META_BYTES: Final = {
    **dict.fromkeys((FLOAT, DOUBLE, BLOB, GEOMETRY, JSON, TIMESTAMP2, DATETIME2, TIME2), 1),
    **dict.fromkeys((VARCHAR, BIT, DECIMAL, STRING, VAR_STRING, ENUM, SET), 2),
}
BINARY_CHARSET: Final = 63


class Header(Struct, frozen=True):
    """The header of an event; ``end`` is the position of the next one in its file."""

    at_s: int
    kind: int
    server_id: int
    size: int
    end: int


class Rotate(Struct, frozen=True):
    """The log continues in another file."""

    file: str
    position: int


class Gtid(Struct, frozen=True):
    """The start of a transaction; a standalone one has no end event."""

    text: str
    stands_alone: bool


class Query(Struct, frozen=True):
    """A statement: the end of a transaction, or a change of the schema."""

    database: str
    text: str
    thread: int


class LoggedColumn(Struct, frozen=True):
    """A column as described in the log; ``meta`` are the two metadata bytes of its type."""

    name: str
    kind: int
    meta: tuple[int, int]
    unsigned: bool = False
    charset: int = BINARY_CHARSET
    members: tuple[bytes, ...] = ()


class LoggedTable(Struct, frozen=True):
    """A table as described in the log."""

    database: str
    name: str
    columns: tuple[LoggedColumn, ...]
    key: tuple[str, ...]


class RowsEvent(Struct, frozen=True):
    """Rows of one table, not decoded yet; ``present`` lists the columns of old and new rows."""

    op: str
    present: tuple[tuple[int, ...], ...]
    width: int
    data: bytes
    start: int


class Checksums:
    """Verifies and removes the checksums of the events of a dump.

    ``is_on`` is the server's current setting; the first event of every file states its own.
    """

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on

    def bare(self, event: bytes) -> bytes:
        """The event without its checksum.

        Raises:
            Corrupt: the checksum does not match.
        """
        if len(event) < HEADER.size:
            raise Corrupt(f"an event of {len(event)} bytes", subject="binlog")
        kind = event[4]
        if kind == FORMAT:
            self._is_on = event[-_CHECKSUM_BYTES - 1] == _CRC32
        if not self._is_on:
            return event
        bare = event[:-_CHECKSUM_BYTES]
        # The server alters the first event of a file for a dump that starts in the middle of it.
        if kind != FORMAT and zlib.crc32(bare) != int.from_bytes(
            event[-_CHECKSUM_BYTES:], "little"
        ):
            raise Corrupt(f"wrong checksum of an event of kind {kind}", subject="binlog")
        return bare


def header(event: bytes) -> Header:
    """Decode the header of an event."""
    if len(event) < HEADER.size:
        raise Corrupt(f"an event of {len(event)} bytes", subject="binlog")
    at_s, kind, server_id, size, end, _ = HEADER.unpack_from(event)
    if kind in _REFUSED:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"the binary log contains an event of kind {kind}, which is not supported",
            subject="binlog",
            remedy=_REFUSED[kind],
        )
    return Header(at_s, kind, server_id, size, end)


def rotate(event: bytes) -> Rotate:
    """Decode the name and position of the next file."""
    (position,) = struct.unpack_from("<Q", event, HEADER.size)
    return Rotate(event[HEADER.size + 8 :].decode(), position)


def mariadb_gtid(event: bytes, server_id: int) -> Gtid:
    """The GTID of a MariaDB transaction: domain, server, sequence number."""
    sequence, domain, flags = struct.unpack_from("<QIB", event, HEADER.size)
    return Gtid(f"{domain}-{server_id}-{sequence}", bool(flags & _STANDALONE))


def mysql_gtid(event: bytes) -> Gtid:
    """The GTID of a MySQL transaction: the server's UUID and a number."""
    at = HEADER.size + 1
    sid = event[at : at + 16].hex()
    (number,) = struct.unpack_from("<Q", event, at + 16)
    uuid = f"{sid[:8]}-{sid[8:12]}-{sid[12:16]}-{sid[16:20]}-{sid[20:]}"
    return Gtid(f"{uuid}:{number}", stands_alone=False)


def gtid(event: bytes, head: Header) -> Gtid:
    """The GTID of a transaction of either server."""
    if head.kind == MARIADB_GTID:
        return mariadb_gtid(event, head.server_id)
    return mysql_gtid(event)


def query(event: bytes) -> Query:
    """Decode a statement and its default database."""
    at = HEADER.size
    thread, _, database_bytes, _, status_bytes = struct.unpack_from("<IIBHH", event, at)
    at += 13 + status_bytes
    database = event[at : at + database_bytes].decode()
    return Query(database, event[at + database_bytes + 1 :].decode("utf-8", "replace"), thread)


def rows(event: bytes, kind: int) -> RowsEvent:
    """Decode the rows event of a table that was described before."""
    at = HEADER.size + 8
    if kind >= _SECOND_VERSION:
        (extra_bytes,) = struct.unpack_from("<H", event, at)
        at += extra_bytes
    width, at = length(event, at)
    present = []
    for _ in range(2 if kind in _UPDATES else 1):
        present.append(_set_bits(event, at, width))
        at += (width + 7) // 8
    op = "c" if kind in _INSERTS else "u" if kind in _UPDATES else "d"
    return RowsEvent(op, tuple(present), width, event, at)


def _set_bits(data: bytes, at: int, width: int) -> tuple[int, ...]:
    bits = int.from_bytes(data[at : at + (width + 7) // 8], "little")
    return tuple(number for number in range(width) if bits >> number & 1)


def length(data: bytes, at: int) -> tuple[int, int]:
    """Decode a length-encoded integer; returns it and where it ends."""
    first = data[at]
    if first < 0xFB:
        return first, at + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first, 0)
    if not size:
        raise Corrupt(f"invalid first byte of a length: {first}", subject="binlog")
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def table_number(event: bytes) -> int:
    """The table id that links a table map event to rows events."""
    return int.from_bytes(event[HEADER.size : HEADER.size + 6], "little")


def table_name(event: bytes) -> str:
    """The table of a table map event, ``database.table``."""
    at = HEADER.size + 8
    database = event[at + 1 : at + 1 + event[at]].decode()
    at += event[at] + 2
    return f"{database}.{event[at + 1 : at + 1 + event[at]].decode()}"


def table_map(event: bytes, *, shapes_have_charsets: bool = True) -> LoggedTable:
    """Decode the description of a table; only MariaDB counts geometries among the strings.

    Raises:
        InvalidRequest: the server does not log names of columns.
    """
    at = HEADER.size + 8
    database = event[at + 1 : at + 1 + event[at]].decode()
    at += event[at] + 2
    name = event[at + 1 : at + 1 + event[at]].decode()
    at += event[at] + 2
    width, at = length(event, at)
    kinds = list(event[at : at + width])
    meta_bytes, at = length(event, at + width)
    metas = _metas(kinds, event[at : at + meta_bytes])
    at += meta_bytes + (width + 7) // 8
    metadata = dict(_fields(event, at))
    if width and _COLUMN_NAMES not in metadata:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            "the binary log has no column names",
            subject=f"{database}.{name}",
            remedy="SET GLOBAL binlog_row_metadata = FULL, and remove the pipeline's state folder"
            " to start over after the rows that were logged without names",
        )
    texts = _TEXTS | {GEOMETRY} if shapes_have_charsets else _TEXTS
    return LoggedTable(database, name, *_columns(kinds, metas, metadata, texts))


_SIGNS, _DEFAULT_CHARSET, _CHARSETS, _COLUMN_NAMES, _SET_MEMBERS, _ENUM_MEMBERS = 1, 2, 3, 4, 5, 6
_KEY, _KEY_WITH_PREFIX, _MEMBER_DEFAULT_CHARSET, _MEMBER_CHARSETS = 8, 9, 10, 11


def _fields(event: bytes, at: int) -> list[tuple[int, bytes]]:
    found = []
    while at < len(event):
        kind = event[at]
        size, at = length(event, at + 1)
        found.append((kind, event[at : at + size]))
        at += size
    return found


def _metas(kinds: list[int], data: bytes) -> list[tuple[int, int]]:
    """The metadata of every column; replaces STRING by ENUM or SET in ``kinds`` if needed."""
    metas, at = [], 0
    for place, kind in enumerate(kinds):
        size = _META_BYTES.get(kind, 0)
        first, second = (*data[at : at + size], 0, 0)[:2]
        at += size
        if kind == STRING:
            # Lengths over 255 have two bits in the type byte, inverted.
            if first & 0x30 != 0x30:
                second |= ((first & 0x30) ^ 0x30) << 4
                first |= 0x30
            kinds[place] = first
        elif kind in {VARCHAR, VAR_STRING}:
            first, second = 0, first | second << 8
        metas.append((first, second))
    return metas


def _columns(
    kinds: list[int],
    metas: list[tuple[int, int]],
    metadata: dict[int, bytes],
    texts: frozenset[int],
) -> tuple[tuple[LoggedColumn, ...], tuple[str, ...]]:
    names = [name.decode() for name in _strings(metadata.get(_COLUMN_NAMES, b""))]
    numbers = [at for at, kind in enumerate(kinds) if kind in _NUMBERS]
    signs = metadata.get(_SIGNS, b"")
    unsigned = {at for n, at in enumerate(numbers) if signs[n // 8 :][:1] and _bit(signs, n)}
    charsets = _charsets(
        [at for at, kind in enumerate(kinds) if kind in texts],
        metadata.get(_DEFAULT_CHARSET, b""),
        metadata.get(_CHARSETS, b""),
    ) | _charsets(
        [at for at, kind in enumerate(kinds) if kind in _MEMBERS],
        metadata.get(_MEMBER_DEFAULT_CHARSET, b""),
        metadata.get(_MEMBER_CHARSETS, b""),
    )
    members = {
        at: each
        for kind, field in ((ENUM, _ENUM_MEMBERS), (SET, _SET_MEMBERS))
        for at, each in zip(
            [at for at, found in enumerate(kinds) if found == kind],
            _lists(metadata.get(field, b"")),
            strict=False,
        )
    }
    columns = tuple(
        LoggedColumn(
            name,
            kinds[at],
            metas[at],
            at in unsigned,
            charsets.get(at, BINARY_CHARSET),
            members.get(at, ()),
        )
        for at, name in enumerate(names)
    )
    keyed = _numbers(metadata.get(_KEY, b"")) or _numbers(metadata.get(_KEY_WITH_PREFIX, b""))[::2]
    return columns, tuple(names[at] for at in keyed)


def _bit(data: bytes, number: int) -> bool:
    return bool(data[number // 8] & 0x80 >> number % 8)


def _charsets(texts: list[int], by_default: bytes, each: bytes) -> dict[int, int]:
    if listed := _numbers(each):
        return dict(zip(texts, listed, strict=True))
    usual, *others = _numbers(by_default) or [BINARY_CHARSET]
    found = dict.fromkeys(texts, usual)
    for place, charset in zip(others[::2], others[1::2], strict=True):
        found[texts[place]] = charset
    return found


def _numbers(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        number, at = length(data, at)
        found.append(number)
    return found


def _strings(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size, at = length(data, at)
        found.append(data[at : at + size])
        at += size
    return found


def _lists(data: bytes) -> list[tuple[bytes, ...]]:
    found, at = [], 0
    while at < len(data):
        count, at = length(data, at)
        each = []
        for _ in range(count):
            size, at = length(data, at)
            each.append(data[at : at + size])
            at += size
        found.append(tuple(each))
    return found
