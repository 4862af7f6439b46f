"""Steps that change which fields a record has: rename, keep, remove, insert, flatten, unwrap."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta
from msgspec import field as setting
from pyspark.sql import Column
from pyspark.sql import functions as F

from mainstem.pipelines.transforms.fields import (
    as_fields,
    constant,
    false,
    has,
    keep,
    leads_nowhere,
    merge,
    put,
    remove,
    value_at,
    variant,
)
from mainstem.pipelines.transforms.paths import parse_path
from mainstem.pipelines.transforms.predicate import StepProblem
from mainstem.pipelines.transforms.rows import Rows, StepContext, row_fields
from mainstem.pipelines.transforms.step import Step, path_problems
from mainstem.pipelines.transforms.times import iso8601

FLATTEN_DEPTH_MAX: Final = 32


class ReplaceField(Step, frozen=True, kw_only=True):
    """Keeps only some fields, removes some, and renames: in this order.

    A renamed field replaces an existing one of that name.
    """

    renames: dict[str, str] = setting(default_factory=dict)
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        if not (self.renames or self.include or self.exclude):
            yield "", "nothing to do", "set renames, include or exclude"
        yield from path_problems("renames", (*self.renames, *self.renames.values()), required=False)
        yield from path_problems("include", self.include, required=False)
        yield from path_problems("exclude", self.exclude, required=False)
        targets = list(self.renames.values())
        for name in sorted({name for name in targets if targets.count(name) > 1}):
            yield "renames", f"two fields are renamed to {name!r}", "choose different names"

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Keeps, removes and renames fields."""
        for old, new in self.renames.items():
            if parse_path(new).rest is not None:
                stuck = leads_nowhere(row_fields(), new) & has(row_fields(), old)
                rows = rows.fail(turn, stuck, f"the parent of {new!r} is not an object")
        return rows.edit(self._replaced, turn)

    def _replaced(self, fields: Column) -> Column:
        if self.include:
            fields = keep(fields, self.include)
        if self.exclude:
            fields = remove(fields, self.exclude)
        flat = all(parse_path(n).rest is None for pair in self.renames.items() for n in pair)
        return _renamed(fields, self.renames) if flat else _moved(fields, self.renames)


class RemoveField(Step, frozen=True, kw_only=True):
    """Removes fields."""

    fields: tuple[str, ...]

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        return path_problems("fields", self.fields)

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Removes the fields that a record has."""
        return rows.edit(lambda fields: remove(fields, self.fields), turn)


class InsertField(Step, frozen=True, kw_only=True):
    """Adds fields: constants, the time, and the record's topic and partition.

    ``timestamp_field`` and ``date_field`` get the time (UTC) at which the batch is processed;
    ``record_timestamp_field`` the record's own. With ``overwrite: false`` existing fields are
    unchanged.
    """

    static_fields: dict[str, Any] = setting(default_factory=dict)
    timestamp_field: str | None = None
    date_field: str | None = None
    topic_field: str | None = None
    partition_field: str | None = None
    record_timestamp_field: str | None = None
    overwrite: bool = True

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        computed = [name for name in self._computed_names() if name is not None]
        yield from path_problems("static_fields", self.static_fields, required=not computed)
        yield from path_problems("", computed, required=False)

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Adds every field."""
        values: dict[str, Column] = {
            name: constant(value) for name, value in self.static_fields.items()
        }
        sources = (
            iso8601(F.current_timestamp()),
            F.date_format(F.current_timestamp(), "yyyy-MM-dd"),
            F.col("topic"),
            F.col("partition"),
            iso8601(F.col("timestamp")),
        )
        for name, source in zip(self._computed_names(), sources, strict=True):
            if name is not None:
                values[name] = variant(source)
        return insert(rows, values, turn, overwrite=self.overwrite)

    def _computed_names(self) -> tuple[str | None, ...]:
        return (
            self.timestamp_field,
            self.date_field,
            self.topic_field,
            self.partition_field,
            self.record_timestamp_field,
        )


