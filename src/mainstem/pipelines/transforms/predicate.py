"""Selects the records that a step applies to: all conditions must hold, or, negated, not all.

Tables, schemas and databases are those of change events (``source.table`` and so on), or the
``__table``, ``__schema`` and ``__db`` that ``extract_new_record_state`` left in a record. Patterns
are regular expressions that must match the whole name.
"""

import re
from collections.abc import Iterator
from functools import reduce
from typing import Any, Final

import msgspec
from msgspec import Struct
from pyspark.sql import Column
from pyspark.sql import functions as F

from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.pipelines.transforms.fields import constant, false, has, is_string, text, value_at
from mainstem.pipelines.transforms.paths import parse_path
from mainstem.pipelines.transforms.rows import change_source, change_word, row_fields

OPERATIONS: Final = {
    "insert": "c", "create": "c", "c": "c",
    "update": "u", "u": "u",
    "delete": "d", "d": "d",
    "snapshot": "r", "read": "r", "r": "r",
    "truncate": "t", "t": "t",
    "message": "m", "m": "m",
    "tombstone": "",
}  # fmt: skip
OPERATION_FIELD: Final = "__op"
PATTERN_CHARACTERS_MAX: Final = 10_000

StepProblem = tuple[str, str, str]
"""A problem: the path below the struct, the message, and the remedy."""


class FieldValue(Struct, frozen=True, forbid_unknown_fields=True):
    """A field and its required JSON value."""

    field: str
    value: Any


class Predicate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions on a record; all that are set must hold.

    ``operations`` are insert, update, delete, snapshot, truncate, message (of change events) and
    tombstone (a record without a value).
    """

    table: str | None = None
    tables: tuple[str, ...] = ()
    schema: str | None = None
    schemas: tuple[str, ...] = ()
    database: str | None = None
    topic: str | None = None
    topics: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    field_exists: str | None = None
    field_value: FieldValue | None = None
    negate: bool = False

    @property
    def needs_fields(self) -> bool:
        """Whether the parsed value is needed."""
        return any(
            (self.table, self.tables, self.schema, self.schemas, self.database, self.operations,
             self.field_exists, self.field_value)
        )  # fmt: skip

    def problems(self) -> Iterator[StepProblem]:
        """The problems of the predicate."""
        for one, many in (("table", "tables"), ("schema", "schemas"), ("topic", "topics")):
            if getattr(self, one) is not None and getattr(self, many):
                yield one, f"{one} and {many} are mutually exclusive", f"put all into {many}"
        for name in ("table", "tables", "schema", "schemas", "database", "topic", "topics"):
            for pattern in _listed(getattr(self, name)):
                if problem_text := pattern_problem(pattern):
                    yield name, problem_text, ""
        for word in self.operations:
            if word not in OPERATIONS:
                yield (
                    "operations",
                    f"{word!r} is not an operation",
                    f"one of {', '.join(OPERATIONS)}",
                )
        yield from self._named_badly()
        if self == Predicate(negate=self.negate):
            yield "", "the predicate has no condition", "add one, or remove the predicate"

    def _named_badly(self) -> Iterator[StepProblem]:
        if self.field_exists is not None and (problem_text := path_problem(self.field_exists)):
            yield "field_exists", problem_text, ""
        if self.field_value is not None and (problem_text := path_problem(self.field_value.field)):
            yield "field_value.field", problem_text, ""

    def column(self) -> Column:
        """Whether a record matches; never null."""
        conditions = [
            F.coalesce(condition, false()) for condition in (*self._named(), *self._of_content())
        ]
        met = reduce(Column.__and__, conditions)
        return ~met if self.negate else met

    def _named(self) -> Iterator[Column]:
        for patterns, name in (
            ((*_listed(self.table), *self.tables), "table"),
            ((*_listed(self.schema), *self.schemas), "schema"),
            (_listed(self.database), "db"),
        ):
            if patterns:
                left_over = text(value_at(row_fields(), f"__{name}"))
                yield matches_any(F.coalesce(change_source(name), left_over), patterns)
        if topics := (*_listed(self.topic), *self.topics):
            yield matches_any(F.col("topic"), topics)

    def _of_content(self) -> Iterator[Column]:
        if self.operations:
            left_over = text(value_at(row_fields(), OPERATION_FIELD))
            operation = F.when(F.col("value").isNull(), F.lit("")).otherwise(
                F.coalesce(change_word("op"), left_over)
            )
            yield operation.isin([OPERATIONS[word] for word in self.operations])
        if self.field_exists is not None:
            yield has(row_fields(), self.field_exists)
        if self.field_value is not None:
            found = value_at(row_fields(), self.field_value.field)
            yield equals(found, self.field_value.value)


def equals(found: Column, wanted: Any, *, plain: Column | None = None) -> Column:
    """Whether a value equals one of a pipeline file: ``1`` equals ``1.0`` but not ``"1"``.

    ``plain`` is the value as text, if it is available.
    """
    if isinstance(wanted, str):
        same = (text(found) if plain is None else plain) == wanted
        return same & is_string(found) if _reads_as_json(wanted) else same
    if isinstance(wanted, bool) or not isinstance(wanted, int | float):
        return F.to_json(found) == F.to_json(constant(wanted))
    number = F.try_variant_get(found, "$", "double")
    is_number = F.to_json(found).rlike(r"^-?[0-9]")
    return is_number & (number == F.lit(float(wanted)))


def _reads_as_json(plain: str) -> bool:
    """Whether a value other than a string could have this text."""
    try:
        msgspec.json.decode(plain)
    except DECODE_ERRORS:
        return False
    return True


def matches_any(subject: Column, patterns: tuple[str, ...]) -> Column:
    """Whether a whole text matches one of some regular expressions."""
    return subject.rlike(whole(*patterns))


def whole(*patterns: str) -> str:
    """One regular expression for texts that completely match one of several."""
    return "^(?:" + "|".join(f"(?:{pattern})" for pattern in patterns) + r")\z"


def pattern_problem(pattern: str) -> str:
    """The problem of a regular expression; empty if it is valid.

    Spark uses Java's syntax; this finds what is invalid in both dialects.
    """
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        return f"a pattern has at most {PATTERN_CHARACTERS_MAX} characters"
    if "(?P" in pattern:
        return f"{pattern!r} uses Python's syntax for named groups; use (?<name>...)"
    try:
        re.compile(_in_python(pattern))
    except re.error as error:
        return f"{pattern!r} is not a regular expression: {error}"
    return ""


def path_problem(name: str) -> str:
    """The problem of a field name; empty if it is valid."""
    try:
        parse_path(name)
    except ValueError as error:
        return str(error)
    return ""


def _in_python(pattern: str) -> str:
    """Replaces syntax that only Java has by an equivalent of Python."""
    pattern = re.sub(r"\\[pP]\{\w+\}|\\[pP]\w|\\[hHvVRX]", r"\\w", pattern)
    return re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", pattern).replace(r"\z", r"\Z")


def _listed(pattern: str | tuple[str, ...] | None) -> tuple[str, ...]:
    if pattern is None:
        return ()
    return pattern if isinstance(pattern, tuple) else (pattern,)
