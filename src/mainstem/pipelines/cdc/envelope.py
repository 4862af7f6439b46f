"""One change as an event: Debezium's envelope, as JSON, in bytes. Pure.

    {"before": row, "after": row, "source": {...}, "transaction": …, "op": "c", "ts_ms": …}

The layout of a row is built once per table and filled in with ``%``: no dictionary is built per
row. Each database provides its converters and the text of ``source``; the rest is common to all of
them.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from mainstem.pipelines.cdc.avro.schema import TableSchemas
from mainstem.pipelines.cdc.avro.value_types import AvroType
from mainstem.pipelines.cdc.row_values import UNCHANGED, Value

NULL: Final = b"null"
Convert = Callable[[bytes], bytes]


class ChangeRecord(NamedTuple):
    """A record to be written to a topic; a value of None is a tombstone.

    ``schemas`` are the Avro schemas of its table if the format is Avro.
    """

    topic: str | None
    key: bytes | None
    value: bytes | None
    at_us: int
    headers: tuple[tuple[str, bytes], ...] | None = None
    schemas: TableSchemas | None = None


class EventField(Struct, frozen=True):
    """A captured column: its index among the table's values and its converter.

    ``kind`` is its Avro type if the format is Avro; ``null`` is written in place of null.
    """

    name: str
    position: int
    convert: Convert
    kind: AvroType | None = None
    null: bytes = NULL


class RowLayout:
    """Writes rows and keys of one table."""

    def __init__(
        self, fields: Sequence[EventField], key: Sequence[EventField], *, placeholder: str
    ) -> None:
        self._fields = tuple((field.position, field.convert, field.null) for field in fields)
        self._row = _template(fields)
        self._key_fields = tuple((field.position, field.convert) for field in key)
        self._key = _template(key)
        self._placeholder = msgspec.json.encode(placeholder)

    def row(self, values: Sequence[Value]) -> bytes:
        """A row as a JSON object."""
        placeholder = self._placeholder
        return self._row % tuple(
            [
                null
                if (value := values[at]) is None
                else placeholder
                if value is UNCHANGED
                else convert(value)
                for at, convert, null in self._fields
            ]
        )

    def key(self, values: Sequence[Value]) -> bytes | None:
        """The key as a JSON object; None for a table without one."""
        if not self._key_fields:
            return None
        return self._key % tuple(
            [
                convert(value) if isinstance(value := values[at], bytes) else NULL
                for at, convert in self._key_fields
            ]
        )

    @property
    def key_positions(self) -> tuple[int, ...]:
        """The indexes of the key's columns."""
        return tuple(at for at, _ in self._key_fields)


def _template(fields: Sequence[EventField]) -> bytes:
    names = (msgspec.json.encode(field.name).replace(b"%", b"%%") for field in fields)
    return b"{%b}" % b",".join(name + b":%b" for name in names)


def event(
    before: bytes, after: bytes, source: bytes, op: bytes, at_ms: int, transaction: bytes = NULL
) -> bytes:
    """An event of one row."""
    return (
        b'{"before":%b,"after":%b,"source":%b,"transaction":%b,"op":"%b",'
        b'"ts_ms":%d,"ts_us":%d000,"ts_ns":%d000000}'
        % (before, after, source, transaction, op, at_ms, at_ms, at_ms)
    )


def literal(text: str) -> bytes:
    """A JSON string that is safe in a ``%`` template."""
    return msgspec.json.encode(text).replace(b"%", b"%%")


def heartbeat(source_name: str, at_ms: int) -> ChangeRecord:
    """A heartbeat record, written when there are no changes."""
    key = msgspec.json.encode({"serverName": source_name})
    return ChangeRecord(None, key, msgspec.json.encode({"ts_ms": at_ms}), at_ms * 1000)
