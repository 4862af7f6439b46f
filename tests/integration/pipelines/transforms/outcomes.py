"""Runs records through steps and tells what became of each, in the order they went in."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from mainstem.client.consuming.arrow_columns import field_array
from mainstem.model.records.columns import BinaryColumn
from mainstem.pipelines.connector.wire import PLAIN_FIELDS, WIRE_TYPES
from mainstem.pipelines.transforms import compile_steps

SCHEMA = ", ".join(f"{name} {kind}" for name, kind in WIRE_TYPES.items())
DROPPED = "dropped"
UNSTEADY = {"uuid", "now", "timestamp_field"}
"""Words of steps whose outcome is another each time."""
Steps = Sequence[Mapping[str, Any]]


class Record(NamedTuple):
    """A record to send through; ``value`` is text, bytes or nothing."""

    value: str | bytes | None
    topic: str | None = "t"
    key: bytes | None = b"k"
    headers: Sequence[tuple[str, bytes | None]] | None = None


class Out(NamedTuple):
    """What came out; ``error`` if it was given up."""

    value: bytes | None
    topic: str | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None
    error: str | None
    step: str | None

    @property
    def text(self) -> str | None:
        return None if self.value is None else self.value.decode()

    @property
    def json(self) -> Any:
        return None if self.value is None else json.loads(self.value)


def step(kind: str, predicate: Mapping[str, Any] | None = None, /, **config: Any) -> dict[str, Any]:
    """A step as a pipeline file writes it."""
    entry: dict[str, Any] = {"type": kind, "config": config}
    return entry if predicate is None else entry | {"predicate": predicate}


def wire_frame(spark: SparkSession, records: Sequence[Record]) -> DataFrame:
    """A wire frame whose partition column numbers the records."""
    return spark.createDataFrame(_rows(records), SCHEMA)


def outcomes(spark: SparkSession, steps: Steps, records: Sequence[Record]) -> list[Out | str]:
    """What became of every record: an ``Out``, or ``DROPPED``.

    Each goes through twice: as it is, and with its fields where a source can parse it already.
    """
    frame = _twice(spark, records)
    marked = compile_steps(steps, "transforms").marked(frame)
    found: list[Out | str] = [DROPPED for _ in range(2 * len(records))]
    for row in marked.collect():
        headers = None
        if row.headers is not None:
            headers = tuple(
                (h.key, None if h.value is None else bytes(h.value)) for h in row.headers
            )
        assert found[row.partition] == DROPPED, "a record came out twice"
        found[row.partition] = Out(
            value=None if row.value is None else bytes(row.value),
            topic=row.topic,
            key=None if row.key is None else bytes(row.key),
            headers=headers,
            error=row.error,
            step=row.step,
        )
    as_they_are, parsed = found[: len(records)], found[len(records) :]
    if not UNSTEADY & set(re.findall(r"\w+", json.dumps(steps))):
        assert parsed == as_they_are
    return as_they_are


def _rows(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    return [
        (
            record.topic,
            record.key,
            record.value.encode() if isinstance(record.value, str) else record.value,
            None if record.headers is None else list(record.headers),
            number,
            None,
        )
        for number, record in enumerate(records)
    ]


def _twice(spark: SparkSession, records: Sequence[Record]) -> DataFrame:
    names = list(WIRE_TYPES)
    columns = StructType.fromDDL(SCHEMA)
    assert isinstance(columns, StructType)
    schema = to_arrow_schema(columns, timezone="UTC")
    table = pa.Table.from_pylist(
        [
            {**dict(zip(names, row, strict=True)), "headers": _headers(row[3])}
            for row in _rows([*records, *records])
        ],
        schema,
    )
    validity, offsets, data = table["value"].combine_chunks().buffers()
    fields = field_array(BinaryColumn(validity, offsets, data or b""), len(table))
    is_parsed = pa.array(number >= len(records) for number in range(len(table)))
    chosen = pc.if_else(is_parsed, fields, pa.nulls(len(table), fields.type))
    return spark.createDataFrame(table.append_column(PLAIN_FIELDS, chosen))


def _headers(given: Any) -> Any:
    return None if given is None else [{"key": key, "value": value} for key, value in given]


def outcome(spark: SparkSession, steps: Steps, record: Record) -> Out:
    """What became of one record that is not dropped."""
    [found] = outcomes(spark, steps, [record])
    assert isinstance(found, Out), "dropped"
    return found
