"""Writes micro-batches to a table, each exactly once, with a ledger in the same transaction.

    BEGIN ─ is this batch in the ledger? ─ rows ─ ledger := this batch ─ COMMIT

Rows of one key are applied in order, so the last one wins. A tombstone deletes. A row that the
database permanently refuses is found by applying the rows of its group one by one.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame

from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.pipelines.connector.batches import BatchIdentity
from mainstem.pipelines.connector.shapes import ConnectorContext
from mainstem.pipelines.database_tables.databases import (
    DatabaseServer,
    DatabaseSession,
    quoted,
    row_errors,
    session,
)
from mainstem.pipelines.database_tables.rows import arrow_pieces, columns_of, refuse

ROWS_PER_STATEMENT: Final = 1_000
Key = tuple[Any, ...]
_LEDGER: Final = """
CREATE TABLE IF NOT EXISTS {ledger} (
  query_id varchar(64) NOT NULL, sink varchar(255) NOT NULL, batch_id bigint NOT NULL,
  PRIMARY KEY (query_id, sink))
"""


class SinkTable(Struct, frozen=True, kw_only=True):
    """The table and how it is written."""

    server: DatabaseServer
    table: str
    schema: str
    mode: Literal["insert", "upsert"]
    key: tuple[str, ...]
    ledger: str


class RefusedRow(Struct, frozen=True):
    """A row that the database refuses."""

    row: dict[str, Any]
    error: str


def write_batch(
    batch: DataFrame, identity: BatchIdentity, target: SinkTable, context: ConnectorContext
) -> None:
    """Apply one batch unless the ledger has it."""
    with session(target.server) as opened:
        _make_ledger(opened, target)
        if _is_done(opened, target, context.pipeline, identity):
            return
        rows = columns_of(batch, target.schema, context, parts=True)
        taken = (row for piece in arrow_pieces(rows) for row in piece.to_pylist())
        refused = _Applier(opened, target).apply(taken)
        if refused:
            refuse(_letters(batch, refused), context)
        _note(opened, target, context.pipeline, identity)
        opened.commit()


def _make_ledger(opened: DatabaseSession, target: SinkTable) -> None:
    name = quoted(target.server.kind, target.ledger)
    with opened.cursor() as cursor:
        cursor.execute(_LEDGER.format(ledger=name))
    opened.commit()


def _is_done(
    opened: DatabaseSession, target: SinkTable, sink: str, identity: BatchIdentity
) -> bool:
    """Whether the batch is in the ledger; locks the ledger's row until the transaction ends."""
    name = quoted(target.server.kind, target.ledger)
    known = "ON CONFLICT DO NOTHING" if target.server.kind == "postgres" else ""
    insert = "INSERT" if known else "INSERT IGNORE"
    with opened.cursor() as cursor:
        cursor.execute(
            f"{insert} INTO {name} (query_id, sink, batch_id) VALUES (%s, %s, -1) {known}",
            (identity.query_id, sink),
        )
        cursor.execute(
            f"SELECT batch_id FROM {name} WHERE query_id = %s AND sink = %s FOR UPDATE",  # noqa: S608
            (identity.query_id, sink),
        )
        [(done,)] = cursor.fetchall()
    return int(done) >= identity.batch_id


def _note(opened: DatabaseSession, target: SinkTable, sink: str, identity: BatchIdentity) -> None:
    name = quoted(target.server.kind, target.ledger)
    with opened.cursor() as cursor:
        cursor.execute(
            f"UPDATE {name} SET batch_id = %s WHERE query_id = %s AND sink = %s",  # noqa: S608
            (identity.batch_id, identity.query_id, sink),
        )


