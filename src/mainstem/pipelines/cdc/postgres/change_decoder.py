"""Decodes ``pgoutput`` messages to records: the changes between two positions of the log. Pure.

Guarantees: the same messages always give the same records; transactions are never split and belong
to the span in which they end; a change that a snapshot already contains is skipped; a change of a
key is a deletion of the old key and a creation of the new one.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from mainstem.model.errors import Corrupt
from mainstem.pipelines.cdc.envelope import NULL, ChangeRecord, event
from mainstem.pipelines.cdc.postgres import pgoutput
from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig
from mainstem.pipelines.cdc.postgres.table import (
    MADE_HERE,
    PostgresColumn,
    PostgresEventWriter,
    PostgresTableSchema,
    source_template,
)
from mainstem.pipelines.cdc.postgres.values import TypeInfo, encoded
from mainstem.pipelines.cdc.row_values import UNCHANGED, Values
from mainstem.pipelines.cdc.snapshot_stamps import Stamps, comparable, marked
from mainstem.pipelines.cdc.table_selection import TableRouting, is_selected
from mainstem.pipelines.cdc.transactions import TransactionCounter

_STREAMED = b"false"
_HOLE = b"\0"  # placeholder in templates: no JSON text contains this byte
_MESSAGES = "message"  # the name under which messages are counted among a transaction's tables
_CHANGES = frozenset({pgoutput.INSERT, pgoutput.UPDATE, pgoutput.DELETE})


class PostgresCatalogue(Protocol):
    """What the log does not contain and is queried from the server."""

    def type_of(self, oid: int, modifier: int) -> TypeInfo:
        """A type by its OID."""

    def key_of(self, oid: int) -> tuple[str, ...]:
        """A table's primary key."""

    def unique_of(self, oid: int) -> tuple[str, ...]:
        """The columns that can be used as a key where there is no primary key."""


class PostgresLogSpan(Struct, frozen=True):
    """The log after ``since`` up to and including ``until``; ``at_ms`` is its event time."""

    since: int
    until: int
    at_ms: int


