"""Compiles the steps of a pipeline file to a plan, and a plan to Spark expressions.

``compile_steps`` needs no Spark: all problems are found and reported before it starts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.pipelines.problems import FileProblem, Problems
from mainstem.pipelines.transforms.blobs import ExternalizeBlob
from mainstem.pipelines.transforms.casting import Cast
from mainstem.pipelines.transforms.change_events import ExtractNewRecordState, OutboxEventRouter
from mainstem.pipelines.transforms.computing import ComputeField
from mainstem.pipelines.transforms.keys import HeaderToValue, ValueToKey
from mainstem.pipelines.transforms.masking import MaskField, SetNull
from mainstem.pipelines.transforms.predicate import Predicate, StepProblem
from mainstem.pipelines.transforms.routing import ContentRouter, Filter, RegexRouter
from mainstem.pipelines.transforms.rows import Rows, StepContext, open_rows
from mainstem.pipelines.transforms.shaping import (
    Flatten,
    InsertField,
    RemoveField,
    ReplaceField,
    Unwrap,
)
from mainstem.pipelines.transforms.sql import OutputMode, Sql
from mainstem.pipelines.transforms.step import Step, read
from mainstem.pipelines.transforms.times import TimestampConverter, TimezoneConverter
from mainstem.pipelines.transforms.typed_columns import TransformResult, dead_of, pinned

STEPS: Final[dict[str, type[Step]]] = {
    "cast": Cast,
    "compute_field": ComputeField,
    "content_router": ContentRouter,
    "externalize_blob": ExternalizeBlob,
    "extract_new_record_state": ExtractNewRecordState,
    "filter": Filter,
    "flatten": Flatten,
    "header_to_value": HeaderToValue,
    "insert_field": InsertField,
    "mask_field": MaskField,
    "outbox": OutboxEventRouter,
    "regex_router": RegexRouter,
    "remove_field": RemoveField,
    "replace_field": ReplaceField,
    "set_null": SetNull,
    "sql": Sql,
    "timestamp_converter": TimestampConverter,
    "timezone_converter": TimezoneConverter,
    "unwrap": Unwrap,
    "value_to_key": ValueToKey,
}
ALIASES: Final = {"add_field": "insert_field", "rename_field": "replace_field"}
STEPS_MAX: Final = 200
_WITHOUT_PREDICATE: Final = {"sql"}


class StepEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step in a pipeline file."""

    type: str
    name: str | None = None
    predicate: Mapping[str, Any] | None = None
    config: Mapping[str, Any] = {}


class PlannedStep(Struct, frozen=True, kw_only=True):
    """A step that has been checked. ``label`` names it in dead letters and errors."""

    label: str
    where: str
    step: Step
    predicate: Predicate | None

    @property
    def asks(self) -> bool:
        """Whether its predicate needs the parsed value."""
        return self.predicate is not None and self.predicate.needs_fields

    @property
    def needs_fields(self) -> bool:
        """Whether the step needs the parsed value."""
        return self.step.needs_fields or self.asks

    def apply(self, rows: Rows) -> Rows:
        """Adds the step to the frame."""
        if self.needs_fields:
            rows = rows.parse()
        everywhere = StepContext(self.label, where=self.where)
        turn = everywhere
        if self.predicate is not None:
            turn = StepContext(self.label, self.predicate.column(), self.where)
        if self.asks:
            rows = rows.require_fields(everywhere)
        elif self.step.needs_fields:
            rows = rows.require_fields(turn)
        return self.step.apply(rows, turn)


