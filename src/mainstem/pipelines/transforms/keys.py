"""Steps between the parts of a record: ``value_to_key`` and ``header_to_value``."""

from collections.abc import Iterable
from typing import Final, Literal

from msgspec import field
from pyspark.sql import Column
from pyspark.sql import functions as F

from mainstem.pipelines.transforms.fields import json_null, put, text, value_at, variant
from mainstem.pipelines.transforms.predicate import StepProblem
from mainstem.pipelines.transforms.rows import (
    ENVELOPE,
    Rows,
    StepContext,
    change_source,
    change_word,
    row_fields,
)
from mainstem.pipelines.transforms.shaping import fail_where_not_object
from mainstem.pipelines.transforms.step import Step, path_problems

_HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"


class ValueToKey(Step, frozen=True, kw_only=True):
    """Creates the key from fields of the value.

    With ``json`` the key is an object of them, absent ones are null; with ``text`` it is the
    unquoted value of a single field. A record that has none of the fields fails: with a null key it
    would go to an arbitrary partition.
    """

    fields: tuple[str, ...]
    format: Literal["json", "text"] = "json"

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        yield from path_problems("fields", self.fields)
        if self.format == "text" and len(self.fields) > 1:
            yield (
                "format",
                "a text key is made from one field",
                "use json, or concatenate the fields first",
            )

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Sets the key."""
        fields = row_fields()
        values = [value_at(fields, name) for name in self.fields]
        here = StepContext(turn.label, turn.and_(fields.isNotNull()))
        absent = F.coalesce(*(text(value) for value in values)).isNull()
        rows = rows.fail(here, absent, f"no value for the key: {', '.join(self.fields)}")
        if self.format == "text":
            key = text(values[0])
        else:
            parts: list[Column] = []
            for name, value in zip(self.fields, values, strict=True):
                parts += [F.lit(name), F.coalesce(value, json_null())]
            key = F.to_json(F.create_map(*parts))
        return rows.with_columns({"key": key.cast("binary")}, here)


class HeaderToValue(Step, frozen=True, kw_only=True):
    """Copies headers, and metadata of a change event, into fields.

    ``fields`` maps a source to its target field. ``source_type``, ``database``, ``schema``,
    ``table``, ``operation``, ``timestamp`` and ``transaction_id`` of a change event are sources,
    and so is every header of a record by its key; the last of several is used. Values that are not
    UTF-8 are written in base64. ``all_headers_prefix`` copies all headers; ``move`` removes the
    copied ones from the record.
    """

    fields: dict[str, str] = field(default_factory=dict)
    all_headers_prefix: str | None = None
    move: bool = False

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        if not self.fields and self.all_headers_prefix is None:
            yield "fields", "nothing to copy", "set fields or all_headers_prefix"
        yield from path_problems("fields", self.fields.values(), required=False)

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Copies, then removes."""
        for source, target in self.fields.items():
            found = _source(source)
            here = StepContext(turn.label, turn.and_(found.isNotNull()))
            rows = fail_where_not_object(rows, target, here)

            def copied(fields: Column, target: str = target, found: Column = found) -> Column:
                return put(fields, target, variant(found))

            rows = rows.edit(copied, here)
        if self.all_headers_prefix is not None:
            rows = rows.edit(self._all_copied, turn)
        return rows.with_columns({"headers": self._left()}, turn) if self.move else rows

    def _all_copied(self, fields: Column) -> Column:
        prefix = F.lit(self.all_headers_prefix)

        def added(known: Column, header: Column) -> Column:
            name = F.concat(prefix, F.coalesce(header["key"], F.lit("")))
            others = F.map_filter(known, lambda key, _: key != name)
            return F.map_concat(others, F.create_map(name, variant(_readable(header["value"]))))

        headers = F.coalesce(F.col("headers"), F.array().cast(_HEADERS_TYPE))
        return F.reduce(headers, fields, added)

    def _left(self) -> Column:
        if self.all_headers_prefix is not None:
            return F.array().cast(_HEADERS_TYPE)
        return F.filter(F.col("headers"), lambda header: ~header["key"].isin(list(self.fields)))


def _source(name: str) -> Column:
    header = _readable(_header(name))
    match name:
        case "source_type":
            column = change_source("connector")
        case "database":
            column = change_source("db")
        case "schema" | "table":
            column = change_source(name)
        case "operation":
            column = change_word("op")
        case "timestamp":
            column = F.coalesce(change_source("ts_ms"), change_word("ts_ms"))
        case "transaction_id":
            transaction = F.try_variant_get(F.col(ENVELOPE)["transaction"], "$.id", "string")
            column = F.coalesce(transaction, change_source("txId"), change_source("gtid"))
        case _:
            return header
    return F.coalesce(column, header)


def _header(name: str) -> Column:
    found = F.filter(F.col("headers"), lambda header: header["key"] == name)
    return F.try_element_at(found, F.lit(-1))["value"]


def _readable(value: Column) -> Column:
    plain = value.cast("string")
    return F.when(F.is_valid_utf8(plain), plain).otherwise(F.base64(value))