class _Applier:
    """Turns rows into statements."""

    def __init__(self, opened: DatabaseSession, target: SinkTable) -> None:
        self._opened = opened
        self._target = target
        self._kind = target.server.kind
        self._refused: list[RefusedRow] = []
        self._keys_text = " AND ".join(f"{quoted(self._kind, name)} = %s" for name in target.key)

    def apply(self, rows: Iterable[dict[str, Any]]) -> list[RefusedRow]:
        """Apply rows in order; returns those that were refused."""
        for group in _groups(rows):
            if self._target.mode == "insert":
                self._try([(row, None) for row in group if not _is_empty(row)])
            else:
                self._try(list(self._last_of_each_key(group)))
        return self._refused

    def _last_of_each_key(
        self, group: list[dict[str, Any]]
    ) -> Iterator[tuple[dict[str, Any], Key | None]]:
        """Rows to write, and keys to delete with their row."""
        last: dict[Key, tuple[dict[str, Any], Key | None]] = {}
        for row in group:
            own = tuple(row[name] for name in self._target.key)
            if None not in own:
                last[tuple(map(str, own))] = (row, None)
                continue
            deleted = _key_of_tombstone(row, self._target.key) if _is_empty(row) else None
            if deleted is None:
                text = f"the key {', '.join(self._target.key)} is null"
                self._refused.append(RefusedRow(row, text))
            else:
                last[tuple(map(str, deleted))] = (row, deleted)
        yield from last.values()

    def _try(self, group: list[tuple[dict[str, Any], Key | None]]) -> None:
        """Apply a group of rows at once; one by one if the database refuses one of them."""
        if not group:
            return
        with self._opened.cursor() as cursor:
            cursor.execute("SAVEPOINT rows_of_group")
            try:
                self._execute(cursor, group)
            except row_errors(self._kind) as error:
                cursor.execute("ROLLBACK TO SAVEPOINT rows_of_group")
                if len(group) == 1:
                    text = " ".join(str(error).split())[:400]
                    self._refused.append(RefusedRow(group[0][0], text))
                    return
            else:
                cursor.execute("RELEASE SAVEPOINT rows_of_group")
                return
        for each in group:
            self._try([each])

    def _execute(self, cursor: Any, group: list[tuple[dict[str, Any], Key | None]]) -> None:
        table = quoted(self._kind, self._target.table)
        deleted = [key for _, key in group if key is not None]
        if deleted:
            cursor.executemany(f"DELETE FROM {table} WHERE {self._keys_text}", deleted)  # noqa: S608
        rows = [row for row, key in group if key is None]
        if rows:
            names = [name for name in rows[0] if not name.startswith("_")]
            values = [[_value(row[name]) for name in names] for row in rows]
            cursor.executemany(self._insert(table, names), values)

    def _insert(self, table: str, names: list[str]) -> str:
        columns = [quoted(self._kind, name) for name in names]
        marks = ", ".join(["%s"] * len(columns))
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
        if self._target.mode == "insert":
            return statement
        others = [quoted(self._kind, name) for name in names if name not in self._target.key]
        if self._kind == "mysql":
            same = quoted(self._kind, self._target.key[0])
            changes = ", ".join(f"{name} = VALUES({name})" for name in others)
            return f"{statement} ON DUPLICATE KEY UPDATE {changes or f'{same} = {same}'}"
        keys = ", ".join(quoted(self._kind, name) for name in self._target.key)
        changes = ", ".join(f"{name} = EXCLUDED.{name}" for name in others)
        action = f"DO UPDATE SET {changes}" if changes else "DO NOTHING"
        return f"{statement} ON CONFLICT ({keys}) {action}"


def _groups(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    group: list[dict[str, Any]] = []
    for row in rows:
        group.append(row)
        if len(group) == ROWS_PER_STATEMENT:
            yield group
            group = []
    if group:
        yield group


def _is_empty(row: dict[str, Any]) -> bool:
    return all(value is None for name, value in row.items() if not name.startswith("_"))


def _key_of_tombstone(row: dict[str, Any], names: tuple[str, ...]) -> Key | None:
    """The values of the key columns in a record's key: an object, or the single value itself."""
    raw = row["_key"]
    if raw is None:
        return None
    try:
        found = msgspec.json.decode(raw)
    except DECODE_ERRORS:
        found = raw.decode(errors="replace")
    if isinstance(found, dict):
        values = tuple(found.get(name) for name in names)
        return None if None in values else values
    return (found,) if len(names) == 1 and found is not None else None


def _value(value: Any) -> Any:
    """The parameter of a value; nested values are written as JSON."""
    if isinstance(value, dict | list):
        return msgspec.json.encode(value, enc_hook=str).decode()
    return value


def _letters(batch: DataFrame, refused: list[RefusedRow]) -> DataFrame:
    """The refused rows, with their columns as JSON."""
    rows = []
    for each in refused:
        own = {name: value for name, value in each.row.items() if not name.startswith("_")}
        value = None if _is_empty(each.row) else msgspec.json.encode(own, enc_hook=str)
        rows.append((each.row["_topic"], each.row["_key"], value, each.error))
    schema = "topic string, key binary, value binary, error string"
    return batch.sparkSession.createDataFrame(rows, schema)