class PostgresChangeDecoder:
    """Decodes the messages of one span to records."""

    def __init__(
        self,
        config: PostgresCdcConfig,
        routing: TableRouting,
        catalogue: PostgresCatalogue,
        span: PostgresLogSpan,
        stamps: Stamps,
    ) -> None:
        self._config = config
        self._routing = routing
        self._catalogue = catalogue
        self._span = span
        self._stamps = stamps
        self._skipped = frozenset(op.encode() for op in config.skipped_operations)
        self._tables: dict[int, PostgresEventWriter | None] = {}
        self._begin: pgoutput.Begin | None = None
        # The parts that all events of a table and an operation within a transaction share.
        self._frames: dict[tuple[int, bytes], list[bytes]] = {}
        self._origin = MADE_HERE
        self._previous_end = span.since
        self._tally = TransactionCounter(is_included=config.transaction_metadata)

    @property
    def xid(self) -> int | None:
        """The transaction whose records are being decoded."""
        return None if self._begin is None else self._begin.xid

    def records(self, messages: Iterable[tuple[int, bytes]]) -> Iterator[ChangeRecord]:
        """The records of messages, which are given with their positions in the log."""
        parse, new_row = pgoutput.parse, pgoutput.new_row
        for lsn, data in messages:
            if data[0] not in _CHANGES:
                self._frames = {}
                yield from self._other(lsn, parse(data))
            elif self._begin is not None:
                row = new_row(data)
                if row is None:
                    change = parse(data)
                    assert isinstance(change, pgoutput.RowChange), (
                        "the first byte is that of a change"
                    )
                    yield from self._change(lsn, change)
                elif (table := self._table(row[0])) is not None:
                    op = b"c" if data[0] == pgoutput.INSERT else b"u"
                    yield from self._there(lsn, table, row[1], op)

    def _other(self, lsn: int, message: pgoutput.Event | None) -> Iterator[ChangeRecord]:
        match message:
            case pgoutput.Begin():
                yield from self._begun(lsn, message)
            case pgoutput.Commit():
                yield from self._ended(message)
            case pgoutput.Origin():
                self._came(message)
            case pgoutput.Relation():
                self._learn(message)
            case pgoutput.Truncate():
                if self._begin is not None:
                    yield from self._truncated(lsn, message, self._begin)
            case pgoutput.LogicalMessage():
                yield from self._logical_message(lsn, message)
            case pgoutput.RowChange() | None:
                pass  # rows are handled by records(); types need no handling

    def _came(self, origin: pgoutput.Origin) -> None:
        if self._begin is not None:
            name = msgspec.json.encode(origin.name)
            self._origin = b'"origin":%b,"origin_lsn":%d' % (name, origin.lsn)

    def _is_ours(self, lsn: int, message: pgoutput.LogicalMessage) -> bool:
        if message.is_transactional:
            return self._begin is not None
        return self._span.since < lsn <= self._span.until

    def _learn(self, relation: pgoutput.Relation) -> None:
        config = self._config
        if not is_selected(relation.schema, relation.name, config.tables, config.exclude_tables):
            self._tables[relation.oid] = None
            return
        shape = PostgresTableSchema(
            relation.schema,
            relation.name,
            tuple(
                PostgresColumn(
                    column.name,
                    self._catalogue.type_of(column.type_oid, column.modifier),
                    column.is_key,
                )
                for column in relation.columns
            ),
            self._catalogue.key_of(relation.oid),
            self._catalogue.unique_of(relation.oid),
        )
        self._tables[relation.oid] = PostgresEventWriter(shape, config, self._routing)

    def _table(self, oid: int) -> PostgresEventWriter | None:
        try:
            return self._tables[oid]
        except KeyError:
            raise Corrupt(
                f"a change of table {oid}, which has no relation message", subject="pgoutput"
            ) from None

    def _change(self, lsn: int, change: pgoutput.RowChange) -> Sequence[ChangeRecord]:
        table = self._table(change.oid)
        if table is None:
            return ()
        old, new, layout = change.old, change.new, table.layout
        if new is None:
            assert old is not None
            return self._gone(lsn, table, old)
        before = NULL
        if old is not None:
            if not change.old_is_key:
                _complete(new, old)
                before = layout.row(old)
            old_key = layout.key(old) if table.old_has_key else None
            new_key = layout.key(new)
            if old_key is not None and old_key != new_key:
                assert new_key is not None
                moved = self._gone(lsn, table, old, moved_to=new_key)
                return (*moved, *self._there(lsn, table, new, b"c", moved_from=old_key))
        return self._there(lsn, table, new, change.op.encode(), before=before)

    def _there(
        self,
        lsn: int,
        table: PostgresEventWriter,
        new: Values,
        op: bytes,
        *,
        before: bytes = NULL,
        moved_from: bytes | None = None,
    ) -> Sequence[ChangeRecord]:
        if op in self._skipped or self._is_held(table, new):
            return ()
        headers = (("__debezium.oldkey", moved_from),) if moved_from is not None else None
        rows = (before, table.layout.row(new))
        return (self._event(lsn, table, rows, op, new, headers),)

    def _gone(
        self, lsn: int, table: PostgresEventWriter, old: Values, *, moved_to: bytes | None = None
    ) -> Sequence[ChangeRecord]:
        if b"d" in self._skipped or self._is_held(table, old):
            return ()
        headers = (("__debezium.newkey", moved_to),) if moved_to is not None else None
        event_record = self._event(lsn, table, (table.layout.row(old), NULL), b"d", old, headers)
        if not self._config.tombstones or event_record.key is None:
            return (event_record,)
        return event_record, ChangeRecord(
            event_record.topic,
            event_record.key,
            None,
            event_record.at_us,
            headers,
            event_record.schemas,
        )

    def _event(
        self,
        lsn: int,
        table: PostgresEventWriter,
        rows: tuple[bytes, bytes],
        op: bytes,
        keyed: Values,
        headers: tuple[tuple[str, bytes], ...] | None = None,
    ) -> ChangeRecord:
        begin = self._begin
        assert begin is not None
        frame = self._frames.get((id(table), op))
        if frame is None:
            source = self._source(table.source, _HOLE, begin)
            event_record = event(_HOLE, _HOLE, source, op, self._span.at_ms, _HOLE)
            frame = self._frames[id(table), op] = event_record.split(_HOLE)
        head, after, sequence, place, order, tail = frame
        lsn_text = b"%d" % lsn
        pieces = (head, rows[0], after, rows[1], sequence, lsn_text, place, lsn_text, order)
        value = b"".join((*pieces, self._order(table, lsn), tail))
        key = table.layout.key(keyed)
        return ChangeRecord(table.topic, key, value, begin.committed_us, headers, table.schemas)

    def _order(self, table: PostgresEventWriter, lsn: int) -> bytes:
        if not self._tally.is_included:
            return NULL
        assert self._begin is not None
        return self._tally.order(table.name, f"{self._begin.xid}:{lsn}")

    def _source(self, template: bytes, lsn: bytes, begin: pgoutput.Begin) -> bytes:
        at_us = begin.committed_us
        sequence = b'[\\"%d\\",\\"%b\\"]' % (self._previous_end, lsn)
        xid = b"%d" % begin.xid if begin.xid else NULL
        return template % (
            (at_us // 1000, _STREAMED, sequence, at_us, at_us, xid, lsn, self._origin)
        )

    def _is_held(self, table: PostgresEventWriter, values: Values) -> bool:
        begin = self._begin
        assert begin is not None
        if begin.final_lsn >= self._stamps.until or not self._stamps.concerns(table.name):
            return False
        key = [
            marked(value, is_number=is_number)
            for at, is_number in table.stamp_key
            if isinstance(value := values[at], bytes)
        ]
        return self._stamps.holds(table.name, comparable(key), begin.xid)

    def _truncated(
        self, lsn: int, message: pgoutput.Truncate, begin: pgoutput.Begin
    ) -> Iterator[ChangeRecord]:
        for oid in message.oids:
            table = self._table(oid)
            if table is None or b"t" in self._skipped:
                continue
            is_early = begin.final_lsn < self._stamps.until
            if is_early and self._stamps.holds(table.name, (), begin.xid):
                continue  # the snapshot read all rows after the truncation
            source = self._source(table.source, b"%d" % lsn, begin)
            value = event(NULL, NULL, source, b"t", self._span.at_ms, self._order(table, lsn))
            yield ChangeRecord(table.topic, None, value, begin.committed_us, None, table.schemas)

    def _logical_message(
        self, lsn: int, message: pgoutput.LogicalMessage
    ) -> Iterator[ChangeRecord]:
        if not self._is_ours(lsn, message) or not self._config.messages or b"m" in self._skipped:
            return
        begin = self._begin if message.is_transactional else None
        at_us = begin.committed_us if begin is not None else self._span.at_ms * 1000
        if begin is None:
            self._previous_end = lsn  # non-transactional: committed when it is written
        event_record = begin or pgoutput.Begin(lsn, at_us, 0)
        source = self._source(source_template(self._config, "", ""), b"%d" % lsn, event_record)
        prefix = msgspec.json.encode(message.prefix)
        order = NULL if begin is None else self._tally.order(_MESSAGES, f"{begin.xid}:{lsn}")
        value = (
            b'{"op":"m","ts_ms":%d,"source":%b,"transaction":%b,'
            b'"message":{"prefix":%b,"content":%b}}'
        ) % (
            self._span.at_ms,
            source,
            order,
            prefix,
            encoded(message.content, self._config.binary_mode),
        )
        yield ChangeRecord(None, b'{"prefix":%b}' % prefix, value, at_us)

    def _begun(self, lsn: int, begin: pgoutput.Begin) -> Iterator[ChangeRecord]:
        if not self._span.since <= begin.final_lsn < self._span.until:
            return
        self._begin = begin
        self._tally.begin()
        name = f"{begin.xid}:{lsn}"
        yield from self._tally.boundary("BEGIN", name, begin.committed_us)

    def _ended(self, commit: pgoutput.Commit) -> Iterator[ChangeRecord]:
        begin = self._begin
        if begin is None:
            return
        self._begin, self._origin = None, MADE_HERE
        name = f"{begin.xid}:{commit.end_lsn}"
        yield from self._tally.boundary("END", name, begin.committed_us)
        self._previous_end = commit.end_lsn


def _complete(new: Values, old: Values) -> None:
    """Fill in unchanged large values from the old row."""
    for at, value in enumerate(new):
        if value is UNCHANGED and old[at] is not None:
            new[at] = old[at]
