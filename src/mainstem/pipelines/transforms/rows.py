"""The working frame of a plan: wire columns, the parsed record, and errors.

    open -> (parse) -> edit, route, drop, fail ... -> close

Guarantees: a record that no step applied to keeps its bytes; a record that failed is kept
unmodified; a null value (a tombstone) has no fields and passes every step that needs some. A
*change event* (an object with ``op``, ``source`` and ``before`` or ``after``) is unwrapped: steps
see the fields of its row, in both images, and the envelope is restored at the end.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mainstem.pipelines.connector.wire import FIELDS_TYPE, PLAIN_FIELDS, WIRE_TYPES, as_wire
from mainstem.pipelines.transforms.fields import (
    as_fields,
    false,
    is_empty,
    json_null,
    true,
)
from mainstem.pipelines.transforms.typed_columns import pinned

FIELDS: Final = "__fields"
BEFORE: Final = "__before"
ENVELOPE: Final = "__envelope"
_WRAPPED: Final = "__wrapped"
_MALFORMED: Final = "__malformed"
_CHANGED: Final = "__changed"
_FAULT: Final = "__fault"
_ORIGINAL: Final = "__original_"
_GONE: Final = "__gone"
_PARSED: Final = "__parsed"
_NAMES: Final = "__names"
_COMPARED_MAX: Final = 8
"""Up to this number of fields, duplicate names are found by comparing them, without a set."""
_WHOLE: Final = "__whole"
_TEXT: Final = "__text"
_INFINITY: Final = b"Infinity"
_STRICT: Final = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


class StepContext(NamedTuple):
    """The context of one step: its label and the records that it applies to (None: all)."""

    label: str
    applies: Column | None = None
    where: str = ""
    """Its path in the pipeline file."""

    def chosen(self, new: Column, old: Column) -> Column:
        """The new value if the step applies."""
        return new if self.applies is None else F.when(self.applies, new).otherwise(old)

    def and_(self, condition: Column) -> Column:
        """Whether the step applies and a condition is true; never null."""
        met = condition if self.applies is None else self.applies & condition
        return F.coalesce(met, false())


@dataclass(frozen=True)
class Rows:
    """A frame that is processed by steps."""

    frame: DataFrame
    parsed: bool = False
    changed_by: str = ""
    """The last step that may have changed fields."""
    kept: frozenset[str] = frozenset()
    """Wire columns that a step may have changed; a copy is kept for dead letters."""
    faulty: bool = False
    """Whether any step so far may have failed records."""
    set_aside: tuple[DataFrame, ...] = ()
    """Records that failed before the frame was rebuilt: wire columns, ``error``, ``step``."""

    def parse(self) -> "Rows":
        """Parses the values; an error is kept until a step needs the value."""
        return self if self.parsed else replace(self, frame=_parsed(self.frame), parsed=True)

    def require_fields(self, turn: StepContext) -> "Rows":
        """Fails records whose value a step needs but which cannot be parsed."""
        return self.fail(turn, F.col(_MALFORMED).isNotNull(), F.col(_MALFORMED))

    def edit(self, change: Callable[[Column], Column], turn: StepContext) -> "Rows":
        """Changes the fields of a record, in both images of a change event."""
        images = {name: turn.chosen(change(F.col(name)), F.col(name)) for name in (FIELDS, BEFORE)}
        return self.replace_fields(images, turn)

    def replace_fields(self, columns: dict[str, Column], turn: StepContext) -> "Rows":
        """Sets columns of the working frame and marks the value to be written again."""
        applied = true() if turn.applies is None else turn.applies
        marked = F.col(_CHANGED) | (applied & F.col(_MALFORMED).isNull())
        frame = self.frame.withColumns({**columns, _CHANGED: marked})
        return replace(self, frame=frame, changed_by=turn.label)

    def beside(self, columns: dict[str, Column]) -> "Rows":
        """Adds a step's temporary columns to the working frame."""
        return replace(self, frame=self.frame.withColumns(columns))

    def without(self, *names: str) -> "Rows":
        """Removes temporary columns."""
        return replace(self, frame=self.frame.drop(*names))

    def with_columns(self, columns: dict[str, Column], turn: StepContext) -> "Rows":
        """Sets wire columns."""
        chosen = {name: turn.chosen(new, F.col(name)) for name, new in columns.items()}
        fresh = columns.keys() - self.kept
        copies = {_ORIGINAL + name: F.col(name) for name in sorted(fresh)}
        frame = self.frame.withColumns(chosen | copies)
        return replace(self, frame=frame, kept=self.kept | fresh)

    def fail(self, turn: StepContext, condition: Column, message: Column | str) -> "Rows":
        """Fails records for which a condition is true; the first failure is kept."""
        problem_text = F.lit(message) if isinstance(message, str) else message
        fault = F.struct(F.lit(turn.label).alias("step"), problem_text.alias("error"))
        frame = self.frame.withColumn(
            _FAULT, F.coalesce(F.col(_FAULT), F.when(turn.and_(condition), fault))
        )
        return replace(self, frame=frame, faulty=True)

    def drop(self, turn: StepContext, condition: Column) -> "Rows":
        """Drops records; those that failed before stay, to be reported."""
        gone = turn.and_(condition) & F.col(_FAULT).isNull()
        frame = pinned(self.frame, {_GONE: gone}).where(~F.col(_GONE)).drop(_GONE)
        return replace(self, frame=frame)

    def unwrap_change(self, fields: Column, turn: StepContext) -> "Rows":
        """Removes the envelope of change events and leaves ``fields`` as the record."""
        was_wrapped = F.col(_WRAPPED)
        columns = {
            FIELDS: turn.chosen(
                F.when(was_wrapped, fields).otherwise(F.col(FIELDS)), F.col(FIELDS)
            ),
            BEFORE: turn.chosen(F.lit(None).cast(FIELDS_TYPE), F.col(BEFORE)),
            _WRAPPED: turn.chosen(false(), was_wrapped),
        }
        only_changes = turn.and_(was_wrapped)
        return self.replace_fields(columns, StepContext(turn.label, only_changes))

    def replace_value(self, value: Column, turn: StepContext) -> "Rows":
        """Sets the value of a record as bytes, not parsed yet."""
        rows = self.close_value().with_columns({"value": value}, turn)
        frame = rows.frame.drop(*_SIDE_COLUMNS, PLAIN_FIELDS)
        return replace(rows, frame=frame, parsed=False)

    def close_value(self) -> "Rows":
        """Writes the value of records that were changed."""
        if not self.changed_by:
            return self
        wrapped = F.map_concat(
            F.create_map(F.lit("before"), _image(BEFORE), F.lit("after"), _image(FIELDS)),
            F.col(ENVELOPE),
        )
        whole = F.when(F.col(_WRAPPED), wrapped).otherwise(F.col(FIELDS))
        text = F.when(F.col(_CHANGED), F.to_json(whole))
        rows = replace(self, frame=self.frame.withColumn(_TEXT, text), changed_by="")
        # A number beyond the range of a double would be written as a string.
        infinite = F.col(_TEXT).contains('Infinity"') & ~F.col("value").contains(F.lit(_INFINITY))
        turn = StepContext(self.changed_by)
        rows = rows.fail(turn, infinite, "a number is out of the range of a double")
        changed = StepContext(self.changed_by, F.col(_CHANGED))
        rows = rows.with_columns({"value": F.col(_TEXT).cast("binary")}, changed)
        return replace(rows, frame=rows.frame.drop(_TEXT))

    def close(self, keep: tuple[str, ...] = ()) -> DataFrame:
        """The wire columns with ``error`` and ``step``, which are null in good records."""
        rows = self.close_value()
        fault = F.col(_FAULT)

        def column(name: str) -> Column:
            if name not in rows.kept or not rows.faulty:
                return F.col(name)
            original = F.col(_ORIGINAL + name)
            return F.when(fault.isNotNull(), original).otherwise(F.col(name)).alias(name)

        marks = (fault["error"].alias("error"), fault["step"].alias("step"))
        return rows.frame.select(*(column(name) for name in WIRE_TYPES), *marks, *keep)


