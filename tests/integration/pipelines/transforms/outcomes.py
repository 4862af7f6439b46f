"""Runs records through steps and tells what became of each, in the order they went in."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from mainstem.pipelines.connector.wire import WIRE_TYPES
from mainstem.pipelines.transforms import compile_steps

SCHEMA = ", ".join(f"{name} {kind}" for name, kind in WIRE_TYPES.items())
DROPPED = "dropped"
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
    rows = [
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
    return spark.createDataFrame(rows, SCHEMA)


def outcomes(spark: SparkSession, steps: Steps, records: Sequence[Record]) -> list[Out | str]:
    """What became of every record: an ``Out``, or ``DROPPED``."""
    frame = compile_steps(steps, "transforms").marked(wire_frame(spark, records))
    found: list[Out | str] = [DROPPED] * len(records)
    for row in frame.collect():
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
    return found


def outcome(spark: SparkSession, steps: Steps, record: Record) -> Out:
    """What became of one record that is not dropped."""
    [found] = outcomes(spark, steps, [record])
    assert isinstance(found, Out), "dropped"
    return found
