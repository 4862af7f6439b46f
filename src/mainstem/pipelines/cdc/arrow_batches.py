"""Change records as Arrow batches in the columns of the Spark source. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import pyarrow as pa

from mainstem.pipelines.cdc.envelope import ChangeRecord

Headers = tuple[tuple[str, bytes], ...]
ROWS_PER_ARROW_BATCH: Final = 10_000
SCHEMA: Final = (
    "topic string, key binary, value binary, headers array<struct<key:string,value:binary>>,"
    " timestamp timestamp"
)
ARROW: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)


def arrow(records: Iterable[ChangeRecord]) -> Iterator[pa.RecordBatch]:
    """Arrow batches of at most ``ROWS_PER_ARROW_BATCH`` rows."""
    waiting = iter(records)
    while chunk := list(islice(waiting, ROWS_PER_ARROW_BATCH)):
        topics, keys, values, times, headers, _ = zip(*chunk, strict=True)
        columns = (topics, keys, values, _listed(headers), times)
        arrays = [pa.array(each, field.type) for each, field in zip(columns, ARROW, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def _listed(headers: Sequence[Headers | None]) -> Sequence[object]:
    """The headers column; null for the records without headers, which are most."""
    if headers.count(None) == len(headers):
        return headers
    return [
        None if each is None else [{"key": key, "value": value} for key, value in each]
        for each in headers
    ]