_SIDE_COLUMNS: Final = (FIELDS, BEFORE, ENVELOPE, _WRAPPED, _MALFORMED, _CHANGED)


def open_rows(frame: DataFrame, set_aside: tuple[DataFrame, ...] = ()) -> Rows:
    """Opens any frame: the columns of a source become one JSON object per row."""
    no_fault = F.lit(None).cast("struct<step:string,error:string>")
    return Rows(as_wire(frame).withColumn(_FAULT, no_fault), set_aside=set_aside)


def row_fields() -> Column:
    """The fields of a record; of a deletion, those of the deleted row."""
    return F.coalesce(F.col(FIELDS), F.col(BEFORE))


def change_source(name: str) -> Column:
    """A field of a change event's ``source``, such as ``table``; null in other records."""
    return F.try_variant_get(F.col(ENVELOPE)["source"], f"$.{name}", "string")


def change_word(name: str) -> Column:
    """A field of the envelope itself, such as ``op``; null in other records."""
    return F.try_variant_get(F.col(ENVELOPE)[name], "$", "string")


def _image(name: str) -> Column:
    return F.coalesce(F.to_variant_object(F.col(name)), json_null())


def _parsed(frame: DataFrame) -> DataFrame:
    """Adds the parsed record, and its errors.

    Spark's parser stops after the first value and would parse ``{"a":1} x`` as ``{"a":1}``. So the
    text is parsed inside an enclosing object: anything that follows it, or is missing from it,
    makes that object invalid. If the source has parsed a record, no check is needed: its names are
    distinct, and it is not a change event.
    """
    if PLAIN_FIELDS not in frame.columns:
        frame = frame.withColumn(PLAIN_FIELDS, F.lit(None).cast(FIELDS_TYPE))
    plain, text = F.col(PLAIN_FIELDS), F.col("value").cast("string")
    framed = F.concat(F.lit('{"r":'), text, F.lit(',"s":0}'))
    parsed = F.from_json(framed, f"struct<r:{FIELDS_TYPE},s:int>", _STRICT)
    record, names = F.col(_PARSED)["r"], F.col(_NAMES)
    frame = frame.withColumn(_PARSED, F.when(plain.isNull(), parsed))
    frame = frame.withColumn(_NAMES, F.map_keys(record))
    malformed = (
        F.when(F.col("value").isNull() | plain.isNotNull(), F.lit(None))
        .when(~F.is_valid_utf8(text), F.lit("the value is not UTF-8"))
        .when(F.col(_PARSED)["s"].isNull(), F.lit("the value is not JSON"))
        .when(
            record.isNull(),
            F.lit("the value is not a JSON object, or one inside it has a field twice"),
        )
        .when(_is_there_twice(names), F.lit("a field occurs twice"))
    )
    frame = frame.withColumn(_MALFORMED, malformed)
    whole = F.coalesce(plain, F.when(F.col(_MALFORMED).isNull(), record))
    frame = frame.withColumn(_WHOLE, whole).drop(_PARSED)
    is_change = plain.isNull() & F.col(_MALFORMED).isNull() & _is_change(F.col(_WHOLE), names)
    frame = frame.withColumn(_WRAPPED, F.coalesce(is_change, false())).drop(_NAMES, PLAIN_FIELDS)
    return _taken_apart(frame)


