"""Tests of a pipeline's steps: input records, expected output records, no broker needed."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.pipelines.connector.wire import WIRE_TYPES
from mainstem.pipelines.file.loader import Pipeline, SourcePipeline
from mainstem.pipelines.file.model import Case, CaseRecord

SCHEMA = ", ".join(f"{name} {kind}" for name, kind in WIRE_TYPES.items())


class CaseResult(Struct, frozen=True):
    """The result of a case; each difference is a line."""

    case: str
    differences: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether the output is as expected."""
        return not self.differences


def run_case(case: Case, pipeline: Pipeline, spark: SparkSession) -> CaseResult:
    """Run the case's records through the pipeline's steps."""
    topic = pipeline.entry.topic if isinstance(pipeline, SourcePipeline) else None
    rows = [_row(record, topic) for record in case.input]
    frame = spark.createDataFrame(rows, SCHEMA)
    good, dead = pipeline.plan.apply(frame)
    differences = [
        *_compare("expect", case.expect, _shown(good)),
        *_compare("expect_dead", case.expect_dead, [] if dead is None else _shown(dead)),
    ]
    return CaseResult(case.name, tuple(differences))


def _row(record: CaseRecord, topic: str | None) -> tuple[object, ...]:
    value = record.value
    if value is not None and not isinstance(value, str):
        value = msgspec.json.encode(value).decode()
    moment = None
    if record.timestamp is not None:
        moment = datetime.fromisoformat(record.timestamp)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    headers = [(name, text.encode()) for name, text in record.headers.items()]
    return (
        record.topic or topic,
        None if record.key is None else record.key.encode(),
        None if value is None else value.encode(),
        headers or None,
        None,
        moment,
    )


def _shown(frame: DataFrame) -> list[dict[str, Any]]:
    """Records in the form of a test: text, and JSON where the value is JSON."""
    shown = []
    for row in frame.collect():
        fields = row.asDict()
        record: dict[str, Any] = {
            name: bytes(value).decode(errors="replace")
            if isinstance(value, bytes | bytearray)
            else value
            for name, value in fields.items()
            if name in {"topic", "key", "value", "error", "step"}
        }
        record["headers"] = {
            header["key"]: bytes(header["value"] or b"").decode(errors="replace")
            for header in fields.get("headers") or ()
        }
        shown.append(record)
    return shown


def _compare(
    what: str, expected: Sequence[Mapping[str, Any]], actual: list[dict[str, Any]]
) -> list[str]:
    """The differences; every expected record matches another record, and none is left over."""
    left = list(actual)
    differences = []
    for number, wanted in enumerate(expected):
        # The record at the same index first, so that the difference refers to the right one.
        near = left[0] if left else None
        found = next((each for each in left if not _mismatches(wanted, each)), None)
        if found is not None:
            left.remove(found)
        elif near is None:
            differences.append(f"{what}[{number}]: no record in the output")
        else:
            left.remove(near)
            reasons = "; ".join(_mismatches(wanted, near))
            differences.append(f"{what}[{number}]: {reasons}")
    differences += [f"{what}: unexpected record {_text(each)}" for each in left]
    return differences


def _mismatches(wanted: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    found = []
    for name, value in wanted.items():
        there = actual.get(name)
        if name == "value" and not isinstance(value, str) and isinstance(there, str):
            there = _parsed(there)
        is_equal = value in str(there) if name in {"error", "step"} else value == there
        if not is_equal:
            found.append(f"{name} is {_text(there)}, expected {_text(value)}")
    return found


def _parsed(text: str) -> object:
    try:
        parsed: object = msgspec.json.decode(text)
    except DECODE_ERRORS:
        return text
    return parsed


def _text(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()