class Plan(Struct, frozen=True):
    """Checked steps, in order. Applying them adds expressions to a frame and runs nothing."""

    steps: tuple[PlannedStep, ...] = ()

    @property
    def output_mode(self) -> OutputMode:
        """The output mode of a streaming query: append, unless an sql step sets another."""
        modes = [one.step.output_mode for one in self.steps if isinstance(one.step, Sql)]
        return modes[-1] if modes else "append"

    @property
    def reads_fields(self) -> bool:
        """Whether values are parsed before an sql step, which parses them itself."""
        first = next((one for one in self.steps if one.needs_fields or type(one.step) is Sql), None)
        return first is not None and first.needs_fields

    def apply(self, frame: DataFrame) -> TransformResult:
        """The processed records, and those that failed, each as a separate frame.

        Raises:
            Problems: Spark refuses the schema or the query of an sql step.
            InvalidRequest: the session's time zone is not UTC.
        """
        if not self.steps:
            return TransformResult(frame, None)
        rows = self._run(frame)
        marked = _pinned_marks(rows)
        good = marked.where(F.col("error").isNull()).drop("error", "step")
        dead = dead_of(marked)
        for earlier in rows.set_aside:
            dead = earlier.unionByName(dead)
        return TransformResult(good, dead)

    def marked(self, frame: DataFrame) -> DataFrame:
        """All records in one frame: wire columns, and ``error`` and ``step`` where one failed.

        Like ``apply``, but the source is read once; the records that failed are unmodified.
        """
        rows = self._run(frame)
        marked = _pinned_marks(rows)
        for earlier in rows.set_aside:
            marked = marked.unionByName(earlier)
        return marked

    def _run(self, frame: DataFrame) -> Rows:
        zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
        if zone not in {"UTC", "Etc/UTC", "Z"}:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                f"the session's time zone is {zone}, but transforms require UTC",
                subject="spark.sql.session.timeZone",
                remedy='spark.conf.set("spark.sql.session.timeZone", "UTC")',
            )
        rows = open_rows(frame)
        for step in self.steps:
            rows = step.apply(rows)
        return rows


def compile_steps(steps: Sequence[Mapping[str, object]], where: str) -> Plan:
    """Checks the steps of a pipeline file; ``where`` is their path in it.

    Raises:
        Problems: all problems of the steps.
    """
    if len(steps) > STEPS_MAX:
        raise Problems([FileProblem(where, f"more than {STEPS_MAX} steps")], subject=where)
    problems: list[FileProblem] = []
    planned: list[PlannedStep] = []
    for index, given in enumerate(steps):
        found = _planned(given, f"{where}[{index}]")
        if isinstance(found, PlannedStep):
            planned.append(found)
        else:
            problems += found
    modes = {one.step.output_mode for one in planned if isinstance(one.step, Sql)}
    if len(modes) > 1:
        problems.append(
            FileProblem(where, "all sql steps of a pipeline must have the same output_mode")
        )
    if problems:
        raise Problems(problems, subject=where)
    return Plan(tuple(planned))


def step_schemas() -> dict[str, dict[str, Any]]:
    """The JSON Schema of every step's config, by the name of the step."""
    named = STEPS | {alias: STEPS[name] for alias, name in ALIASES.items()}
    return {name: msgspec.json.schema(kind) for name, kind in sorted(named.items())}


def _planned(given: object, where: str) -> PlannedStep | list[FileProblem]:
    entry = read(StepEntry, given, where)
    if isinstance(entry, list):
        return entry
    kind = STEPS.get(ALIASES.get(entry.type, entry.type))
    if kind is None:
        known = ", ".join(sorted({*STEPS, *ALIASES}))
        return [FileProblem(f"{where}.type", f"{entry.type!r} is not a step", f"one of {known}")]
    step = read(kind, entry.config, f"{where}.config")
    problems = _problems_of(step, f"{where}.config")
    predicate = None
    if entry.predicate is not None:
        predicate = read(Predicate, entry.predicate, f"{where}.predicate")
        problems += _problems_of(predicate, f"{where}.predicate")
        if entry.type in _WITHOUT_PREDICATE:
            remedy = "put the condition into WHERE"
            problems.append(
                FileProblem(f"{where}.predicate", "sql does not support a predicate", remedy)
            )
    if problems:
        return problems
    assert isinstance(step, Step)
    assert not isinstance(predicate, list)
    label = f"{where} ({entry.name or entry.type})"
    return PlannedStep(label=label, where=where, step=step, predicate=predicate)


def _problems_of(part: Step | Predicate | list[FileProblem], where: str) -> list[FileProblem]:
    """The problems of a part: those of its types, or else of its own check."""
    if isinstance(part, list):
        return part
    return list(_placed(part.problems(), where))


def _placed(found: Iterable[StepProblem], where: str) -> Iterator[FileProblem]:
    for place, message, remedy in found:
        yield FileProblem(f"{where}.{place}" if place else where, message, remedy)


def _pinned_marks(rows: Rows) -> DataFrame:
    marked = rows.close()
    return pinned(marked, {"error": F.col("error")})
