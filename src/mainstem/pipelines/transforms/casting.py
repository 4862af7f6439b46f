"""Converts values to other types: the ``cast`` step, and the handling of failed conversions."""

from collections.abc import Iterable
from typing import Final, Literal

from pyspark.sql import Column
from pyspark.sql import functions as F

from mainstem.pipelines.transforms.fields import (
    Change,
    edit,
    false,
    is_empty,
    is_string,
    text,
    true,
    value_at,
)
from mainstem.pipelines.transforms.predicate import StepProblem
from mainstem.pipelines.transforms.rows import Rows, StepContext, row_fields
from mainstem.pipelines.transforms.step import OnError, Step, path_problems

Type = Literal["string", "integer", "float", "boolean", "json"]
SHOWN_CHARACTERS_MAX: Final = 80
_TRUE: Final = ("true", "t", "yes", "y", "on", "1")
_FALSE: Final = ("false", "f", "no", "n", "off", "0")


class Cast(Step, frozen=True, kw_only=True):
    """Converts fields to another type: string, integer, float, boolean, json.

    Converting a fraction to an integer truncates it; ``json`` parses a string as JSON. Nulls stay
    null. Values that cannot be converted are handled as ``on_error`` specifies.
    """

    specs: dict[str, Type]
    on_error: OnError = "dead_letter"

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        return path_problems("specs", self.specs)

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Converts the fields that a record has and that are not null."""
        casts: dict[Type, Change] = {
            "string": lambda value: text(value).cast("variant"),
            "integer": lambda value: _integer(value).cast("variant"),
            "float": lambda value: _float(value).cast("variant"),
            "boolean": lambda value: _boolean(value).cast("variant"),
            "json": _json,
        }
        changes = {name: casts[wanted] for name, wanted in self.specs.items()}
        return convert(rows, changes, self.on_error, turn)


def convert(rows: Rows, converted: dict[str, Change], on_error: OnError, turn: StepContext) -> Rows:
    """Converts fields; a result of SQL's null means that the conversion failed."""

    def safely(change: Change) -> Change:
        def changed(value: Column) -> Column:
            new = change(value)
            fallback = value if on_error == "keep" else F.lit(None).cast("variant")
            return F.when(is_empty(value), value).otherwise(F.coalesce(new, fallback))

        return changed

    if on_error == "dead_letter":
        for name, change in converted.items():
            value = value_at(row_fields(), name)
            bad = ~is_empty(value) & change(value).isNull()
            shown = F.substring(F.to_json(value), 1, SHOWN_CHARACTERS_MAX)
            problem_text = F.concat(F.lit(f"{name} cannot be converted: "), shown)
            rows = rows.fail(turn, bad, problem_text)
    changes = {name: safely(change) for name, change in converted.items()}
    return rows.edit(lambda fields: edit(fields, changes), turn)


def _integer(value: Column) -> Column:
    number = F.try_variant_get(value, "$", "decimal(38,0)")
    truncated = F.try_variant_get(value, "$", "double").try_cast("decimal(38,0)")
    trimmed = F.trim(text(value))
    of_text = F.coalesce(
        F.when(trimmed.rlike(r"^[+-]?[0-9]+$"), trimmed.try_cast("decimal(38,0)")),
        F.when(trimmed.rlike(r"^[+-]?[0-9]+\.[0-9]*$"), _floor(trimmed)),
    )
    of_number = F.when(text(value).contains("."), _floor(text(value))).otherwise(number)
    of_boolean = F.try_variant_get(value, "$", "boolean").cast("int").cast("decimal(38,0)")
    return (
        F.when(is_string(value), of_text)
        .when(_is_boolean(value), of_boolean)
        .otherwise(F.coalesce(of_number, truncated))
    )


def _floor(decimal_text: Column) -> Column:
    """The integer part with its sign: rounds towards zero, as SQL casts."""
    return F.substring_index(decimal_text, ".", 1).try_cast("decimal(38,0)")


def _float(value: Column) -> Column:
    number = F.trim(text(value)).try_cast("double")
    finite = ~F.isnan(number) & (F.abs(number) < float("inf"))
    return F.when(_is_boolean(value), F.lit(None)).otherwise(F.when(finite, number))


def _boolean(value: Column) -> Column:
    word = F.lower(F.trim(text(value)))
    return F.when(word.isin(*_TRUE), true()).when(word.isin(*_FALSE), false())


def _json(value: Column) -> Column:
    return F.when(is_string(value), F.try_parse_json(text(value))).otherwise(value)


def _is_boolean(value: Column) -> Column:
    return F.schema_of_variant(value) == "BOOLEAN"
