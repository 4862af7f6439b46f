"""One change as an event: the envelope that Debezium made known, as JSON, in bytes. Pure.

    {"before": row, "after": row, "source": {...}, "transaction": …, "op": "c", "ts_ms": …}

Rows are laid out once per table and filled in with ``%``: no dictionary is built per row. Databases
bring their converters and the text of ``source``; everything else is the same for all of them.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from mainstem.pipelines.cdc.avro.schema import TableSchemas
from mainstem.pipelines.cdc.avro.value_types import Kind
from mainstem.pipelines.cdc.row_values import UNCHANGED, Value

NULL: Final = b"null"
Convert = Callable[[bytes], bytes]


class ChangeRecord(NamedTuple):
    """A record on its way to a topic; a value of None is a tombstone.

    ``schemas`` are those of its table where it is to be told in Avro.
    """

    topic: str | None
    key: bytes | None
    value: bytes | None
    at_us: int
    headers: tuple[tuple[str, bytes], ...] | None = None
    schemas: TableSchemas | None = None


class EventField(Struct, frozen=True):
    """A column that is told: where it stands among the table's values and how it is written.

    ``kind`` is its type in Avro, where it is told so; ``null`` what stands for null.
    """

    name: str
    position: int
    convert: Convert
    kind: Kind | None = None
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
        """Where the key's columns stand."""
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
    """A JSON string that may stand in a template."""
    return msgspec.json.encode(text).replace(b"%", b"%%")


def heartbeat(source_name: str, at_ms: int) -> ChangeRecord:
    """A record that says that all is well, although nothing happens."""
    key = msgspec.json.encode({"serverName": source_name})
    return ChangeRecord(None, key, msgspec.json.encode({"ts_ms": at_ms}), at_ms * 1000)
