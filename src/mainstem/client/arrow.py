"""Records as Arrow: the columns of Spark's Kafka source, without a copy of the bytes.

Needs ``mainstem[arrow]``.
"""

from typing import Any, Final

import pyarrow as pa

from mainstem.client.values import TopicPartition
from mainstem.model.columns import BinaryColumn, HeaderColumns, RecordColumns

HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


def record_schema(*, with_headers: bool) -> pa.Schema:
    """The columns of a topic."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestampType", pa.int32()),
    ]
    if with_headers:
        fields.append(pa.field("headers", HEADERS))
    return pa.schema(fields)


def record_batch(partition: TopicPartition, columns: RecordColumns) -> pa.RecordBatch:
    """The rows of one partition."""
    rows = columns.row_count
    arrays = [
        binary_array(columns.keys, rows),
        binary_array(columns.values, rows),
        pa.repeat(pa.scalar(partition.topic, pa.string()), rows),
        pa.repeat(pa.scalar(partition.partition, pa.int32()), rows),
        pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.offsets)]),
        pa.Array.from_buffers(TIMESTAMP, rows, [None, pa.py_buffer(columns.timestamps_us)]),
        pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(columns.timestamp_types)]),
    ]
    if columns.headers is not None:
        arrays.append(_header_array(columns.headers, rows))
    schema = record_schema(with_headers=columns.headers is not None)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def binary_array(column: BinaryColumn, rows: int, kind: Any = None) -> Any:
    """A column of byte strings, or of text."""
    return pa.Array.from_buffers(
        pa.binary() if kind is None else kind,
        rows,
        [_validity(column.validity), pa.py_buffer(column.offsets), pa.py_buffer(column.data)],
    )


def _header_array(headers: HeaderColumns, rows: int) -> Any:
    count = memoryview(headers.offsets).cast("i")[rows]
    names = binary_array(headers.names, count, pa.string())
    values = binary_array(headers.values, count)
    pairs = pa.Array.from_buffers(HEADERS.value_type, count, [None], children=[names, values])
    return pa.Array.from_buffers(
        HEADERS,
        rows,
        [_validity(headers.validity), pa.py_buffer(headers.offsets)],
        children=[pairs],
    )


def _validity(bits: bytes | None) -> Any:
    return None if bits is None else pa.py_buffer(bits)
