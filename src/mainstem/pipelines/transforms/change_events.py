"""Steps on change events: ``extract_new_record_state`` and ``outbox``."""

from collections.abc import Iterable
from typing import Final

from msgspec import field
from pyspark.sql import Column
from pyspark.sql import functions as F

from mainstem.pipelines.transforms.fields import false, is_string, put, text, value_at, variant
from mainstem.pipelines.transforms.predicate import StepProblem
from mainstem.pipelines.transforms.routing import route_to, topic_of, topic_problems
from mainstem.pipelines.transforms.rows import (
    FIELDS,
    Rows,
    StepContext,
    change_source,
    change_word,
    row_fields,
)
from mainstem.pipelines.transforms.step import Step, path_problems
from mainstem.pipelines.transforms.times import instant

_HEADER_FIELDS: Final = {"id": "id", "type": "eventType"}
_HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"


class ExtractNewRecordState(Step, frozen=True, kw_only=True):
    """Replaces a change event by the current row; other records are unchanged.

    A deletion becomes a tombstone: the key without a value. With ``drop_tombstones`` deletions and
    tombstones are dropped; with ``rewrite_deletes`` a deletion is the old row, and every row has
    ``__deleted``. Truncations and messages are not rows and are dropped. ``add_*`` add ``__table``,
    ``__schema``, ``__db``, ``__op``, ``__ts`` to the record, and ``add_fields`` any field of the
    event's ``source``.
    """

    drop_tombstones: bool = False
    rewrite_deletes: bool = False
    add_table: bool = False
    add_schema: bool = False
    add_database: bool = False
    add_op: bool = False
    add_ts: bool = False
    add_fields: tuple[str, ...] = ()

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        for name in self.add_fields:
            if not name.isidentifier():
                yield "add_fields", f"{name!r} is not a field of a change event's source", ""

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Unwraps, then drops."""
        operation = change_word("op")
        is_deletion = F.coalesce(operation == "d", false())
        rows = rows.drop(turn, operation.isin("t", "m"))
        left = row_fields() if self.rewrite_deletes else F.col(FIELDS)
        fields = self._with_additions(left, is_deletion)
        if self.drop_tombstones:
            gone = F.col("value").isNull()
            if not self.rewrite_deletes:
                gone |= is_deletion
            rows = rows.drop(turn, gone)
        return rows.unwrap_change(fields, turn)

    def _with_additions(self, fields: Column, is_deletion: Column) -> Column:
        moment = F.coalesce(change_word("ts_ms"), change_source("ts_ms")).try_cast("bigint")
        additions = [
            (self.add_table, "__table", change_source("table")),
            (self.add_schema, "__schema", change_source("schema")),
            (self.add_database, "__db", change_source("db")),
            (self.add_op, "__op", change_word("op")),
            (self.add_ts, "__ts", moment),
            (self.rewrite_deletes, "__deleted", is_deletion),
            *((True, f"__{name}", change_source(name)) for name in self.add_fields),
        ]
        for wanted, name, value in additions:
            if wanted:
                fields = put(fields, name, variant(value))
        return fields


class OutboxEventRouter(Step, frozen=True, kw_only=True):
    """Converts rows of an outbox table, which services write in their transactions, to events.

    Each inserted row becomes a record: ``topic`` may contain columns in braces, the key is the
    column ``key_field``, the value the column ``payload_field`` (text unchanged, other types as
    JSON), and ``header_fields`` maps columns to headers. Updates and deletions of outbox rows, and
    tombstones, are dropped. A row without a payload is a tombstone for its key.
    """

    topic: str = "outbox.event.{aggregatetype}"
    key_field: str = "aggregateid"
    payload_field: str = "payload"
    header_fields: dict[str, str] = field(default_factory=lambda: dict(_HEADER_FIELDS))
    timestamp_field: str | None = None

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        yield from topic_problems("topic", self.topic)
        yield from path_problems("key_field", [self.key_field])
        yield from path_problems("payload_field", [self.payload_field])
        yield from path_problems("header_fields", self.header_fields, required=False)
        if self.timestamp_field is not None:
            yield from path_problems("timestamp_field", [self.timestamp_field])

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Converts rows to events."""
        operation = change_word("op")
        over = F.col("value").isNull() | F.coalesce(~operation.isin("c", "r"), false())
        rows = rows.drop(turn, over)
        fields = row_fields()
        absent = value_at(fields, self.payload_field).isNull()
        rows = rows.fail(turn, absent, f"the outbox row has no {self.payload_field}")
        rows = route_to(rows, topic_of(self.topic, fields), turn, checked=True)
        columns = {
            "key": text(value_at(fields, self.key_field)).cast("binary"),
            "headers": self._headers(fields),
        }
        if self.timestamp_field is not None:
            moment = instant(value_at(fields, self.timestamp_field), "UTC")
            columns["timestamp"] = F.coalesce(moment, F.col("timestamp"))
        rows = rows.with_columns(columns, turn)
        payload = value_at(fields, self.payload_field)
        return rows.replace_value(_bytes(payload), turn)

    def _headers(self, fields: Column) -> Column:
        added = [
            F.struct(
                F.lit(name).alias("key"),
                text(value_at(fields, column)).cast("binary").alias("value"),
            )
            for column, name in self.header_fields.items()
        ]
        known = F.coalesce(F.col("headers"), F.array().cast(_HEADERS_TYPE))
        return F.concat(known, F.array(*added).cast(_HEADERS_TYPE)) if added else known


def _bytes(payload: Column) -> Column:
    written = F.when(is_string(payload), text(payload)).otherwise(F.to_json(payload))
    return F.when(F.is_variant_null(payload), F.lit(None)).otherwise(written).cast("binary")
