"""What table sinks do with a micro-batch: extract the columns of a schema, read rows in pieces.

rows = columns_of(batch, schema, context)     # values that do not match go to the dead letters
for piece in arrow_pieces(rows): ...        # at most one partition in the driver at a time
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.pipelines.connector.shapes import ConnectorContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def columns_of(
    batch: "DataFrame", schema: str, context: ConnectorContext, *, parts: bool = False
) -> "DataFrame":
    """The columns of a schema, extracted from JSON values, without tombstones.

    ``parts`` keeps the tombstones, and the fields of the record as ``_key``, ``_timestamp`` ...

    Raises:
        InvalidRequest: a value does not match and there is no dead-letter topic.
    """
    from mainstem.pipelines.transforms import structured

    good, dead = structured(batch if parts else batch.where("value is not null"), schema)
    assert dead is not None
    refuse(dead, context)
    return good if parts else good.select(*(n for n in good.columns if n not in _PARTS))


_PARTS = frozenset({"_topic", "_key", "_headers", "_partition", "_timestamp"})


def refuse(dead: "DataFrame", context: ConnectorContext) -> None:
    """Send records that can never be delivered to the dead letters, or stop the pipeline.

    Raises:
        InvalidRequest: there are some and there is no dead-letter topic.
    """
    if context.dead_letters is not None:
        if not dead.isEmpty():
            context.dead_letters.send(dead)
        return
    if found := dead.take(1):
        raise InvalidRequest(
            ErrorCode.INVALID_RECORD,
            f"a record cannot be written: {found[0]['error']}",
            subject=context.pipeline,
            remedy="set dead_letter_topic to store such records and continue",
        )


def arrow_pieces(rows: "DataFrame") -> Iterator[pa.RecordBatch]:
    """The rows in Arrow batches, in order; the driver has at most one partition in memory."""
    packed = rows.mapInArrow(_packed, "piece binary")
    for row in packed.toLocalIterator():
        with pa.ipc.open_stream(bytes(row.piece)) as stream:
            yield from stream


def _packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema) as stream:
            stream.write_batch(batch)
        piece = pa.array([out.getvalue().to_pybytes()], pa.binary())
        yield pa.RecordBatch.from_arrays([piece], ["piece"])


def table_columns(batch: "DataFrame", schema: str | None, context: ConnectorContext) -> "DataFrame":
    """The columns of a schema, or the fields of the record if there is none."""
    from mainstem.pipelines.connector.wire import as_wire

    return as_wire(batch) if schema is None else columns_of(batch, schema, context)


def arrow_reader(rows: "DataFrame") -> pa.RecordBatchReader | None:
    """The rows as a stream of Arrow batches; None when there are none."""
    pieces = arrow_pieces(rows)
    first = next(pieces, None)
    if first is None:
        return None
    return pa.RecordBatchReader.from_batches(first.schema, chain([first], pieces))


def column_names(schema: str) -> list[str]:
    """The names that a schema declares, parsed without Spark: checks run before it is started.

    Raises:
        ValueError: a column has no type.
    """
    names, depth, start = [], 0, 0
    for place, char in enumerate(schema + ","):
        depth += (char in "<(") - (char in ">)")
        if char != "," or depth:
            continue
        name, _, kind = schema[start:place].strip().replace(":", " ", 1).partition(" ")
        if not name or not _TYPE.fullmatch(kind.strip()):
            raise ValueError(f"not a column and its type: {schema[start:place].strip()!r}")
        names.append(name.strip("`"))
        start = place + 1
    return names


_TYPE = re.compile(
    r"(?i)(boolean|tinyint|byte|smallint|short|int|integer|bigint|long|float|real|double|date"
    r"|timestamp|timestamp_ntz|timestamp_ltz|string|binary|variant"
    r"|(decimal|dec|numeric|char|varchar)(\(.*\))?|(array|map|struct)\s*<.*>)"
    r"(\s+not\s+null)?(\s+comment\s.*)?"
)