def _is_there_twice(names: Column) -> Column:
    """Whether one of some names occurs twice.

    Spark creates a hash set for ``array_distinct`` and leaves its generated code for it; for a few
    names it is cheaper to look for each one's first index.
    """
    count = F.size(names)
    again = [
        (count > place) & (F.array_position(names, F.get(names, F.lit(place))) <= place)
        for place in range(1, _COMPARED_MAX)
    ]
    many = F.size(F.array_distinct(names)) != count
    return F.when(count <= _COMPARED_MAX, reduce(Column.__or__, again)).otherwise(many)


def _taken_apart(frame: DataFrame) -> DataFrame:
    whole, wrapped = F.col(_WHOLE), F.col(_WRAPPED)
    rest = F.map_filter(whole, lambda key, _: ~key.isin("before", "after"))
    columns = {
        FIELDS: F.when(wrapped, as_fields(whole["after"])).otherwise(whole),
        BEFORE: F.when(wrapped, as_fields(whole["before"])),
        ENVELOPE: F.when(wrapped, rest),
        _CHANGED: false(),
    }
    return frame.withColumns(columns).drop(_WHOLE)


def _is_change(whole: Column, names: Column) -> Column:
    """Whether a record is a change event whose images are rows or absent."""

    def is_image(name: str) -> Column:
        value = whole[name]
        return is_empty(value) | as_fields(value).isNotNull()

    named = F.array_contains(names, "op") & F.array_contains(names, "source")
    imaged = F.array_contains(names, "before") | F.array_contains(names, "after")
    return named & imaged & is_image("before") & is_image("after")