class Flatten(Step, frozen=True, kw_only=True):
    """Moves the fields of nested objects to the first level: ``{"a":{"b":1}}`` to ``{"a.b":1}``.

    ``max_depth`` is the number of levels that are flattened, 0 means all. Arrays and empty objects
    are not flattened. A record in which two fields would have the same name fails.
    """

    delimiter: Annotated[str, Meta(max_length=20)] = "."
    max_depth: Annotated[int, Meta(ge=0, le=FLATTEN_DEPTH_MAX)] = 0

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Flattens level by level."""
        names = F.transform(self._entries(row_fields()), lambda entry: entry["key"])
        twice = F.size(F.array_distinct(names)) != F.size(names)
        rows = rows.fail(turn, twice, "two fields would have the same name after flattening")

        def flat(fields: Column) -> Column:
            entries = self._entries(fields)
            names = F.transform(entries, lambda entry: entry["key"])
            unique = F.size(F.array_distinct(names)) == F.size(names)
            return F.when(unique, F.map_from_entries(entries)).otherwise(fields)

        return rows.edit(flat, turn)

    def _entries(self, fields: Column) -> Column:
        levels = F.sequence(F.lit(1), F.lit(self.max_depth or FLATTEN_DEPTH_MAX))
        return F.reduce(
            levels,
            F.map_entries(fields),
            lambda entries, _: F.when(
                F.exists(entries, lambda entry: _has_fields(entry["value"])),
                F.flatten(F.transform(entries, self._lifted)),
            ).otherwise(entries),
        )

    def _lifted(self, entry: Column) -> Column:
        below = F.transform(
            F.map_entries(as_fields(entry["value"])),
            lambda inner: F.struct(
                F.concat(entry["key"], F.lit(self.delimiter), inner["key"]).alias("key"),
                inner["value"].alias("value"),
            ),
        )
        return F.when(_has_fields(entry["value"]), below).otherwise(F.array(entry))


class Unwrap(Step, frozen=True, kw_only=True):
    """Moves the fields of one nested object to the first level, in place of its parent.

    ``{"id":1,"payload":{"data":{"x":2}}}`` with ``field: payload.data`` becomes
    ``{"id":1,"x":2}``; with ``only: true`` it becomes ``{"x":2}``. A record without the field is
    unchanged; one in which it is neither an object nor null fails.
    """

    field: str
    only: bool = False

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        return path_problems("field", [self.field])

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Unwraps the object."""
        found = value_at(row_fields(), self.field)
        odd = found.isNotNull() & ~F.is_variant_null(found) & as_fields(found).isNull()
        rows = rows.fail(turn, odd, f"{self.field!r} is not an object")

        def lifted(fields: Column) -> Column:
            inner = as_fields(value_at(fields, self.field))
            outer = remove(fields, [f"['{parse_path(self.field).top}']"])
            whole = inner if self.only else merge(outer, inner)
            return F.when(inner.isNull(), fields).otherwise(whole)

        return rows.edit(lifted, turn)


def insert(rows: Rows, values: Mapping[str, Column], turn: StepContext, *, overwrite: bool) -> Rows:
    """Adds fields to records; fails those in which a path leads through a scalar."""
    for name, value in values.items():
        rows = fail_where_not_object(rows, name, turn)

        def added(fields: Column, name: str = name, value: Column = value) -> Column:
            new = put(fields, name, value)
            return new if overwrite else F.when(has(fields, name), fields).otherwise(new)

        rows = rows.edit(added, turn)
    return rows


def fail_where_not_object(rows: Rows, name: str, turn: StepContext) -> Rows:
    """Fails records in which the parent of a field is not an object."""
    if parse_path(name).rest is None:
        return rows
    stuck = leads_nowhere(row_fields(), name)
    return rows.fail(turn, stuck, f"the parent of {name!r} is not an object")


def _has_fields(value: Column) -> Column:
    return F.coalesce(F.size(as_fields(value)) > 0, false())


def _renamed(fields: Column, renames: Mapping[str, str]) -> Column:
    """Renames on the first level in one pass, each field in its position."""
    if not renames:
        return fields
    names = {parse_path(old).top: parse_path(new).top for old, new in renames.items()}
    whole = fields

    def replaced(key: Column) -> Column:
        """Whether another field is renamed to this name."""
        taken: Column = false()
        for old, new in names.items():
            if new not in names:
                taken |= (key == new) & F.map_contains_key(whole, old)
        return taken

    def name_of(key: Column) -> Column:
        chosen: Column | None = None
        for old, new in names.items():
            chosen = (F if chosen is None else chosen).when(key == old, F.lit(new))
        assert chosen is not None
        return chosen.otherwise(key)

    left = F.map_filter(fields, lambda key, _: ~replaced(key))
    return F.transform_keys(left, lambda key, _: name_of(key))


def _moved(fields: Column, renames: Mapping[str, str]) -> Column:
    """Moves values between levels, one after the other."""
    for old, new in renames.items():
        value = value_at(fields, old)
        moved = put(remove(fields, [old]), new, value)
        fields = F.when(value.isNull(), fields).otherwise(moved)
    return fields
